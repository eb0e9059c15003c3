"""Check what deletions without a read need, if the installation has a key for them."""

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from shared.core.kinds.rule import Catalogue, KindRule
from shared.core.values.objects import get_text, list_mappings
from shared.doctor.findings import Finding, ok, unknown, warn
from shared.errors import TtlError
from shared.installation.guard_status import GuardState, read_guard
from shared.installation.inventory import Inventory, environment_of, name_of
from shared.installation.place import Place

if TYPE_CHECKING:  # the client takes half a second to load, and offline commands do not need it
    from shared.adapters.kubernetes.cluster import KubernetesCluster

KEY = "TTL_PROOF_KEY"
_WHAT = "deletions without a read"
_CONDITION = "EventPoliciesReady"
_ORDER = "list components/proofs after components/source-watch in your overlay"


async def check_proofs(
    cluster: "KubernetesCluster", found: Inventory, rules: Iterable[KindRule], *, known: Catalogue, place: Place
) -> list[Finding]:
    """Report each condition that does not hold, so that `expire` reads the objects; nothing without a key.

    Args:
        cluster: The cluster, with the operator's credentials.
        found: The inventory.
        rules: The rules of the enabled kinds.
        known: All rules of the installation.
        place: The installation.
    """
    variables = {name_of(workload): environment_of(workload).keys() for _, workload in found.workloads()}
    if KEY not in variables.get("expire", ()):
        return []
    problems = [*_of_callers(variables["expire"], place)]
    problems += [*_of_brokers(found, place), *_of_setters(found, variables, place)]
    kinds = {rule.name: rule for rule in rules}
    problems += await _of_kinds(cluster, list(kinds.values()), known, place)
    detail = "an object is read if it has a controller or a finalizer, is ranked, is archived, or has changed"
    return problems or [ok(_WHAT, f"{', '.join(sorted(kinds))}; {detail}")]


def _of_callers(variables: Iterable[str], place: Place) -> Iterator[Finding]:
    if "TTL_CALLERS" not in variables:
        detail = "expire does not verify its callers (TTL_CALLERS): it reads each object"
        yield warn(_WHAT, detail, place.apply(components=["eventpolicy"]))


def _of_brokers(found: Inventory, place: Place) -> Iterator[Finding]:
    """Report each Broker without an EventPolicy in force: Knative then writes a reason, also if the status is True."""
    if problem := found.parts["Broker"].problem:
        yield unknown(_WHAT, problem, place)
    elif not found.all("Broker"):
        yield warn(_WHAT, "no EventPolicy is in force: the namespace has no Broker", place.apply())
    for broker in found.all("Broker"):
        about = next((one for one in list_mappings(broker, "status.conditions") if one.get("type") == _CONDITION), {})
        if get_text(about, "status") != "True" or get_text(about, "reason"):
            why = get_text(about, "message") or get_text(about, "reason") or f"it has no condition {_CONDITION}"
            detail = f"no EventPolicy is in force for the Broker {name_of(broker)}: {why}"
            is_off = get_text(about, "reason") == "OIDCDisabled"
            yield warn(_WHAT, detail, _enable_tokens(place) if is_off else place.apply(components=["eventpolicy"]))


def _enable_tokens(place: Place) -> str:
    data = '{"data":{"authentication-oidc":"enabled"}}'
    patch = shlex.join(["-n", "knative-eventing", "patch", "configmap", "config-features", "--type=merge", "-p", data])
    return f"{place.kubectl} {patch}    # and what docs/explanation/callers.md says to do next"


def _of_setters(found: Inventory, variables: Mapping[str, Iterable[str]], place: Place) -> Iterator[Finding]:
    """Report what sets timers without a proof."""
    for kind in ("ContainerSource", "ApiServerSource"):
        if problem := found.parts[kind].problem:
            yield unknown(_WHAT, problem, place)
    if KEY not in variables.get("sweep", (KEY,)):
        yield warn(_WHAT, f"sweep has no {KEY}: the timers that it sets have no proof", place.apply())
    for source in found.all("ContainerSource"):
        if KEY not in environment_of(source):
            detail = f"the ContainerSource {name_of(source)} has no {KEY}: its events lead to timers without a proof"
            yield warn(_WHAT, detail, place.apply(_ORDER, components=["source-watch", "proofs"]))
    if found.all("ApiServerSource"):
        names = ", ".join(sorted(map(name_of, found.all("ApiServerSource"))))
        detail = f"an ApiServerSource sends no proofs, so the objects that it reports are read: {names}"
        yield warn(_WHAT, detail, place.apply("use components/source-watch instead"))


async def _of_kinds(
    cluster: "KubernetesCluster", rules: Sequence[KindRule], known: Catalogue, place: Place
) -> list[Finding]:
    findings, unguarded, aggregated = [], [], []
    for rule in rules:
        state = await read_guard(cluster, known.of(rule.group, rule.kind), place.namespace)
        unguarded += [] if state is GuardState.CURRENT else [rule.name]
        try:
            aggregated += [rule.name] if await cluster.is_aggregated(rule) else []
        except TtlError:
            aggregated.append(rule.name)
    if unguarded:
        detail = f"no delete guard of this version is in force, so objects are read: {', '.join(unguarded)}"
        findings.append(warn(_WHAT, detail, place.guard(unguarded)))
    if aggregated:
        detail = f"served by an aggregated API server, or unknown, so objects are read: {', '.join(aggregated)}"
        findings.append(warn(_WHAT, detail, f"{place.kubectl} get apiservices"))
    return findings
