"""components/prometheus: what it asks for exists, and each Pod is found once."""

import asyncio
import json
import re
from datetime import UTC, datetime, timedelta

import pytest
import yaml

from shared import __version__
from shared.adapters.telemetry.metrics import Metrics
from shared.core.decision.decide import Reason
from shared.core.decision.forecast import Forecast
from shared.core.values.objects import ObjectRef
from shared.messages import ObjectArchived, ObjectDeleted, ObjectStopped, SweepStep, Timer
from shared.ports import JournalResult, Verdict
from tests.builders import shipped_kinds
from tests.fakes import FakePublisher, FakeTelemetry
from tests.manifests.composed import composed, pods, selects
from tests.manifests.test_manifests import KNATIVE, ROOT, of_kind, pod_specs, settings_of
from tests.monitoring import DASHBOARD, RULES


class Engine:
    """A timer engine with one timer."""

    async def pending(self):
        return 1

    async def next_due(self):
        return datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def known():
    """Each series that the code can show, with its labels: one of everything is measured."""
    return asyncio.run(measured())


async def measured():
    metrics = Metrics(FakeTelemetry(), kinds=shipped_kinds(), sweep_interval=timedelta(minutes=1))
    metrics.watch_policy(lambda: True)
    ref, now = ObjectRef("batch/v1", "Job", "ns", "done", "uid"), datetime(2026, 1, 1, tzinfo=UTC)
    outcome = {"outcome": None, "finished_at": None, "ttl_from": "", "lateness_seconds": 1.0}
    metrics.record(Verdict.KEPT, ref, Reason.UNFINISHED, by="sweep")
    metrics.deleted(ObjectDeleted(ref=ref, due_at=now, deleted_at=now, **outcome), by="expire", missed=True)
    stopped = {"started_at": None, "deadline_from": "", "lateness_seconds": 1.0, "stops": 1}
    metrics.object_stopped(ObjectStopped(ref=ref, due_at=now, stopped_at=now, **stopped), by="enforce")
    archived = {"resource_version": "1", "digest": "", "location": "", "archived_at": now}
    metrics.archived(ObjectArchived(ref=ref, archive="main", **archived), size=1, by="archive")
    metrics.not_archived(ref, "main", now, failed=True)
    metrics.problem("a problem")
    metrics.dead_letter(Timer.type, 422)
    metrics.swept(shipped_kinds().of("batch", "Job")[0])
    forecast = Forecast()
    forecast.add("batch", "Job", now, now)
    metrics.forecast(forecast)
    metrics.delayed(ref, 1.0)
    metrics.recreate_loop(ref)
    metrics.usage_pass("")
    metrics.usage_ended({"looked_at": 1}, window_seconds=0.1)
    metrics.paced(shipped_kinds().of("batch", "Job")[0], 50, before=100, most=100)
    metrics.journaled(JournalResult.RECORDED)
    metrics.answered("expire", 503)
    await metrics.measuring(FakePublisher()).publish(SweepStep())
    metrics.count_timers(Engine, "sqlite")
    families = await asyncio.to_thread(lambda: list(metrics.registry.collect()))
    return {sample.name: set(sample.labels) for family in families for sample in family.samples}


@pytest.mark.parametrize("panel", DASHBOARD["panels"], ids=lambda panel: panel["title"])
def test_every_legend_uses_labels_of_its_query(panel):
    for target in panel["targets"]:
        grouped = ",".join(re.findall(r"by \(([^)]*)\)", target["expr"]))
        assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= {one.strip() for one in grouped.split(",")}


