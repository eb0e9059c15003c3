"""A timer fired: look again, and delete exactly what is due."""

import math
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from shared.core.decide import Decision, Expire, Facts, Ignore, Reason, Wait
from shared.core.kinds import Catalogue, KindRule
from shared.core.objects import ObjectRef, ref_of
from shared.core.powerless import advise_powerless, describe_powerless
from shared.core.spreading import spread
from shared.errors import AbsentKindError, ConflictError, PermanentError, TryLaterError, TtlError
from shared.messages import ObjectDeleted, Purpose, Timer, TimersSet
from shared.ports import Clock, Cluster, Snapshot, Telemetry, Verdict
from shared.usecases.judge import Judge, Judgement
from shared.usecases.restraint import Kept, PutOff, Restraint, Restraints
from shared.usecases.served import find_served

ATTEMPTS_MAX = 5
"""Reads and decisions for one timer while others keep writing the object; then the timer comes back later."""

CLOCKS_APART_MAX = timedelta(minutes=5)
"""How far the timer engine's clock may be ahead of the API server's: beyond this a timer's own word is forged."""


@dataclass(frozen=True, slots=True)
class Expiry:
    """Deletes due objects, one at a time; what the event path and the sweep share.

    Attributes:
        cluster: The API server.
        catalogue: The kinds that may be deleted.
        judge: Decides, and remembers for a moment what it read for that.
        clock: This process's clock, for lateness and for timers only: what is due is told by the API server's.
        telemetry: Told of every verdict.
        dry_run: Decide and report; delete nothing and write nothing.
        namespace: Only objects in this namespace; empty for all.
        restraints: Asked before each DELETE, and told what became of it; None asks nobody.
        by: The function that acts, in logs and metrics.
    """

    cluster: Cluster
    catalogue: Catalogue
    judge: Judge
    clock: Clock
    telemetry: Telemetry
    dry_run: bool
    by: str = "expire"
    namespace: str = ""
    restraints: Restraints | None = None

    async def expire(self, timer: Timer) -> ObjectDeleted | TimersSet | None:
        """Delete the timer's object if it is due; answer with what happened.

        Returns:
            ObjectDeleted; TimersSet where the object turns out to be due later; None where nothing is to be told.

        Raises:
            TryLaterError: The API server is busy or away, or the object changes faster than it can be read.
            PermanentError: The API server refuses for good.
        """
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
        for attempt in range(ATTEMPTS_MAX):
            snapshot = self.cluster.recall(ref) if attempt == 0 else None
            judgement = await self.judge.judge(snapshot, rule) if snapshot else None
            # What is remembered may be outdated. It can only ever say yes, and the DELETE's preconditions prove it;
            # any other answer is asked for again, of the API server.
            if judgement is None or not isinstance(judgement.decision, Expire):
                snapshot = await self.cluster.get(rule, ref)
                judgement = await self.judge.judge(snapshot, rule) if snapshot else None
            if snapshot is None or judgement is None or not ref.is_same(ref_of(snapshot.obj)):
                self.telemetry.record(Verdict.ALREADY_GONE, ref, by=self.by)
                return None
            with suppress(ConflictError):
                return await self._carry_out(judgement, rule, snapshot, fired_at=fired_at)
        raise TryLaterError(f"{ref} changed {ATTEMPTS_MAX} times while it was about to be deleted")

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
        """
        judgement = Judgement(await self.judge.decide(snapshot, rule))
        return await self._carry_out(judgement, rule, snapshot, missed_before=missed_before)

    async def _carry_out(
        self,
        judgement: Judgement,
        rule: KindRule,
        snapshot: Snapshot,
        *,
        missed_before: datetime | None = None,
        fired_at: datetime | None = None,
    ) -> ObjectDeleted | TimersSet | None:
        """Do what was decided; `fired_at` is an instant that the timer engine's clock has reached."""
        ref = ref_of(snapshot.obj)
        await self._tell_doubts(rule, snapshot.obj, judgement.decision)
        match judgement.decision:
            case Ignore(reason, facts):
                self.telemetry.record(Verdict.KEPT, ref, reason, detail=facts.problem, by=self.by)
                return _timers((one.ref, one.due_at) for one in judgement.fallen)
            case Wait(until, reason):
                self.telemetry.record(Verdict.TIMER_SET, ref, reason, by=self.by)
                return _timers([(ref, self._again_at(until, snapshot, fired_at))])
            case Expire(since, reason, facts):
                if self.dry_run:
                    self.telemetry.record(Verdict.WOULD_DELETE, ref, reason, detail=facts.summary(), by=self.by)
                    return None
                missed = missed_before is not None and since < missed_before
                rest_at = _spread(ref, facts, self.clock.now()) if missed else None
                if rest_at is not None:
                    self.telemetry.record(Verdict.TIMER_SET, ref, "jitter", by=self.by)
                    return _timers([(ref, rest_at)])
                held_back = await self._ask(rule, snapshot)
                if held_back is not None:
                    return await self._hold_back(ref, held_back, fired_at)
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
        self.telemetry.deleted(deleted, by=self.by, missed=missed)
        return deleted

    async def _ask(self, rule: KindRule, snapshot: Snapshot) -> Kept | PutOff | None:
        return await self.restraints.ask(rule, snapshot.obj, by=self.by) if self.restraints else None

    async def _hold_back(self, ref: ObjectRef, held_back: Kept | PutOff, fired_at: datetime | None) -> TimersSet | None:
        """The object is due, and stays for now."""
        if isinstance(held_back, Kept):
            self.telemetry.record(Verdict.KEPT, ref, held_back.reason, detail=held_back.detail, by=self.by)
            if held_back.event:
                await self._tell(ref, "RecreateLoop", held_back.event)
            return None
        self.telemetry.record(Verdict.TIMER_SET, ref, Restraint.BUDGET, by=self.by)
        now = self.clock.now()
        if fired_at is not None:  # the engine's clock may be ahead of ours
            now = max(now, min(fired_at, now + CLOCKS_APART_MAX))
        again_at = now + timedelta(seconds=held_back.seconds)
        return TimersSet(timers=(Timer(ref=ref, purpose=Purpose.EXPIRE, due_at=again_at),))

    async def _send(self, rule: KindRule, snapshot: Snapshot, ref: ObjectRef) -> bool:
        """DELETE; what was counted as deleted and is not, is given back. No answer at all counts: it may be gone."""
        try:
            is_accepted = await self.cluster.delete(rule, snapshot.obj)
        except (ConflictError, PermanentError):
            if self.restraints:
                self.restraints.spared(rule, ref)
            raise
        if self.restraints and is_accepted:
            self.restraints.deleted(snapshot.obj)
        elif self.restraints:
            self.restraints.spared(rule, ref)
        return is_accepted

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

    async def report(self, ref: ObjectRef, error: PermanentError) -> None:
        """A permanent error is seen once, where people look: log, metric, and an Event on the object."""
        self.telemetry.record(Verdict.FAILED, ref, type(error).__name__, detail=str(error), by=self.by)
        await self._tell(ref, "DeletionRefused", str(error))

    async def _tell_doubts(self, rule: KindRule, obj: Mapping[str, Any], decision: Decision) -> None:
        """Say where people look what cannot be read, and what has no power."""
        facts, ref = decision.facts, ref_of(obj)
        if decision.reason in _INVALID and facts.problem:
            what = "kept" if facts.problem_of is None else "everything in it is kept"
            await self._tell(facts.problem_of or ref, _INVALID[decision.reason], f"{what}: {facts.problem}")
        elif facts.powerless and not isinstance(decision, Expire) and decision.reason is not Reason.TERMINATING:
            told = f"{describe_powerless(obj, rule, facts.powerless)}; {advise_powerless(facts.powerless)}"
            await self._tell(ref, "PowerlessTtl", told)

    async def _tell(self, ref: ObjectRef, reason: str, message: str) -> None:
        if self.dry_run:
            return
        try:
            await self.cluster.record_event(ref, reason, message)
        except TtlError as error:  # the verdict stands, told or not
            about = {"object": str(ref), "api_version": ref.api_version}
            self.telemetry.problem("could not write an Event", **about, error=str(error))


_INVALID = {Reason.INVALID_TTL: "InvalidTtl", Reason.INVALID_POLICY: "InvalidPolicy"}
"""Reasons of Events, for what cannot be read."""


def _timers(due: Iterable[tuple[ObjectRef, datetime | None]]) -> TimersSet | None:
    timers = tuple(Timer(ref=ref, purpose=Purpose.EXPIRE, due_at=at) for ref, at in due if at is not None)
    return TimersSet(timers=timers) if timers else None


def _spread(ref: ObjectRef, facts: Facts, now: datetime) -> datetime | None:
    """When to look again at what is overdue, where its rule spreads that out; None where it is not."""
    jitter = facts.policy_rule.jitter if facts.policy_rule else None
    return spread(ref.uid, now, jitter) if jitter else None


def _propagating(rule: KindRule, facts: Facts) -> KindRule:
    """The kind, deleted as the policy rule says."""
    asked = facts.policy_rule.propagation if facts.policy_rule else None
    return rule if asked in (None, rule.propagation) else rule.model_copy(update={"propagation": asked})
