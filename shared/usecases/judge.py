"""Decide about an object that was read, its owner included where the kind's rule asks for it."""

from dataclasses import replace

from shared.core.decide import Decision, Ignore, Reason, decide
from shared.core.finish import finish_of
from shared.core.kinds import Catalogue, KindRule
from shared.core.objects import ObjectRef, get_controller
from shared.errors import PermanentError
from shared.ports import Cluster, Snapshot
from shared.usecases.served import find_served


async def judge(snapshot: Snapshot, rule: KindRule, *, cluster: Cluster, kinds: Catalogue) -> Decision:
    """`decide` at the API server's clock; the owner is read only where nothing else keeps the object.

    Args:
        snapshot: The object, and the API server's time.
        rule: The object's kind.
        cluster: Where an owner is read.
        kinds: All kinds that are known, enabled or not: an owner may be of another kind.
    """
    owner = get_controller(snapshot.obj)
    decision = decide(snapshot.obj, rule, snapshot.read_at, owner_unfinished=owner is not None)
    if owner is None or not isinstance(decision, Ignore) or decision.reason is not Reason.OWNER_UNFINISHED:
        return decision
    unfinished = await is_unfinished(owner, cluster=cluster, kinds=kinds)
    return decide(snapshot.obj, rule, snapshot.read_at, owner_unfinished=unfinished)


async def is_unfinished(owner: ObjectRef, *, cluster: Cluster, kinds: Catalogue) -> bool:
    """Whether the owner still works, or may: of an unknown kind, or unreadable, counts as unfinished.

    An owner that is gone does not keep its dependents; the garbage collector is about to take them. One whose kind is
    not served, or whose reference makes no sense, is not known to be gone.
    """
    try:
        rule = await find_served(owner.group, owner.kind, cluster=cluster, kinds=kinds)
        if rule.scope == "Cluster":
            owner = replace(owner, namespace="")
        snapshot = await cluster.get(rule, owner)
    except PermanentError:
        return True
    if snapshot is None or snapshot.obj.get("metadata", {}).get("uid") != owner.uid:
        return False
    return finish_of(snapshot.obj, rule).finished is not True
