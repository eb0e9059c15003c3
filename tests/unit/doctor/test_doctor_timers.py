"""What doctor says of the timers: their Pods, and what each engine needs."""

import copy
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from shared.adapters.config.settings import read_settings
from shared.adapters.kubernetes.bodies import METADATA
from shared.doctor.findings import Level
from shared.doctor.timer_engines import PodCount, check_timers, count_pods, port_of, report_answer, service_of
from shared.errors import ForbiddenError
from tests.builders import having, without
from tests.unit.doctor.test_doctor import PLACE, fixture, inventory, named, wrong

NATS = "nats://nats.nats.svc.cluster.local:4222"
SERVICE = "/api/v1/namespaces/nats/services/nats"
SECRETS = "/api/v1/namespaces/ttl-after-finished/secrets"
QUEUE = "cloudtasks:projects/p/locations/europe-west1/queues/timers"
SQLITE = {"TTL_TIMERS": "sqlite:/var/lib/ttl-after-finished/timers.db"}
NATS_SETTINGS = {"TTL_TIMERS": NATS, "TTL_NATS_REPLICAS": "3"}
TASKS_SETTINGS = {
    "TTL_TIMERS": QUEUE,
    "TTL_TASKS_TARGET": "https://timers.example.com",
    "TTL_TASKS_ACCOUNT": "timers@p.iam.gserviceaccount.com",
}
MIN, MAX = "autoscaling.knative.dev/min-scale", "autoscaling.knative.dev/max-scale"


class Answering:
    """A cluster whose Pods answer, and that has the given objects, by path."""

    def __init__(self, objects: Mapping[str, Any] | None = None, error: Exception | None = None):
        self.asked: list[str] = []
        self.accepted: list[str] = []
        self._objects, self._error = objects or {}, error

    async def probe(self, path):
        self.asked.append(path)
        return 405, "method: expected POST"

    async def request(self, method, path, *, accept="application/json", missing_ok=False):
        assert (method, missing_ok) == ("GET", True)
        self.accepted.append(accept)
        if self._error:
            raise self._error
        return SimpleNamespace(body=self._objects[path]) if path in self._objects else None


def timers(*, least: str | None = "1", most: str | None = "1", volumes: Mapping[str, Any] | None = None) -> Any:
    """The Knative Service `timers`; volumes by the path at which they are mounted, None for those of the fixture."""
    annotations = {name: value for name, value in ((MIN, least), (MAX, most)) if value is not None}
    service = having(fixture("service-timers"), "spec.template.metadata.annotations", annotations)
    if volumes is None:
        return service
    spec = service["spec"]["template"]["spec"]
    spec["volumes"] = [{"name": path.strip("/"), **volume} for path, volume in volumes.items()]
    spec["containers"][0]["volumeMounts"] = [{"name": path.strip("/"), "mountPath": path} for path in volumes]
    return service


def replicated(**volumes: Any) -> Any:
    return timers(least="2", most=None, volumes={f"/etc/{name}": volume for name, volume in volumes.items()})


def pods(count: int) -> list[Any]:
    return [named(fixture("pod-timers"), f"timers-{number}") for number in range(count)]


async def examined(cluster, settings, **parts):
    return await check_timers(cluster, inventory(**parts), read_settings(environment=settings), PLACE)


async def troubles(cluster, settings, **parts):
    """The level and the detail of each problem, and what fixes it."""
    found = await examined(cluster, settings, **parts)
    return [(one.level.value, one.what, one.detail, one.fix) for one in found if one.level is not Level.OK]


def has_service(*ports: int) -> dict[str, Any]:
    return {SERVICE: {"spec": {"ports": [{"port": port} for port in ports or (4222,)]}}}


# Pods


@pytest.mark.anyio
async def test_timers_pod_is_called_through_the_api_server():
    cluster: Any = Answering()
    assert wrong(await examined(cluster, SQLITE)) == {}
    name = fixture("pod-timers")["metadata"]["name"]
    assert cluster.asked == [f"/api/v1/namespaces/ttl-after-finished/pods/{name}:8080/proxy/"]


