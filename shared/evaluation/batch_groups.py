"""The decisions of the loop about one object of a batch, and the groups that show which of them applies."""

from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any

from shared.core.decision.capacity import (
    BEYOND_COUNT,
    FULL_PRESSURE,
    NO_PRESSURE,
    WITHIN_COUNT,
    QuotaPressure,
    QuotaUsage,
)
from shared.core.decision.decide import Context, Decision, Expire, Facts, Ignore, Reason
from shared.core.decision.facts import MISSING, Fact
from shared.core.decision.ranks import (
    Leaving,
    RankedObject,
    RankGroup,
    RankGroups,
    find_counted,
    find_pressed,
    find_ranked,
    is_kept,
)
from shared.core.values.objects import ObjectRef
from shared.errors import PermanentError
from shared.evaluation.evaluator import DecisionT, find_lacking
from shared.evaluation.ranks import KnownQuotas

_Run = Callable[[Context], Awaitable[tuple[Decision, ...]]]


@dataclass(frozen=True, slots=True)
class LoopDecisions:
    """The decisions of the loop about one object under one policy, each without the fact that the one before lacks.

    Attributes:
        usual: With no limit in effect.
        beyond: If the object is beyond maxCount; empty if no rule has one.
        pressed: If the object has to go because of a quota; empty if no rule has whenQuotaAbove.
    """

    usual: tuple[Decision, ...]
    beyond: tuple[Decision, ...] = ()
    pressed: tuple[Decision, ...] = ()

    @classmethod
    async def find(cls, run: _Run, context: Context) -> "LoopDecisions":
        """Run the loop, once more for each limit that may take effect."""
        usual = await run(context)
        facts = usual[-1].facts
        beyond: tuple[Decision, ...] = ()
        pressed: tuple[Decision, ...] = ()
        if facts.count_rule is not None:
            beyond = await run(replace(context, counted=BEYOND_COUNT, pressure=NO_PRESSURE))
        if facts.quota_rule is not None:
            pressed = await run(replace(context, counted=WITHIN_COUNT, pressure=FULL_PRESSURE))
        return cls(usual, beyond, pressed)

    @property
    def needs_owner(self) -> bool:
        """Return whether the owner of the object may keep it."""
        return any(map(_needs_owner, (*self.usual, *self.beyond, *self.pressed)))


def _needs_owner(decision: Decision) -> bool:
    return Fact.OWNER in find_lacking(decision)


def _kept_by(decision: Decision) -> Reason | None:
    return decision.reason if isinstance(decision, Ignore) else None


