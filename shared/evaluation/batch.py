"""Decide about many objects under several policies, with each object read once.

The objects go through the loop of the evaluator, `decide_with`. But the facts that it asks for are among the objects
themselves: the owner of a Pod is a Job, and a policy rule counts objects of one kind. These facts are known after the
last object, and no object is kept in memory until then. So the loop first goes on as if no missing fact kept the
object, and its decisions are stored. Once all objects are added, the owners and the ranks show which decision applies.
If a limit by count or by quota may make the object due sooner, the loop runs once more for each limit, as if it did.
The results are those of `Evaluator`, which evaluates each object alone.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any

from shared.core.archive.archiving import ArchiveFact
from shared.core.deadlines.decide_stop import StopDecision, decide_stop
from shared.core.decision.decide import Context, Decision, decide
from shared.core.decision.facts import Fact
from shared.core.decision.finish import Finish
from shared.core.decision.namespaces import Namespace
from shared.core.kinds.rule import Catalogue, KindRule
from shared.core.policy.policy import Policy
from shared.core.ttl.ttl import InheritedFact
from shared.core.values.objects import ObjectRef, get_controller
from shared.errors import PermanentError
from shared.evaluation.batch_groups import BatchGroups, LoopDecisions, with_owner_read
from shared.evaluation.evaluator import FindFact, decide_with, find_lacking
from shared.evaluation.namespaces_and_owners import with_owner
from shared.evaluation.ranks import KnownQuotas
from shared.ports import Snapshot

OWNERS_AT_ONCE = 16
"""Concurrent reads of owners that were not among the objects."""

FindUnfinished = Callable[[ObjectRef], Awaitable[bool | None]]
"""See `shared.evaluation.namespaces_and_owners.Owners.find_unfinished`."""

FindInherited = Callable[[Any, KindRule], Awaitable[InheritedFact]]
"""See `shared.evaluation.ttl_sources.TtlSources.get`."""

FindArchived = Callable[[Any, KindRule, Context], Awaitable[ArchiveFact | None]]
"""See `shared.evaluation.archive_check.ArchiveCheck.find`."""


@dataclass(frozen=True, slots=True)
class BatchResult:
    """One object, and the decisions about it.

    Attributes:
        rule: The object's kind.
        now: When it was read, by the API server's clock.
        decisions: One under each policy, in the order of the policies.
        stops: The decisions about its active deadline, in the same order.
        owner: Its controller owner; None if it has none.
    """

    ref: ObjectRef
    rule: KindRule
    now: datetime
    decisions: Sequence[Decision]
    stops: Sequence[StopDecision]
    owner: ObjectRef | None = None


@dataclass(slots=True)
class _BatchCase:
    """One object, and the decisions of the loop under each policy."""

    ref: ObjectRef
    rule: KindRule
    now: datetime
    owner: ObjectRef | None
    decisions: tuple[LoopDecisions, ...]
    stops: tuple[tuple[StopDecision, ...], ...]
    quotas: KnownQuotas


@dataclass
class BatchEvaluator:
    """Evaluates the objects of one cluster or one file.

    Attributes:
        policies: Each object is evaluated under each policy.
        kinds: All known kinds, enabled or not, since an owner may be of another kind.
        find_inherited: Reads the object from which another inherits its TTL; None if none can be read.
        find_archived: Finds out whether an archive has acknowledged an object; None if no archive can be reached.
    """

    policies: Sequence[Policy]
    kinds: Catalogue
    find_inherited: FindInherited | None = None
    find_archived: FindArchived | None = None
    _cases: list[_BatchCase] = field(default_factory=list)
    _unfinished: dict[str, bool | None] = field(default_factory=dict)
    _groups: tuple[BatchGroups, ...] = field(init=False)

    def __post_init__(self) -> None:
        self._groups = tuple(BatchGroups() for _ in self.policies)

    async def add(  # noqa: PLR0913 - each is a fact about the object
        self,
        snapshot: Snapshot,
        rule: KindRule,
        namespace: Namespace | None,
        problem: str = "",
        *,
        aggregated: bool | None = False,
        quotas: KnownQuotas = (),
    ) -> None:
        """Add one object.

        Args:
            snapshot: The object, which is not kept in memory, and the time of the read.
            rule: The object's kind.
            namespace: The object's namespace; None if it could not be read.
            problem: Why the namespace could not be read.
            aggregated: Whether an aggregated API server serves the kind; None if that could not be read.
            quotas: The quotas that limit the number of objects of the kind, or why they could not be listed.
        """
        ref, owner, finish = snapshot.ref, get_controller(snapshot.obj), None
        of_object = (snapshot.obj, rule)
        find_fact = _assuming(problem, partial(self._inherited, *of_object), partial(self._archived, *of_object))
        stored: list[LoopDecisions] = []
        stops: list[tuple[StopDecision, ...]] = []
        for policy, groups in zip(self.policies, self._groups, strict=True):
            context = with_owner(Context(policy, namespace, aggregated=aggregated), snapshot.obj, rule, self.kinds)
            run = partial(_run, find_fact, snapshot, rule, finish)
            decisions = await LoopDecisions.find(run, context)
            finish = decisions.usual[0].facts.finish
            groups.add(ref, owner, decisions)
            stored.append(decisions)
            stopping, _ = await decide_with(decide_stop, find_fact, snapshot, rule, context=context, finish=finish)
            stops.append(tuple(stopping))
        if ref.uid and finish:
            self._unfinished[ref.uid] = rule.keeps_dependents(is_finished=finish.finished)
        self._cases.append(_BatchCase(ref, rule, snapshot.read_at, owner, tuple(stored), tuple(stops), quotas))

    async def _inherited(self, obj: Any, rule: KindRule) -> InheritedFact:
        if self.find_inherited is None:
            raise PermanentError("the object from which it inherits its TTL cannot be read")
        return await self.find_inherited(obj, rule)

    async def _archived(self, obj: Any, rule: KindRule, context: Context) -> ArchiveFact | None:
        if self.find_archived is None:
            raise PermanentError("the archive cannot be read from here")
        return await self.find_archived(obj, rule, context)

    async def settle(self, find_unfinished: FindUnfinished) -> list[BatchResult]:
        """Return the decisions about each object, in the order in which the objects were added.

        Args:
            find_unfinished: Called once for each owner that may keep an object and was not added.
        """
        await self._read_owners(find_unfinished)
        for groups in self._groups:
            groups.settle(self._unfinished)
        return [
            BatchResult(
                one.ref,
                one.rule,
                one.now,
                tuple(map(partial(self._settle, one), one.decisions, self._groups)),
                tuple(map(partial(self._settle_stop, one), one.stops)),
                one.owner,
            )
            for one in self._cases
        ]

    async def _read_owners(self, find_unfinished: FindUnfinished) -> None:
        wanted = {
            one.owner.uid: one.owner
            for one in self._cases
            if one.owner and (any(decisions.needs_owner for decisions in one.decisions) or _needs_owner_to_stop(one))
        }
        missing = iter([owner for uid, owner in wanted.items() if uid not in self._unfinished])

        async def work() -> None:
            for owner in missing:
                self._unfinished[owner.uid] = await find_unfinished(owner)

        async with asyncio.TaskGroup() as group:
            for _ in range(OWNERS_AT_ONCE):
                group.create_task(work())

    def _settle(self, case: _BatchCase, decisions: LoopDecisions, groups: BatchGroups) -> Decision:
        is_unfinished = self._is_owner_unfinished(case)
        return groups.choose(case.ref, decisions, case.quotas, read_at=case.now, owner_unfinished=is_unfinished)

    def _settle_stop(self, case: _BatchCase, stops: Sequence[StopDecision]) -> StopDecision:
        """The first decision whose missing fact leaves the object alone; a deadline depends on no rank."""
        is_unfinished = self._is_owner_unfinished(case)
        applying = next(one for one in stops if Fact.OWNER not in find_lacking(one) or is_unfinished is not False)
        return with_owner_read(applying, owner_unfinished=is_unfinished)

    def _is_owner_unfinished(self, case: _BatchCase) -> bool | None:
        return self._unfinished.get(case.owner.uid) if case.owner else None


def _needs_owner_to_stop(case: _BatchCase) -> bool:
    return any(Fact.OWNER in find_lacking(one) for decisions in case.stops for one in decisions)


async def _run(
    find_fact: FindFact, snapshot: Snapshot, rule: KindRule, finish: Finish | None, context: Context
) -> tuple[Decision, ...]:
    on_the_way, _ = await decide_with(decide, find_fact, snapshot, rule, context=context, finish=finish)
    return (*(one for one in on_the_way[:-1] if _FOUND.isdisjoint(find_lacking(one))), on_the_way[-1])


_FOUND = frozenset({Fact.INHERITED, Fact.ARCHIVE})
"""A decision that lacks one of these facts does not count if another one follows: the fact was then found."""


def _assuming(
    problem: str,
    find_inherited: Callable[[], Awaitable[InheritedFact]],
    find_archived: Callable[[Context], Awaitable[ArchiveFact | None]],
) -> FindFact:
    """Find only an inherited TTL and the archive: assume that neither the owner nor the rank keeps the object."""

    async def find_fact(fact: Fact, context: Context) -> Context:
        match fact:
            case Fact.NAMESPACE:
                raise PermanentError(problem)
            case Fact.INHERITED:
                return replace(context, inherited=await find_inherited())
            case Fact.OWNER:
                return replace(context, owner_unfinished=False)
            case Fact.RANK:
                return replace(context, newer=sys.maxsize)
            case Fact.ARCHIVE:
                return replace(context, archived=await find_archived(context))
        return context

    return find_fact
