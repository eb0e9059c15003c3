"""Mark unused objects, remove marks, and announce deletions: one PATCH each, and only if the state changes."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from shared.core.policy.policy_rule import PolicyRule
from shared.core.usage.decide_unused import (
    Keep,
    RecordUse,
    RemoveMark,
    SetMark,
    UnusedDecision,
    UnusedFacts,
    WaitUntil,
)
from shared.core.usage.mark import (
    ANNOUNCEMENT_MANAGER,
    MARK_MANAGER,
    USE_MANAGER,
    announcement_patch,
    is_announced,
    is_marked,
    mark_patch,
    read_announcement,
    unmark_patch,
    use_patch,
)
from shared.core.usage.unused_reasons import UnusedReason
from shared.core.values.objects import format_instant, ref_of
from shared.errors import PermanentError
from shared.evaluation.usage_reader import Target
from shared.ports import EventReason, Verdict
from shared.usecases.usage.handler import UsageHandler

NOTICE = timedelta(minutes=5)
"""The least time between the announcement of a deletion and the DELETE, unless the interval of the ticks is shorter."""


@dataclass(frozen=True, slots=True)
class UsageMarks:
    """Writes the marks and the announcements."""

    handler: UsageHandler

    @property
    def _notice(self) -> timedelta:
        return min(NOTICE, self.handler.interval)

    async def apply(self, target: Target, decision: UnusedDecision, *, now: datetime) -> bool:
        """Write what a decision says, and report it.

        Args:
            target: The object.
            decision: The decision by one pass.
            now: The API server's time of the decision.

        Returns:
            Whether the object is due and its deletion was announced in time: a second pass has to confirm it.

        Raises:
            ConflictError: The object has changed, or is gone.
            TryLaterError: The API server is busy or away.
            PermanentError: The API server refuses for good.
        """
        match decision:
            case SetMark():
                await self._mark(target, decision)
            case RecordUse():
                await self._record_use(target, decision)
            case RemoveMark(reason):
                await self.remove(target, reason)
            case WaitUntil(until, _, facts):
                if not await self._announce_early(target, until, facts, now):
                    self._record_kept(target, decision)
            case Keep(UnusedReason.UNCONFIRMED | UnusedReason.AUDIT_ONLY, facts):
                return await self._is_announced(target, facts, now)
            case _:
                if is_announced(target.obj) and not is_marked(target.obj):
                    await self._withdraw(target)
                self._record_kept(target, decision)
        return False

    async def remove(self, target: Target, reason: UnusedReason) -> None:
        """Remove the mark and the announcement of an object; see `apply`."""
        ref = ref_of(target.obj)
        if self.handler.dry_run:
            self.handler.record(Verdict.KEPT, ref, reason)
            return
        await self.handler.patch(target, unmark_patch(), manager=MARK_MANAGER)
        self.handler.record(Verdict.UNMARKED, ref, reason)

    async def _mark(self, target: Target, mark: SetMark) -> None:
        ref = ref_of(target.obj)
        if self.handler.dry_run:
            self.handler.record(Verdict.KEPT, ref, mark.reason)
            return
        await self.handler.patch(target, mark_patch(mark.at, mark.hash_of_writes), manager=MARK_MANAGER)
        self.handler.record(Verdict.MARKED, ref, mark.reason, detail=_name(mark.facts.rule))

    async def _record_use(self, target: Target, use: RecordUse) -> None:
        ref, has_mark = ref_of(target.obj), is_marked(target.obj) or is_announced(target.obj)
        if self.handler.dry_run:
            self.handler.record(Verdict.KEPT, ref, use.reason)
            return
        try:
            await self.handler.patch(target, use_patch(use.at, is_marked=has_mark), manager=USE_MANAGER)
        except PermanentError as error:  # the object is in use, and stays: that is no failure
            self.handler.record(Verdict.KEPT, ref, use.reason, detail=f"its use cannot be recorded: {error}")
            return
        self.handler.record(Verdict.UNMARKED if has_mark else Verdict.RECORDED, ref, use.reason)

    async def _announce_early(self, target: Target, until: datetime, facts: UnusedFacts, now: datetime) -> bool:
        """Announce the deletion of an object that is due before the next tick.

        An announcement for an earlier instant than `until` is withdrawn: the TTL was raised. One that holds stays, also
        if this process would announce later: another process with longer intervals may have written it.

        Returns:
            Whether the deletion was announced now.
        """
        announcement = read_announcement(target.obj)
        holds = announcement is not None and announcement.at >= until.replace(microsecond=0)
        if _is_audit(facts) or (until > now + self.handler.interval and not holds):
            if is_announced(target.obj):
                await self._withdraw(target)
            return False
        if self.handler.dry_run or announcement is not None:
            return False
        await self._announce(target, until, facts, now)
        return True

    async def _is_announced(self, target: Target, facts: UnusedFacts, now: datetime) -> bool:
        """Announce the deletion of an object that is due; True if that was done long enough ago."""
        ref = ref_of(target.obj)
        if _is_audit(facts):
            if is_announced(target.obj):
                await self._withdraw(target)
            self.handler.record(Verdict.WOULD_DELETE, ref, UnusedReason.AUDIT_ONLY, detail=_name(facts.rule))
            return False
        if self.handler.dry_run:
            self.handler.record(Verdict.WOULD_DELETE, ref, UnusedReason.UNUSED, detail=_name(facts.rule))
            return False
        announcement = read_announcement(target.obj)
        if announcement is None:
            await self._announce(target, now, facts, now)
            return False
        announced_for = max(announcement.at, announcement.written_at + self._notice)
        if now < announced_for:
            detail = f"its deletion is announced for {format_instant(announced_for)}"
            self.handler.record(Verdict.KEPT, ref, UnusedReason.UNCONFIRMED, detail=detail)
            return False
        return True

    async def _announce(self, target: Target, due_at: datetime, facts: UnusedFacts, now: datetime) -> None:
        at = max(due_at, now + self._notice).replace(microsecond=0)
        await self.handler.patch(target, announcement_patch(at), manager=ANNOUNCEMENT_MANAGER)
        ref = ref_of(target.obj)
        self.handler.record(Verdict.ANNOUNCED, ref, UnusedReason.NOT_DUE, detail=f"deleted after {format_instant(at)}")
        self.handler.write_event(ref, EventReason.UNUSED, _describe(target, at, facts), level="Normal")

    async def _withdraw(self, target: Target) -> None:
        if not self.handler.dry_run:
            await self.handler.patch(target, announcement_patch(None), manager=ANNOUNCEMENT_MANAGER)

    def _record_kept(self, target: Target, decision: UnusedDecision) -> None:
        """Record that an object is kept that a policy rule would have deleted."""
        if decision.facts.rule is not None:
            detail = decision.facts.problem
            self.handler.record(Verdict.KEPT, ref_of(target.obj), decision.reason, detail=detail)


def _is_audit(facts: UnusedFacts) -> bool:
    return facts.rule is not None and facts.rule.audits_unused


def _name(rule: PolicyRule | None) -> str:
    return rule.source if rule else ""


def _describe(target: Target, at: datetime, facts: UnusedFacts) -> str:
    """The message of the Event that announces a deletion."""
    ref = ref_of(target.obj)
    since = f" since {format_instant(facts.marked_at)}" if facts.marked_at else ""
    kept_by = f"kubectl ttl hold {ref.kind.lower()}/{ref.name} -n {ref.namespace} --reason WHY"
    until = f"deleted after {format_instant(at)} by {_name(facts.rule)}, unless an object refers to it"
    return f"nothing has referred to it{since}; {until}. To keep it, run: {kept_by}"
