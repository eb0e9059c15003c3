"""Read the controller owners of objects: an owner that has not finished may keep its dependents."""

from dataclasses import dataclass, replace

from shared.core.finish import finish_of
from shared.core.kinds.catalogue import Catalogue
from shared.core.kinds.rule import KindRule
from shared.core.objects import ObjectRef
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

    async def is_unfinished(self, owner: ObjectRef) -> bool:
        """Return whether the owner is unfinished, or may be; only then it keeps its dependents.

        An owner that is gone does not keep its dependents; the garbage collector is about to delete them. An owner that
        cannot be read, is of a kind that is unknown or not served, or has an invalid reference, counts as unfinished.

        Raises:
            TryLaterError: The API server is busy or away.
        """
        return await self.find_unfinished(owner) is not False

    async def find_unfinished(self, owner: ObjectRef) -> bool | None:
        """As `is_unfinished`, but None if the owner may not be read, so that this is unknown.

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


def is_unfinished_by_kind(owner: ObjectRef, kinds: Catalogue) -> bool | None:
    """Return whether an owner counts as unfinished by its kind alone; None if it has to be read.

    An owner of an unknown kind is unfinished. A CronJob never finishes, but its kind rule has `dependents: free`, so it
    does not keep its dependents.
    """
    rules = kinds.of(owner.group, owner.kind)
    if any(rule.dependents == "free" for rule in rules):
        return False
    return True if all(rule.never_finishes for rule in rules) else None
