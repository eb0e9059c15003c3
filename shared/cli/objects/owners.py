"""The owners whose deletion deletes an object too: the garbage collector deletes dependents, even held ones."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shared.core.decide import Decision, Expire, Ignore, Reason, Wait
from shared.core.kinds.rule import KindRule
from shared.core.objects import ObjectRef, get_controller, list_mappings
from shared.core.ttl.durations import format_duration
from shared.errors import TtlError
from shared.evaluation.evaluator import Evaluator
from shared.ports import Snapshot

OWNERS_MAX = 8
"""The most owners that are read up the chain: Pod, TaskRun, PipelineRun and so on."""

_DELETED_LATER = frozenset({Reason.KEPT_LAST, Reason.OWNER_UNFINISHED, Reason.LEFT_TO_CONTROLLER, Reason.TERMINATING})


@dataclass(frozen=True, slots=True)
class DeletingOwner:
    """An owner whose deletion deletes the object too.

    Attributes:
        ref: The owner.
        message: Why the owner is deleted, in one sentence.
        fix: The command that keeps the owner; empty if there is none.
    """

    ref: ObjectRef
    message: str
    fix: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return the documented JSON."""
        return {"kind": self.ref.kind, "name": self.ref.name, "message": self.message, "fix": self.fix or None}


async def find_deleting_owners(
    obj: Mapping[str, Any],
    evaluator: Evaluator,
    *,
    reason: str = "WHY",
    flags: tuple[str, ...] = (),
) -> Sequence[DeletingOwner]:
    """Find the controller owners, up the chain, that are due, have a TTL, or are being deleted.

    An owner whose kind has no rule ends the chain: this project never deletes it, and cannot read it.

    Args:
        obj: The object.
        evaluator: Reads each owner, and decides about it.
        reason: The reason of the hold in the suggested commands.
        flags: The flags that make kubectl use this cluster.
    """
    deleting_owners: list[DeletingOwner] = []
    ref, several = get_controller(obj), _has_other_owners(obj)
    for _ in range(OWNERS_MAX):
        if ref is None or not evaluator.kinds.of(ref.group, ref.kind):
            break
        try:
            owner = await evaluator.owners.find(ref)
            ref, rule, snapshot = owner.ref, owner.rule, owner.snapshot
            if snapshot is None:
                deleting_owners.append(DeletingOwner(ref, _describe(f"{ref} no longer exists", several)))
                break
            if ref.namespace:
                await evaluator.namespaces.get(ref.namespace)  # its defaults apply after the owner finishes
            why = _why_deleted(await evaluator.decide(snapshot, rule), snapshot, rule, evaluator)
        except TtlError as error:
            message = f"unknown whether {ref} is deleted, and this object with it: {error}"
            deleting_owners.append(DeletingOwner(ref, message))
            break
        if why:
            fix = _hold(ref, rule, reason, flags)
            deleting_owners.append(DeletingOwner(ref, _describe(f"{ref} {why}", several), fix))
        ref, several = get_controller(snapshot.obj), several or _has_other_owners(snapshot.obj)
    return deleting_owners


def _why_deleted(decision: Decision, snapshot: Snapshot, rule: KindRule, evaluator: Evaluator) -> str:
    """Say why an owner will be deleted; return an empty text if it will not be, or if its dependents are orphaned."""
    facts = decision.facts
    if facts.overridden:
        return f"is deleted by its own controller, which acts on {facts.overridden}"
    propagation = facts.policy_rule.propagation if facts.policy_rule else None
    if (propagation or rule.propagation) == "Orphan" and decision.reason is not Reason.TERMINATING:
        return ""
    match decision:
        case Expire():
            return "is due now"
        case Wait(until):
            return f"is due in {format_duration(until - snapshot.read_at)}"
        case Ignore(reason) if reason in _DELETED_LATER:
            return "is being deleted" if reason is Reason.TERMINATING else f"is deleted later ({reason})"
        case Ignore(Reason.UNFINISHED):
            return _why_deleted_after_finish(decision, snapshot, rule, evaluator)
    return ""


def _why_deleted_after_finish(decision: Decision, snapshot: Snapshot, rule: KindRule, evaluator: Evaluator) -> str:
    ttl = decision.facts.ttl
    if ttl is not None:
        return "" if ttl.is_never else f"has a TTL by {ttl.source}"
    return "may get a TTL from a policy or its namespace" if evaluator.may_expire(snapshot.obj, rule) else ""


def _has_other_owners(obj: Mapping[str, Any]) -> bool:
    return sum(1 for _ in list_mappings(obj, "metadata.ownerReferences")) > 1


def _describe(what: str, several: bool) -> str:
    unless = ", unless another owner remains" if several else ""
    return f"{what}; the garbage collector then deletes this object too, even if it is held{unless}"


def _hold(ref: ObjectRef, rule: KindRule, reason: str, flags: tuple[str, ...]) -> str:
    place = ("-n", ref.namespace) if ref.namespace else ()
    words = ("kubectl", "ttl", "hold", f"{rule.name}/{ref.name}", "--reason", reason, *place, *flags)
    return f"hold the owner too: `{shlex.join(words)}`"