@dataclass(slots=True)
class BatchGroups:
    """The objects of a batch that the rules of one policy count."""

    _groups: RankGroups = field(default_factory=RankGroups)
    _pressed_groups: defaultdict[RankGroup, list[RankedObject]] = field(default_factory=lambda: defaultdict(list))
    _pressed: dict[str, RankedObject] = field(default_factory=dict)
    _leaving: dict[tuple[RankGroup, Sequence[QuotaUsage]], Leaving] = field(default_factory=dict)
    _waiting: list[tuple[RankedObject, RankedObject | None]] = field(default_factory=list)
    _live: Counter[tuple[str, str, str]] = field(default_factory=Counter)

    def add(self, ref: ObjectRef, owner: ObjectRef | None, decisions: LoopDecisions) -> None:
        """Add an object under the fields of the policy rules that count it."""
        self._live[_place_of(ref)] += decisions.usual[0].reason is not Reason.TERMINATING
        first = decisions.usual[0]
        if ranked := find_ranked(ref, first.reason, first.facts):
            self._groups.add(ranked)
        if counted := _counted(ref, decisions):
            self._groups.add(counted)
        if decisions.pressed:
            last = decisions.pressed[-1]
            owner = owner if any(map(_needs_owner, decisions.pressed)) else None
            if pressed := find_pressed(ref, _kept_by(last), last.facts, owner=owner):
                self._waiting.append((pressed, ranked))

    def settle(self, unfinished: Mapping[str, bool | None]) -> None:
        """Put the objects in order, once all are added; neither keepLast nor an owner keeps an object for a quota.

        Args:
            unfinished: Whether each owner that may keep an object is unfinished, by uid; None if that is unknown: then
                the object stays, and no younger one goes in its place.
        """
        self._groups.sort()
        for pressed, ranked in self._waiting:
            is_ranked_out = ranked is None or not is_kept(self._groups.count_newer(ranked), ranked.kept)
            is_unfinished = pressed.owner is not None and unfinished.get(pressed.owner.uid)
            if is_ranked_out and not is_unfinished:
                self._pressed_groups[pressed.group].append(pressed)
            if is_ranked_out and is_unfinished is False:
                self._pressed[pressed.ref.uid] = pressed
        for objects in self._pressed_groups.values():
            objects.sort(key=lambda one: one.place)

    def choose(
        self,
        ref: ObjectRef,
        decisions: LoopDecisions,
        quotas: KnownQuotas,
        *,
        read_at: datetime,
        owner_unfinished: bool | None,
    ) -> Decision:
        """The decision at which the loop ends if it has the facts."""

        def pick(chain: Sequence[Decision]) -> Decision:
            """The first decision whose missing fact keeps the object, or keeps it from being due sooner."""
            counted = (self._count(ref, one) for one in chain)
            applying = next(one for one in counted if _applies(one, owner_unfinished=owner_unfinished))
            return _with_rank_read(with_owner_read(applying, owner_unfinished=owner_unfinished))

        usual = pick(decisions.usual)
        unread = usual.facts.unread
        if _LIMITS.isdisjoint(unread):
            return usual
        usual = _with(usual, unread=())
        if Fact.PLACE in unread and (ranked := _counted(ref, decisions)):
            counted, is_due_later = self._groups.count(ranked, listed=ranked), usual.facts.due_at is not None
            usual = pick(decisions.beyond) if counted.since is not None else usual
            usual = _with_ranks(usual, counted=counted, pressure=None)
            # A limit of a rule with audit takes effect only if no other limit does.
            if (usual.facts.early and not usual.facts.audited_by) or not is_due_later:
                return usual
        return self._choose_pressed(ref, usual, partial(pick, decisions.pressed), quotas, read_at)

    def _choose_pressed(
        self,
        ref: ObjectRef,
        usual: Decision,
        pick_pressed: Callable[[], Decision],
        quotas: KnownQuotas,
        read_at: datetime,
    ) -> Decision:
        """The decision if the quotas, too, are known; maxCount does not make the object due."""
        facts = usual.facts
        if facts.quota_rule is None or facts.due_at is None:
            return usual
        if isinstance(quotas, PermanentError):
            return _with(usual, unread=(*facts.unread, Fact.QUOTAS), problem=str(quotas))
        pressure = self._pressure(ref, quotas, facts, read_at)
        if pressure.is_over(facts.quota_rule.when_quota_above or 0):
            pressed = pick_pressed()
            is_sooner = isinstance(pressed, Expire) or (pressed.facts.early and not pressed.facts.audited_by)
            unread = () if is_sooner else dict.fromkeys((*facts.unread, *pressed.facts.unread))
            usual = _with(_with_ranks(pressed, counted=facts.counted), unread=tuple(unread))
        return _with_ranks(usual, pressure=pressure)

    def _pressure(self, ref: ObjectRef, quotas: Sequence[QuotaUsage], facts: Facts, read_at: datetime) -> QuotaPressure:
        pressure = QuotaPressure(tuple(quotas), read_at=read_at)
        percent = facts.quota_rule.when_quota_above or 0 if facts.quota_rule else 0
        if not pressure.excess(percent):
            return pressure
        pressure, pressed = replace(pressure, live=self._live[_place_of(ref)]), self._pressed.get(ref.uid)
        older = None if pressed is None else self._find_leaving(pressed.group, pressure).count_older(pressed)
        return replace(pressure, older=older)

    def _find_leaving(self, group: RankGroup, pressure: QuotaPressure) -> Leaving:
        """The oldest objects of a group, as many as have to go."""
        known = self._leaving.get((group, pressure.quotas))
        if known is None:
            known = self._leaving[group, pressure.quotas] = Leaving(pressure)
            for one in self._pressed_groups[group]:
                if known.must_include(one):
                    known.objects.append(one)
        return known

    def _count(self, ref: ObjectRef, decision: Decision) -> Decision:
        """The decision, with the number of objects of its group that finished later."""
        ranked = find_ranked(ref, decision.reason, decision.facts)
        return decision if ranked is None else _with(decision, newer=self._groups.count_newer(ranked))


def _counted(ref: ObjectRef, decisions: LoopDecisions) -> RankedObject | None:
    """How maxCount counts an object."""
    if not decisions.beyond:
        return None
    last = decisions.beyond[-1]
    return find_counted(ref, _kept_by(last), last.facts)


def _place_of(ref: ObjectRef) -> tuple[str, str, str]:
    return ref.api_version, ref.kind, ref.namespace


def _with(decision: Decision, **facts: Any) -> Decision:
    return replace(decision, facts=replace(decision.facts, **facts))


def _with_ranks(decision: Decision, **ranks: Any) -> Decision:
    """The decision with the facts about a limit, also in the facts by which an object is due without an audit."""
    otherwise = decision.facts.otherwise
    return _with(decision, **ranks, otherwise=otherwise and replace(otherwise, **ranks))


_LIMITS = frozenset({Fact.PLACE, Fact.QUOTAS})


def _applies(decision: Decision, *, owner_unfinished: bool | None) -> bool:
    """Return whether the loop ends at a decision: the fact that it lacks does not change it."""
    facts, lacking = decision.facts, find_lacking(decision)
    if Fact.OWNER in lacking:
        return owner_unfinished is not False
    if Fact.RANK in lacking:
        rule = facts.keep_last_rule
        return is_kept(facts.newer, rule.kept_of(facts.finish.outcome) if rule else None)
    return True


def with_owner_read(decision: DecisionT, *, owner_unfinished: bool | None) -> DecisionT:
    """A decision that lacked the owner, which keeps the object, once the owner was read."""
    return decision if owner_unfinished is None else _with_read(decision, Fact.OWNER, Reason.OWNER_UNFINISHED)


def _with_rank_read(decision: Decision) -> Decision:
    """A decision that lacked the rank, which keeps the object, once the group was counted."""
    return decision if decision.facts.newer is None else _with_read(decision, Fact.RANK, Reason.KEPT_LAST)


def _with_read(decision: DecisionT, fact: Fact, reason: Reason) -> DecisionT:
    """The decision with the reason that a fact is once it was read."""
    unread = tuple(one for one in decision.facts.unread if one is not fact)
    reason = reason if MISSING.get(decision.reason) is fact else decision.reason
    return replace(decision, reason=reason, facts=replace(decision.facts, unread=unread))