@pytest.mark.anyio
@pytest.mark.parametrize(("count", "level"), [(0, Level.FAIL), (2, Level.WARN)])
async def test_timers_in_a_file_need_exactly_one_pod(count, level):
    cluster: Any = Answering()
    finding, *_ = await examined(cluster, SQLITE, Pod=pods(count))
    assert (finding.what, finding.level) == ("timers", level)
    assert cluster.asked == []


@pytest.mark.anyio
async def test_every_pod_of_timers_on_nats_has_to_answer():
    cluster: Any = Answering(has_service())
    finding, *_ = await examined(cluster, NATS_SETTINGS, Pod=pods(2), Knative_Service=[replicated()])
    assert (finding.level, finding.detail) == (Level.OK, "2 Pods answer: timers-0, timers-1")
    assert len(cluster.asked) == 2

    class OneFails(Answering):
        async def probe(self, path):
            return (500, "oops") if "timers-1" in path else (405, "")

    failing: Any = OneFails(has_service())
    finding, *_ = await examined(failing, NATS_SETTINGS, Pod=pods(2), Knative_Service=[replicated()])
    assert (finding.level, finding.detail) == (Level.FAIL, "Pod timers-1 answered 500: oops")


@pytest.mark.anyio
async def test_timers_of_a_stateful_set_are_found_by_its_selector():
    labels = {"app.kubernetes.io/name": "ttl-after-finished", "app.kubernetes.io/component": "timers"}
    spec = {"selector": {"matchLabels": labels}, "replicas": 1, "volumeClaimTemplates": [{}]}
    engine = {"apiVersion": "apps/v1", "metadata": {"name": "timers", "labels": labels}, "spec": spec}
    kept = having(fixture("pod-timers"), "metadata.labels", labels)
    answers: Any = Answering()
    found = await examined(answers, SQLITE, Knative_Service=[], StatefulSet=[engine], Pod=[kept])
    assert [(one.level, one.what) for one in found] == [(Level.OK, "timers"), (Level.OK, "timer engine")]
    assert found[-1].detail == "sqlite, in a file on a claim"


@pytest.mark.anyio
async def test_only_pods_are_checked_if_the_settings_cannot_be_read():
    cluster: Any = Answering()
    found = await check_timers(cluster, inventory(Knative_Service=[timers(most=None)]), None, PLACE)
    assert [one.what for one in found] == ["timers"]


# How many may run


@pytest.mark.parametrize(
    ("workload", "count"),
    [
        (timers(), PodCount(1, 1)),
        (timers(least="2", most=None), PodCount(2, None)),
        (timers(least=None, most="0"), PodCount(0, None)),
        (timers(least="many", most="many"), PodCount(0, None)),
        (without(timers(), "spec.template.metadata"), PodCount(0, None)),
        ({"apiVersion": "apps/v1", "spec": {"replicas": 3}}, PodCount(3, 3)),
        ({"apiVersion": "apps/v1", "spec": {}}, PodCount(1, 1)),
    ],
)
def test_number_of_pods_is_read_from_the_manifest(workload, count):
    assert count_pods(workload) == count


@pytest.mark.anyio
@pytest.mark.parametrize("most", [None, "0", "2"])
async def test_timers_in_a_file_fail_if_more_than_one_pod_may_run(most):
    ((level, what, detail, fix),) = await troubles(Answering(), SQLITE, Knative_Service=[timers(most=most)])
    assert (level, what) == ("FAIL", "timer engine")
    assert "each has a file of its own" in detail
    assert "components/timers-nats" in fix


@pytest.mark.anyio
@pytest.mark.parametrize("settings", [SQLITE, NATS_SETTINGS], ids=["sqlite", "nats"])
async def test_timers_that_may_scale_to_zero_fail(settings):
    found = await troubles(Answering(has_service()), settings, Knative_Service=[timers(least="0", most="1")])
    assert ("FAIL", "timer engine") in [(level, what) for level, what, *_ in found]
    assert any("no timer fires" in detail for _, _, detail, _ in found)


@pytest.mark.anyio
async def test_timers_in_an_empty_dir_are_named_as_lost_with_their_pod():
    *_, engine = await examined(Answering(), SQLITE)
    assert engine.level is Level.OK  # overlays/knative is meant so
    assert "emptyDir" in engine.detail


# NATS


