"""Timers: when those of an object are set, and what stores and fires them.

A timer fires by the clock of the timer engine, and an object is due by the clock of the API server. `fired_at` is an
instant that the engine's clock has reached: the due time of the timer that fired.
"""

import math
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from itertools import chain

from shared.core.decision.decide import Decision, Expire, Ignore, Reason, Wait
from shared.core.decision.facts import Facts
from shared.core.values.objects import ObjectRef
from shared.core.values.timing import backoff_seconds, jitter_of, jittered
from shared.errors import EventError
from shared.messages import ATTEMPTS_COUNTED_MAX, Proof, Purpose, Timer, TimersSet
from shared.ports import Clock, FiredTask, HandlingReason, Snapshot, TaskTimers, Telemetry, Timers, Verdict

SOON = timedelta(minutes=10)
"""If an object is due within this time, its namespace is read when the timer fires, and not at once."""

CHILD_ATTEMPTS_MAX = 12
"""So often an object that waits for a child is read again by timers, within some minutes: most children are archived by
then. Attempts that failed for other reasons count, too."""

CLOCKS_APART_MAX = timedelta(minutes=5)
"""How far the timer engine's clock may be ahead of the API server's; a timer that is further ahead is forged."""


def engine_now(fired_at: datetime | None, *, now: datetime) -> datetime:
    """The timer engine's present as far as it is known: its clock may be ahead of this process's clock."""
    return now if fired_at is None else max(now, min(fired_at, now + CLOCKS_APART_MAX))


def wait_until(until: datetime, snapshot: Snapshot, fired_at: datetime | None, *, now: datetime) -> datetime:
    """When to read an object again that is not due yet, by the timer engine's clock.

    If this process's clock or the engine's clock has reached `until`, the API server's clock is behind. Then the timer
    waits for the rest by the API server's clock, otherwise it would fire again at once. The rest is in whole seconds,
    since that is the precision of a read.

    Args:
        until: When the object is due.
        snapshot: The object, and the API server's time.
        fired_at: The due time of the timer that fired; None if no timer did.
        now: This process's present.
    """
    if fired_at is not None:
        now = max(now, min(fired_at, snapshot.read_at + CLOCKS_APART_MAX))
    if until > now:
        return until
    return now + timedelta(seconds=math.ceil((until - snapshot.read_at).total_seconds()))


def retry_of(timer: Timer, *, least: float, now: datetime) -> Timer:
    """The timer for the next attempt after one that failed; the back-off grows with each attempt that failed.

    Args:
        timer: The timer of the attempt that failed.
        least: Seconds to wait at the least.
        now: This process's present.
    """
    pause = backoff_seconds(timer.attempts, least=least, jitter=jitter_of(timer.ref.uid, timer.attempts))
    due_at = engine_now(timer.due_at, now=now) + timedelta(seconds=pause)
    return timer.model_copy(update={"due_at": due_at, "attempts": min(timer.attempts + 1, ATTEMPTS_COUNTED_MAX)})


def spread_at(ref: ObjectRef, facts: Facts, *, now: datetime) -> datetime | None:
    """When to delete an overdue object if its policy rule spreads such deletions by `jitter`; None if not."""
    jitter = facts.policy_rule.jitter if facts.policy_rule else None
    return jittered(ref.uid, now, jitter) if jitter else None


def expire_at(decision: Decision, now: datetime) -> datetime | None:
    """When to read a finished object; None if only a change can make it due."""
    facts = decision.facts
    if facts.unread:
        return now  # a limit may make this object, or one that it pushes out of its group, due at once
    match decision:
        case Wait(due_at) | Expire(due_at):
            return due_at
        case Ignore(Reason.NAMESPACE_UNREAD):
            # Objects that this one pushes out of its group are due now, whenever this one is due.
            is_ranked = facts.keep_last_rule or facts.count_rule or facts.quota_rule
            is_soon = not is_ranked and facts.due_at is not None and facts.due_at - now < SOON
            return facts.due_at if is_soon else now
        case Ignore(Reason.RANK_UNREAD | Reason.INHERITED_UNREAD):
            return now
        case _:  # if an archive is missing, `archive` sets the timer; another archiver marks the object: an event
            return None


