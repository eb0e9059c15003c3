"""components/eventpolicy: the types that each sender may send, and the callers that each function admits."""

import re

import pytest

from shared.adapters.config.settings import read_settings
from shared.adapters.config.timers_address import NatsAddress
from shared.adapters.events.cloudevents import TICK
from shared.messages import (
    ArchiveDone,
    ArchiveRequest,
    Message,
    ObjectArchived,
    ObjectDeleted,
    ObjectStopped,
    ObjectWarned,
    SweepStep,
    Timer,
    TimersSet,
)
from shared.standalone.triggers import Filter
from tests.builders import JOB, POD, TRAINJOB
from tests.manifests.composed import composed
from tests.manifests.test_manifests import KNATIVE, ROOT, Object, build, of_kind, publishers, settings_of

FUNCTIONS = {path.stem for path in (ROOT / "functions").glob("*.py")} - {"__init__"}
ACCOUNT = "system:serviceaccount:ttl-after-finished:"
IDENTITIES = {
    "Trigger": "eventing.knative.dev-trigger",
    "SinkBinding": "sources.knative.dev-sinkbinding",
    "ApiServerSource": "sources.knative.dev-apiserversource",
    "PingSource": "sources.knative.dev-pingsource",
}
OURS = {message.type for message in Message.__subclasses__()}
REPORTED = {f"dev.knative.apiserver.resource.{change}" for change in ("add", "update", "delete")}
TYPES = OURS | REPORTED | {TICK, "dev.knative.apiserver.ref.update", "dev.ttlafterfinished.made.up", "anything"}
# What each of our senders sends: a Trigger its function's replies, a function itself what it publishes beside them.
SENT = {
    ("Trigger", "schedule"): {TimersSet.type},
    ("Trigger", "timers"): set(),
    ("Trigger", "expire"): {ObjectDeleted.type, ObjectWarned.type, TimersSet.type},
    ("Trigger", "enforce"): {ObjectStopped.type, ObjectDeleted.type, TimersSet.type},
    ("Trigger", "archive"): {ObjectArchived.type, TimersSet.type},
    ("Trigger", "sweep"): {SweepStep.type},
    ("Trigger", "usage"): set(),
    ("ServiceAccount", "timers"): {Timer.type},
    ("ServiceAccount", "sweep"): {TimersSet.type, ObjectDeleted.type},
    ("SinkBinding", "source-sinkbinding"): {f"dev.knative.apiserver.resource.{verb}" for verb in ("add", "update")}
    | {SweepStep.type},
    ("ServiceAccount", "usage"): {ObjectDeleted.type},
    ("PingSource", "sweep"): {TICK},
    ("PingSource", "usage"): {TICK},
    **{("ApiServerSource", rule.kind.lower()): REPORTED for rule in (JOB, POD, TRAINJOB)},
}
VARIANTS = [
    pytest.param(names, id="-".join(names) or "alone")
    for names in (
        (),
        ("timers-sqlite", "source-watch", "network-policy"),
        ("timers-nats", "timers-nats/credentials", "timers-nats/tls", "network-policy"),
    )
]
PRODUCTION = [KNATIVE / "overlays/production", KNATIVE / "overlays/production-nats"]


@pytest.fixture(params=[*VARIANTS, *PRODUCTION], ids=lambda param: param.name if param in PRODUCTION else None)
def objects(request: pytest.FixtureRequest) -> tuple[Object, ...]:
    """The two-minute start with more components, and this one as the last before `release`; and what is shipped."""
    if request.param in PRODUCTION:
        return build(request.param)
    return composed(*request.param, "eventpolicy", base="overlays/knative")


def identity(kind: str, name: str) -> str:
    if kind == "ServiceAccount":
        return f"{ACCOUNT}{name}"
    account = f"{name}-oidc-{IDENTITIES[kind]}"
    assert len(account) <= 63, "Knative would shorten it"
    return f"{ACCOUNT}{account}"


def functions(objects: tuple[Object, ...]) -> dict[str, Object]:
    """The Pod template's spec of each function, whatever runs it."""
    found = {}
    for obj in objects:
        if obj["kind"] == "StatefulSet" or obj["apiVersion"] == "serving.knative.dev/v1":
            found[obj["metadata"]["name"]] = obj["spec"]["template"]["spec"]
    return found


def environment(spec: Object) -> dict[str, str]:
    """The container's variables, with `$(NAME)` replaced as Kubernetes does: by what stands before it."""
    (container,) = spec["containers"]
    found: dict[str, str] = {}
    for variable in container["env"]:
        found[variable["name"]] = re.sub(r"\$\((\w+)\)", lambda name: found.get(name[1], name[0]), variable["value"])
    return found


def policies_of(objects: tuple[Object, ...], subject: str) -> list[Object]:
    policies = of_kind(objects, "EventPolicy").values()
    return [policy for policy in policies if {"sub": subject} in policy["spec"]["from"]]


# Only our functions may send our types