@pytest.mark.anyio
async def test_nats_with_several_pods_and_replicas_has_no_problem():
    cluster: Any = Answering(has_service())
    found = await examined(cluster, NATS_SETTINGS, Knative_Service=[replicated()])
    assert wrong(found) == {}
    assert {one.what: one.detail for one in found}["timer engine"] == (f"stream ttl-timers on 3 servers, at {NATS}")


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("workload", "replicas", "words"),
    [
        (timers(least="1", most=None), "3", "only one Pod"),
        (timers(least="2", most="1"), "3", "only one Pod"),
        (replicated(), "1", "its timers are lost"),
        (replicated(), "2", "no timer can be set"),
    ],
)
async def test_nats_without_a_spare_pod_or_server_warns(workload, replicas, words):
    settings = {**NATS_SETTINGS, "TTL_NATS_REPLICAS": replicas}
    ((level, what, detail, _),) = await troubles(Answering(has_service()), settings, Knative_Service=[workload])
    assert (level, what) == ("warn", "timer engine")
    assert words in detail


@pytest.mark.anyio
async def test_nats_service_that_does_not_exist_fails():
    ((level, what, _, fix),) = await troubles(Answering(), NATS_SETTINGS, Knative_Service=[replicated()])
    assert (level, what) == ("FAIL", "NATS Service nats/nats")
    assert "TTL_TIMERS" in fix


@pytest.mark.anyio
async def test_nats_service_without_the_port_fails():
    cluster = Answering(has_service(6222, 8222))
    ((level, _, detail, _),) = await troubles(cluster, NATS_SETTINGS, Knative_Service=[replicated()])
    assert level == "FAIL"
    assert detail == "TTL_TIMERS names port 4222: expected a port of the Service (6222, 8222)"


@pytest.mark.anyio
async def test_nats_service_that_may_not_be_read_is_unknown():
    cluster = Answering(error=ForbiddenError("services is forbidden"))
    ((level, _, detail, _),) = await troubles(cluster, NATS_SETTINGS, Knative_Service=[replicated()])
    assert (level, detail) == ("warn", "cannot be checked: services is forbidden")


@pytest.mark.anyio
async def test_nats_outside_of_the_cluster_is_not_looked_up():
    cluster = Answering()
    settings = {**NATS_SETTINGS, "TTL_TIMERS": "tls://connect.example.com:4222"}
    assert await troubles(cluster, settings, Knative_Service=[replicated()]) == []
    assert cluster.accepted == []


@pytest.mark.parametrize(
    ("host", "service"),
    [
        ("nats", ("here", "nats")),
        ("nats.messaging.svc", ("messaging", "nats")),
        ("nats.messaging.svc.cluster.local", ("messaging", "nats")),
        ("nats-0.nats-headless.messaging.svc.cluster.local", ("messaging", "nats-headless")),
        ("nats.messaging", None),
        ("nats.example.com", None),
        ("10.0.0.1", None),
        ("::1", None),
    ],
)
def test_service_is_read_from_the_name_of_its_host(host, service):
    assert service_of(host, "here") == service


CREDENTIALS = {**NATS_SETTINGS, "TTL_NATS_CREDENTIALS": "/etc/nats-credentials/user.creds"}
MOUNTED = {"nats-credentials": {"secret": {"secretName": "nats-credentials"}}}


@pytest.mark.anyio
async def test_secret_of_the_credentials_is_checked_without_its_data():
    cluster = Answering({**has_service(), f"{SECRETS}/nats-credentials": {}})
    assert await troubles(cluster, CREDENTIALS, Knative_Service=[replicated(**MOUNTED)]) == []
    assert cluster.accepted == ["application/json", METADATA]


@pytest.mark.anyio
async def test_missing_secret_fails_with_the_command_that_makes_it():
    workload = replicated(**MOUNTED)
    ((level, what, detail, fix),) = await troubles(Answering(has_service()), CREDENTIALS, Knative_Service=[workload])
    assert (level, what) == ("FAIL", "Secret nats-credentials")
    assert "TTL_NATS_CREDENTIALS" in detail
    assert fix == (
        "kubectl -n ttl-after-finished create secret generic nats-credentials --from-file=user.creds=YOUR_FILE"
    )