def warn_timer(ref: ObjectRef, facts: Facts, *, now: datetime) -> Timer | None:
    """The timer of the warning before a deletion; None if no warning is wanted, see `find_warned_at`.

    Args:
        ref: The object.
        facts: The facts about its deletion.
        now: When the timer is set: it is not due before. So a timer that is set again is not due at the same time,
            as one that is delivered again is.
    """
    warned_at = find_warned_at(facts)
    if warned_at is None:
        return None
    return Timer(ref=ref, purpose=Purpose.WARN, due_at=max(warned_at, now))


def find_warned_at(facts: Facts) -> datetime | None:
    """When the warning before a deletion is wanted; None if the rule that sets the TTL has no `warn`, or only audits.

    If the TTL is shorter than `warn`, this is the finish.
    """
    rule, due_at, finished_at = facts.policy_rule, facts.due_at, facts.finish.at
    if rule is None or rule.warn is None or facts.audited_by or facts.early or due_at is None or finished_at is None:
        return None
    return max(finished_at, due_at - min(rule.warn, due_at - finished_at))


def timers_for(due: Iterable[tuple[ObjectRef, datetime | None]], *, purpose: Purpose) -> TimersSet | None:
    """One timer for each object that has a due time; None if no object has one."""
    timers = tuple(Timer(ref=ref, purpose=purpose, due_at=at) for ref, at in due if at is not None)
    return TimersSet(timers=timers) if timers else None


def prove_first(timers: TimersSet, proof: Proof | None) -> TimersSet:
    """The timers of an answer, the first of them, which is that of the decided object, with a proof."""
    first, *others = timers.timers
    return TimersSet(timers=(first.model_copy(update={"proof": proof}), *others)) if proof else timers


def retry_later(timers: TimersSet, fired: Timer, *, now: datetime) -> TimersSet | None:
    """The timers of an answer; those that ask for the same object again at once wait longer with each attempt.

    If an archive acknowledges an object and does not have it later, `expire` and `archive` would otherwise set timers
    for each other without a pause. An object may wait for a child for hours: after `CHILD_ATTEMPTS_MAX` attempts only
    the sweeps ask again.

    Args:
        timers: The answer.
        fired: The timer that fired.
        now: This process's present.
    """
    retry = retry_of(fired, least=0.0, now=now)
    due_at = retry.due_at if fired.attempts else now

    def later(one: Timer) -> Iterator[Timer]:
        if one.ref == fired.ref and one.purpose is Purpose.ARCHIVE:
            yield one.model_copy(update={"due_at": due_at, "attempts": retry.attempts})
        elif one.ref == fired.ref and one.purpose is Purpose.EXPIRE and one.due_at <= now:
            if fired.attempts < CHILD_ATTEMPTS_MAX:
                yield retry
        else:
            yield one

    again = tuple(chain.from_iterable(map(later, timers.timers)))
    return TimersSet(timers=again) if again else None


async def set_timers(
    wanted: TimersSet, *, timers: Timers, clock: Clock, horizon: timedelta, telemetry: Telemetry
) -> None:
    """Set the timers; return once they are durable.

    Args:
        wanted: The timers to set.
        timers: The timer engine.
        clock: The engine's clock.
        horizon: How far ahead a timer may be; a timer beyond it is left to the sweep, which is no error.
        telemetry: Records the timers that are left to the sweep.

    Raises:
        TryLaterError: The timers cannot be stored now.
    """
    now = clock.now()
    near = [timer for timer in wanted.timers if timer.due_at - now < horizon]
    if near:
        await timers.set(near)
    for timer in wanted.timers:
        if timer.due_at - now >= horizon:
            telemetry.record(Verdict.KEPT, timer.ref, HandlingReason.LEFT_TO_SWEEP, by="timers")


async def fire_task(fired: FiredTask, *, timers: Timers) -> None:
    """Publish a timer that the server of the engine sent; return once the Broker has it, or once it is set again.

    Raises:
        EventError: The engine has no server that sends timers: the event is refused.
        TryLaterError: The timer could neither be published nor set again.
    """
    if not isinstance(timers, TaskTimers):
        raise EventError(f"type: expected {TimersSet.type}, got {Timer.type}, which only Cloud Tasks sends")
    await timers.fire(fired)
