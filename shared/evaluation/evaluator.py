"""Evaluate an object that was read: read only the facts that `decide` needs, and decide.

These facts are the namespace if it may matter, the owner if it may keep the object, and the rank if a rule keeps the
newest objects. If a fact cannot be read, the object is kept, and the reason names the fact.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import InitVar, dataclass, field, replace
from datetime import timedelta
from typing import Any

from shared.core.decide import Context, Decision, Expire, Reason, decide, may_expire
from shared.core.facts import NOTHING_KNOWN
from shared.core.finish import Finish
from shared.core.kinds.catalogue import Catalogue
from shared.core.kinds.rule import KindRule
from shared.core.objects import get_controller, get_text
from shared.core.policy.policy import NO_POLICY, Policy
from shared.core.ranks import RankedObject
from shared.errors import PermanentError
from shared.evaluation.namespaces import Namespaces
from shared.evaluation.owners import Owners
from shared.evaluation.ranks import Ranks
from shared.ports import Cluster, Snapshot, Telemetry

DECIDED_SECONDS = 1.0
"""How long a decision to delete counts. After that, the object is evaluated again: the owner is read, and the rank
comes from a LIST that is at most `RANK_AGE_SECONDS_MAX` old."""

CLOCK_AHEAD = "the API server's clock is too far ahead: objects wait until they are due by the local clock as well"
"""A problem for the operator: one of the two clocks is wrong, or a proxy writes its own Date header."""


FindFact = Callable[[Reason, Context], Awaitable[Context]]
"""Returns the context with the fact that a reason names as missing; raises PermanentError if it cannot be found."""

_MISSING = frozenset({Reason.NAMESPACE_UNREAD, Reason.OWNER_UNFINISHED, Reason.AGGREGATED_API, Reason.KEPT_LAST})
"""Reasons that also apply while a fact is missing."""


async def decide_with(
    find_fact: FindFact, snapshot: Snapshot, rule: KindRule, *, context: Context, finish: Finish | None = None
) -> tuple[Sequence[Decision], Context]:
    """Decide; while the reason names a missing fact, find that fact and decide again.

    Args:
        find_fact: Finds a missing fact.
        snapshot: The object, and the API server's time.
        rule: The object's kind.
        context: The facts that are known.
        finish: The finish from an earlier decision about the object.

    Returns:
        Each decision on the way, and the context of the last one, which counts. If a fact cannot be found, the last
        decision keeps the object, and has the problem.
    """
    decisions: list[Decision] = []
    found: set[Reason] = set()
    while True:
        decision = decide(snapshot.obj, rule, snapshot.read_at, context, finish=finish, ahead=snapshot.ahead)
        decisions.append(decision)
        reason, finish = decision.reason, decision.facts.finish
        if reason not in _MISSING or reason in found:
            return decisions, context
        found.add(reason)
        try:
            context = await find_fact(reason, context)
        except PermanentError as error:
            decisions[-1] = replace(decision, facts=replace(decision.facts, problem=str(error)))
            return decisions, context


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A decision, and the objects that have to be evaluated because of this object.

    Attributes:
        fallen: Objects of the group that its rule no longer keeps, because this object finished later.
        context: The facts of the decision beside the object.
        at: When the decision was made, in seconds of the loop's clock.
    """

    decision: Decision
    fallen: Sequence[RankedObject] = ()
    context: Context = NOTHING_KNOWN
    at: float = 0.0


