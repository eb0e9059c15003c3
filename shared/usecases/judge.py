"""Decide about an object that was read: bring `decide` the facts that it asks for, and no others.

Its namespace where that may count, its owner where that may keep it, and its rank where a rule keeps the newest. What
cannot be brought keeps the object, and the reason says which it was.
"""

from collections.abc import Callable, Sequence
from dataclasses import InitVar, dataclass, field, replace
from typing import Any

from shared.core.decide import Context, Decision, Reason, decide, is_open
from shared.core.finish import finish_of
from shared.core.kinds import Catalogue, KindRule
from shared.core.objects import ObjectRef, get_controller, get_text
from shared.core.policy import NO_POLICY, Policy
from shared.errors import PermanentError
from shared.ports import Cluster, Snapshot, Telemetry
from shared.usecases.namespaces import Namespaces
from shared.usecases.served import find_served
from shared.usecases.siblings import Sibling, Siblings


@dataclass(frozen=True, slots=True)
class Judgement:
    """A decision, and what else has to be looked at because of this object.

    Attributes:
        fallen: Objects that the newest of a group push out of those that stay.
    """

    decision: Decision
    fallen: Sequence[Sibling] = ()


@dataclass
class Judge:
    """Judges objects of one cluster; what it remembers of namespaces and groups is shared by all who ask it.

    Attributes:
        cluster: Where what is missing is read.
        kinds: All kinds that are known, enabled or not: an owner may be of another kind.
        policy: Gives the policy in force.
        telemetry: Told where namespaces may not be read.
        only: The namespace that this process is limited to; empty for all.
    """

    cluster: Cluster
    kinds: Catalogue
    policy: Callable[[], Policy] = lambda: NO_POLICY
    telemetry: InitVar[Telemetry | None] = None
    only: InitVar[str] = ""
    namespaces: Namespaces = field(init=False)
    siblings: Siblings = field(init=False)

    def __post_init__(self, telemetry: Telemetry | None, only: str) -> None:
        self.namespaces = Namespaces(self.cluster, telemetry, only)
        self.siblings = Siblings(self.cluster)

    async def decide(self, snapshot: Snapshot, rule: KindRule) -> Decision:
        """`decide` at the API server's clock.

        Raises:
            TryLaterError: The API server is busy or away.
        """
        return (await self.judge(snapshot, rule)).decision

    async def judge(self, snapshot: Snapshot, rule: KindRule) -> Judgement:
        """The decision, and what falls out of the object's group by it.

        Args:
            snapshot: The object, and the API server's time.
            rule: The object's kind.

        Raises:
            TryLaterError: The API server is busy or away.
        """
        obj = snapshot.obj
        context = Context(self.policy(), self.namespaces.recall(_place(obj)), get_controller(obj) is not None)
        judgement = Judgement(decide(obj, rule, snapshot.read_at, context))
        asked: set[Reason] = set()
        while (reason := judgement.decision.reason) in _MISSING and reason not in asked:
            asked.add(reason)
            try:
                context, fallen = await self._bring(reason, snapshot, rule, context)
            except PermanentError as error:
                return Judgement(_unread(judgement.decision, str(error)))
            judgement = Judgement(decide(obj, rule, snapshot.read_at, context), fallen)
        return judgement

    def is_open(self, obj: Any, rule: KindRule) -> bool:
        """Whether an object may be due now or later as far as its metadata and what is remembered tell."""
        return is_open(obj, rule, Context(self.policy(), self.namespaces.recall(_place(obj))))

    async def _bring(
        self, reason: Reason, snapshot: Snapshot, rule: KindRule, context: Context
    ) -> tuple[Context, Sequence[Sibling]]:
        """What the reason says is missing."""
        obj = snapshot.obj
        if reason is Reason.NAMESPACE_UNREAD:
            namespace = await self.namespaces.get(_place(obj))
            if namespace is None:
                raise PermanentError(f"there is no namespace {_place(obj)}")
            return replace(context, namespace=namespace), ()
        if reason is Reason.OWNER_UNFINISHED:
            owner = get_controller(obj)
            unfinished = owner is not None and await is_unfinished(owner, cluster=self.cluster, kinds=self.kinds)
            return replace(context, owner_unfinished=unfinished), ()
        standing = await self.siblings.standing(obj, rule, context)
        return replace(context, newer=standing.newer), standing.fallen


_MISSING = frozenset({Reason.NAMESPACE_UNREAD, Reason.OWNER_UNFINISHED, Reason.KEPT_LAST})
"""Reasons that hold also while a fact is missing."""


def _place(obj: Any) -> str:
    return get_text(obj, "metadata.namespace")


def _unread(decision: Decision, problem: str) -> Decision:
    """The same, and why the fact could not be brought."""
    return replace(decision, facts=replace(decision.facts, problem=problem))


async def is_unfinished(owner: ObjectRef, *, cluster: Cluster, kinds: Catalogue) -> bool:
    """Whether the owner still works, or may: of an unknown kind, or unreadable, counts as unfinished.

    An owner that is gone does not keep its dependents; the garbage collector is about to take them. One whose kind is
    not served, or whose reference makes no sense, is not known to be gone. A CronJob and its like never finish, but
    what they made may go while they go on.
    """
    if any(rule.dependents == "free" for rule in kinds.of(owner.group, owner.kind)):
        return False
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
