"""Decide about many objects under several policies, with each object read once.

Most facts that `decide` needs are among the objects themselves: the owner of a Pod is a Job, and a rule counts objects
of one kind. So the evaluator stores only the decisions about each object: one for each missing fact that may keep it,
and the decision if none of them does. Once all objects are added, the owners and the ranks show which decision applies.
The results are those of `Evaluator`, which evaluates each object alone.
"""

import asyncio
import sys
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from shared.core.decide import Context, Decision, Facts, Reason, decide
from shared.core.finish import Finish
from shared.core.kinds.rule import KindRule
from shared.core.namespaces import Namespace
from shared.core.objects import ObjectRef, get_controller, ref_of
from shared.core.policy.policy import Policy

OWNERS_AT_ONCE = 16
"""Concurrent reads of owners that were not among the objects."""

IsUnfinished = Callable[[ObjectRef], Awaitable[bool]]
"""See `shared.evaluation.evaluator.is_unfinished`."""

_Steps = tuple[Decision, ...]
_Group = tuple[str, str, str, str, bool, str]
_Places = defaultdict[_Group, list[tuple[datetime, str]]]
"""When the objects of each group finished, and their uids."""


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
    """One object; each step is the decision if the missing fact of the step before does not keep the object."""

    ref: ObjectRef
    rule: KindRule
    now: datetime
    owner: ObjectRef | None
    steps: tuple[_Steps, ...]


@dataclass
class BatchEvaluator:
    """Evaluates the objects of one cluster or one file.

    Attributes:
        policies: Each object is evaluated under each policy.
    """

    policies: Sequence[Policy]
    _cases: list[_BatchCase] = field(default_factory=list)
    _unfinished: dict[str, bool] = field(default_factory=dict)
    _places: tuple[_Places, ...] = field(init=False)

    def __post_init__(self) -> None:
        self._places = tuple(defaultdict(list) for _ in self.policies)

    def add(  # noqa: PLR0913 - the facts beside the object
        self,
        obj: Any,
        rule: KindRule,
        now: datetime,
        namespace: Namespace | None,
        problem: str = "",
        *,
        aggregated: bool = False,
        ahead: timedelta = timedelta(0),
    ) -> None:
        """Add one object.

        Args:
            obj: The object; it is not kept in memory.
            rule: The object's kind.
            now: When it was read.
            namespace: The object's namespace; None if it could not be read.
            problem: Why the namespace could not be read.
            aggregated: Whether an aggregated API server serves the kind, or may.
            ahead: See `decide`.
        """
        ref, owner = ref_of(obj), get_controller(obj)
        steps: list[_Steps] = []
        for policy, places in zip(self.policies, self._places, strict=True):
            finish = steps[0][0].facts.finish if steps else None
            decide_in = partial(decide, obj, rule, now, ahead=ahead)
            decisions = _steps(decide_in, Context(policy, namespace, owner is not None, aggregated), finish)
            first = decisions[0]
            if first.reason is Reason.NAMESPACE_UNREAD and problem:
                decisions = (replace(first, facts=replace(first.facts, problem=problem)),)
            if (group := _group(ref, first)) and first.facts.finish.at is not None:
                places[group].append((first.facts.finish.at, ref.uid))
            steps.append(decisions)
        if ref.uid:
            self._unfinished[ref.uid] = rule.keeps_dependents(is_finished=steps[0][0].facts.finish.finished)
        self._cases.append(_BatchCase(ref, rule, now, owner, tuple(steps)))

    async def settle(self, is_unfinished: IsUnfinished) -> list[BatchResult]:
        """Return the decisions about each object, in the order in which the objects were added.

        Args:
            is_unfinished: Called once for each owner that may keep an object and was not added.
        """
        await self._read_owners(is_unfinished)
        for places in self._places:
            for group in places.values():
                group.sort()
        return list(self._settled())

    async def _read_owners(self, is_unfinished: IsUnfinished) -> None:
        wanted = {one.owner.uid: one.owner for one in self._cases if one.owner and _needs_owner(one.steps)}
        missing = iter([owner for uid, owner in wanted.items() if uid not in self._unfinished])

        async def work() -> None:
            for owner in missing:
                self._unfinished[owner.uid] = await is_unfinished(owner)

        async with asyncio.TaskGroup() as group:
            for _ in range(OWNERS_AT_ONCE):
                group.create_task(work())

    def _settled(self) -> Iterator[BatchResult]:
        for case in self._cases:
            pairs = zip(case.steps, self._places, strict=True)
            yield BatchResult(case.ref, case.rule, case.now, tuple(self._last(case, *pair) for pair in pairs))

    def _last(self, case: _BatchCase, steps: _Steps, places: _Places) -> Decision:
        """The first step that applies."""
        counted = [_count(case.ref, one, places) for one in steps]
        for decision in counted[:-1]:
            if decision.reason is Reason.OWNER_UNFINISHED:
                if case.owner is None or self._unfinished[case.owner.uid]:
                    return decision
            elif _keeps(decision.facts):
                return decision
        return counted[-1]


def _steps(decide_in: Callable[..., Decision], context: Context, finish: Finish | None) -> _Steps:
    decision = decide_in(context, finish=finish)
    finish = decision.facts.finish
    if decision.reason is Reason.OWNER_UNFINISHED:
        return decision, *_steps(decide_in, replace(context, owner_unfinished=False), finish)
    if decision.reason is Reason.KEPT_LAST and context.newer is None:
        return decision, *_steps(decide_in, replace(context, newer=sys.maxsize), finish)
    return (decision,)


def _needs_owner(steps: Iterable[_Steps]) -> bool:
    return any(one[0].reason is Reason.OWNER_UNFINISHED for one in steps)


def _group(ref: ObjectRef, decision: Decision) -> _Group | None:
    """The group in which an object is counted; None if no rule counts it, or it is terminating."""
    facts = decision.facts
    if facts.keeper is None or facts.finish.at is None or decision.reason is Reason.TERMINATING:
        return None
    apart = facts.keeper.counts_apart(facts.finish.outcome)
    return ref.api_version, ref.kind, ref.namespace, facts.keeper.name, apart, facts.group


def _count(ref: ObjectRef, decision: Decision, places: _Places) -> Decision:
    """The decision, with the number of objects of its group that finished later."""
    group, at = _group(ref, decision), decision.facts.finish.at
    if group is None or at is None:
        return decision
    newer = len(places[group]) - bisect_right(places[group], (at, ref.uid))
    return replace(decision, facts=replace(decision.facts, newer=newer))


def _keeps(facts: Facts) -> bool:
    """Whether the rank of an object keeps it."""
    kept = facts.keeper.kept_of(facts.finish.outcome) if facts.keeper else None
    return facts.newer is None or facts.newer < (kept or 0)
