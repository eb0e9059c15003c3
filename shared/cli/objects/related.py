"""What stands around an object: its owner, who else cleans it up, what keeps it after a DELETE, what its kind says."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from shared.cli.objects.owners import DeletingOwner
from shared.core.cleaners import find_cleaners, find_finalizers
from shared.core.decide import Facts
from shared.core.finish.finish import finish_of
from shared.core.finish.unfinished import Unfinished, explain_unfinished
from shared.core.kinds.rule import Catalogue, KindRule
from shared.core.namespaces import Namespace
from shared.core.objects import ObjectRef, format_instant, get_annotations, get_controller, ref_of
from shared.core.ttl.annotations import describe_unknown, describe_unknown_of
from shared.core.ttl.edits import HELD_TTL, describe_parked, find_held_problem
from shared.core.ttl.overridden import advise_overridden, describe_overridden
from shared.core.ttl.ttl import native_ttl
from shared.errors import TtlError
from shared.evaluation.served import find_served

if TYPE_CHECKING:  # the client takes half a second to load, and offline commands need none
    from shared.adapters.kubernetes.cluster import KubernetesCluster


@dataclass(frozen=True, slots=True)
class Owner:
    """The controller owner.

    Attributes:
        ref: Who it is.
        state: Whether it has finished, in words.
    """

    ref: ObjectRef
    state: str


@dataclass(frozen=True, slots=True)
class RelatedFacts:
    """What stands around an object.

    Attributes:
        rule: Its kind.
        hold: Why it is held, and what a release gives back; empty where it is not.
        saved: A TTL that a hold put aside and nobody put back; empty where there is none.
        owner: Its controller owner, if it has one.
        cleaners: Who else deletes it, or makes it anew: name and what it does.
        finalizers: What keeps it after a DELETE: name and what it waits for.
        overridden: Who acts on it before we would, and what to do; empty where nobody does.
        slips: Annotations of our domain that nobody knows, on it or on its namespace, in sentences.
        unfinished: Why it has not finished; None where it has.
        held_problem: Why the TTL that a hold put aside cannot be read; empty if it can.
        deleting_owners: Where it is held: the owners whose deletion deletes it all the same.
    """

    rule: KindRule
    hold: str
    saved: str
    owner: Owner | None
    cleaners: Sequence[tuple[str, str]]
    finalizers: Sequence[tuple[str, str]]
    overridden: str
    slips: Sequence[str]
    unfinished: Unfinished | None
    held_problem: str = ""
    deleting_owners: Sequence[DeletingOwner] = ()


def look_around(
    obj: Mapping[str, Any], rule: KindRule, facts: Facts, owner: Owner | None, namespace: Namespace | None
) -> RelatedFacts:
    """What the object itself tells of that, its kind's rule, and its namespace where that is known."""
    return RelatedFacts(
        rule,
        describe_hold(obj),
        describe_parked(obj, rule),
        owner,
        list(find_cleaners(obj, rule)),
        list(find_finalizers(obj, rule)),
        _describe_overridden(obj, rule, facts),
        [*describe_unknown(obj), *(describe_unknown_of(namespace) if namespace else [])],
        None if facts.finish.finished else explain_unfinished(obj, rule),
        find_held_problem(obj, rule),
    )


def _describe_overridden(obj: Mapping[str, Any], rule: KindRule, facts: Facts) -> str:
    """Who deletes it by which field, and when; empty where nobody does before us."""
    if not facts.overridden:
        return ""
    native = native_ttl(obj, rule)
    due_at = native.due_at(facts.finish.at) if native and facts.finish.finished else None
    when = f": it is due by that at {format_instant(due_at)}" if due_at else ""
    return f"{describe_overridden(obj, rule, facts.overridden)}{when}; {advise_overridden(facts.overridden)}"


def describe_hold(obj: Mapping[str, Any]) -> str:
    """Why an object is held, in the words of whoever does, and what waits for its release."""
    annotations = get_annotations(obj)
    if "hold" not in annotations:
        return ""
    kept = f"; a release gives back {annotations[HELD_TTL]}" if HELD_TTL in annotations else ""
    return f"{annotations['hold'] or 'no reason is given'}{kept}"


async def read_owner(obj: Mapping[str, Any], *, cluster: "KubernetesCluster", kinds: Catalogue) -> Owner | None:
    """The controller owner, as it is now."""
    ref = get_controller(obj)
    if ref is None:
        return None
    if not kinds.of(ref.group, ref.kind):
        return Owner(ref, "no kind rule here tells when it finishes")
    try:
        rule = await find_served(ref.group, ref.kind, cluster=cluster, kinds=kinds)
        ref = replace(ref, namespace="") if rule.scope == "Cluster" else ref
        snapshot = await cluster.get(rule, ref)
    except TtlError as error:
        return Owner(ref, f"it cannot be read: {error}")
    if snapshot is None or ref_of(snapshot.obj).uid != ref.uid:
        return Owner(ref, "it is gone")
    return Owner(ref, describe_end(snapshot.obj, rule))


def find_owner(obj: Mapping[str, Any], among: Mapping[str, tuple[Mapping[str, Any], KindRule]]) -> Owner | None:
    """The controller owner, as it is among other objects of a file, each with its kind, by uid."""
    ref = get_controller(obj)
    if ref is None:
        return None
    other = among.get(ref.uid)
    return Owner(ref, describe_end(*other) if other else "it is not among these objects")


def describe_end(obj: Mapping[str, Any], rule: KindRule) -> str:
    """Whether an object has finished, in words."""
    if rule.never_finishes:
        free = ", and what it makes may go all the same" if rule.dependents == "free" else ""
        return f"it never finishes{free}"
    finish = finish_of(obj, rule)
    if finish.finished is None:
        return "whether it has finished cannot be told"
    if not finish.finished:
        return "it has not finished"
    at = f" at {format_instant(finish.at)}" if finish.at else ""
    again = "; it would make another, and so keeps this one" if rule.dependents == "kept" else ""
    return f"it has finished{at}" + (f", {finish.outcome}" if finish.outcome else "") + again
