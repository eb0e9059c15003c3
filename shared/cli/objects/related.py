"""The facts that `explain` shows beside the decision: hold, owners, other cleaners, finalizers, unknown annotations.

If an owner is deleted, the garbage collector deletes its dependents, even held ones. So `hold` prints such owners too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from shared.cli.objects.advice import commands_for
from shared.cli.objects.archive_report import describe_own_deletion
from shared.core.archive.gate import AWAITS_ARCHIVE, AWAITS_CHILDREN
from shared.core.decision.decide import Decision, Expire, Facts, Ignore, Reason, Wait
from shared.core.decision.facts import OWNER_REASONS, find_propagation
from shared.core.decision.finish import Finish, find_early_finish, finish_of
from shared.core.decision.makers import find_cleaners, find_finalizers
from shared.core.decision.namespaces import Namespace
from shared.core.kinds.rule import KindRule
from shared.core.kinds.wording import Unfinished, describe_replaced, explain_unfinished
from shared.core.ttl.annotations import describe_unknown, describe_unknown_of
from shared.core.ttl.edits import HELD_TTL, describe_saved, find_held_problem
from shared.core.values.objects import ObjectRef, format_instant, get_annotations, get_controller, list_mappings
from shared.core.values.timing import format_duration
from shared.errors import TtlError
from shared.evaluation.evaluator import Evaluator
from shared.evaluation.namespaces_and_owners import Owners
from shared.ports import Snapshot

OWNERS_MAX = 8
"""The most owners that are read up the chain: Pod, TaskRun, PipelineRun and so on."""

NO_RULE = "no kind rule says when it finishes; a policy rule with onOwned: delete does not wait for it"
"""The state of an owner of an unknown kind."""

_DELETED_LATER = frozenset(
    {
        Reason.KEPT_LAST,
        Reason.RANK_UNREAD,
        *OWNER_REASONS,
        Reason.LEFT_TO_CONTROLLER,
        Reason.TERMINATING,
        *AWAITS_ARCHIVE,
        *AWAITS_CHILDREN,
    }
)


@dataclass(frozen=True, slots=True)
class Owner:
    """The controller owner of an object.

    Attributes:
        ref: The owner.
        state: Whether it has finished, in words.
    """

    ref: ObjectRef
    state: str


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


@dataclass(frozen=True, slots=True)
class RelatedFacts:
    """The facts about an object beside the decision.

    Attributes:
        rule: The rule of its kind.
        hold: The reason of its hold, and the TTL that a release puts back; empty if it is not held.
        saved: The TTL that a hold saved, if the hold was removed without a release; empty if there is none.
        owner: Its controller owner, if it has one.
        cleaners: The other controllers that delete or recreate it: name and what each does.
        finalizers: Its finalizers, which keep it after a DELETE: name and what each waits for.
        overridden: The controller that deletes it earlier, and what to do; empty if there is none.
        unknown_annotations: Messages about unknown annotations of our domain, on it or on its namespace.
        unfinished: Why it has not finished; None if it has.
        early_finish: The finish time in its status that is before its creation; None if there is none.
        held_problem: Why the saved TTL cannot be read; empty if it can.
        deleting_owners: If it is held: the owners whose deletion deletes it despite the hold.
        lacks_managed_fields: Whether the object is from a file without the `managedFields` that show its finish time.
    """

    rule: KindRule
    hold: str
    saved: str
    owner: Owner | None
    cleaners: Sequence[tuple[str, str]]
    finalizers: Sequence[tuple[str, str]]
    overridden: str
    unknown_annotations: Sequence[str]
    unfinished: Unfinished | None
    early_finish: datetime | None = None
    held_problem: str = ""
    deleting_owners: Sequence[DeletingOwner] = ()
    lacks_managed_fields: bool = False


def find_related(
    obj: Mapping[str, Any], rule: KindRule, facts: Facts, *, owner: Owner | None, namespace: Namespace | None
) -> RelatedFacts:
    """Find the related facts in the object, the rule of its kind, and its namespace if that was read."""
    return RelatedFacts(
        rule,
        hold=_describe_hold(obj),
        saved=describe_saved(obj, rule),
        owner=owner,
        cleaners=list(find_cleaners(obj, rule)),
        finalizers=list(find_finalizers(obj, rule)),
        overridden=describe_own_deletion(obj, rule, facts),
        unknown_annotations=[*describe_unknown(obj), *(describe_unknown_of(namespace) if namespace else [])],
        unfinished=None if facts.finish.finished else explain_unfinished(obj, rule),
        held_problem=find_held_problem(obj, rule),
        early_finish=find_early_finish(obj, rule, facts.finish),
    )


def _describe_hold(obj: Mapping[str, Any]) -> str:
    """Return the reason of a hold, and the TTL that a release puts back; an empty text if the object is not held."""
    annotations = get_annotations(obj)
    if "hold" not in annotations:
        return ""
    saved = f"; a release puts back {annotations[HELD_TTL]}" if HELD_TTL in annotations else ""
    return f"{annotations['hold'] or 'no reason given'}{saved}"


async def read_owner(obj: Mapping[str, Any], owners: Owners) -> Owner | None:
    """Read the controller owner from the cluster."""
    ref = get_controller(obj)
    if ref is None:
        return None
    if not owners.kinds.of(ref.group, ref.kind):
        return Owner(ref, NO_RULE)
    try:
        found = await owners.find(ref)
    except TtlError as error:
        return Owner(ref, f"could not be read: {error}")
    return Owner(found.ref, describe_end(found.snapshot.obj, found.rule) if found.snapshot else "no longer exists")


def describe_end(obj: Mapping[str, Any], rule: KindRule) -> str:
    """Say whether an object has finished, when and how."""
    return describe_finish(finish_of(obj, rule), rule)


def describe_finish(finish: Finish, rule: KindRule) -> str:
    """Say of an owner whether it has finished, when and how."""
    if rule.never_finishes:
        free = "; its dependents may be deleted" if rule.dependents == "free" else ""
        replaced = f"; {describe_replaced(rule)}" if rule.replaces_finished else ""
        return f"never finishes{free}{replaced}"
    if finish.finished is None:
        return "unknown whether it has finished"
    if not finish.finished:
        return "has not finished"
    at = f" at {format_instant(finish.at)}" if finish.at else ""
    again = "; it would create another object, so this one is kept" if rule.dependents == "kept" else ""
    return f"has finished{at}" + (f", {finish.outcome}" if finish.outcome else "") + again


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
            decision, may_expire = await evaluator.decide(snapshot, rule), evaluator.may_expire(snapshot.obj, rule)
            why = _why_deleted(decision, snapshot, rule, may_expire=may_expire)
        except TtlError as error:
            message = f"unknown whether {ref} is deleted, and this object with it: {error}"
            deleting_owners.append(DeletingOwner(ref, message))
            break
        if why:
            fix = f"hold the owner too: {commands_for({'hold'}, ref, rule, flags=flags, reason=reason)['hold']}"
            deleting_owners.append(DeletingOwner(ref, _describe(f"{ref} {why}", several), fix))
        ref, several = get_controller(snapshot.obj), several or _has_other_owners(snapshot.obj)
    return deleting_owners


def _why_deleted(decision: Decision, snapshot: Snapshot, rule: KindRule, *, may_expire: bool) -> str:
    """Say why an owner will be deleted; return an empty text if it will not be, or if its dependents are orphaned."""
    facts = decision.facts
    if facts.overridden:
        return f"is deleted by its own controller, which acts on {facts.overridden}"
    if find_propagation(facts, rule) == "Orphan" and decision.reason is not Reason.TERMINATING:
        return ""
    match decision:
        case Expire():
            return "is due now"
        case Wait(until):
            return f"is due in {format_duration(until - snapshot.read_at)}"
        case Ignore(reason) if reason in _DELETED_LATER:
            return "is being deleted" if reason is Reason.TERMINATING else f"is deleted later ({reason})"
        case Ignore(Reason.UNFINISHED) if facts.ttl is not None:
            return "" if facts.ttl.is_never else f"has a TTL by {facts.ttl.source}"
        case Ignore(Reason.UNFINISHED) if may_expire:
            return "may get a TTL from a policy or its namespace"
    return ""


def _has_other_owners(obj: Mapping[str, Any]) -> bool:
    return sum(1 for _ in list_mappings(obj, "metadata.ownerReferences")) > 1


def _describe(what: str, several: bool) -> str:
    unless = ", unless another owner remains" if several else ""
    return f"{what}; the garbage collector then deletes this object too, even if it is held{unless}"