def test_dashboard_fits_its_grid_and_any_prometheus():
    boxes = [panel["gridPos"] for panel in DASHBOARD["panels"]]
    cells = [
        (x, y)
        for box in boxes
        for x in range(box["x"], box["x"] + box["w"])
        for y in range(box["y"], box["y"] + box["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    assert [one["name"] for one in DASHBOARD["templating"]["list"]] == ["datasource"]
    assert set(re.findall(r'"uid": "(\$[^"]*)"', json.dumps(DASHBOARD))) == {"${datasource}"}


def test_dashboard_is_found_by_its_label():
    config = of_kind(composed("prometheus"), "ConfigMap")["ttl-after-finished-dashboard"]
    assert config["metadata"]["labels"]["grafana_dashboard"] == "1"
    (text,) = config["data"].values()
    assert json.loads(text) == DASHBOARD


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_every_alert_has_a_description_and_a_command(rule):
    assert rule["annotations"]["summary"].rstrip().endswith(".")
    assert rule["annotations"]["runbook"].startswith("kubectl ttl doctor")
    assert rule["labels"]["severity"] in {"warning", "critical"}


def test_reference_names_every_metric_and_its_labels(known):
    text = (ROOT / "docs/reference/metrics.md").read_text()
    rows = re.findall(r"^\| `(ttl_\w+)` \|(?: \w+ \|)?(.*?)\|", text, re.MULTILINE)  # a column may name its type
    written = {name: set(re.findall(r"`(\w+)`", labels)) for name, labels in rows}
    ours = {
        re.sub("_(bucket|sum|count)$", "", name): labels - {"le"}
        for name, labels in known.items()
        if name.startswith("ttl_")
    }
    assert written == ours


# Who is scraped, and where


@pytest.mark.parametrize("components", [(), ("timers-sqlite",), ("timers-nats",), ("dead-letter",), ("source-watch",)])
def test_every_function_pod_is_scraped_at_its_metrics_port(components):
    objects = composed(*components, "prometheus")
    port = settings_of(objects).metrics_port
    monitor = of_kind(objects, "PodMonitor")["ttl-after-finished"]["spec"]
    labels = pods(objects)
    assert len(labels) >= 4
    for name, pod in labels.items():
        assert selects(monitor["selector"], pod), name
        assert pod["app.kubernetes.io/component"] == name

    (endpoint,) = monitor["podMetricsEndpoints"]
    assert not endpoint.keys() & {"port", "portNumber", "targetPort"}  # these keep declared ports only
    for address, target in {"10.0.0.1": f"10.0.0.1:{port}", "fd00::1": f"[fd00::1]:{port}"}.items():
        assert relabelled(endpoint["relabelings"], address) == {"__address__": target, "function": "expire"}


def test_pod_with_a_queue_proxy_is_scraped_once():
    (endpoint,) = of_kind(composed("prometheus"), "PodMonitor")["ttl-after-finished"]["spec"]["podMetricsEndpoints"]
    assert relabelled(endpoint["relabelings"], "10.0.0.1", container="queue-proxy") is None


def relabelled(rules, address, *, container="user-container"):
    """The labels of a target, as Prometheus makes them; None where it is dropped."""
    labels = {
        "__address__": f"{address}:8080",
        "__meta_kubernetes_pod_ip": address,
        "__meta_kubernetes_pod_container_name": container,
        "__meta_kubernetes_pod_container_init": "false",
        "__meta_kubernetes_pod_label_app_kubernetes_io_component": "expire",
    }
    for rule in rules:
        text = ";".join(labels[name] for name in rule["sourceLabels"])
        match = re.fullmatch(rule.get("regex", "(.*)"), text)
        if rule.get("action") == "drop":
            if match:
                return None
        elif match:
            labels[rule["targetLabel"]] = match.expand(rule.get("replacement", "$1").replace("$1", r"\1"))
    return {name: value for name, value in labels.items() if not name.startswith("__meta")}


def test_scraped_functions_do_not_scale_to_zero():
    objects = composed("dead-letter", "prometheus")
    for name in ("expire", "enforce", "archive", "sweep", "usage", "deadletter", "timers"):
        template = of_kind(objects, "Service", "serving.knative.dev")[name]["spec"]["template"]
        assert template["metadata"]["annotations"]["autoscaling.knative.dev/min-scale"] == "1", name


def test_metrics_port_is_not_used_by_knative():
    assert settings_of(composed("prometheus")).metrics_port not in {8008, 8012, 8013, 8022, 8080, 8112, 9090, 9091}


def test_metrics_are_disabled_without_the_component():
    assert settings_of(composed()).metrics_port is None


def test_standalone_is_scraped():
    objects = composed("standalone", "prometheus", base="namespace")
    monitor = of_kind(objects, "PodMonitor")["ttl-after-finished"]["spec"]
    assert selects(monitor["selector"], pods(objects)["standalone"])
    assert settings_of(objects).metrics_port == 9464
    for _, spec in pod_specs(objects):
        (container,) = spec["containers"]
        assert container["envFrom"][0]["configMapRef"]["name"] in of_kind(objects, "ConfigMap")


def test_shown_version_equals_the_installed_version():
    release = yaml.safe_load((KNATIVE / "components/release/kustomization.yaml").read_text())
    assert [image["newTag"] for image in release["images"]] == [__version__]
