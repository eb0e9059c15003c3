"""Check the API server: its answer, its clock, and the kinds that it serves."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from shared.adapters.clock import SERVER_AHEAD_MAX
from shared.core.kinds.rule import KindRule
from shared.core.values.objects import get_text, list_mappings
from shared.doctor.findings import Finding, fail, ok, unknown, warn
from shared.errors import AbsentKindError, TtlError
from shared.evaluation.namespaces_and_owners import list_unserved
from shared.installation.kubernetes_versions import OLDEST, TESTED, describe_version, parse_version
from shared.installation.place import Place
from shared.ports import Clock

if TYPE_CHECKING:  # the client takes half a second to load, and offline commands do not need it
    from shared.adapters.kubernetes.cluster import KubernetesCluster


SKEW_MAX = timedelta(seconds=2)
"""The difference of the clocks from which doctor warns, less the error of a Date header and of a slow answer."""

KNATIVE: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "Eventing": {
        "eventing.knative.dev/v1": ("brokers", "triggers"),
        "sources.knative.dev/v1": ("apiserversources", "containersources", "pingsources", "sinkbindings"),
    },
    "Serving": {"serving.knative.dev/v1": ("services",)},
}
UPGRADE = f"upgrade the cluster to Kubernetes {describe_version(OLDEST)} or later"
"""What to do if the API server is too old for admission policies."""

_INSTALL = {
    "Eventing": ("eventing.yaml",),
    "Serving": ("serving-crds.yaml", "serving-core.yaml"),
}


async def check_server(cluster: "KubernetesCluster", clock: Clock) -> tuple[list[Finding], datetime]:
    """Check the version and the clock of the API server.

    Returns:
        The findings, and an instant that the API server's clock has reached.

    Raises:
        TtlError: The API server does not answer, or rejects the credentials.
    """
    sent_at = clock.now()
    answer = await cluster.request("GET", "/version")
    received_at = clock.now()
    if answer is None:
        raise TtlError(f"{cluster.server}/version: expected the version of the API server, got none")
    server = check_kubernetes(answer.body, cluster.server)
    return [server, compare_clocks(sent_at, answer.read_at + answer.ahead, received_at)], answer.read_at


def check_kubernetes(body: Mapping[str, Any], server: str) -> Finding:
    """Compare the version of the API server with those that the admission policies and the tests are made for.

    Args:
        body: The answer to GET /version.
        server: The address of the API server.
    """
    what, found, version = "API server", f"{get_text(body, 'gitVersion')} at {server}", parse_version(body)
    if version is None:
        return ok(what, found)
    oldest, newest = describe_version(TESTED[0]), describe_version(TESTED[-1])
    if version < OLDEST:
        detail = f"{found}: it may refuse the guards and the guard rails, and then it cannot reject a DELETE itself"
        return fail(what, detail, UPGRADE)
    if version < TESTED[0]:
        detail = f"{found}: Kubernetes {describe_version(version)} is older than {oldest}, the oldest tested version"
        return warn(what, detail, f"upgrade the cluster to Kubernetes {oldest} or later")
    if version > TESTED[-1]:
        return ok(what, f"{found}; newer than Kubernetes {newest}, the newest tested version")
    return ok(what, found)


def compare_clocks(sent_at: datetime, stated_at: datetime, received_at: datetime) -> Finding:
    """Compare the API server's clock with this machine's clock.

    Args:
        sent_at: When the request was sent, by this machine's clock.
        stated_at: The Date header of the answer: the API server's clock, rounded down to whole seconds.
        received_at: When the answer arrived, by this machine's clock.
    """
    ahead, behind = stated_at - received_at, sent_at - (stated_at + timedelta(seconds=1))
    apart = max(ahead, behind)
    if apart <= timedelta(0):
        return ok("clock", "the API server and this machine agree to the second")
    side = "ahead of" if ahead > behind else "behind"
    detail = f"the API server is at least {apart.total_seconds():.1f} s {side} this machine"
    if apart <= SKEW_MAX:
        return ok("clock", detail)
    fix = "timedatectl set-ntp true    # on the machine whose clock is wrong"
    if ahead > SERVER_AHEAD_MAX:
        effect = "an object is kept until it is due by both clocks; a proxy that sets its own Date has the same effect"
        return fail("clock", f"{detail}: {effect}", fix)
    return warn("clock", f"{detail}: deletions follow the API server's clock, and ages shown here may be wrong", fix)


async def list_served(cluster: "KubernetesCluster", api_version: str) -> set[str]:
    """Return the plurals that the API server serves in an apiVersion.

    Raises:
        TtlError: Discovery cannot be read.
    """
    root = "apis" if "/" in api_version else "api"
    try:
        answer = await cluster.request("GET", f"/{root}/{api_version}", missing_ok=True)
    except AbsentKindError:
        return set()
    return {get_text(one, "name") for one in list_mappings(answer.body if answer else {}, "resources")}


async def check_knative(cluster: "KubernetesCluster", place: Place) -> list[Finding]:
    """Check that the API server serves the kinds of Knative Eventing and Serving."""
    findings = []
    for part, groups in KNATIVE.items():
        what = f"Knative {part}"
        try:
            served = {group: await list_served(cluster, group) for group in groups}
        except TtlError as error:
            findings.append(unknown(what, str(error), place))
            continue
        missing = [f"{one}.{group}" for group, wanted in groups.items() for one in wanted if one not in served[group]]
        files = " ".join(
            f"-f https://github.com/knative/{part.lower()}/releases/latest/download/{file}" for file in _INSTALL[part]
        )
        if missing:
            detail = f"the API server does not serve {', '.join(missing)}"
            findings.append(fail(what, detail, f"{place.kubectl} apply {files}"))
        else:
            findings.append(ok(what, "its kinds are served"))
    return findings


async def _check_kind(cluster: "KubernetesCluster", rule: KindRule, place: Place) -> Finding:
    """Check whether an aggregated API server serves a kind: it may ignore the preconditions of a DELETE."""
    what, served = f"kind {rule.plural}", f"served as {rule.api_version}"
    try:
        is_kept = rule.may_be_aggregated and await cluster.is_aggregated(rule)
    except TtlError as error:
        return unknown(what, f"{served}; {error}", place)
    if not is_kept:
        return ok(what, served)
    detail = (
        f"{served}, by an aggregated API server, which may ignore the preconditions of a DELETE: its objects are kept"
    )
    note = f"after you set `preconditions: honoured` in a rule for {rule.kind}, if that server honours them"
    return warn(what, detail, place.apply(note=note))


async def check_kinds(
    cluster: "KubernetesCluster", rules: tuple[KindRule, ...], names: Sequence[str], *, place: Place
) -> tuple[list[Finding], tuple[KindRule, ...]]:
    """Check that the API server serves the enabled kinds.

    Args:
        cluster: The cluster, with the operator's credentials.
        rules: The rules of the enabled kinds.
        names: The names of the kinds in TTL_KINDS; empty for all kinds. Then a kind that is not served is no problem.
        place: The installation.

    Returns:
        The findings, and the rules of the kinds whose rights and sources are checked next.
    """
    try:
        served = await cluster.served(rules)
    except TtlError as error:
        return [unknown("kinds", str(error), place)], rules
    findings = [await _check_kind(cluster, rule, place) for rule in served]
    wanted = list(served)
    for name in list_unserved(names, served):
        unserved = next(rule for rule in rules if rule.has_name(name))
        detail = (
            f"the API server does not serve {unserved.plural} of {unserved.api_version}: "
            "its CRD is missing or lacks this version"
        )
        note = f"after you remove {name} from TTL_KINDS, or install its CRD"
        findings.append(fail(f"kind {unserved.plural}", detail, place.apply(note=note)))
        wanted.append(unserved)
    return findings, tuple(wanted)
