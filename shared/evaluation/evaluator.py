"""Evaluate an object that was read: read only the facts that `decide` needs, and decide.

These facts are the namespace if it may matter, the owner if it may keep the object, the rank if a rule keeps the
newest objects, the object from which a TTL may be inherited, the archive if one is wanted, and the children of a due
object if the policy has archives. If a fact cannot be read, the object is kept, and the reason names the fact.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import InitVar, dataclass, field, replace
from datetime import timedelta
from typing import Any, Generic, TypeVar

from shared.core.archive.decide_archive import ArchiveDecision, decide_archive, may_archive
from shared.core.archive.gate import AWAITS_CHILDREN
from shared.core.deadlines.decide_stop import Stop, StopDecision, decide_stop, may_stop
from shared.core.decision.capacity import QuotaPressure
from shared.core.decision.decide import Context, Decision, Expire, Ignore, Wait, decide, may_expire
from shared.core.decision.facts import MISSING, NOTHING_KNOWN, UNREAD_CHILDREN, Fact
from shared.core.decision.finish import Finish, finish_of
from shared.core.decision.ranks import RankedObject
from shared.core.kinds.rule import Catalogue, KindRule
from shared.core.policy.policy import NO_POLICY, Policy
from shared.core.values.objects import get_controller, get_text
from shared.errors import PermanentError
from shared.evaluation.archive_check import ArchiveCheck
from shared.evaluation.child_check import ChildCheck
from shared.evaluation.memories import LostMarks, SentWarnings
from shared.evaluation.namespaces_and_owners import Namespaces, Owners, with_owner
from shared.evaluation.ranks import FALLEN_MAX, Quotas, Ranks
from shared.evaluation.ttl_sources import TtlSources
from shared.ports import Archives, Cluster, Snapshot, Telemetry, loop_now

FindFact = Callable[[Fact, Context], Awaitable[Context]]
"""Returns the context with a missing fact; raises PermanentError if it cannot be found."""

DecisionT = TypeVar("DecisionT", bound=Decision | StopDecision | ArchiveDecision)
"""A decision about the TTL, the active deadline, or the archive."""

Decide = Callable[..., DecisionT]
"""`decide`, `decide_stop` or `decide_archive`, which have the same arguments."""


async def decide_with(  # noqa: PLR0913 - all inputs of a decision
    decide: Decide[DecisionT],
    find_fact: FindFact,
    snapshot: Snapshot,
    rule: KindRule,
    *,
    context: Context,
    finish: Finish | None = None,
) -> tuple[Sequence[DecisionT], Context]:
    """Decide; while the decision lacks a fact, find that fact and decide again.

    Args:
        decide: The pure function that decides.
        find_fact: Finds a missing fact.
        snapshot: The object, and the API server's time.
        rule: The object's kind.
        context: The facts that are known.
        finish: The finish from an earlier decision about the object.

    Returns:
        Each decision on the way, and the context of the last one, which counts. If a fact cannot be found, the last
        decision keeps the object, and has the problem.
    """
    decisions: list[DecisionT] = []
    asked: set[Fact] = set()
    while True:
        decision = decide(snapshot.obj, rule, snapshot.read_at, context, finish=finish, ahead=snapshot.ahead)
        decisions.append(decision)
        finish = decision.facts.finish
        fact = next((one for one in find_lacking(decision) if one not in asked), None)
        if fact is None:
            return decisions, context
        asked.add(fact)
        try:
            context = await find_fact(fact, context)
        except PermanentError as error:
            decisions[-1] = replace(decision, facts=replace(decision.facts, problem=str(error)))
            return decisions, context


def find_lacking(decision: Decision | StopDecision | ArchiveDecision) -> Sequence[Fact]:
    """The facts that a decision lacks: the one that its reason names, else those that may make the object due sooner.

    If one of the latter cannot be found, the decision stays. An object that waits for its children needs none of them:
    it is due, and is evaluated again soon.
    """
    if (fact := MISSING.get(decision.reason)) is not None:
        return (fact,)
    return () if decision.reason in AWAITS_CHILDREN else decision.facts.unread


@dataclass(slots=True)
class _FactFinder:
    """Finds the facts about one object.

    Attributes:
        evaluator: What reads the facts, and caches them.
        snapshot: The object, and the API server's time.
        rule: The object's kind.
        fallen: Objects of its group that have to be evaluated because of this object.
    """

    evaluator: "Evaluator"
    snapshot: Snapshot
    rule: KindRule
    fallen: Sequence[RankedObject] = ()

    async def find(self, fact: Fact, context: Context) -> Context:
        """See `FindFact`."""
        context = await self._find(fact, context)
        if fact is Fact.NAMESPACE or context.namespace is not None:
            # A slow read of another fact may have made the namespace too old.
            namespace = await self.evaluator.namespaces.get(get_text(self.snapshot.obj, "metadata.namespace"))
            context = replace(context, namespace=namespace)
        return context

    async def _find(self, fact: Fact, context: Context) -> Context:
        evaluator, obj = self.evaluator, self.snapshot.obj
        match fact:
            case Fact.NAMESPACE:
                return context
            case Fact.OWNER:
                owner = get_controller(obj)
                is_unfinished = owner is not None and await evaluator.owners.find_unfinished(owner)
                return replace(context, owner_unfinished=is_unfinished)
            case Fact.INHERITED:
                return replace(context, inherited=await evaluator.ttl_sources.get(obj, self.rule))
            case Fact.API:
                return replace(context, aggregated=await evaluator.cluster.is_aggregated(self.rule))
            case Fact.CHILDREN:
                return replace(context, children=await evaluator.child_check.find(obj, self.rule, context))
            case Fact.ARCHIVE:
                return replace(context, archived=await evaluator.archive_check.find(obj, self.rule, context))
        return await self._find_rank(fact, context)

    async def _find_rank(self, fact: Fact, context: Context) -> Context:
        evaluator, obj, rule = self.evaluator, self.snapshot.obj, self.rule
        match fact:
            case Fact.RANK:
                rank = await evaluator.ranks.rank(obj, rule, context)
                self.fallen = rank.fallen
                return replace(context, newer=rank.newer)
            case Fact.PLACE:
                rank = await evaluator.ranks.rank(obj, rule, context, "maxCount")
                self.fallen = (*self.fallen, *rank.fallen)
                return replace(context, counted=rank.counted)
        quotas = await evaluator.quotas.of(get_text(obj, "metadata.namespace"), rule, after=finish_of(obj, rule).at)
        pressure = QuotaPressure(quotas, read_at=self.snapshot.read_at)
        pressure, leaving = await evaluator.ranks.press(obj, rule, context, pressure)
        self.fallen = (*self.fallen, *leaving[:FALLEN_MAX])
        return replace(context, pressure=pressure)


DECIDED_SECONDS = 1.0
"""How long a decision to delete counts. After that, the object is evaluated again: the owner is read, and the rank
comes from a LIST that is at most `RANK_AGE_SECONDS_MAX` old."""

CLOCK_AHEAD = "the API server's clock is too far ahead: objects wait until they are due by the local clock as well"
"""A problem for the operator: one of the two clocks is wrong, or a proxy writes its own Date header."""


@dataclass(frozen=True, slots=True)
class Evaluation(Generic[DecisionT]):
    """A decision, and the objects that have to be evaluated because of this object.

    Attributes:
        fallen: Objects of the group that its rule no longer keeps, because this object finished later.
        context: The facts of the decision beside the object.
        at: When the decision was made, in seconds of the loop's clock.
    """

    decision: DecisionT
    fallen: Sequence[RankedObject] = ()
    context: Context = NOTHING_KNOWN
    at: float = 0.0


AnyEvaluation = Evaluation[Decision] | Evaluation[StopDecision] | Evaluation[ArchiveDecision]


@dataclass
class Evaluator:
    """Evaluates objects of one cluster; all callers share its cache of namespaces and groups.

    Attributes:
        cluster: Where the facts are read.
        kinds: All known kinds, enabled or not, since an owner may be of another kind.
        policy: Returns the present policy.
        telemetry: Receives a problem if namespaces may not be read, or the API server's clock is too far ahead.
        only: The only namespace of this process; empty for all.
        archives: The archives of the policy; None if this process can reach none.
        enabled: The kinds that this process may delete; None for all known kinds.
    """

    cluster: Cluster
    kinds: Catalogue
    policy: Callable[[], Policy] = lambda: NO_POLICY
    telemetry: InitVar[Telemetry | None] = None
    only: InitVar[str] = ""
    archives: Archives | None = None
    enabled: Catalogue | None = None
    namespaces: Namespaces = field(init=False)
    owners: Owners = field(init=False)
    ranks: Ranks = field(init=False)
    ttl_sources: TtlSources = field(init=False)
    quotas: Quotas = field(init=False)
    archive_check: ArchiveCheck = field(init=False)
    child_check: ChildCheck = field(init=False)
    lost_marks: LostMarks = field(init=False, default_factory=LostMarks)
    warnings: SentWarnings = field(init=False, default_factory=SentWarnings)
    _telemetry: Telemetry | None = field(init=False)
    _is_ahead: bool = field(init=False)
    _last_context: Context = field(init=False, default=NOTHING_KNOWN)

    def __post_init__(self, telemetry: Telemetry | None, only: str) -> None:
        self._telemetry, self._is_ahead = telemetry, False
        self.ttl_sources = TtlSources(self.cluster, telemetry)
        self.namespaces = Namespaces(self.cluster, telemetry, only)
        self.owners, self.quotas = Owners(self.cluster, self.kinds), Quotas(self.cluster, telemetry)
        self.ranks = Ranks(self.cluster, self.owners, self.ttl_sources)
        self.archive_check = ArchiveCheck(self.archives)
        enabled = self.enabled or self.kinds
        self.child_check = ChildCheck(self.cluster, self.kinds, enabled, self.archive_check, self.namespaces)

    async def decide(self, snapshot: Snapshot, rule: KindRule) -> Decision:
        """Evaluate an object, and return the decision alone.

        Raises:
            TryLaterError: The API server is busy or away.
        """
        return (await self.evaluate(snapshot, rule)).decision

    async def evaluate(self, snapshot: Snapshot, rule: KindRule) -> Evaluation[Decision]:
        """Decide about the TTL of an object at the API server's clock; read the facts that the decision needs.

        Args:
            snapshot: The object, and the API server's time.
            rule: The object's kind.

        Raises:
            TryLaterError: The API server is busy or away.
        """
        started = loop_now()
        found = await self._evaluate(decide, snapshot, rule)
        if _relies_on_memory(found):
            found = await self._read_back(found, snapshot, rule)
        again = await self._decide_again(decide, found, snapshot, rule, started=started)
        return replace(again, at=-DECIDED_SECONDS) if _relies_on_memory(again) else again

    async def _decide_again(
        self,
        decide: Decide[DecisionT],
        found: Evaluation[DecisionT],
        snapshot: Snapshot,
        rule: KindRule,
        *,
        started: float,
    ) -> Evaluation[DecisionT]:
        """Decide again if the archive or the children were slow: the owner and the rank may have changed meanwhile."""
        archived, children = found.context.archived, found.context.children
        is_slow = loop_now() - started > DECIDED_SECONDS and (
            archived is not None or children not in (None, UNREAD_CHILDREN)
        )
        if not is_slow or isinstance(found.decision, Ignore | Wait):
            return found
        known = replace(self._first_context(snapshot, rule), policy=found.context.policy, archived=archived)
        return await self._evaluate(decide, snapshot, rule, replace(known, children=children))

    async def _read_back(self, found: Evaluation[Decision], snapshot: Snapshot, rule: KindRule) -> Evaluation[Decision]:
        """Decide again about a due object by what its archive holds now."""
        obj, context = snapshot.obj, replace(found.context, archived=None)
        try:
            context = replace(context, archived=await self.archive_check.read_back(obj, rule, found.context))
            context = replace(context, namespace=await self.namespaces.get(_namespace_of(obj)))
            problem = ""
        except PermanentError as error:
            problem = str(error)
        decision = decide(obj, rule, snapshot.read_at, context, ahead=snapshot.ahead)
        if problem:
            decision = replace(decision, facts=replace(decision.facts, problem=problem))
        return replace(found, decision=decision, context=context)

    async def evaluate_archive(self, snapshot: Snapshot, rule: KindRule) -> Evaluation[ArchiveDecision]:
        """Decide whether an object is archived now; see `evaluate`."""
        return await self._evaluate(decide_archive, snapshot, rule)

    async def evaluate_stop(self, snapshot: Snapshot, rule: KindRule) -> Evaluation[StopDecision]:
        """Decide about the active deadline of an object, by what this process knows of its stops; see `evaluate`."""
        started = loop_now()
        found = await self._evaluate(decide_stop, snapshot, rule)
        found = await self._decide_again(decide_stop, found, snapshot, rule, started=started)
        return replace(found, decision=self.lost_marks.checked(get_text(snapshot.obj, "metadata.uid"), found.decision))

    async def _evaluate(
        self, decide: Decide[DecisionT], snapshot: Snapshot, rule: KindRule, known: Context | None = None
    ) -> Evaluation[DecisionT]:
        self._report_clock(snapshot.ahead)
        finder, known = _FactFinder(self, snapshot, rule), known or self._first_context(snapshot, rule)
        decisions, context = await decide_with(decide, finder.find, snapshot, rule, context=known)
        return Evaluation(decisions[-1], finder.fallen, context, at=loop_now())

    def _first_context(self, snapshot: Snapshot, rule: KindRule) -> Context:
        """What is known without a read."""
        namespace = self.namespaces.get_cached(_namespace_of(snapshot.obj))
        policy = self.policy()
        children = UNREAD_CHILDREN if policy.archives else None
        known = Context(policy, namespace, aggregated=None, children=children)
        return with_owner(known, snapshot.obj, rule, self.kinds)

    def is_still_due(self, evaluation: AnyEvaluation, snapshot: Snapshot, rule: KindRule) -> bool:
        """Check, just before the DELETE or the stop, that the decision still holds.

        It does not hold if the policy changed, or if it is older than `DECIDED_SECONDS`. If the namespace was read
        again, `decide` is called again. The cached namespace is at most `NAMESPACE_AGE_SECONDS_MAX` old. This method
        awaits nothing, so no slow read comes between this check and the DELETE.

        Returns:
            False if the object is not due any more, or if a fact is too old.
        """
        policy, namespace = self.policy(), self.namespaces.get_cached(_namespace_of(snapshot.obj))
        if policy is not evaluation.context.policy or loop_now() - evaluation.at > DECIDED_SECONDS:
            return False
        if namespace is evaluation.context.namespace:
            return True
        context = replace(evaluation.context, namespace=namespace)
        is_stop = isinstance(evaluation.decision, Stop)
        again = (decide_stop if is_stop else decide)(snapshot.obj, rule, snapshot.read_at, context)
        return not isinstance(again, Ignore | Wait)

    def _report_clock(self, ahead: timedelta) -> None:
        """Report the problem once while it lasts; the verdict of each waiting object has the reason, too."""
        if ahead and not self._is_ahead and self._telemetry:
            self._telemetry.problem(CLOCK_AHEAD, ahead_seconds=round(ahead.total_seconds()))
        self._is_ahead = bool(ahead)

    def may_expire(self, obj: Any, rule: KindRule) -> bool:
        """Return whether an object may be due now or later, by its metadata and the cached namespace."""
        return may_expire(obj, rule, self._cached_context(obj))

    def may_stop(self, obj: Any, rule: KindRule) -> bool:
        """Return whether a deadline may be set for an object, by its metadata and the cached namespace."""
        return may_stop(obj, rule, self._cached_context(obj))

    def may_archive(self, obj: Any, rule: KindRule) -> bool:
        """Return whether an archive may be wanted for an object, by its metadata and the cached namespace."""
        return may_archive(obj, rule, self._cached_context(obj))

    def _cached_context(self, obj: Any) -> Context:
        policy, namespace = self.policy(), self.namespaces.get_cached(_namespace_of(obj))
        known = self._last_context  # objects of one namespace follow each other in a LIST
        if known.policy is not policy or known.namespace is not namespace:
            known = self._last_context = Context(policy, namespace)
        return known


def _relies_on_memory(found: Evaluation[Decision]) -> bool:
    """Return whether an object is due by an acknowledgement that was not read back for this decision."""
    archived = found.decision.facts.archived
    return isinstance(found.decision, Expire) and archived is not None and not archived.is_read_back


def _namespace_of(obj: Any) -> str:
    return get_text(obj, "metadata.namespace")