@dataclass
class Evaluator:
    """Evaluates objects of one cluster; all callers share its cache of namespaces and groups.

    Attributes:
        cluster: Where the facts are read.
        kinds: All known kinds, enabled or not, since an owner may be of another kind.
        policy: Returns the present policy.
        telemetry: Receives a problem if namespaces may not be read, or the API server's clock is too far ahead.
        only: The only namespace of this process; empty for all.
    """

    cluster: Cluster
    kinds: Catalogue
    policy: Callable[[], Policy] = lambda: NO_POLICY
    telemetry: InitVar[Telemetry | None] = None
    only: InitVar[str] = ""
    namespaces: Namespaces = field(init=False)
    owners: Owners = field(init=False)
    ranks: Ranks = field(init=False)
    _telemetry: Telemetry | None = field(init=False)
    _is_ahead: bool = field(init=False)

    def __post_init__(self, telemetry: Telemetry | None, only: str) -> None:
        self._telemetry, self._is_ahead = telemetry, False
        self.namespaces = Namespaces(self.cluster, telemetry, only)
        self.owners, self.ranks = Owners(self.cluster, self.kinds), Ranks(self.cluster)

    async def decide(self, snapshot: Snapshot, rule: KindRule) -> Decision:
        """Evaluate an object, and return the decision alone.

        Raises:
            TryLaterError: The API server is busy or away.
        """
        return (await self.evaluate(snapshot, rule)).decision

    async def evaluate(self, snapshot: Snapshot, rule: KindRule) -> Evaluation:
        """Decide about an object at the API server's clock; read the facts that the decision needs.

        Args:
            snapshot: The object, and the API server's time.
            rule: The object's kind.

        Raises:
            TryLaterError: The API server is busy or away.
        """
        self._report_clock(snapshot.ahead)
        obj, name, owner = snapshot.obj, _namespace_of(snapshot.obj), get_controller(snapshot.obj)
        fallen: Sequence[RankedObject] = ()

        async def find_fact(reason: Reason, context: Context) -> Context:
            nonlocal fallen
            match reason:
                case Reason.OWNER_UNFINISHED:
                    is_unfinished = owner is not None and await self.owners.is_unfinished(owner)
                    context = replace(context, owner_unfinished=is_unfinished)
                case Reason.AGGREGATED_API:
                    context = replace(context, aggregated=await self.cluster.is_aggregated(rule))
                case Reason.KEPT_LAST:
                    rank = await self.ranks.rank(obj, rule, context)
                    context, fallen = replace(context, newer=rank.newer), rank.fallen
            if reason is Reason.NAMESPACE_UNREAD or context.namespace is not None:
                # A slow read of another fact may have made the namespace too old.
                context = replace(context, namespace=await self.namespaces.get(name))
            return context

        context = Context(
            self.policy(), self.namespaces.get_cached(name), owner is not None, aggregated=rule.may_be_aggregated
        )
        decisions, context = await decide_with(find_fact, snapshot, rule, context=context)
        return Evaluation(decisions[-1], fallen, context, at=_now())

    def is_still_due(self, evaluation: Evaluation, snapshot: Snapshot, rule: KindRule) -> bool:
        """Check, just before the DELETE, that the decision still holds.

        It does not hold if the policy changed, or if it is older than `DECIDED_SECONDS`. If the namespace was read
        again, `decide` is called again. The cached namespace is at most `NAMESPACE_AGE_SECONDS_MAX` old. This method
        awaits nothing, so no slow read comes between this check and the DELETE.

        Returns:
            False if the object is not due any more, or if a fact is too old.
        """
        policy, namespace = self.policy(), self.namespaces.get_cached(_namespace_of(snapshot.obj))
        if policy is not evaluation.context.policy or _now() - evaluation.at > DECIDED_SECONDS:
            return False
        if namespace is evaluation.context.namespace:
            return True
        context = replace(evaluation.context, namespace=namespace)
        return isinstance(decide(snapshot.obj, rule, snapshot.read_at, context), Expire)

    def _report_clock(self, ahead: timedelta) -> None:
        """Report the problem once while it lasts; the verdict of each waiting object has the reason, too."""
        if ahead and not self._is_ahead and self._telemetry:
            self._telemetry.problem(CLOCK_AHEAD, ahead_seconds=round(ahead.total_seconds()))
        self._is_ahead = bool(ahead)

    def may_expire(self, obj: Any, rule: KindRule) -> bool:
        """Return whether an object may be due now or later, by its metadata and the cached namespace."""
        return may_expire(obj, rule, Context(self.policy(), self.namespaces.get_cached(_namespace_of(obj))))


def _now() -> float:
    return asyncio.get_running_loop().time()


def _namespace_of(obj: Any) -> str:
    return get_text(obj, "metadata.namespace")
