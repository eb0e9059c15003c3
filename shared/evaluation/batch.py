"""Decide about many objects under several policies, with each object read once.

The objects go through the loop of the evaluator, `decide_with`. But the facts that it asks for are among the objects
themselves: the owner of a Pod is a Job, and a policy rule counts objects of one kind. These facts are known after the
last object, and no object is kept in memory until then. So the loop first goes on as if no missing fact kept the
object, and its decisions are stored. Once all objects are added, the owners and the ranks show which decision applies.
The results are those of `Evaluator`, which evaluates each object alone.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial

from shared.core.decide import Context, Decision, Reason
from shared.core.kinds.rule import KindRule
from shared.core.namespaces import Namespace
from shared.core.objects import ObjectRef, get_controller, ref_of
from shared.core.policy.policy import Policy
from shared.core.ranks import RankGroups, find_ranked, is_kept
from shared.errors import PermanentError
from shared.evaluation.evaluator import FindFact, decide_with
from shared.ports import Snapshot

OWNERS_AT_ONCE = 16
"""Concurrent reads of owners that were not among the objects."""

IsUnfinished = Callable[[ObjectRef], Awaitable[bool]]
"""See `shared.evaluation.owners.Owners.is_unfinished`."""


@dataclass(frozen=True, slots=True)
class BatchResult:
    """One object, and the decisions about it.

    Attributes:
        rule: The object's kind.
        now: When it was read, by the API server's clock.
        decisions: One under each policy, in the order of the policies.
    """

    ref: ObjectRef
    rule: KindRule
    now: datetime
    decisions: Sequence[Decision]


@dataclass(slots=True)
class _BatchCase:
    """One object; under each policy the decisions of the loop, each without the fact that the one before lacks."""

    ref: ObjectRef
    rule: KindRule
    now: datetime
    owner: ObjectRef | None
    decisions: tuple[tuple[Decision, ...], ...]


@dataclass
class BatchEvaluator:
    """Evaluates the objects of one cluster or one file.

    Attributes:
        policies: Each object is evaluated under each policy.
    """

    policies: Sequence[Policy]
    _cases: list[_BatchCase] = field(default_factory=list)
    _unfinished: dict[str, bool] = field(default_factory=dict)
    _groups: tuple[RankGroups, ...] = field(init=False)

    def __post_init__(self) -> None:
        self._groups = tuple(RankGroups() for _ in self.policies)

    async def add(
        self,
        snapshot: Snapshot,
        rule: KindRule,
        namespace: Namespace | None,
        problem: str = "",
        *,
        aggregated: bool = False,
    ) -> None:
        """Add one object.

        Args:
            snapshot: The object, which is not kept in memory, and the time of the read.
            rule: The object's kind.
            namespace: The object's namespace; None if it could not be read.
            problem: Why the namespace could not be read.
            aggregated: Whether an aggregated API server serves the kind, or may.
        """
        ref, owner, finish = ref_of(snapshot.obj), get_controller(snapshot.obj), None
        find_fact = _assuming(problem)
        stored: list[tuple[Decision, ...]] = []
        for policy, groups in zip(self.policies, self._groups, strict=True):
            context = Context(policy, namespace, owner is not None, aggregated=aggregated)
            decisions, _ = await decide_with(find_fact, snapshot, rule, context=context, finish=finish)
            finish = decisions[0].facts.finish
            if ranked := find_ranked(ref, decisions[0].reason, decisions[0].facts):
                groups.add(ranked)
            stored.append(tuple(decisions))
        if ref.uid and finish:
            self._unfinished[ref.uid] = rule.keeps_dependents(is_finished=finish.finished)
        self._cases.append(_BatchCase(ref, rule, snapshot.read_at, owner, tuple(stored)))

    async def settle(self, is_unfinished: IsUnfinished) -> list[BatchResult]:
        """Return the decisions about each object, in the order in which the objects were added.

        Args:
            is_unfinished: Called once for each owner that may keep an object and was not added.
        """
        await self._read_owners(is_unfinished)
        for groups in self._groups:
            groups.sort()
        return [
            BatchResult(one.ref, one.rule, one.now, tuple(map(partial(self._settle, one), one.decisions, self._groups)))
            for one in self._cases
        ]

    async def _read_owners(self, is_unfinished: IsUnfinished) -> None:
        first = ((one.owner, decisions[0]) for one in self._cases for decisions in one.decisions)
        wanted = {owner.uid: owner for owner, decision in first if owner and decision.reason is Reason.OWNER_UNFINISHED}
        missing = iter([owner for uid, owner in wanted.items() if uid not in self._unfinished])

        async def work() -> None:
            for owner in missing:
                self._unfinished[owner.uid] = await is_unfinished(owner)

        async with asyncio.TaskGroup() as group:
            for _ in range(OWNERS_AT_ONCE):
                group.create_task(work())

    def _settle(self, case: _BatchCase, decisions: Sequence[Decision], groups: RankGroups) -> Decision:
        """The decision at which the loop ends if it has the facts: the first whose missing fact keeps the object."""
        counted = [_count(case.ref, one, groups) for one in decisions]
        return next(one for one in counted if self._applies(one, case.owner))

    def _applies(self, decision: Decision, owner: ObjectRef | None) -> bool:
        facts = decision.facts
        match decision.reason:
            case Reason.OWNER_UNFINISHED:
                return owner is None or self._unfinished[owner.uid]
            case Reason.KEPT_LAST:
                rule = facts.keep_last_rule
                return is_kept(facts.newer, rule.kept_of(facts.finish.outcome) if rule else None)
        return True


def _assuming(problem: str) -> FindFact:
    """Find no fact: assume that neither the owner nor the rank keeps the object."""

    async def find_fact(reason: Reason, context: Context) -> Context:
        match reason:
            case Reason.NAMESPACE_UNREAD:
                raise PermanentError(problem)
            case Reason.OWNER_UNFINISHED:
                return replace(context, owner_unfinished=False)
            case Reason.KEPT_LAST:
                return replace(context, newer=sys.maxsize)
        return context

    return find_fact


def _count(ref: ObjectRef, decision: Decision, groups: RankGroups) -> Decision:
    """The decision, with the number of objects of its group that finished later."""
    ranked = find_ranked(ref, decision.reason, decision.facts)
    if ranked is None:
        return decision
    return replace(decision, facts=replace(decision.facts, newer=groups.count_newer(ranked)))
