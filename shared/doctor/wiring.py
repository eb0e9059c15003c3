"""Check what routes events: Broker, Triggers and sources, and the address to which functions publish."""

from collections.abc import Iterator
from typing import Any

from shared.core.kinds.rule import KindRule
from shared.core.values.objects import get_in, get_text, list_mappings
from shared.doctor.findings import Finding, fail, ok, unknown, warn
from shared.doctor.workloads import describe_trouble, failing, is_ready
from shared.installation.installed import config_maps_of
from shared.installation.inventory import Inventory, Obj, environment_of, name_of
from shared.installation.kind_manifests import COMPONENTS, component_of, is_watchable
from shared.installation.place import Place
from shared.messages import Purpose, Timer
from shared.standalone.triggers import Filter

FUNCTIONS = ("schedule", "timers", "expire", "enforce", "archive", "sweep", "usage")
"""The functions that need a Trigger of their name."""

PUBLISHERS = ("timers", "sweep", "usage")
"""The functions that send events to the Broker, beside what Knative sends for them as their replies."""

_POD_LABELS = {
    "ApiServerSource": "eventing.knative.dev/sourceName",
    "ContainerSource": "sources.knative.dev/containerSource",
}
SOURCES = ("ApiServerSource", "ContainerSource", "PingSource", "SinkBinding")


def check_brokers(found: Inventory, place: Place) -> Iterator[Finding]:
    """Check every Broker of the namespace, and every Broker that a Trigger names."""
    wanted = {get_text(trigger, "spec.broker") for trigger in found.all("Trigger")} or {"default"}
    for name in sorted(wanted - set(map(name_of, found.all("Broker")))):
        if found.is_absent("Broker", name):
            yield fail(f"Broker {name}", "does not exist: no event is delivered", place.apply())
    for broker in found.all("Broker"):
        fix = place.command("describe", "broker", name_of(broker))
        yield _report("Broker", broker, get_text(broker, "status.address.url"), fix=fix)


def _report(kind: str, obj: Obj, state: str, *, fix: str) -> Finding:
    """Report why an object is not ready, with the fix; else its state."""
    what, trouble = f"{kind} {name_of(obj)}", describe_trouble(obj)
    return fail(what, trouble, fix) if trouble else ok(what, state)


def check_triggers(found: Inventory, place: Place) -> Iterator[Finding]:
    """Check every Trigger of the namespace, and every Trigger that an installation needs."""
    for name in FUNCTIONS:
        if found.is_absent("Trigger", name):
            yield fail(f"Trigger {name}", f"does not exist: no event reaches {name}", place.apply())
    for trigger in found.all("Trigger"):
        name = name_of(trigger)
        missing = [
            f"its {role} {ref_kind(ref)} {get_text(ref, 'name')} does not exist"
            for role, ref in _destinations(trigger)
            if found.is_absent(ref_kind(ref), get_text(ref, "name"))
        ]
        if missing:
            # Knative resolves a subscriber only when it reconciles the Trigger: a deleted one stays "resolved".
            yield fail(f"Trigger {name}", "; ".join(missing), place.apply())
            continue
        if misrouted := _describe_misrouted(trigger):
            yield fail(f"Trigger {name}", misrouted, place.apply())
            continue
        is_applied = not failing(trigger) & {"SubscriberResolved", "BrokerReady"}
        fix = place.command("describe", "trigger", name) if is_applied else place.apply()
        yield _report("Trigger", trigger, f"to {get_text(trigger, 'status.subscriberUri')}", fix=fix)


def _describe_misrouted(trigger: Obj) -> str:
    """Describe why a function for timers gets those of other purposes, or none; empty if it gets its own."""
    name = name_of(trigger)
    wanted = [one for one in Purpose if one.function == name]
    if not wanted:
        return ""
    try:
        filters = [Filter.model_validate(one) for one in list_mappings(trigger, "spec.filters")]
    except ValueError:
        return ""  # a dialect that only Knative evaluates
    got = [one for one in Purpose if all(part.holds({"type": Timer.type, "purpose": one.value}) for part in filters)]
    if got == wanted:
        return ""
    expected = f"expected a filter for {Timer.type} with purpose: {' or '.join(wanted)}"
    return f"{expected}, got one that matches {'timers of ' + ' and '.join(got) if got else 'no timer'}"


def check_sources(found: Inventory, place: Place) -> Iterator[Finding]:
    """Check every source of the namespace, the SinkBindings that Knative makes for some, and the PingSource."""
    if not found.all("PingSource") and not found.parts["PingSource"].problem:
        detail = "none exists: no sweep runs, so an object whose event was lost is kept"
        yield fail("PingSource", detail, place.apply())
    for kind in SOURCES:
        for source in found.all(kind):
            fix = _fix_source(kind, source, found, place=place)
            yield _report(kind, source, _describe_sink(source), fix=fix)


def check_sinks(found: Inventory, place: Place) -> Iterator[Finding]:
    """Check that each function that publishes has the address of a Broker of the namespace, and a token for it."""
    brokers = {
        get_text(one, "status.address.url"): get_text(one, "status.address.audience") for one in found.all("Broker")
    }
    brokers.pop("", None)  # a Broker without an address is not ready, which `check_brokers` reports
    for workload in (obj for _, obj in found.workloads() if name_of(obj) in PUBLISHERS):
        what, sink = f"K_SINK of {name_of(workload)}", _sink_of(found, workload)
        if not brokers or sink is None:
            continue
        if sink not in brokers:
            detail = f"expected the Broker's address, {' or '.join(sorted(brokers))}, got {sink or 'none'}"
            yield fail(what, detail, place.apply(settings={"K_SINK": min(brokers)}))
        elif brokers[sink] and brokers[sink] not in _audiences(workload):
            yield fail(what, f"expected a token for {brokers[sink]} at /oidc/token, got none", place.apply())
        else:
            yield ok(what, sink)