@pytest.mark.anyio
async def test_one_secret_with_several_files_is_checked_once():
    settings = {
        **NATS_SETTINGS,
        **{f"TTL_NATS_{name}": f"/etc/nats-tls/{key}" for name, key in (("CA", "ca.crt"), ("KEY", "tls.key"))},
    }
    workload = replicated(**{"nats-tls": {"secret": {"secretName": "nats-tls"}}})
    ((_, _, detail, fix),) = await troubles(Answering(has_service()), settings, Knative_Service=[workload])
    assert "TTL_NATS_CA and TTL_NATS_KEY" in detail
    assert fix.endswith("--from-file=ca.crt=YOUR_FILE --from-file=tls.key=YOUR_FILE")


@pytest.mark.anyio
async def test_credentials_outside_of_every_volume_fail():
    cluster = Answering(has_service())
    ((level, what, detail, _),) = await troubles(cluster, CREDENTIALS, Knative_Service=[replicated()])
    assert (level, what) == ("FAIL", "timer engine")
    assert "TTL_NATS_CREDENTIALS is /etc/nats-credentials/user.creds" in detail


@pytest.mark.anyio
async def test_missing_config_map_of_the_certificates_fails():
    settings = {**NATS_SETTINGS, "TTL_NATS_CA": "/etc/ca/ca.crt"}
    workload = replicated(ca={"configMap": {"name": "nats-ca"}})
    ((level, what, *_),) = await troubles(Answering(has_service()), settings, Knative_Service=[workload])
    assert (level, what) == ("FAIL", "ConfigMap nats-ca")


# Cloud Tasks


@pytest.mark.anyio
async def test_cloud_tasks_may_scale_to_zero():
    assert await troubles(Answering(), TASKS_SETTINGS, Knative_Service=[timers(least="0", most=None)], Pod=[]) == []


@pytest.mark.anyio
async def test_timers_outside_of_the_cluster_are_not_checked():
    trigger = named(fixture("trigger-ready"), "timers")
    trigger["spec"]["subscriber"] = {"uri": "https://timers.example.com"}
    (finding,) = await examined(Answering(), SQLITE, Knative_Service=[], Pod=[], Trigger=[trigger])
    assert (finding.level, finding.what) == (Level.OK, "timers")
    assert "https://timers.example.com" in finding.detail


@pytest.mark.anyio
@pytest.mark.parametrize("name", ["TTL_TASKS_TARGET", "TTL_TASKS_ACCOUNT"])
async def test_cloud_tasks_without_a_target_or_an_account_fails(name):
    settings = {key: value for key, value in TASKS_SETTINGS.items() if key != name}
    ((level, what, detail, fix),) = await troubles(Answering(), settings)
    assert (level, what) == ("FAIL", "timer engine")
    assert detail == f"TTL_TIMERS is cloudtasks, which needs {name}: expected a value, got none"
    assert name in fix


# Answers


def refused(code, message):
    return {"kind": "Status", "code": code, "message": message}


@pytest.mark.parametrize(
    ("status", "body", "level"),
    [
        (405, "method: expected POST of a CloudEvent, got GET", "ok"),
        (401, "expected a token", "ok"),
        (403, refused(403, 'pods "timers" is forbidden: User "x" cannot get resource "pods/proxy"'), "warn"),
        (503, refused(503, "error trying to reach service: connection refused"), "warn"),
        (502, "bad gateway", "FAIL"),
        (500, "oops", "FAIL"),
    ],
)
def test_timers_level_follows_from_the_answer(status, body, level):
    assert report_answer("timers-1", status, body, place=PLACE).level.value == level


def test_timers_behind_a_network_policy_are_ok_without_an_answer():
    body = refused(503, "error trying to reach service: i/o timeout")
    assert report_answer("timers-1", 503, body, place=PLACE, has_policies=True).level is Level.OK


def test_port_is_that_of_queue_proxy_if_there_is_one():
    plain = fixture("pod-timers")
    proxied = copy.deepcopy(plain)
    proxied["spec"]["containers"].append({"name": "queue-proxy", "ports": [{"containerPort": 8112}]})
    assert (port_of(plain), port_of(proxied), port_of({})) == (8080, 8012, 8080)