@pytest.mark.parametrize(("kind", "name"), list(SENT))
def test_every_sender_may_send_its_own_types_only(objects, kind, name):
    policies = policies_of(objects, identity(kind, name))
    filters = [Filter.model_validate(part) for policy in policies for part in policy["spec"]["filters"]]
    admitted = {type_ for type_ in TYPES if filters and all(part.holds({"type": type_}) for part in filters)}

    assert admitted == SENT[kind, name]
    # Of several policies Knative asks only the first by name for its filters.
    assert len(policies) == (1 if SENT[kind, name] else 0)


def test_only_known_senders_are_admitted(objects):
    known = {identity(*sender) for sender in SENT}
    for name, policy in of_kind(objects, "EventPolicy").items():
        for sender in policy["spec"]["from"]:
            assert sender.keys() == {"sub"}, f"{name}: a ref that cannot be resolved makes the Broker not ready"
            assert sender["sub"] in known, name


def test_every_policy_selects_the_broker_only(objects):
    (broker,) = of_kind(objects, "Broker")
    for policy in of_kind(objects, "EventPolicy").values():
        # Without `to` it would be for the Broker's own channel too, whose policy is Knative's.
        assert policy["spec"]["to"] == [
            {"ref": {"apiVersion": "eventing.knative.dev/v1", "kind": "Broker", "name": broker}}
        ]
        assert policy["metadata"]["namespace"] == "ttl-after-finished"


def test_every_event_type_has_a_sender():
    of_foreign_archivers = {ArchiveRequest.type, ArchiveDone.type}  # an operator admits the archiver that is used
    assert set().union(*SENT.values()) & OURS == OURS - of_foreign_archivers


def test_every_sender_to_the_broker_has_a_policy(objects):
    for name in set(publishers(objects)) - set(of_kind(objects, "ContainerSource")):
        assert policies_of(objects, identity("ServiceAccount", name)), name
    for kind in ("ApiServerSource", "PingSource"):
        for name in of_kind(objects, kind):
            assert policies_of(objects, identity(kind, name)), f"{kind} {name}"
    for name in of_kind(objects, "ContainerSource"):
        assert policies_of(objects, identity("SinkBinding", f"{name}-sinkbinding")), name


# Only the Broker may call a function


def callers_of(objects: tuple[Object, ...], function: str) -> set[str]:
    """The identities of the Triggers that call it with events, or with those that another function would not take."""
    called = set()
    for name, trigger in of_kind(objects, "Trigger").items():
        dead_letters = trigger["spec"].get("delivery", {}).get("deadLetterSink", {})
        for target in (trigger["spec"]["subscriber"], dead_letters):
            if target.get("ref", {}).get("name") == function:
                called.add(identity("Trigger", name))
    return called


def test_every_function_admits_its_own_triggers_only(objects):
    assert functions(objects).keys() == FUNCTIONS
    for name, spec in functions(objects).items():
        settings = read_settings(
            environment={key: value for key, value in environment(spec).items() if key.startswith("TTL_CALLERS")}
        )
        assert set(settings.callers) == callers_of(objects, name), name
        assert settings.callers, name


def test_audiences_of_triggers_and_functions_are_equal(objects):
    expected = {environment(spec)["TTL_CALLERS_AUDIENCE"] for spec in functions(objects).values()}
    assert len(expected) == 1
    for name, trigger in of_kind(objects, "Trigger").items():
        assert {trigger["spec"]["subscriber"]["audience"]} == expected, name
        dead_letters = trigger["spec"].get("delivery", {}).get("deadLetterSink")
        # Without an audience of its own Knative would hand the dead letters' receiver a token for the Broker's filter.
        assert dead_letters is None or {dead_letters["audience"]} == expected, name


def test_every_function_can_read_the_keys(objects):
    for name, spec in functions(objects).items():
        mounts = {mount["mountPath"]: mount for mount in spec["containers"][0].get("volumeMounts", [])}
        if spec.get("automountServiceAccountToken", True):
            continue
        mount = mounts["/var/run/secrets/kubernetes.io/serviceaccount"]
        assert mount["readOnly"], name  # Knative Serving demands it
        (volume,) = [volume for volume in spec["volumes"] if volume["name"] == mount["name"]]
        token, certificate = volume["projected"]["sources"]
        assert token["serviceAccountToken"] == {"path": "token", "expirationSeconds": 3600}
        assert certificate["configMap"]["name"] == "kube-root-ca.crt"


def test_no_network_policy_keeps_a_function_from_the_keys(objects):
    policies = of_kind(objects, "NetworkPolicy")
    if policies:
        (selector,) = policies["functions-to-apiserver"]["spec"]["podSelector"]["matchExpressions"]
        assert functions(objects).keys() <= set(selector["values"])


def test_component_removes_nothing_from_the_base(objects):
    """Mounts and variables of the plain functions are all still there."""
    on_nats = isinstance(settings_of(objects).timers, NatsAddress)
    plain = functions(composed("timers-nats") if on_nats else build(KNATIVE / "overlays/knative"))
    for name, before in plain.items():
        after = functions(objects)[name]
        for field in ("env", "volumeMounts"):
            kept = after["containers"][0].get(field, [])
            assert [each for each in before["containers"][0].get(field, []) if each not in kept] == [], name
