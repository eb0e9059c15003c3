"""The facts that `explain` shows beside the decision: owner, hold, other cleaners, finalizers, unknown annotations."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shared.cli.objects.owners import DeletingOwner
from shared.core.cleaners import find_cleaners, find_finalizers
from shared.core.decide import Facts
from shared.core.finish import finish_of
from shared.core.kinds.rule import KindRule
from shared.core.kinds.wording import Unfinished, explain_unfinished
from shared.core.namespaces import Namespace
from shared.core.objects import ObjectRef, format_instant, get_annotations, get_controller
from shared.core.ttl.annotations import describe_unknown, describe_unknown_of
from shared.core.ttl.edits import HELD_TTL, describe_saved, find_held_problem
from shared.core.ttl.ttl import advise_overridden, describe_overridden, native_ttl
from shared.errors import TtlError
from shared.evaluation.owners import Owners


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
        held_problem: Why the saved TTL cannot be read; empty if it can.
        deleting_owners: If it is held: the owners whose deletion deletes it despite the hold.
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
    held_problem: str = ""
    deleting_owners: Sequence[DeletingOwner] = ()


def find_related(
    obj: Mapping[str, Any], rule: KindRule, facts: Facts, owner: Owner | None, namespace: Namespace | None
) -> RelatedFacts:
    """Find the related facts in the object, the rule of its kind, and its namespace if that was read."""
    return RelatedFacts(
        rule,
        describe_hold(obj),
        describe_saved(obj, rule),
        owner,
        list(find_cleaners(obj, rule)),
        list(find_finalizers(obj, rule)),
        _describe_overridden(obj, rule, facts),
        [*describe_unknown(obj), *(describe_unknown_of(namespace) if namespace else [])],
        None if facts.finish.finished else explain_unfinished(obj, rule),
        find_held_problem(obj, rule),
    )


def _describe_overridden(obj: Mapping[str, Any], rule: KindRule, facts: Facts) -> str:
    """Say which controller deletes it by which field, and when; return an empty text if none deletes it earlier."""
    if not facts.overridden:
        return ""
    native = native_ttl(obj, rule.ttl)
    due_at = native.due_at(facts.finish.at) if native and facts.finish.finished else None
    when = f"; by that field it is due at {format_instant(due_at)}" if due_at else ""
    return f"{describe_overridden(obj, rule, facts.overridden)}{when}; {advise_overridden(facts.overridden)}"


def describe_hold(obj: Mapping[str, Any]) -> str:
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
        return Owner(ref, "no kind rule says when it finishes")
    try:
        found = await owners.find(ref)
    except TtlError as error:
        return Owner(ref, f"could not be read: {error}")
    return Owner(found.ref, describe_end(found.snapshot.obj, found.rule) if found.snapshot else "no longer exists")


def find_owner(obj: Mapping[str, Any], among: Mapping[str, tuple[Mapping[str, Any], KindRule]]) -> Owner | None:
    """Find the controller owner among the objects of a file.

    Args:
        obj: The object.
        among: The objects of the file by uid, each with the rule of its kind.
    """
    ref = get_controller(obj)
    if ref is None:
        return None
    other = among.get(ref.uid)
    return Owner(ref, describe_end(*other) if other else "not in this file")


def describe_end(obj: Mapping[str, Any], rule: KindRule) -> str:
    """Say whether an object has finished, when and how."""
    if rule.never_finishes:
        free = "; its dependents may be deleted" if rule.dependents == "free" else ""
        return f"never finishes{free}"
    finish = finish_of(obj, rule)
    if finish.finished is None:
        return "unknown whether it has finished"
    if not finish.finished:
        return "has not finished"
    at = f" at {format_instant(finish.at)}" if finish.at else ""
    again = "; it would create another object, so this one is kept" if rule.dependents == "kept" else ""
    return f"has finished{at}" + (f", {finish.outcome}" if finish.outcome else "") + again
