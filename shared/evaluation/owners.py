"""Read the controller owners of objects: an owner that has not finished may keep its dependents."""

from dataclasses import dataclass, replace
from typing import Any

from shared.core.decision.facts import Context
from shared.core.decision.finish import finish_of
from shared.core.kinds.catalogue import Catalogue
from shared.core.kinds.rule import KindRule
from shared.core.values.objects import ObjectRef, get_controller
from shared.errors import AbsentKindError, PermanentError
from shared.evaluation.served import find_served
from shared.ports import Cluster, Snapshot


@dataclass(frozen=True, slots=True)
class FoundOwner:
    """An owner as it was read.

    Attributes:
        ref: The owner; without a namespace if its kind is cluster-scoped.
        rule: The rule of its kind.
        snapshot: The object; None if it no longer exists.
    """

    ref: ObjectRef
    rule: KindRule
    snapshot: Snapshot | None


@dataclass(frozen=True, slots=True)
class Owners:
    """Reads owners from the API server.

    Attributes:
        kinds: All known kinds, enabled or not.
    """

    cluster: Cluster
    kinds: Catalogue

    async def find_unfinished(self, owner: ObjectRef) -> bool | None:
        """Return whether the owner counts as unfinished, so that it keeps its dependents; None if it may not be read.

        An owner that is gone does not keep its dependents; the garbage collector is about to delete them. An owner of a
        kind that is unknown or not served counts as unfinished.

        Raises:
            TryLaterError: The API server is busy or away.
        """
        by_kind = is_unfinished_by_kind(owner, self.kinds)
        if by_kind is not None:
            return by_kind
        try:
            found = await self.find(owner)
        except AbsentKindError:
            return True
        except PermanentError:
            return None
        if found.snapshot is None:
            return False
        return found.rule.keeps_dependents(is_finished=finish_of(found.snapshot.obj, found.rule).finished)

    async def find(self, owner: ObjectRef) -> FoundOwner:
        """Read an owner of a known kind; another object that has its name now is not the owner.

        Raises:
            TryLaterError: The API server is busy or away.
            PermanentError: The owner may not be read, or its kind is not served.
        """
        rule = await find_served(owner.group, owner.kind, cluster=self.cluster, kinds=self.kinds)
        ref = replace(owner, namespace="") if rule.scope == "Cluster" else owner
        snapshot = await self.cluster.get(rule, ref)
        is_gone = snapshot is None or snapshot.ref.uid != ref.uid
        return FoundOwner(ref, rule, None if is_gone else snapshot)


def with_owner(context: Context, obj: Any, rule: KindRule, kinds: Catalogue) -> Context:
    """Add what the kind of the controller owner of an object shows, without a read.

    An owner whose rule has `replacesFinished` does not keep a finished object. It does not matter whether that owner
    exists: if it is gone, it does not keep the object either.

    Args:
        context: The facts that are known.
        obj: The object.
        rule: The object's kind.
        kinds: All known kinds, enabled or not.
    """
    owner = get_controller(obj)
    if owner is None:
        return replace(context, owner_unfinished=False, owner_unknown=False)
    is_replaced = _replaces_finished(owner, rule, kinds) and finish_of(obj, rule).finished is True
    return replace(
        context,
        owner_unfinished=False if is_replaced else is_unfinished_by_kind(owner, kinds),
        owner_unknown=not kinds.of(owner.group, owner.kind),
    )


def _replaces_finished(owner: ObjectRef, rule: KindRule, kinds: Catalogue) -> bool:
    """Return whether an owner replaces finished objects of a kind, by each rule of the owner's group and kind."""
    rules = kinds.of(owner.group, owner.kind)
    return bool(rules) and all(rule.name in one.replaces_finished for one in rules)


def is_unfinished_by_kind(owner: ObjectRef, kinds: Catalogue) -> bool | None:
    """Return whether an owner counts as unfinished by its kind alone; None if it has to be read.

    An owner of an unknown kind is unfinished. A CronJob never finishes, but its kind rule has `dependents: free`, so it
    does not keep its dependents.
    """
    rules = kinds.of(owner.group, owner.kind)
    if any(rule.dependents == "free" for rule in rules):
        return False
    return True if all(rule.never_finishes for rule in rules) else None
