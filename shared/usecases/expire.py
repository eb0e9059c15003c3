"""A timer fired: look again, and delete exactly what is due."""

import asyncio
import math
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from shared.core.backoff import backoff_seconds, jitter_of
from shared.core.decide import Decision, Expire, Facts, Ignore, Reason, Wait
from shared.core.jitter import jittered
from shared.core.kinds.catalogue import Catalogue
from shared.core.kinds.rule import KindRule
from shared.core.objects import ObjectRef, get_in, ref_of
from shared.core.ttl.overridden import advise_overridden, describe_overridden
from shared.errors import AbsentKindError, ConflictError, OutdatedError, PermanentError, TryLaterError, TtlError
from shared.evaluation.evaluator import Evaluation, Evaluator
from shared.evaluation.served import find_served
from shared.messages import ATTEMPTS_MAX as ATTEMPTS_COUNTED_MAX
from shared.messages import ObjectDeleted, Purpose, Timer, TimersSet
from shared.ports import Clock, Cluster, Snapshot, Telemetry, Verdict
from shared.safeguards.safeguards import Delayed, Denied, Safeguard, Safeguards
from shared.usecases.deletion import REFUSALS_MAX, UnchangedError, refused_for_good, send_delete

ATTEMPTS_MAX = 5
"""Reads and decisions for one timer while others keep writing the object; then the timer comes back later."""

EXPIRE_SECONDS_MAX = 20.0
"""For one timer, well inside the 30 s of the Trigger's delivery: a webhook that hangs is answered with a retry."""

CLOCKS_APART_MAX = timedelta(minutes=5)
"""How far the timer engine's clock may be ahead of the API server's: beyond this a timer's own word is forged."""


