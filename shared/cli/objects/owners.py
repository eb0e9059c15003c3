"""Which owners take an object along: the garbage collector deletes what a deleted object owned, held or not."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from shared.core.decide import Decision, Expire, Ignore, Reason, Wait
from shared.core.kinds.rule import Catalogue, KindRule
from shared.core.objects import ObjectRef, get_controller, get_text, list_mappings
from shared.core.ttl.durations import format_duration
from shared.errors import TtlError
from shared.evaluation.evaluator import Evaluator
from shared.evaluation.served import find_served
from shared.ports import Snapshot

if TYPE_CHECKING:  # the client takes half a second to load, and offline commands need none
    from shared.adapters.kubernetes.cluster import KubernetesCluster


OWNERS_MAX = 8
"""Owners of owners that are read: Pod, TaskRun, PipelineRun and so on."""

_GOES_LATER = frozenset({Reason.KEPT_LAST, Reason.OWNER_UNFINISHED, Reason.LEFT_TO_CONTROLLER, Reason.TERMINATING})


@dataclass(frozen=True, slots=True)
class DeletingOwner:
    """An owner whose deletion deletes the object, too.

    Attributes:
        ref: The owner.
        message: Why it goes, in one sentence.
        fix: The command that keeps it; empty where none does.
    """

    ref: ObjectRef
    message: str
    fix: str = ""

    def as_json(self) -> dict[str, Any]:
        """The documented JSON."""
        return {"kind": self.ref.kind, "name": self.ref.name, "message": self.message, "fix": self.fix or None}


async def find_deleting_owners(
    obj: Mapping[str, Any],
    *,
    cluster: "KubernetesCluster",
    kinds: Catalogue,
    evaluator: Evaluator,
    reason: str = "WHY",
    flags: tuple[str, ...] = (),
) -> Sequence[DeletingOwner]:
    """The controller owners of an object, up the chain, that are due, have a TTL, or are being deleted.

    An owner of a kind without a rule ends the chain: this project never deletes it, and cannot read it.

    Args:
        obj: The object.
        cluster: Where the owners are read.
        kinds: All kinds that are known.
        evaluator: Decides about each owner.
        reason: For the commands.
        flags: What leads kubectl to this cluster.
    """
    deleting_owners: list[DeletingOwner] = []
    ref, several = get_controller(obj), _has_other_owners(obj)
    for _ in range(OWNERS_MAX):
        if ref is None or not kinds.of(ref.group, ref.kind):
            break
        try:
            rule = await find_served(ref.group, ref.kind, cluster=cluster, kinds=kinds)
            ref = replace(ref, namespace="") if rule.scope == "Cluster" else ref
            snapshot = await cluster.get(rule, ref)
            if snapshot is None or get_text(snapshot.obj, "metadata.uid") != ref.uid:
                deleting_owners.append(DeletingOwner(ref, _told(f"{ref} is gone", several)))
                break
            if ref.namespace:
                await evaluator.namespaces.get(ref.namespace)  # its defaults count once the owner has finished
            why = _why_it_goes(await evaluator.decide(snapshot, rule), snapshot, rule, evaluator)
        except TtlError as error:
            deleting_owners.append(
                DeletingOwner(ref, f"whether {ref} is deleted, and this object with it, is unknown: {error}")
            )
            break
        if why:
            deleting_owners.append(DeletingOwner(ref, _told(f"{ref} {why}", several), _hold(ref, rule, reason, flags)))
        ref, several = get_controller(snapshot.obj), several or _has_other_owners(snapshot.obj)
    return deleting_owners


def _why_it_goes(decision: Decision, snapshot: Snapshot, rule: KindRule, evaluator: Evaluator) -> str:
    """Why an owner will be deleted; empty where nothing says that it will, or its dependents are left alone."""
    facts = decision.facts
    if facts.overridden:
        return f"is deleted by its own controller, by {facts.overridden}"
    asked = facts.policy_rule.propagation if facts.policy_rule else None
    if (asked or rule.propagation) == "Orphan" and decision.reason is not Reason.TERMINATING:
        return ""
    match decision:
        case Expire():
            return "is due now"
        case Wait(until):
            return f"is due in {format_duration(until - snapshot.read_at)}"
        case Ignore(reason) if reason in _GOES_LATER:
            return "is being deleted" if reason is Reason.TERMINATING else f"goes later ({reason})"
        case Ignore(Reason.UNFINISHED):
            return _why_it_goes_once_finished(decision, snapshot, rule, evaluator)
    return ""


def _why_it_goes_once_finished(decision: Decision, snapshot: Snapshot, rule: KindRule, evaluator: Evaluator) -> str:
    ttl = decision.facts.ttl
    if ttl is not None:
        return "" if ttl.is_never else f"has a TTL by {ttl.source}"
    return "may get a TTL by a policy or its namespace" if evaluator.may_expire(snapshot.obj, rule) else ""


def _has_other_owners(obj: Mapping[str, Any]) -> bool:
    return sum(1 for _ in list_mappings(obj, "metadata.ownerReferences")) > 1


def _told(what: str, several: bool) -> str:
    unless = ", unless another of its owners remains" if several else ""
    return f"{what}, and the garbage collector deletes this object with it, held or not{unless}"


def _hold(ref: ObjectRef, rule: KindRule, reason: str, flags: tuple[str, ...]) -> str:
    place = ("-n", ref.namespace) if ref.namespace else ()
    words = ("kubectl", "ttl", "hold", f"{rule.name}/{ref.name}", "--reason", reason, *place, *flags)
    return f"hold the owner, too: `{shlex.join(words)}`"
