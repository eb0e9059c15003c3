"""components/timers-nats: several Pods without a volume, and one timer engine only."""

import re

import pytest
import yaml

from shared.adapters.config.timers_address import NatsAddress
from shared.doctor.timer_engines import REPLICAS_MIN
from tests.manifests.composed import composed, overlay_of, pods
from tests.manifests.test_manifests import KNATIVE, ROOT, build, of_kind, pod_specs, settings_of

ALL = ("timers-nats", "timers-nats/credentials", "timers-nats/tls")
PRODUCTION, ON_NATS = (KNATIVE / "overlays" / name for name in ("production", "production-nats"))


def container(objects):
    (found,) = dict(pod_specs(objects))["timers"]["containers"]
    return found


def test_timers_run_the_same_function_without_a_volume():
    before, objects = container(composed()), composed("timers-nats")
    after = container(objects)
    same = ("image", "env", "ports", "resources", "securityContext", "terminationMessagePolicy")
    assert [before[field] for field in same] == [after[field] for field in same]
    assert [one["name"] for one in after["volumeMounts"]] == ["broker-token"]
    assert [one["name"] for one in dict(pod_specs(objects))["timers"]["volumes"]] == ["broker-token"]
    assert not of_kind(objects, "StatefulSet")
    assert of_kind(objects, "Trigger")["timers"] == of_kind(composed(), "Trigger")["timers"]


@pytest.mark.parametrize(
    ("components", "server"),
    [(ALL[:1], "nats://nats.nats.svc.cluster.local:4222"), (ALL, "tls://nats.nats.svc.cluster.local:4222")],
)
def test_settings_name_the_service_of_the_helm_chart_and_three_servers(components, server):
    settings = settings_of(composed(*components))
    assert settings.timers == NatsAddress((server,))
    assert settings.nats_replicas == REPLICAS_MIN


def test_address_in_an_overlay_replaces_that_of_the_component():
    """By a patch: some versions of kustomize let the literals of a component win over those of the overlay."""
    address = "tls://a.example.com:4222,tls://b.example.com:4222/mine"
    patch = f"- {{op: replace, path: /data/TTL_TIMERS, value: '{address}'}}"
    mine = {"target": {"kind": "ConfigMap", "name": "settings"}, "patch": patch}
    objects = overlay_of({"components": ALL, "patches": [mine]})
    expected = NatsAddress(("tls://a.example.com:4222", "tls://b.example.com:4222"), "mine")
    assert settings_of(objects).timers == expected


def test_number_of_servers_in_an_overlay_takes_precedence():
    mine = {"name": "settings", "namespace": "ttl-after-finished", "behavior": "merge"}
    generator = {**mine, "literals": ["TTL_NATS_REPLICAS=1"]}
    assert settings_of(overlay_of({"components": ALL, "configMapGenerator": [generator]})).nats_replicas == 1


def test_documented_address_and_values_fit_the_component():
    """The page's values are for the release and the namespace that the component names."""
    page = (ROOT / "docs/explanation/timers.md").read_text()
    blocks = [yaml.safe_load(one) for one in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)]
    (values,) = [one for one in blocks if "config" in one]
    (overlay,) = [one for one in blocks if "patches" in one]
    assert values["config"]["cluster"] == {"enabled": True, "replicas": REPLICAS_MIN}
    assert values["config"]["jetstream"]["enabled"]
    assert re.search(r"--install nats nats/nats .*--namespace nats ", page, re.DOTALL)
    assert "| subscribe | `_INBOX.>` |" in page
    objects = overlay_of({"components": ["timers-nats"], **overlay})
    timers = settings_of(objects).timers
    assert isinstance(timers, NatsAddress)
    assert timers.stream == "ttl-timers-prod"


@pytest.mark.parametrize("others", [(), ("eventpolicy",)])
def test_files_of_the_settings_are_in_volumes_of_their_secrets(others):
    objects = composed(*ALL, *others)
    settings, volumes = settings_of(objects), dict(pod_specs(objects))["timers"]["volumes"]
    secrets = {one["name"]: one["secret"]["secretName"] for one in volumes if "secret" in one}
    folders = {one["mountPath"]: secrets.get(one["name"]) for one in container(objects)["volumeMounts"]}
    for path, secret in ((settings.nats_credentials, "nats-credentials"), (settings.nats_ca, "nats-tls")):
        assert path is not None
        assert folders[str(path.parent)] == secret
    assert all(one["readOnly"] for one in container(objects)["volumeMounts"])
    for name, spec in pod_specs(objects):
        if name != "timers":
            assert not [one for one in spec.get("volumes", []) if "secret" in one], name


def test_only_pods_of_timers_on_nats_have_the_label_of_the_network_policy():
    label = {"ttlafterfinished.dev/timers": "nats"}
    labelled = [name for name, labels in pods(composed("timers-nats")).items() if label.items() <= labels.items()]
    assert labelled == ["timers"]
    policy = of_kind(composed("network-policy"), "NetworkPolicy")["timers-to-nats"]
    assert policy["spec"]["podSelector"] == {"matchLabels": label}


@pytest.mark.parametrize("both", [("timers-sqlite", "timers-nats"), ("timers-nats", "timers-sqlite")])
def test_build_with_two_timer_engines_fails(both):
    with pytest.raises(AssertionError, match=r"no resource matches|test failed"):
        composed(*both)


def test_production_on_nats_differs_from_production_in_the_timers_only():
    files = [yaml.safe_load((folder / "kustomization.yaml").read_text()) for folder in (PRODUCTION, ON_NATS)]
    plain, on_nats = ([one.replace("timers-sqlite", "timers-nats") for one in each.pop("components")] for each in files)
    assert plain == on_nats
    assert files[0] == files[1]
    assert settings_of(build(ON_NATS)).nats_replicas == REPLICAS_MIN