def _sink_of(found: Inventory, workload: Obj) -> str | None:
    """The K_SINK of a workload, of its own `env` first; None if its ConfigMap could not be read."""
    if own := environment_of(workload).get("K_SINK"):
        return own
    if found.parts["ConfigMap"].problem:
        return None
    data = (get_in(found.get("ConfigMap", name) or {}, "data") for name in config_maps_of(workload))
    return next((str(one["K_SINK"]) for one in data if isinstance(one, dict) and "K_SINK" in one), "")


def _audiences(workload: Obj) -> set[str]:
    """For whom the tokens are that a workload's Pods get."""
    volumes = list_mappings(workload, "spec.template.spec.volumes")
    sources = (source for volume in volumes for source in list_mappings(volume, "projected.sources"))
    return {get_text(one, "serviceAccountToken.audience") for one in sources}


def check_coverage(found: Inventory, rules: tuple[KindRule, ...], place: Place) -> Iterator[Finding]:
    """Check that every enabled kind has a source; without one, only the sweep finds its objects, and late."""
    if found.all("ContainerSource") or found.parts["ApiServerSource"].problem:
        return  # our own watch takes the kinds from the settings
    watched = {
        (get_text(one, "apiVersion"), get_text(one, "kind"))
        for source in found.all("ApiServerSource")
        for one in list_mappings(source, "spec.resources")
    }
    for rule in rules:
        if (rule.api_version, rule.kind) not in watched:
            kept_out = "" if is_watchable(rule) else ", and an ApiServerSource cannot watch this kind"
            detail = f"none exists{kept_out}: only the sweep finds the objects, up to TTL_SWEEP_INTERVAL late"
            yield warn(f"source of {rule.plural}", detail, _fix_coverage(rule, place))


def _fix_coverage(rule: KindRule, place: Place) -> str:
    if name := component_of(rule.group, rule.plural):
        return place.apply(components=[f"source-apiserver/{name}"])
    if not is_watchable(rule):
        return place.apply(components=["source-watch"])
    return place.join(rule.name, with_source=True)


def check_unread(found: Inventory, place: Place) -> Iterator[Finding]:
    """Report the lists that could not be read; the checks that use a ConfigMap, Lease or NetworkPolicy report those."""
    for kind, problem in found.problems():
        if kind in ("ConfigMap", "Lease", "NetworkPolicy"):
            continue
        yield unknown(f"{kind}s", problem, place)


def ref_kind(ref: Any) -> str:
    """Return the kind of a reference, as a key of PARTS."""
    if get_text(ref, "apiVersion").startswith("serving.knative.dev/"):
        return f"Knative {get_text(ref, 'kind')}"
    return get_text(ref, "kind")


def _destinations(trigger: Obj) -> Iterator[tuple[str, Any]]:
    """Yield the subscriber and the dead letter sink of a Trigger, if they are in its namespace and in the inventory."""
    for role, path in (("subscriber", "spec.subscriber.ref"), ("dead letter sink", "spec.delivery.deadLetterSink.ref")):
        ref = get_in(trigger, path)
        own = get_text(ref, "namespace") in ("", get_text(trigger, "metadata.namespace"))
        if own and ref_kind(ref) in ("Knative Service", "Service"):
            yield role, ref


def _fix_source(kind: str, source: Obj, found: Inventory, *, place: Place) -> str:
    broken = failing(source)
    if "SufficientPermissions" in broken:
        return " && ".join(_fix_rights(one, place) for one in list_mappings(source, "spec.resources"))
    if "SinkProvided" in broken and any(map(is_ready, found.all("Broker"))):
        # Knative reconciled it before the Broker was ready, and does not retry. Any change makes it reconcile again.
        annotate = place.command("annotate", kind.lower(), name_of(source), "--overwrite")
        return f"{annotate} ttlafterfinished.dev/looked-at=$(date +%s)"
    if broken & {"SinkProvided", "SinkBindingAvailable"}:
        return place.apply()
    if kind in _POD_LABELS:
        return place.command("get", "pods", "-l", f"{_POD_LABELS[kind]}={name_of(source)}", "-o", "wide")
    return place.command("describe", kind.lower(), name_of(source))


def _fix_rights(resource: Any, place: Place) -> str:
    """Return the command that grants an ApiServerSource its rights on one of its kinds."""
    kind, group = get_text(resource, "kind").lower(), get_text(resource, "apiVersion").rpartition("/")[0]
    if COMPONENTS.get(kind, ("no group",))[0] == group:
        return place.apply_files(*(f"components/{one}{kind}/rbac.yaml" for one in ("kind-", "source-apiserver/")))
    return place.join(f"{kind}.{group}" if group else kind, with_source=True)


def _describe_sink(source: Obj) -> str:
    schedule = get_text(source, "spec.schedule")
    detail = f"at {schedule}, " if schedule else ""
    return f"{detail}to {get_text(source, 'status.sinkUri')}"
