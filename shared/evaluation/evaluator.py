"""Decide about an object that was read: bring `decide` the facts that it asks for, and no others.

Its namespace where that may count, its owner where that may keep it, and its rank where a rule keeps the newest. What
cannot be brought keeps the object, and the reason says which it was.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import InitVar, dataclass, field, replace
from datetime import timedelta
from typing import Any

from shared.core.decide import Context, Decision, Expire, Reason, decide, may_expire
from shared.core.facts import NOTHING_KNOWN
from shared.core.finish.finish import finish_of
from shared.core.kinds.catalogue import Catalogue
from shared.core.kinds.rule import KindRule
from shared.core.objects import ObjectRef, get_controller, get_text
from shared.core.policy.policy import NO_POLICY, Policy
from shared.errors import PermanentError
from shared.evaluation.namespaces import Namespaces
from shared.evaluation.ranks import RankedObject, Ranks
from shared.evaluation.served import find_served
from shared.ports import Cluster, Snapshot, Telemetry

DECIDED_SECONDS = 1.0
"""How long a decision to delete counts: after that its owner and its rank are read again."""

CLOCK_AHEAD = "the API server's clock is too far ahead: objects wait until they are due by this machine's, too"
"""The problem that an operator has to solve: one of the two clocks is wrong, or a proxy writes its own Date."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A decision, and what else has to be looked at because of this object.

    Attributes:
        fallen: Objects that the newest of a group push out of those that stay.
        context: What the decision rests on beside the object.
        at: When it was made, in seconds of the loop's clock.
    """

    decision: Decision
    fallen: Sequence[RankedObject] = ()
    context: Context = NOTHING_KNOWN
    at: float = 0.0


@dataclass
class Evaluator:
    """Judges objects of one cluster; what it remembers of namespaces and groups is shared by all who ask it.

    Attributes:
        cluster: Where what is missing is read.
        kinds: All kinds that are known, enabled or not: an owner may be of another kind.
        policy: Gives the policy in force.
        telemetry: Told where namespaces may not be read, and where the API server's clock is not believed.
        only: The namespace that this process is limited to; empty for all.
    """

    cluster: Cluster
    kinds: Catalogue
    policy: Callable[[], Policy] = lambda: NO_POLICY
    telemetry: InitVar[Telemetry | None] = None
    only: InitVar[str] = ""
    namespaces: Namespaces = field(init=False)
    ranks: Ranks = field(init=False)
    _telemetry: Telemetry | None = field(init=False)
    _is_ahead: bool = field(init=False)

    def __post_init__(self, telemetry: Telemetry | None, only: str) -> None:
        self._telemetry, self._is_ahead = telemetry, False
        self.namespaces = Namespaces(self.cluster, telemetry, only)
        self.ranks = Ranks(self.cluster)

    async def decide(self, snapshot: Snapshot, rule: KindRule) -> Decision:
        """`decide` at the API server's clock.

        Raises:
            TryLaterError: The API server is busy or away.
        """
        return (await self.evaluate(snapshot, rule)).decision

    async def evaluate(self, snapshot: Snapshot, rule: KindRule) -> Evaluation:
        """The decision, and what falls out of the object's group by it.

        Args:
            snapshot: The object, and the API server's time.
            rule: The object's kind.

        Raises:
            TryLaterError: The API server is busy or away.
        """
        obj, now, ahead = snapshot.obj, snapshot.read_at, snapshot.ahead
        self._report_clock(ahead)
        namespace, owned = self.namespaces.get_cached(_place(obj)), get_controller(obj) is not None
        context = Context(self.policy(), namespace, owned, rule.may_be_aggregated)
        evaluation = Evaluation(decide(obj, rule, now, context, ahead=ahead), (), context, _now())
        asked: set[Reason] = set()
        while (reason := evaluation.decision.reason) in _MISSING and reason not in asked:
            asked.add(reason)
            try:
                context, fallen = await self._bring(reason, snapshot, rule, context)
                if context.namespace is not None:  # which a slow read of something else may have made too old
                    context = replace(context, namespace=await self.namespaces.get(_place(obj)))
            except PermanentError as error:
                return Evaluation(_unread(evaluation.decision, str(error)))
            evaluation = Evaluation(decide(obj, rule, now, context, ahead=ahead), fallen, context, _now())
        return evaluation

    def is_still_due(self, evaluation: Evaluation, snapshot: Snapshot, rule: KindRule) -> bool:
        """Decide again, just before the DELETE, by the policy and the namespace as they are known at this moment.

        This awaits nothing, so no slow read comes between this decision and the DELETE. The namespace was read at most
        `FRESH_SECONDS` ago; the owner and the rank were read for a decision at most `DECIDED_SECONDS` ago.

        Returns:
            False where the object is not due any more, and where a fact is too old to tell.
        """
        policy, namespace = self.policy(), self.namespaces.get_cached(_place(snapshot.obj))
        if policy is not evaluation.context.policy or _now() - evaluation.at > DECIDED_SECONDS:
            return False
        if namespace is evaluation.context.namespace:
            return True
        context = replace(evaluation.context, namespace=namespace)
        return isinstance(decide(snapshot.obj, rule, snapshot.read_at, context), Expire)

    def _report_clock(self, ahead: timedelta) -> None:
        """Once, as long as it lasts; each object that waits has the reason in its own verdict."""
        if ahead and not self._is_ahead and self._telemetry:
            self._telemetry.problem(CLOCK_AHEAD, ahead_seconds=round(ahead.total_seconds()))
        self._is_ahead = bool(ahead)

    def may_expire(self, obj: Any, rule: KindRule) -> bool:
        """Whether an object may be due now or later as far as its metadata and what is remembered tell."""
        return may_expire(obj, rule, Context(self.policy(), self.namespaces.get_cached(_place(obj))))

    async def _bring(
        self, reason: Reason, snapshot: Snapshot, rule: KindRule, context: Context
    ) -> tuple[Context, Sequence[RankedObject]]:
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
        if reason is Reason.AGGREGATED_API:
            return replace(context, aggregated=await self.cluster.is_aggregated(rule)), ()
        rank = await self.ranks.rank(obj, rule, context)
        return replace(context, newer=rank.newer), rank.fallen


_MISSING = frozenset({Reason.NAMESPACE_UNREAD, Reason.OWNER_UNFINISHED, Reason.AGGREGATED_API, Reason.KEPT_LAST})
"""Reasons that hold also while a fact is missing."""


def _now() -> float:
    return asyncio.get_running_loop().time()


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
    rules = kinds.of(owner.group, owner.kind)
    if any(rule.dependents == "free" for rule in rules):
        return False
    if all(rule.never_finishes for rule in rules):
        return True
    try:
        rule = await find_served(owner.group, owner.kind, cluster=cluster, kinds=kinds)
        if rule.scope == "Cluster":
            owner = replace(owner, namespace="")
        snapshot = await cluster.get(rule, owner)
    except PermanentError:
        return True
    if snapshot is None or snapshot.obj.get("metadata", {}).get("uid") != owner.uid:
        return False
    return rule.keeps_dependents(is_finished=finish_of(snapshot.obj, rule).finished)