@dataclass(frozen=True, slots=True)
class Expiry:
    """Deletes due objects, one at a time; what the event path and the sweep share.

    Attributes:
        cluster: The API server.
        catalogue: The kinds that may be deleted.
        evaluator: Decides, and remembers for a moment what it read for that.
        clock: This process's clock, for lateness and for timers only: what is due is told by the API server's.
        telemetry: Told of every verdict.
        dry_run: Decide and report; delete nothing and write nothing.
        namespace: Only objects in this namespace; empty for all.
        safeguards: Asked before each DELETE, and told what became of it; None asks nobody.
        by: The function that acts, in logs and metrics.
    """

    cluster: Cluster
    catalogue: Catalogue
    evaluator: Evaluator
    clock: Clock
    telemetry: Telemetry
    dry_run: bool
    by: str = "expire"
    namespace: str = ""
    safeguards: Safeguards | None = None

    async def expire(self, timer: Timer) -> ObjectDeleted | TimersSet | None:
        """Delete the timer's object if it is due; answer with what happened.

        While the API server is busy or away, the answer is a timer for the next attempt. After a 503 a Broker would
        retry the event, which holds a place of the timer engine meanwhile, and drop it in the end.

        Returns:
            ObjectDeleted; TimersSet where the object is due later, or could not be dealt with now; otherwise None.

        Raises:
            PermanentError: The API server refuses for good.
        """
        try:
            async with asyncio.timeout(EXPIRE_SECONDS_MAX):
                return await self._expire_enabled(timer)
        except TryLaterError as error:
            return self._retry(timer, str(error), least=error.retry_after_seconds)
        except TimeoutError:
            return self._retry(timer, f"no decision within {EXPIRE_SECONDS_MAX:g} s")

    def _retry(self, timer: Timer, why: str, *, least: float = 0.0) -> TimersSet:
        """The timer for the next attempt, after a back-off that grows with each attempt that failed."""
        pause = backoff_seconds(timer.attempts, least=least, jitter=jitter_of(timer.ref.uid, timer.attempts))
        again_at = self._now(timer.due_at) + timedelta(seconds=pause)
        self.telemetry.record(Verdict.TIMER_SET, timer.ref, "try-later", detail=why, by=self.by, due_at=again_at)
        attempts = min(timer.attempts + 1, ATTEMPTS_COUNTED_MAX)
        return TimersSet(timers=(timer.model_copy(update={"due_at": again_at, "attempts": attempts}),))

    async def _expire_enabled(self, timer: Timer) -> ObjectDeleted | TimersSet | None:
        if not self.catalogue.of(timer.ref.group, timer.ref.kind):
            self.telemetry.record(Verdict.KEPT, timer.ref, "kind-not-enabled", by=self.by)
            return None
        if self.namespace not in ("", timer.ref.namespace):
            self.telemetry.record(Verdict.KEPT, timer.ref, "namespace-not-enabled", by=self.by)
            return None
        try:
            rule = await self.find_rule(timer.ref.group, timer.ref.kind)
            return await self._expire(rule, timer.ref, timer.due_at)
        except AbsentKindError as error:
            self.telemetry.record(Verdict.KEPT, timer.ref, "kind-not-served", detail=str(error), by=self.by)
            return None
        except PermanentError as error:
            await self.report(timer.ref, error)
            raise

    async def find_rule(self, group: str, kind: str) -> KindRule:
        """The rule of an enabled kind, as the cluster serves it; see `find_served`."""
        return await find_served(group, kind, cluster=self.cluster, kinds=self.catalogue)

    async def _expire(self, rule: KindRule, ref: ObjectRef, fired_at: datetime) -> ObjectDeleted | TimersSet | None:
        refusals = 0
        for attempt in range(ATTEMPTS_MAX):
            snapshot = self.cluster.get_cached(ref) if attempt == 0 else None
            evaluation = await self.evaluator.evaluate(snapshot, rule) if snapshot else None
            # What is remembered may be outdated. It can only ever say yes, and the DELETE's preconditions prove it;
            # any other answer is asked for again, of the API server.
            if evaluation is None or not isinstance(evaluation.decision, Expire):
                snapshot = await self.cluster.get(rule, ref)
                evaluation = await self.evaluator.evaluate(snapshot, rule) if snapshot else None
            if snapshot is None or evaluation is None or not ref.is_same(ref_of(snapshot.obj)):
                self.telemetry.record(Verdict.ALREADY_GONE, ref, by=self.by)
                return None
            try:
                return await self._carry_out(evaluation, rule, snapshot, fired_at=fired_at)
            except UnchangedError as error:
                refusals += 1
                if refusals == REFUSALS_MAX:
                    raise refused_for_good(_propagating(rule, evaluation.decision.facts), snapshot.obj, error) from None
            except (ConflictError, OutdatedError):
                continue
        raise TryLaterError(f"{ref}: what its deletion rests on changed {ATTEMPTS_MAX} times, or took too long to read")

    async def act(
        self, rule: KindRule, snapshot: Snapshot, *, missed_before: datetime
    ) -> ObjectDeleted | TimersSet | None:
        """Decide about an object of many that are looked at, and do what was decided.

        Whom it pushes out of its group is looked at, too, so no timer is set for that: it would hasten what is spread.

        Args:
            rule: The object's kind.
            snapshot: The object, and the API server's time.
            missed_before: What was due before this instant counts as missed by the events.

        Raises:
            ConflictError: The object is not any more what was read.
            TryLaterError: The API server is busy or away, or too slow for a decision to count.
        """
        for _ in range(ATTEMPTS_MAX):
            evaluation = replace(await self.evaluator.evaluate(snapshot, rule), fallen=())
            with suppress(OutdatedError):
                return await self._carry_out(evaluation, rule, snapshot, missed_before=missed_before)
        raise TryLaterError(f"{ref_of(snapshot.obj)}: what its deletion rests on took too long to read")

    async def _carry_out(
        self,
        evaluation: Evaluation,
        rule: KindRule,
        snapshot: Snapshot,
        *,
        missed_before: datetime | None = None,
        fired_at: datetime | None = None,
    ) -> ObjectDeleted | TimersSet | None:
        """Do what was decided; `fired_at` is an instant that the timer engine's clock has reached."""
        ref = ref_of(snapshot.obj)
        await self._report_doubts(rule, snapshot.obj, evaluation.decision)
        match evaluation.decision:
            case Ignore(reason, facts):
                self.telemetry.record(Verdict.KEPT, ref, reason, detail=facts.problem, by=self.by)
                return _timers((one.ref, one.due_at) for one in evaluation.fallen)
            case Wait(until, reason):
                self.telemetry.record(Verdict.TIMER_SET, ref, reason, by=self.by, due_at=until)
                return _timers([(ref, self._again_at(until, snapshot, fired_at))])
            case Expire(since, reason, facts):
                if self.dry_run:
                    self.telemetry.record(Verdict.WOULD_DELETE, ref, reason, detail=facts.summary(), by=self.by)
                    return None
                missed = missed_before is not None and since < missed_before
                rest_at = _jittered(ref, facts, self.clock.now()) if missed else None
                if rest_at is not None:
                    self.telemetry.record(Verdict.TIMER_SET, ref, "jitter", by=self.by, due_at=rest_at)
                    return _timers([(ref, rest_at)])
                held_back = await self._ask(rule, snapshot)
                if held_back is not None:
                    return await self._hold_back(ref, held_back, fired_at)
                if not self.evaluator.is_still_due(evaluation, snapshot, rule):  # from here on nothing is read
                    self._not_deleted(rule, ref)
                    raise OutdatedError(f"{ref}: what was decided about it does not hold any more")
                return await self._delete(_propagating(rule, facts), snapshot, facts, since, missed=missed)

    async def _delete(
        self, rule: KindRule, snapshot: Snapshot, facts: Facts, since: datetime, *, missed: bool
    ) -> ObjectDeleted | None:
        ref = ref_of(snapshot.obj)
        if not await self._send(rule, snapshot, ref):
            self.telemetry.record(Verdict.ALREADY_GONE, ref, by=self.by)
            return None
        deleted_at = self.clock.now()
        deleted = ObjectDeleted(
            ref=ref,
            outcome=facts.finish.outcome,
            finished_at=facts.finish.at,
            ttl_from=facts.ttl.source if facts.ttl else "",
            due_at=since,
            deleted_at=deleted_at,
            lateness_seconds=(deleted_at - since).total_seconds(),
        )
        self.telemetry.deleted(deleted, by=self.by, missed=missed, finalizers=_list_finalizers(snapshot.obj))
        return deleted

    async def _ask(self, rule: KindRule, snapshot: Snapshot) -> Denied | Delayed | None:
        """The safeguards, the brake at last."""
        if self.safeguards is None:
            return None
        held_back = await self.safeguards.ask(rule, snapshot.obj, by=self.by)
        return held_back or await self._ask_brake(self.safeguards, rule, ref_of(snapshot.obj))

    async def _ask_brake(self, safeguards: Safeguards, rule: KindRule, ref: ObjectRef) -> Denied | None:
        """The last read before the DELETE; what was counted as deleted is given back if it is kept."""
        try:
            stopped = await safeguards.ask_brake()
        except BaseException:  # cut off by the time limit, too
            safeguards.not_deleted(rule, ref)
            raise
        if stopped:
            safeguards.not_deleted(rule, ref)
        return stopped

    async def _hold_back(
        self, ref: ObjectRef, held_back: Denied | Delayed, fired_at: datetime | None
    ) -> TimersSet | None:
        """The object is due, and stays for now."""
        if isinstance(held_back, Denied):
            self.telemetry.record(Verdict.KEPT, ref, held_back.reason, detail=held_back.detail, by=self.by)
            if held_back.event:
                await self._write_event(ref, "RecreateLoop", held_back.event)
            return None
        again_at = self._now(fired_at) + timedelta(seconds=held_back.seconds)
        self.telemetry.record(Verdict.TIMER_SET, ref, Safeguard.BUDGET, by=self.by, due_at=again_at)
        return TimersSet(timers=(Timer(ref=ref, purpose=Purpose.EXPIRE, due_at=again_at),))

    async def _send(self, rule: KindRule, snapshot: Snapshot, ref: ObjectRef) -> bool:
        """DELETE; what was counted as deleted and is not, is given back. No answer at all counts: it may be gone."""
        try:
            is_accepted = await send_delete(self.cluster, rule, snapshot.obj)
        except (ConflictError, PermanentError):
            self._not_deleted(rule, ref)
            raise
        except BaseException:  # cut off by the time limit, too
            if self.safeguards:
                self.safeguards.unanswered(ref)
            raise
        if self.safeguards and is_accepted:
            self.safeguards.deleted(snapshot.obj)
        elif not is_accepted:
            self._not_deleted(rule, ref)
        return is_accepted

    def _not_deleted(self, rule: KindRule, ref: ObjectRef) -> None:
        if self.safeguards:
            self.safeguards.not_deleted(rule, ref)

    def _again_at(self, until: datetime, snapshot: Snapshot, fired_at: datetime | None) -> datetime:
        """When to look again at an object that is not due yet, by the timer engine's clock.

        Where our clock, or the engine's, already says that it is due, the API server's is behind. The rest is waited
        for as the API server counts it, or the timer would come straight back; in whole seconds, a read tells no more.
        """
        now = self.clock.now()
        if fired_at is not None:
            now = max(now, min(fired_at, snapshot.read_at + CLOCKS_APART_MAX))
        if until > now:
            return until
        return now + timedelta(seconds=math.ceil((until - snapshot.read_at).total_seconds()))

    def _now(self, fired_at: datetime | None) -> datetime:
        """The timer engine's present, as far as it is known: its clock may be ahead of ours."""
        now = self.clock.now()
        return now if fired_at is None else max(now, min(fired_at, now + CLOCKS_APART_MAX))

    async def report(self, ref: ObjectRef, error: PermanentError) -> None:
        """A permanent error is seen once, where people look: log, metric, and an Event on the object."""
        self.telemetry.record(Verdict.FAILED, ref, type(error).__name__, detail=str(error), by=self.by)
        await self._write_event(ref, "DeletionRefused", str(error))

    async def _report_doubts(self, rule: KindRule, obj: Mapping[str, Any], decision: Decision) -> None:
        """Say where people look what cannot be read, and what has no power."""
        facts, ref = decision.facts, ref_of(obj)
        if decision.reason in _INVALID and facts.problem:
            what = "kept" if facts.problem_of is None else "everything in it is kept"
            await self._write_event(facts.problem_of or ref, _INVALID[decision.reason], f"{what}: {facts.problem}")
        elif decision.reason is Reason.SERVER_CLOCK_AHEAD:
            await self._write_event(ref, "ServerClockAhead", _CLOCK_AHEAD)
        elif facts.overridden and not isinstance(decision, Expire) and decision.reason is not Reason.TERMINATING:
            told = f"{describe_overridden(obj, rule, facts.overridden)}; {advise_overridden(facts.overridden)}"
            await self._write_event(ref, "OverriddenTtl", told)

    async def _write_event(self, ref: ObjectRef, reason: str, message: str) -> None:
        if self.dry_run:
            return
        try:
            await self.cluster.record_event(ref, reason, message)
        except TtlError as error:  # the verdict stands, told or not
            about = {"object": str(ref), "api_version": ref.api_version}
            self.telemetry.problem("could not write an Event", **about, error=str(error))


