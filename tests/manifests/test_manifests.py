"""The manifests as they would be applied: what `kubectl kustomize` makes of each overlay, without a cluster."""

import re
import shutil
from collections.abc import Callable, Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

import pytest
import yaml

from shared.adapters.config.settings import Settings, read_settings
from shared.adapters.config.timers_address import SqliteAddress
from shared.adapters.events.cloudevents import TICK
from shared.adapters.events.publisher import TOKEN_FILE
from shared.cli.main import COMMANDS
from shared.installation.rbac import STATEFUL, Right, lease_needs, needs_of, state_needs
from shared.messages import (
    ArchiveDone,
    ArchiveRequest,
    Message,
    ObjectArchived,
    ObjectDeleted,
    ObjectStopped,
    ObjectWarned,
    Purpose,
    SweepStep,
    Timer,
    TimersSet,
)
from shared.safeguards.state_schema import NAME as STATE
from shared.standalone.triggers import Delivery, Filter, Trigger, read_triggers
from tests.builders import kind_rule, not_none, shipped_kinds
from tests.kubectl import kustomize

ROOT = Path(__file__).parents[2]
KNATIVE = ROOT / "knative"
OVERLAYS = sorted(path.parent.name for path in KNATIVE.glob("overlays/*/kustomization.yaml"))
# Cloud Run speaks a dialect of its own: test_cloud_run.py.
BUILDS = ["base", *(f"overlays/{name}" for name in OVERLAYS if name != "cloud-run")]
SWEPT = ["overlays/knative", "overlays/production", "overlays/production-nats", "overlays/cloud-run/cluster"]
"""The functions that delete and use a Broker."""
COMPONENTS = sorted(str(path.parent.relative_to(KNATIVE)) for path in KNATIVE.glob("components/**/kustomization.yaml"))
FUNCTIONS = sorted(path.stem for path in (ROOT / "functions").glob("*.py") if path.stem != "__init__")
NO_TRIGGER = "deadletter"
"""The dead letter sink of the Triggers; it has its own component."""
TRIGGERED = [name for name in FUNCTIONS if name != NO_TRIGGER]
KINDS = {path.name: kind_rule(path.name) for path in (KNATIVE / "components" / "source-apiserver").iterdir()}
NAMESPACE = "ttl-after-finished"
ADMISSION = {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
CLUSTER_SCOPED = {"Namespace", "ClusterRole", "ClusterRoleBinding", *ADMISSION}
DELETERS = {"expire", "sweep", "standalone"}
STOPPERS = {"enforce", "standalone"}
REPLIES = {
    "schedule": {TimersSet.type},
    "timers": set(),
    "expire": {ObjectDeleted.type, ObjectWarned.type, TimersSet.type},
    "enforce": {ObjectStopped.type, ObjectDeleted.type, TimersSet.type},
    "archive": {ObjectArchived.type, TimersSet.type},
    "sweep": {SweepStep.type},
    "usage": set(),
}
PUBLISHED = {
    "timers": {Timer.type},
    "sweep": {ObjectDeleted.type, TimersSet.type},
    "usage": {ObjectDeleted.type},
}
"""Outside of a reply, by way of K_SINK."""
ROUNDS = {
    ("timers", Timer.type): "fires once, when it is due; what comes of it is due later",
    ("sweep", SweepStep.type): "ends with the last page of the last kind",
}
"""Where events may come round again, and what bounds it."""
Object = dict[str, Any]


@cache
def build(folder: Path) -> tuple[Object, ...]:
    return tuple(yaml.load_all(kustomize(folder), Loader=yaml.CSafeLoader))


@pytest.fixture(scope="module")
def with_component(tmp_path_factory: pytest.TempPathFactory):
    """Builds the base with some components: what an overlay of a user's own would be."""

    def make(*components: str) -> tuple[Object, ...]:
        folder = tmp_path_factory.mktemp("overlay")
        shutil.copytree(KNATIVE, folder / "knative")  # kustomize takes relative paths only
        overlay = folder / "overlay"
        overlay.mkdir()
        kustomization = {
            "resources": ["../knative/base"],
            "components": [f"../knative/{component}" for component in (*components, "components/release")],
        }
        (overlay / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
        return build(overlay)

    return make


@pytest.fixture(scope="module")
def builds(with_component) -> dict[str, tuple[Object, ...]]:
    joined = ("components/source-watch", "components/guardrails")
    return {name: build(KNATIVE / name) for name in BUILDS} | {name: with_component(name) for name in joined}


def in_each_build(check: Callable[[tuple[Object, ...]], None]) -> Callable[..., None]:
    """Make a test of a check: it holds in all builds, and each build in which it does not is reported."""

    def test(builds, subtests: pytest.Subtests) -> None:
        for name, objects in builds.items():
            with subtests.test(name):
                check(objects)

    test.__name__, test.__doc__ = check.__name__, check.__doc__
    return test


def of_kind(objects: tuple[Object, ...], kind: str, group: str = "") -> dict[str, Object]:
    return {
        obj["metadata"]["name"]: obj
        for obj in objects
        if obj["kind"] == kind and (not group or obj["apiVersion"].partition("/")[0] == group)
    }


def pod_specs(objects: tuple[Object, ...]) -> Iterator[tuple[str, Object]]:
    for obj in objects:
        if obj["kind"] in {"Deployment", "StatefulSet", "ContainerSource"} or obj["apiVersion"].startswith(
            "serving.knative.dev/"
        ):
            yield obj["metadata"]["name"], obj["spec"]["template"]["spec"]


def containers(objects: tuple[Object, ...]) -> Iterator[tuple[str, Object]]:
    for name, spec in pod_specs(objects):
        for container in [*spec.get("initContainers", []), *spec["containers"]]:
            yield name, container


def publishers(objects: tuple[Object, ...]) -> set[str]:
    """Those that send events to the Broker, beside what Knative sends for them."""
    functions = {name for name, spec in pod_specs(objects) if broker_token_of(spec)}
    return functions | set(of_kind(objects, "ContainerSource"))


def broker_token_of(spec: Object) -> Object | None:
    """The token for the Broker in a Pod's spec."""
    volumes = [one["projected"] for one in spec.get("volumes", []) if one["name"] == "broker-token"]
    return volumes[0]["sources"][0]["serviceAccountToken"] if volumes else None


def settings_of(objects: tuple[Object, ...]) -> Settings:
    (config,) = [obj for name, obj in of_kind(objects, "ConfigMap").items() if name.startswith("settings-")]
    return read_settings(environment=config["data"])


def rules_of(objects: tuple[Object, ...], account: str) -> list[Object]:
    """The rules that a service account ends up with, as the control plane adds them up."""
    roles = of_kind(objects, "ClusterRole") | of_kind(objects, "Role")
    bindings = [*of_kind(objects, "ClusterRoleBinding").values(), *of_kind(objects, "RoleBinding").values()]
    bound = [
        roles[binding["roleRef"]["name"]]
        for binding in bindings
        for subject in binding["subjects"]
        if (subject["kind"], subject["name"], subject["namespace"]) == ("ServiceAccount", account, NAMESPACE)
    ]
    rules = [rule for role in bound for rule in role.get("rules", [])]
    for selector in (one for role in bound for one in role.get("aggregationRule", {}).get("clusterRoleSelectors", [])):
        for role in of_kind(objects, "ClusterRole").values():
            if selector["matchLabels"].items() <= role["metadata"].get("labels", {}).items():
                rules += role["rules"]
    return rules


def rights_of(objects: tuple[Object, ...], account: str) -> set[tuple[str, str, str]]:
    return {
        (group, resource, verb)
        for rule in rules_of(objects, account)
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


# Every build


@in_each_build
def test_objects_of_a_build_are_unique(objects):
    names = [(obj["apiVersion"], obj["kind"], obj["metadata"]["name"]) for obj in objects]
    assert len(names) == len(set(names))


@in_each_build
def test_every_object_has_the_labels(objects):
    for obj in objects:
        labels = obj["metadata"].get("labels", {})
        where = f"{obj['kind']} {obj['metadata']['name']}"
        assert labels.get("app.kubernetes.io/name") == NAMESPACE, where
        assert labels.get("app.kubernetes.io/part-of") == NAMESPACE, where
        assert labels.get("app.kubernetes.io/component"), where
        assert labels.get("app.kubernetes.io/version") == "0.1.0", where


@in_each_build
def test_every_namespaced_object_is_in_the_namespace_of_the_build(objects):
    for obj in objects:
        if obj["kind"] not in CLUSTER_SCOPED:
            assert obj["metadata"].get("namespace") == NAMESPACE, f"{obj['kind']} {obj['metadata']['name']}"


@in_each_build
def test_namespace_enforces_the_restricted_pod_security_standard(objects):
    (namespace,) = of_kind(objects, "Namespace").values()
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"


@in_each_build
def test_every_container_meets_the_restricted_standard(objects):
    found = list(containers(objects))
    assert found
    for name, container in found:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"},
        }, name


@in_each_build
def test_every_container_has_resource_requests(objects):
    for name, container in containers(objects):
        assert {"cpu", "memory"} <= container["resources"]["requests"].keys(), name
        assert "memory" in container["resources"]["limits"], name


@in_each_build
def test_every_container_keeps_its_last_log_as_termination_message(objects):
    """The error about an invalid setting is then in the Pod's status, where doctor finds it."""
    for name, container in containers(objects):
        assert container["terminationMessagePolicy"] == "FallbackToLogsOnError", name


@in_each_build
def test_every_image_has_the_same_pinned_version(objects):
    images = {container["image"] for _, container in containers(objects)}
    (image,) = images
    assert re.fullmatch(r"ghcr\.io/ttl-after-finished/ttl-after-finished:\d+\.\d+\.\d+", image)


def test_version_is_in_one_file_only():
    version = re.compile(r"newTag|app\.kubernetes\.io/version|image: \S+:\d")
    by_hand = [path for path in KNATIVE.rglob("*.yaml") if KNATIVE / "chart" not in path.parents]
    assert [path.parent.name for path in by_hand if version.search(path.read_text())] == ["release"]


@in_each_build
def test_settings_are_valid_and_mounted_by_their_hash(objects):
    settings_of(objects)
    (name,) = [name for name in of_kind(objects, "ConfigMap") if name.startswith("settings-")]
    assert re.fullmatch(r"settings-\w{10}", name)
    for where, container in containers(objects):
        assert container["envFrom"] == [{"configMapRef": {"name": name}}], where


@in_each_build
def test_settings_name_the_namespace_of_the_build(objects):
    assert settings_of(objects).home_namespace == NAMESPACE


@in_each_build
def test_timers_in_a_file_are_stored_on_a_volume_and_other_timers_need_none(objects):
    address = settings_of(objects).timers
    folders = [str(address.path.parent)] if isinstance(address, SqliteAddress) else []
    for name, container in containers(objects):
        tokens = {"account", "broker-token"}
        mounts = [mount["mountPath"] for mount in container.get("volumeMounts", []) if mount["name"] not in tokens]
        assert mounts == (folders if name in {"timers", "standalone"} else []), name


@in_each_build
def test_every_used_service_account_exists(objects):
    accounts = of_kind(objects, "ServiceAccount")
    for name, spec in pod_specs(objects):
        assert spec["serviceAccountName"] == name
        assert name in accounts
    for source in of_kind(objects, "ApiServerSource").values():
        assert source["spec"]["serviceAccountName"] in accounts


# Rights


@in_each_build
def test_only_expire_and_sweep_can_delete_and_only_enforce_can_patch(objects):
    for account in of_kind(objects, "ServiceAccount"):
        verbs = {verb for _, _, verb in rights_of(objects, account)}
        assert "*" not in verbs
        assert not verbs & {"deletecollection", "escalate", "bind", "impersonate"}
        if account not in DELETERS:
            assert "delete" not in verbs, account
        if account not in STOPPERS:
            assert "patch" not in verbs, account


@pytest.mark.parametrize("folder", ["base", "overlays/knative"])
def test_schedule_and_timers_have_no_rights_and_no_token(folder):
    objects = build(KNATIVE / folder)
    for name in ("schedule", "timers"):
        assert rules_of(objects, name) == [], name
        assert of_kind(objects, "ServiceAccount")[name]["automountServiceAccountToken"] is False, name
        assert dict(pod_specs(objects))[name]["automountServiceAccountToken"] is False, name


@in_each_build
def test_aggregated_roles_have_no_rules_in_the_manifests(objects):
    for role in of_kind(objects, "ClusterRole").values():
        assert ("aggregationRule" in role) != ("rules" in role), role["metadata"]["name"]


@in_each_build
def test_every_binding_names_a_role_and_an_account_of_the_build(objects):
    roles = of_kind(objects, "ClusterRole").keys() | of_kind(objects, "Role").keys()
    for binding in [*of_kind(objects, "ClusterRoleBinding").values(), *of_kind(objects, "RoleBinding").values()]:
        assert binding["roleRef"]["name"] in roles
        for subject in binding["subjects"]:
            assert subject["name"] in of_kind(objects, "ServiceAccount")


def test_base_is_a_dry_run_without_sources_or_rights_on_kinds():
    objects = build(KNATIVE / "base")
    assert settings_of(objects).dry_run
    assert not of_kind(objects, "ApiServerSource")
    assert not of_kind(objects, "PingSource")
    for account in of_kind(objects, "ServiceAccount"):
        about_namespaces = {("", "namespaces", "get"), ("", "namespaces", "list")}
        own = {(right.group, right.resource, right.verb) for right in state_needs(NAMESPACE)}
        shared = {
            ("", "events", "create"),
            ("events.k8s.io", "events", "create"),
            ("", "resourcequotas", "list"),
            ("apiregistration.k8s.io", "apiservices", "list"),
        }
        assert rights_of(objects, account) <= {*shared, *about_namespaces, *own}, account


@pytest.mark.parametrize("folder", [build for build in BUILDS if build != "base"])
def test_every_account_has_exactly_the_rights_that_the_code_uses(folder):
    objects = build(KNATIVE / folder)
    rules = shipped_kinds().parse_names(settings_of(objects).kinds).rules
    for account in of_kind(objects, "ServiceAccount"):
        role = "watch" if account == "source" and of_kind(objects, "ContainerSource") else account
        needed = needs_of(role, rules) | (lease_needs(NAMESPACE) if account == "standalone" else set())
        if account in STATEFUL:
            needed |= state_needs(NAMESPACE)
        if account == "deadletter":
            needed = frozenset({Right("", "events", "create", NAMESPACE)})
        assert rights_of(objects, account) == {(right.group, right.resource, right.verb) for right in needed}, account


def test_standalone_may_write_its_own_lease_only():
    objects = build(KNATIVE / "overlays/standalone")
    leases = [rule for rule in rules_of(objects, "standalone") if rule["resources"] == ["leases"]]
    assert {tuple(rule["verbs"]): rule.get("resourceNames") for rule in leases} == {
        ("create",): None,
        ("get", "update"): ["ttl-after-finished"],
    }


@pytest.mark.parametrize("folder", BUILDS)
def test_accounts_may_read_and_write_the_state_config_map_only(folder):
    objects = build(KNATIVE / folder)
    for account in set(STATEFUL) & of_kind(objects, "ServiceAccount").keys():
        rules = [rule for rule in rules_of(objects, account) if "configmaps" in rule["resources"]]
        assert [(rule["resourceNames"], rule["verbs"]) for rule in rules] == [([STATE], ["get", "update"])]


def test_state_is_shipped_without_data_so_that_apply_keeps_the_breaker_open():
    for folder in BUILDS:
        state = of_kind(build(KNATIVE / folder), "ConfigMap")[STATE]
        assert not state.keys() & {"data", "binaryData", "immutable"}, folder


def test_standalone_uses_a_lease_and_a_folder_that_it_may_write():
    objects = build(KNATIVE / "overlays/standalone")
    (container,) = dict(pod_specs(objects))["standalone"]["containers"]
    assert f"--lease-namespace={of_kind(objects, 'Role')['standalone']['metadata']['namespace']}" in container["args"]
    (mount,) = container["volumeMounts"]
    assert {"name": "TMPDIR", "value": mount["mountPath"]} in container["env"]  # all else is read-only
    address = settings_of(objects).timers
    assert isinstance(address, SqliteAddress)
    assert str(address.path.parent) == mount["mountPath"]


def test_standalone_needs_no_knative():
    objects = build(KNATIVE / "overlays/standalone")
    assert not [obj for obj in objects if "knative.dev" in obj["apiVersion"]]


def test_standalone_gets_the_kinds_of_the_settings():
    (container,) = dict(pod_specs(build(KNATIVE / "overlays/standalone")))["standalone"]["containers"]
    assert "--kinds=$(TTL_KINDS)" in container["args"]  # `run` takes them from its options only


# Kinds


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_component_of_a_kind_adds_its_rights_and_its_source(kind, with_component):
    rule = KINDS[kind]
    group, _, _ = rule.api_version.rpartition("/")
    objects = with_component(f"components/kind-{kind}", f"components/source-apiserver/{kind}")

    def verbs(account: str) -> set[str]:
        rights = rights_of(objects, account)
        return {verb for *resource, verb in rights if resource == [group, rule.plural]}

    assert verbs("expire") == {"get", "list", "delete"}
    assert verbs("sweep") == {"get", "list", "delete"}
    assert verbs("source") == {"get", "list", "watch"}
    (source,) = of_kind(objects, "ApiServerSource").values()
    assert source["metadata"]["name"] == kind
    (reported,) = source["spec"]["resources"]
    assert (reported["apiVersion"], reported["kind"]) == (rule.api_version, rule.kind)
    assert source["spec"]["namespaceSelector"] == {}  # all; without it: its own
    assert source["spec"]["mode"] == "Resource"


def test_source_reports_all_pods_except_those_of_the_functions():
    """The end of a Pod of `schedule` would otherwise start the next one."""
    objects = build(KNATIVE / "overlays/knative")
    sources = of_kind(objects, "ApiServerSource")
    (pods,) = sources["pod"]["spec"]["resources"]
    (expression,) = pods["selector"]["matchExpressions"]
    assert expression["operator"] == "NotIn"  # a Pod without the label is reported
    for name, service in of_kind(objects, "Service").items():
        labels = service["spec"]["template"]["metadata"]["labels"]
        assert labels[expression["key"]] in expression["values"], name
    assert all("selector" not in one for one in sources["job"]["spec"]["resources"])


@pytest.mark.parametrize("account", ["expire", "sweep"])
def test_kind_pod_allows_reading_the_owner_of_a_pod(account, with_component):
    assert ("batch", "jobs", "get") in rights_of(with_component("components/kind-pod"), account)


@pytest.mark.parametrize("folder", ["overlays/standalone", *SWEPT])
def test_enabled_kinds_are_the_kinds_with_rights(folder):
    objects = build(KNATIVE / folder)
    enabled = {rule.plural for rule in shipped_kinds().parse_names(settings_of(objects).kinds).rules}
    roles = of_kind(objects, "ClusterRole")
    assert {KINDS[name.rpartition("-")[2]].plural for name in roles if "-expire-" in name} == enabled
    if of_kind(objects, "Broker") and not of_kind(objects, "ContainerSource"):  # which watches all that are enabled
        assert {KINDS[name].plural for name in of_kind(objects, "ApiServerSource")} == enabled
    assert not settings_of(objects).dry_run


@pytest.mark.parametrize("folder", SWEPT)
def test_ping_schedule_equals_the_sweep_interval_of_the_settings(folder):
    objects = build(KNATIVE / folder)
    minutes = settings_of(objects).sweep_interval.total_seconds() / 60
    assert of_kind(objects, "PingSource")["sweep"]["spec"]["schedule"] == f"*/{minutes:.0f} * * * *"


# Wiring


@pytest.mark.parametrize("name", TRIGGERED)
def test_function_service_trigger_and_file_share_a_name(name, subtests):
    for folder in ("base", "overlays/knative"):
        with subtests.test(folder):
            assert_is_one_name(build(KNATIVE / folder), name)


def assert_is_one_name(objects: tuple[Object, ...], name: str) -> None:
    service = of_kind(objects, "Service", "serving.knative.dev")[name]
    trigger = of_kind(objects, "Trigger")[name]
    (container,) = service["spec"]["template"]["spec"]["containers"]
    env = {variable["name"]: variable["value"] for variable in container["env"]}
    assert env["FUNCTION_TARGET"] == name
    assert Path(env["FUNCTION_SOURCE"]).relative_to("/app") == Path("functions") / f"{name}.py"
    assert re.search(rf"^async def {name}\(", (ROOT / "functions" / f"{name}.py").read_text(), re.MULTILINE)
    assert trigger["spec"]["subscriber"]["ref"]["name"] == name
    assert (KNATIVE / "base" / f"{name}.yaml").is_file()


def test_services_and_triggers_equal_the_functions():
    objects = build(KNATIVE / "base")
    assert sorted(of_kind(objects, "Service", "serving.knative.dev")) == TRIGGERED
    assert sorted(of_kind(objects, "Trigger")) == TRIGGERED
    assert sorted(REPLIES) == TRIGGERED


def test_runner_reads_the_applied_triggers():
    applied = {name: Trigger.model_validate(obj) for name, obj in of_kind(build(KNATIVE / "base"), "Trigger").items()}
    assert {trigger.name: trigger for trigger in read_triggers(KNATIVE / "base")} == applied


def test_function_does_not_receive_its_own_reply_unless_it_continues_a_sweep():
    heard = {
        (trigger.name, type_)
        for trigger in read_triggers(KNATIVE / "base")
        for type_ in REPLIES[trigger.name]
        if trigger.matches({"type": type_})
    }
    assert heard == {("sweep", SweepStep.type)}


@pytest.mark.parametrize("name", TRIGGERED)
def test_trigger_retries_for_the_documented_time(name):
    """The sum of the pauses in seconds equals the comment beside each `retry`."""
    delivery = of_kind(build(KNATIVE / "base"), "Trigger")[name]["spec"]["delivery"]
    pauses = Delivery.model_validate(delivery)
    waited = sum(pauses.pause_seconds(retries) for retries in range(pauses.retry))
    assert (
        round(waited)
        == {"schedule": 3, "timers": 51, "expire": 3, "enforce": 3, "archive": 3, "sweep": 127, "usage": 10}[name]
    )
    assert pauses.backoff_policy == "exponential"
    assert pauses.timeout


def events_of(type_: str) -> list[dict[str, str]]:
    """The attributes that a Trigger can filter on: a timer that fires has its purpose, too."""
    return [{"type": type_, "purpose": purpose} for purpose in Purpose] if type_ == Timer.type else [{"type": type_}]


def ways(objects: tuple[Object, ...]) -> set[tuple[str, str, str]]:
    """Which function sends which type to which function; a Trigger is named as the function it is for."""
    filters = {
        name: [Filter.model_validate(one) for one in trigger["spec"].get("filters", [])]
        for name, trigger in of_kind(objects, "Trigger").items()
    }
    return {
        (sender, type_, hearer)
        for sender in REPLIES
        for type_ in REPLIES[sender] | PUBLISHED.get(sender, set())
        for hearer in filters
        if any(all(one.holds(event) for one in filters[hearer]) for event in events_of(type_))
    }


def comes_round(ways_left: set[tuple[str, str, str]]) -> bool:
    try:
        TopologicalSorter({name: {to for sender, _, to in ways_left if sender == name} for name in REPLIES}).prepare()
    except CycleError:
        return True
    return False


@pytest.mark.parametrize("folder", BUILDS)
def test_cycle_of_events_exists_only_where_it_is_bounded(folder):
    found = ways(build(KNATIVE / folder))
    assert not comes_round({way for way in found if way[:2] not in ROUNDS})


@pytest.mark.parametrize("bounded", ROUNDS)
def test_each_bounded_cycle_is_a_cycle(bounded):
    assert comes_round({way for way in ways(build(KNATIVE / "base")) if way[:2] == bounded or way[:2] not in ROUNDS})


def test_sender_of_every_event_type_is_known():
    sent = {type_ for types in (*REPLIES.values(), *PUBLISHED.values()) for type_ in types}
    of_foreign_archivers = {ArchiveRequest.type, ArchiveDone.type}
    assert sent == {message.type for message in Message.__subclasses__()} - of_foreign_archivers


def test_every_request_event_has_a_receiver():
    triggers = read_triggers(KNATIVE / "base")
    for type_ in (TICK, TimersSet.type, Timer.type, SweepStep.type):
        for event in events_of(type_):
            assert len([trigger for trigger in triggers if trigger.matches(event)]) == 1, event


def test_functions_are_cluster_local():
    services = of_kind(build(KNATIVE / "overlays/knative"), "Service", "serving.knative.dev")
    for name in FUNCTIONS:
        assert services[name]["metadata"]["labels"]["networking.knative.dev/visibility"] == "cluster-local", name


def test_functions_that_publish_know_the_broker_and_have_a_token_for_it():
    objects = build(KNATIVE / "base")
    expected = {
        name
        for name in FUNCTIONS
        if re.search(r"Process\.(published|start_timers)", (ROOT / f"functions/{name}.py").read_text())
    }
    assert publishers(objects) == expected
    (broker,) = of_kind(objects, "Broker").values()
    place = f"{broker['metadata']['namespace']}/{broker['metadata']['name']}"
    assert settings_of(objects).sink == f"http://broker-ingress.knative-eventing.svc.cluster.local/{place}"
    for name in expected:
        (container,) = dict(pod_specs(objects))[name]["containers"]
        folders = {one["name"]: Path(one["mountPath"]) for one in container["volumeMounts"]}
        token = not_none(broker_token_of(dict(pod_specs(objects))[name]))
        assert token["audience"] == f"eventing.knative.dev/broker/{place}"
        assert folders["broker-token"] / token["path"] == TOKEN_FILE


def test_every_source_and_trigger_uses_the_broker():
    objects = build(KNATIVE / "overlays/knative")
    (broker,) = of_kind(objects, "Broker")
    senders = [obj for obj in objects if "sink" in obj.get("spec", {})]
    assert len(senders) == 3  # two sources and the ping
    assert {obj["spec"]["sink"]["ref"]["name"] for obj in senders} == {broker}
    assert {trigger["spec"]["broker"] for trigger in of_kind(objects, "Trigger").values()} == {broker}


# Components


def test_every_component_builds_with_the_base(with_component, subtests):
    for component in COMPONENTS:
        if component != "components/standalone":
            with subtests.test(component):
                with_component(component)


def test_every_trigger_gets_the_dead_letter_sink_of_the_component(with_component):
    objects = with_component("components/dead-letter")
    service = of_kind(objects, "Service", "serving.knative.dev")[NO_TRIGGER]
    (container,) = service["spec"]["template"]["spec"]["containers"]
    env = {variable["name"]: variable["value"] for variable in container["env"]}
    assert env == {"FUNCTION_TARGET": NO_TRIGGER, "FUNCTION_SOURCE": f"/app/functions/{NO_TRIGGER}.py"}
    assert container["envFrom"][0]["configMapRef"]["name"] in of_kind(objects, "ConfigMap")
    sinks = [trigger["spec"]["delivery"]["deadLetterSink"]["ref"] for trigger in of_kind(objects, "Trigger").values()]
    assert sinks == [{"apiVersion": "serving.knative.dev/v1", "kind": "Service", "name": NO_TRIGGER}] * len(TRIGGERED)


def test_dead_letter_function_may_only_write_events_in_its_namespace(with_component):
    objects = with_component("components/dead-letter")
    assert rights_of(objects, NO_TRIGGER) == {("", "events", "create")}
    (binding,) = [one for one in objects if one["kind"].endswith("Binding") and one["metadata"]["name"] == NO_TRIGGER]
    assert (binding["kind"], binding["metadata"]["namespace"]) == ("RoleBinding", NAMESPACE)


def test_source_watch_runs_the_watch_command_with_the_broker_as_sink(with_component):
    objects = with_component("components/source-watch", *(f"components/kind-{kind}" for kind in KINDS))
    (source,) = of_kind(objects, "ContainerSource").values()
    (container,) = source["spec"]["template"]["spec"]["containers"]
    program, command = container["command"]
    assert program == "ttl-after-finished"
    assert command in COMMANDS
    assert source["spec"]["sink"]["ref"]["name"] in of_kind(objects, "Broker")
    for rule in KINDS.values():
        group, _, _ = rule.api_version.rpartition("/")
        assert {(group, rule.plural, verb) for verb in ("list", "watch")} <= rights_of(objects, "source")


def test_source_watch_keeps_its_labels_across_upgrades(with_component):
    """Knative makes the template's labels the Deployment's selector, which cannot be changed."""
    (source,) = of_kind(with_component("components/source-watch"), "ContainerSource").values()
    assert source["spec"]["template"]["metadata"]["labels"] == {
        "app.kubernetes.io/name": NAMESPACE,
        "app.kubernetes.io/component": "source",
    }


def test_timers_on_a_claim_run_the_same_function_in_one_pod(with_component):
    plain, kept = build(KNATIVE / "base"), with_component("components/timers-sqlite")
    (before,) = dict(pod_specs(plain))["timers"]["containers"]
    (after,) = dict(pod_specs(kept))["timers"]["containers"]
    same = ("image", "env", "envFrom", "volumeMounts", "resources", "securityContext", "terminationMessagePolicy")
    assert [before[field] for field in same] == [after[field] for field in same]
    assert "timers" not in of_kind(kept, "Service", "serving.knative.dev")

    stateful = of_kind(kept, "StatefulSet")["timers"]
    assert stateful["spec"]["replicas"] == 1
    (claim,) = stateful["spec"]["volumeClaimTemplates"]
    assert claim["metadata"]["name"] == after["volumeMounts"][0]["name"]
    labels = stateful["spec"]["template"]["metadata"]["labels"]
    assert of_kind(kept, "Service", "v1")["timers"]["spec"]["selector"] == labels
    assert of_kind(kept, "Trigger")["timers"]["spec"]["subscriber"]["ref"] == {
        "apiVersion": "v1",
        "kind": "Service",
        "name": "timers",
    }


def test_timers_on_a_claim_can_start_write_and_receive_calls(with_component):
    objects = with_component("components/timers-sqlite")
    spec = of_kind(objects, "StatefulSet")["timers"]["spec"]
    # A Pod that cannot start, such as one with a wrong setting, would else be waited for, for ever.
    assert spec["podManagementPolicy"] == "Parallel"
    assert spec["volumeClaimTemplates"][0]["spec"]["accessModes"] == ["ReadWriteOnce"]
    user = re.search(r"^USER (\d+)", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert user
    assert spec["template"]["spec"]["securityContext"]["fsGroup"] == int(user[1])
    (container,) = spec["template"]["spec"]["containers"]
    (port,) = container["ports"]
    assert port["containerPort"] == 8080  # where the image listens by default
    assert container["readinessProbe"]["tcpSocket"] == {"port": port["name"]}  # a GET is refused
    (called,) = of_kind(objects, "Service", "v1")["timers"]["spec"]["ports"]
    assert (called["port"], called["targetPort"]) == (80, port["name"])
