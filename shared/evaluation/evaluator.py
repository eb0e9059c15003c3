"""Evaluate an object that was read: read only the facts that `decide` needs, and decide.

These facts are the namespace if it may matter, the owner if it may keep the object, and the rank if a rule keeps the
newest objects. If a fact cannot be read, the object is kept, and the reason names the fact.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import InitVar, dataclass, field, replace
from datetime import timedelta
from typing import Any

from shared.core.decide import Context, Decision, Expire, Reason, decide, may_expire
from shared.core.facts import NOTHING_KNOWN
from shared.core.finish import finish_of
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
"""How long a decision to delete counts; after that, owner and rank are read again."""

CLOCK_AHEAD = "the API server's clock is too far ahead: objects wait until they are due by the local clock as well"
"""A problem for the operator: one of the two clocks is wrong, or a proxy writes its own Date header."""


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
    ranks: Ranks = field(init=False)
    _telemetry: Telemetry | None = field(init=False)
    _is_ahead: bool = field(init=False)

    def __post_init__(self, telemetry: Telemetry | None, only: str) -> None:
        self._telemetry, self._is_ahead = telemetry, False
        self.namespaces = Namespaces(self.cluster, telemetry, only)
        self.ranks = Ranks(self.cluster)

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
        obj, now, ahead = snapshot.obj, snapshot.read_at, snapshot.ahead
        self._report_clock(ahead)
        namespace, owned = self.namespaces.get_cached(_namespace_of(obj)), get_controller(obj) is not None
        context = Context(self.policy(), namespace, owned, rule.may_be_aggregated)
        evaluation = Evaluation(decide(obj, rule, now, context, ahead=ahead), (), context, _now())
        read: set[Reason] = set()
        while (reason := evaluation.decision.reason) in _MISSING and reason not in read:
            read.add(reason)
            try:
                context, fallen = await self._read_fact(reason, snapshot, rule, context)
                if context.namespace is not None:  # a slow read may have made it too old
                    context = replace(context, namespace=await self.namespaces.get(_namespace_of(obj)))
            except PermanentError as error:
                return Evaluation(_unread(evaluation.decision, str(error)))
            evaluation = Evaluation(decide(obj, rule, now, context, ahead=ahead), fallen, context, _now())
        return evaluation

    def is_still_due(self, evaluation: Evaluation, snapshot: Snapshot, rule: KindRule) -> bool:
        """Decide again, just before the DELETE, by the present policy and the cached namespace.

        This method awaits nothing, so no slow read comes between this decision and the DELETE. The namespace was read
        at most `FRESH_SECONDS` ago; the owner and the rank were read for a decision at most `DECIDED_SECONDS` ago.

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
        """Whether an object may be due now or later, by its metadata and the cached namespace."""
        return may_expire(obj, rule, Context(self.policy(), self.namespaces.get_cached(_namespace_of(obj))))

    async def _read_fact(
        self, reason: Reason, snapshot: Snapshot, rule: KindRule, context: Context
    ) -> tuple[Context, Sequence[RankedObject]]:
        """Read the fact that the reason names as missing."""
        obj = snapshot.obj
        if reason is Reason.NAMESPACE_UNREAD:
            namespace = await self.namespaces.get(_namespace_of(obj))
            if namespace is None:
                raise PermanentError(f"there is no namespace {_namespace_of(obj)}")
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
"""Reasons that also apply while a fact is missing."""


def _now() -> float:
    return asyncio.get_running_loop().time()


def _namespace_of(obj: Any) -> str:
    return get_text(obj, "metadata.namespace")


def _unread(decision: Decision, problem: str) -> Decision:
    """The decision, with the problem why a fact could not be read."""
    return replace(decision, facts=replace(decision.facts, problem=problem))


async def is_unfinished(owner: ObjectRef, *, cluster: Cluster, kinds: Catalogue) -> bool:
    """Whether the owner is unfinished, or may be: an unreadable owner, or one of an unknown kind, is unfinished.

    An owner that is gone does not keep its dependents; the garbage collector is about to delete them. If the kind of
    the owner is not served, or the reference is invalid, the owner counts as unfinished. A CronJob
    never finishes, but its kind rule has `dependents: free`, so it does not keep its dependents.
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