def _list_finalizers(obj: Mapping[str, Any]) -> tuple[str, ...]:
    """What the API server waits for after it accepted a DELETE."""
    finalizers = get_in(obj, "metadata.finalizers")
    return tuple(map(str, finalizers)) if isinstance(finalizers, list) else ()


_CLOCK_AHEAD = (
    "waits until it is due by the clock of ttl-after-finished as well: the Date of the API server is too far ahead; "
    "ttl-after-finished doctor says more"
)

_INVALID = {Reason.INVALID_TTL: "InvalidTtl", Reason.INVALID_POLICY: "InvalidPolicy"}
"""Reasons of Events, for what cannot be read."""


def _timers(due: Iterable[tuple[ObjectRef, datetime | None]]) -> TimersSet | None:
    timers = tuple(Timer(ref=ref, purpose=Purpose.EXPIRE, due_at=at) for ref, at in due if at is not None)
    return TimersSet(timers=timers) if timers else None


def _jittered(ref: ObjectRef, facts: Facts, now: datetime) -> datetime | None:
    """When to look again at what is overdue, where its rule spreads that out; None where it is not."""
    jitter = facts.policy_rule.jitter if facts.policy_rule else None
    return jittered(ref.uid, now, jitter) if jitter else None


def _propagating(rule: KindRule, facts: Facts) -> KindRule:
    """The kind, deleted as the policy rule says."""
    asked = facts.policy_rule.propagation if facts.policy_rule else None
    return rule if asked in (None, rule.propagation) else rule.model_copy(update={"propagation": asked})
