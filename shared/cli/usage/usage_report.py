"""What is known about the use of a Secret or ConfigMap, as JSON and as text; printed for `references` and `explain`."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from shared.cli.deleters.in_force import NAME_POLICY, UNKNOWN_POLICY, InForce, PolicyInForce
from shared.cli.deleters.obstacles import Obstacle, find_stops
from shared.cli.input.options import Options
from shared.cli.input.target import namespace_of
from shared.cli.output.printing import describe_instant, describe_time, instant_as_json, terminal_width, wrap
from shared.cli.usage.findings import UsageFinding, carriers_of, find_one_usage, source_of
from shared.core.kinds.rule import KindRule
from shared.core.references.reference import REFERENCES_OF_ONE_MAX, Reference
from shared.core.usage.decide_unused import (
    DeleteUnused,
    Keep,
    RecordUse,
    RemoveMark,
    SetMark,
    UnusedDecision,
    WaitUntil,
)
from shared.core.usage.mark import ANNOTATIONS_BYTES_MAX, find_excess_bytes, is_marked, mark_patch, use_patch
from shared.core.usage.unused_reasons import UnusedReason as Reason
from shared.core.values.objects import format_instant, get_text, printable, ref_of
from shared.core.values.timing import format_duration
from shared.evaluation.usage_reader import UsageReader

if TYPE_CHECKING:  # the client takes half a second to load, and offline commands need none
    from shared.adapters.kubernetes.cluster import KubernetesCluster

_INDENT = 12
_REFERENCES_SHOWN = 20
_CAUSES_SHOWN = 3

DECISIONS = {
    Keep: "keep",
    RecordUse: "keep",
    RemoveMark: "unmark",
    SetMark: "mark",
    WaitUntil: "wait",
    DeleteUnused: "delete",
}
"""The word of each decision in JSON."""

USAGE_WORDS = {
    Reason.UNUSED: "nothing refers to it for longer than the TTL, and two passes over all kinds have confirmed it",
    Reason.NEWLY_UNUSED: "nothing refers to it, and it is not marked yet: its TTL starts at the next pass",
    Reason.CHANGED: "it was changed after it was marked as unused: its TTL starts again at the next pass",
    Reason.NOT_DUE: "nothing refers to it, and its TTL is not over",
    Reason.SERVER_CLOCK_AHEAD: (
        "it is due only by the Date of the API server, which is more than 60 s ahead of this machine's clock"
    ),
    Reason.UNCONFIRMED: "its TTL is over, and two complete passes have not confirmed yet that nothing refers to it",
    Reason.NOT_ARCHIVED: "it is due, and is kept until its archive has acknowledged this version of it",
    Reason.AUDIT_ONLY: "it would be deleted, and the policy rule has audit: true",
    Reason.USED: "an object refers to it",
    Reason.NEVER_USED: (
        "nothing refers to it, and it was never seen used: a program may find it by a name, a label, or a text in data"
    ),
    Reason.USE_UNKNOWN: "it is unknown whether an object refers to it, and unknown counts as used",
    Reason.NOT_ENABLED: "no policy rule with unused matches it",
    Reason.NOT_OPTED_IN: "its namespace does not allow the deletion of unused objects",
    Reason.NAMESPACE_UNREAD: "its namespace could not be read, and may be exempt",
    Reason.INVALID_POLICY: "its namespace or the policy has an invalid setting",
    Reason.EXEMPT: "annotation ttlafterfinished.dev/exempt is set on its namespace",
    Reason.HELD: "annotation ttlafterfinished.dev/hold is set",
    Reason.TERMINATING: "it is already being deleted",
    Reason.UNKNOWN_SHAPE: "its metadata cannot be read",
    Reason.UNATTESTED: "the API server does not note who writes to it, so it can attest neither its use nor a mark",
    Reason.OWNED: "it has an owner, and the garbage collector deletes it after its owner",
    Reason.IMMUTABLE: "a client has set immutable, so it cannot be restored under its name with other data",
    Reason.SYSTEM_NAMESPACE: "objects in namespaces of Kubernetes itself are never deleted",
    Reason.SECRET_TYPE_UNKNOWN: "the type of the Secret is unknown",
    Reason.FINALIZED: "it has a finalizer, so a controller looks after it",
    Reason.HELM_RELEASE: "it stores a release of Helm",
    Reason.SERVICE_ACCOUNT_TOKEN: "it has the token of a ServiceAccount",
    Reason.BOOTSTRAP_TOKEN: "it has a bootstrap token of the cluster",
    Reason.CLUSTER_CONFIG: "the cluster creates it, and reads it by its name",
    Reason.LEADER_ELECTION: "it is the lock of a leader election",
    Reason.READ_BY_NAME: "a controller reads it by its name",
    Reason.READ_BY_LABEL: "a controller finds it by its label",
}
"""Each reason of a decision about an unused object in one sentence."""


async def print_usage(
    cluster: "KubernetesCluster", rule: KindRule, name: str, *, options: Options, force: InForce, output: str
) -> None:
    """Print what refers to one Secret or ConfigMap, and the decision about it.

    Raises:
        AbsentObjectError: It does not exist.
        TtlError: It cannot be read.
        SystemExit: It is unknown whether the object is used, or which policy is in force; the output says why.
    """
    chosen = force.choose(options.policy)
    reader = UsageReader(cluster, carriers_of(options))
    place = namespace_of(options)
    one = await find_one_usage(reader, cluster, rule, namespace=place, name=name, policy=chosen.policy)
    if output == "json":
        click.echo(json.dumps(usage_as_json(one, chosen), indent=2))
    else:
        click.echo(usage_as_text(one, chosen, list(find_stops(force, one.now)), terminal_width()))
    if one.is_used is None or is_unsure(one, chosen):
        raise SystemExit(1)


def is_unsure(one: UsageFinding, chosen: PolicyInForce) -> bool:
    """Return whether an unknown policy may change the decision: one that is used is kept by every policy."""
    return not chosen.is_known and one.decision.reason is Reason.NOT_ENABLED and not one.is_used


def usage_as_json(one: UsageFinding, chosen: PolicyInForce | None = None) -> dict[str, Any]:
    """Return the documented JSON of one Secret or ConfigMap; unknown values are null.

    Args:
        one: The object and the decision about it.
        chosen: The policy that was applied; None if it is named elsewhere.
    """
    ref, decision = ref_of(one.target.obj), one.decision
    problem = decision.facts.problem or (one.observation.find_problem() if one.is_used is None else "")
    problem = problem or _find_lack_of_room(one)
    if not problem and chosen is not None and is_unsure(one, chosen):
        problem = f"policy: {chosen.message}"
    of = one.observation.of
    return {
        "apiVersion": ref.api_version,
        "kind": ref.kind,
        "namespace": ref.namespace,
        "name": ref.name,
        "used": one.is_used,
        "references": [reference_as_json(reference) for reference in _known(one)],
        "neverUsed": one.is_never_used,
        "usedAt": instant_as_json(decision.facts.used_at),
        "usedNewer": decision.facts.used_newer or None,
        "unusedSince": instant_as_json(one.unused_since),
        "dueAt": instant_as_json(decision.facts.due_at),
        "decision": DECISIONS[type(decision)],
        "reason": str(decision.reason),
        "policyRule": decision.facts.rule.name if decision.facts.rule else None,
        "keys": one.target.keys,
        "metadataBytes": one.metadata_bytes,
        "createdAt": instant_as_json(one.created_at),
        "lookedAt": {
            "kinds": len(of.versions),
            "startedAt": instant_as_json(of.started_at),
            "completedAt": instant_as_json(of.completed_at),
        },
        **({"problem": problem} if problem else {}),
    }


def describe_never_used(found: Sequence[UsageFinding]) -> str:
    """Count objects that were never seen used: the oldest, the size of their metadata, and what becomes of them."""
    oldest = max((one.now - one.created_at for one in found if one.created_at), default=None)
    age = f", the oldest {format_duration(oldest)} old" if oldest is not None else ""
    size = f"{sum(one.metadata_bytes for one in found) / 1_000:,.1f} kB of metadata"
    taken = sum(one.decision.facts.may_be_unused for one in found)
    kept = "they are kept, since a program may find them by a name, a label, or a text in data"
    fate = f"a rule with neverUsed takes {taken} of them" if taken else kept
    return f"never seen used: {len(found)}{age}, {size}; {fate}"


def describe_unknown(found: Sequence[UsageFinding]) -> str:
    """Count objects of which it is unknown whether they are used, by the object and the field that are the cause."""
    causes = Counter(one.observation.find_problem() for one in found).most_common()
    shown = "; ".join(f"{count} by {printable(cause)}" for cause, count in causes[:_CAUSES_SHOWN])
    more = f"; and {sum(count for _, count in causes[_CAUSES_SHOWN:])} by others" if len(causes) > _CAUSES_SHOWN else ""
    return f"{len(found)} more may be used: {shown}{more}; see `references`"


def reference_as_json(reference: Reference) -> dict[str, Any]:
    """Return the documented JSON of one reference."""
    source = reference.source
    return {
        "apiVersion": source.api_version,
        "kind": source.kind,
        "namespace": source.namespace or None,
        "name": source.name,
        "path": reference.path,
    }


def usage_as_text(
    one: UsageFinding, chosen: PolicyInForce, obstacles: Sequence[Obstacle] = (), width: int | None = None
) -> str:
    """Return the lines of one Secret or ConfigMap: who refers to it, the decision, and what was looked at.

    Args:
        one: The object and the decision about it.
        chosen: The policy that was applied.
        obstacles: What prevents each deletion.
        width: The most columns of a line; None to wrap no line.
    """
    columns = [("", printable(str(ref_of(one.target.obj))))]
    before = ""
    for name, text in _lines(one, chosen, obstacles):
        columns.append((f"  {'' if name == before else name:9} ", printable(text)))
        before = name
    if width is None:
        return "\n".join(name + text for name, text in columns)
    return "\n".join(line for name, text in columns for line in wrap(text, width, first=name, indent=_INDENT))


def _lines(one: UsageFinding, chosen: PolicyInForce, obstacles: Sequence[Obstacle]) -> Iterator[tuple[str, str]]:
    is_unknown = is_unsure(one, chosen)
    yield "decision", _describe(one.decision, one) + (UNKNOWN_POLICY if is_unknown else "")
    if is_unknown:
        yield "do", NAME_POLICY
    if not isinstance(one.decision, Keep | RecordUse | RemoveMark):
        for obstacle in obstacles:
            yield "but", obstacle.message
            yield "do", obstacle.cure
    yield from (("used by", text) for text in _users(one))
    if problem := _find_lack_of_room(one):
        yield "problem", problem
    yield from _facts(one)
    yield "policy", chosen.message
    of = one.observation.of
    yield "looked at", f"{len(of.versions)} kinds, until {format_instant(of.completed_at)}"
    yield "size", _size(one)


def _users(one: UsageFinding) -> Iterator[str]:
    """Yield each field that refers to the object, or that there is none."""
    known = _known(one)
    yield from (f"{source_of(reference)}, {reference.path}" for reference in known[:_REFERENCES_SHOWN])
    if (more := len(known) - _REFERENCES_SHOWN) > 0:
        least = "at least " if len(known) >= REFERENCES_OF_ONE_MAX else ""
        yield f"{least}{more} more; to see them, set -o json"
    if one.is_used is False:
        yield "nothing"
    if one.is_used is None:
        yield f"unknown: {one.observation.find_problem()}"


def _facts(one: UsageFinding) -> Iterator[tuple[str, str]]:
    facts = one.decision.facts
    if facts.problem and facts.problem != one.observation.find_problem():
        yield "problem", facts.problem
    if facts.used_at:
        yield "seen used", f"since {describe_instant(facts.used_at, one.now)}"
    if facts.used_newer:
        yield "newer", f"{facts.used_newer} is a newer generation of it, and is or was used"
    if since := one.unused_since:
        yield "unused", f"since {describe_instant(since, one.now)}"
    if facts.rule and facts.rule.unused:
        audit = ", audit only" if facts.rule.audits_unused else ""
        yield "ttl", f"{format_duration(facts.rule.unused.ttl)}, by policy rule {facts.rule.name}{audit}"
    if facts.rule and facts.rule.archive:
        yield "archive", f"{facts.rule.archive.to}: the object is stored there before it is deleted"
    if facts.due_at:
        yield "due", describe_instant(facts.due_at, one.now)


def _find_lack_of_room(one: UsageFinding) -> str:
    """Say that the annotations have no room for what the decision writes; empty if they have."""
    obj = one.target.obj
    match one.decision:
        case RecordUse(at):
            patch, effect = use_patch(at, is_marked=is_marked(obj)), "its use cannot be recorded"
            then = "; without a record it counts as never used once nothing refers to it"
        case SetMark(at, _, _, hash_of_writes):
            patch, effect, then = mark_patch(at, hash_of_writes), "it cannot be marked, and is kept", ""
        case _:
            return ""
    if not (excess := find_excess_bytes(obj, patch)):
        return ""
    limit = f"the API server allows {ANNOTATIONS_BYTES_MAX:,} bytes"
    return f"{effect}: its annotations have no room, since {limit}; remove {excess:,} bytes of them{then}"


def _describe(decision: UnusedDecision, one: UsageFinding) -> str:
    reason = f"({decision.reason}): {USAGE_WORDS[decision.reason]}"
    match decision:
        case WaitUntil(until):
            return f"due {describe_time(until, one.now)} {reason}"
        case DeleteUnused():
            return f"due {reason}"
        case SetMark():
            return f"kept for now {reason}"
        case _:
            return f"kept {reason}"


def _size(one: UsageFinding) -> str:
    keys = one.target.keys
    count = "an unknown number of keys" if keys is None else f"{keys} key{'' if keys == 1 else 's'}"
    secret_type = get_text(one.target.obj, "type")
    return f"{count}{f', type {secret_type}' if secret_type else ''}; the data is not read, so its bytes are unknown"


def _known(one: UsageFinding) -> Sequence[Reference]:
    """The references that can be read."""
    return [reference for reference in one.observation.references if not reference.problem]
