"""The API server: whether it answers, what time it is there, and what it serves."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from shared.adapters.kubernetes.server_clock import AHEAD_MAX
from shared.core.kinds.rule import KindRule
from shared.core.objects import get_text, list_mappings
from shared.doctor.findings import Finding, Place, fail, ok, unknown, warn
from shared.errors import AbsentKindError, TtlError
from shared.evaluation.served import list_unserved
from shared.ports import Clock

if TYPE_CHECKING:  # the client takes half a second to load, and offline commands need none
    from shared.adapters.kubernetes.cluster import KubernetesCluster


SKEW_MAX = timedelta(seconds=2)
"""Of this machine's clock; what a Date header and a slow answer can explain is taken off before."""

KNATIVE: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "Eventing": {
        "eventing.knative.dev/v1": ("brokers", "triggers"),
        "sources.knative.dev/v1": ("apiserversources", "containersources", "pingsources", "sinkbindings"),
    },
    "Serving": {"serving.knative.dev/v1": ("services",)},
}
_INSTALL = {
    "Eventing": ("eventing.yaml",),
    "Serving": ("serving-crds.yaml", "serving-core.yaml"),
}


async def check_server(cluster: "KubernetesCluster", clock: Clock) -> tuple[list[Finding], datetime]:
    """Version and clock.

    Returns:
        The findings, and an instant that the API server's clock has reached.

    Raises:
        TtlError: It does not answer, or does not know us.
    """
    sent_at = clock.now()
    answer = await cluster.request("GET", "/version")
    received_at = clock.now()
    if answer is None:
        raise TtlError(f"expected a version of the API server at {cluster.server}, got none")
    version = get_text(answer.body, "gitVersion")
    server = ok("API server", f"{version} at {cluster.server}")
    return [server, judge_clock(sent_at, answer.read_at + answer.ahead, received_at)], answer.read_at


def judge_clock(sent_at: datetime, stated_at: datetime, received_at: datetime) -> Finding:
    """Compare the two clocks.

    Args:
        sent_at: When the request left, by this machine's clock.
        stated_at: The Date header: the server's clock while it answered, its fraction of a second cut off.
        received_at: When the answer was here, by this machine's clock.
    """
    ahead, behind = stated_at - received_at, sent_at - (stated_at + timedelta(seconds=1))
    apart = max(ahead, behind)
    if apart <= timedelta(0):
        return ok("clock", "no difference from this machine's that a Date header, of whole seconds, could show")
    side = "ahead of" if ahead > behind else "behind"
    detail = f"the API server's is at least {apart.total_seconds():.1f} s {side} this machine's"
    if apart <= SKEW_MAX:
        return ok("clock", detail)
    fix = "timedatectl set-ntp true    # on the one of the two that is wrong"
    if ahead > AHEAD_MAX:
        told = "what is due by that clock alone waits until it is due by the other too; or a proxy writes its own Date"
        return fail("clock", f"{detail}: {told}", fix)
    return warn("clock", f"{detail}: objects go by the API server's, what is said here of ages may be wrong", fix)


async def list_served(cluster: "KubernetesCluster", api_version: str) -> set[str]:
    """The plurals that the API server serves of an apiVersion.

    Raises:
        TtlError: It does not say.
    """
    root = "apis" if "/" in api_version else "api"
    try:
        answer = await cluster.request("GET", f"/{root}/{api_version}", missing_ok=True)
    except AbsentKindError:
        return set()
    return {get_text(one, "name") for one in list_mappings(answer.body if answer else {}, "resources")}


async def check_knative(cluster: "KubernetesCluster", place: Place) -> list[Finding]:
    """Whether Knative's kinds are there at all."""
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
    """A kind that is served: by kube-apiserver, or by a server that may ignore preconditions."""
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
    note = f"with a rule for {rule.kind} that says `preconditions: honoured`, if that server honours them"
    return warn(what, detail, place.apply(note=note))


async def check_kinds(
    cluster: "KubernetesCluster", rules: tuple[KindRule, ...], words: Sequence[str], place: Place
) -> tuple[list[Finding], tuple[KindRule, ...]]:
    """Whether the enabled kinds are served.

    Args:
        cluster: As its operator reaches it.
        rules: Of the enabled kinds.
        words: By which the settings name them. Where all are enabled, one that is not installed is no trouble.
        place: The installation.

    Returns:
        The findings, and the rules of the kinds whose rights and events count.
    """
    try:
        served = await cluster.served(rules)
    except TtlError as error:
        return [unknown("kinds", str(error), place)], rules
    findings = [await _check_kind(cluster, rule, place) for rule in served]
    wanted = list(served)
    for word in list_unserved(words, served):
        meant = next(rule for rule in rules if rule.is_named(word))
        detail = f"the API server does not serve {meant.plural} of {meant.api_version}: its CRD is missing, or older"
        note = f"with a TTL_KINDS without {word}, or after the installation of what brings the CRD"
        findings.append(fail(f"kind {meant.plural}", detail, place.apply(note=note)))
        wanted.append(meant)
    return findings, tuple(wanted)
