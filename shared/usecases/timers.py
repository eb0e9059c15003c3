"""Timers: which one an object needs, when those of an object are set, and what stores and fires them.

A timer fires by the clock of the timer engine, and an object is due by the clock of the API server. `fired_at` is an
instant that the engine's clock has reached: the due time of the timer that fired.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from itertools import chain
from typing import Any

from shared.core.archive.decide_archive import ToArchive, decide_archive, may_archive
from shared.core.archive.gate import AWAITS_ARCHIVE
from shared.core.deadlines.deadline import DEADLINES
from shared.core.deadlines.decide_stop import Stop, StopDecision, decide_stop, may_stop
from shared.core.decision.decide import Context, Decision, Expire, Ignore, Reason, Wait, decide
from shared.core.decision.facts import Facts
from shared.core.decision.finish import find_clock_start
from shared.core.decision.namespaces import Namespace
from shared.core.kinds.rule import Catalogue, KindRule
from shared.core.policy.policy import NO_POLICY, Policy
from shared.core.values.objects import ObjectRef, get_annotations, list_mappings, parse_instant, quote, ref_of
from shared.core.values.timing import backoff_seconds, jitter_of, jittered
from shared.errors import EventError
from shared.messages import ATTEMPTS_COUNTED_MAX, Proof, Purpose, Timer, TimersSet
from shared.ports import Clock, FiredTask, HandlingReason, Snapshot, TaskTimers, Telemetry, Timers, Verdict
from shared.usecases.reports import is_reported_at_once

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


NEW = timedelta(seconds=30)
"""How long after its start, its deadline or a write of its spec or metadata the events of an object cause reads."""

SETTLED = timedelta(seconds=2)
"""The time after the start of an object in which its first events share one read."""

_UNRANKED = "not decided yet: its group is counted when the timer fires"

GetNamespace = Callable[[str], Namespace | None]


async def schedule(  # noqa: PLR0913 - each is a port or a fact
    obj: Any,
    proof: Proof | None = None,
    *,
    catalogue: Catalogue,
    clock: Clock,
    telemetry: Telemetry,
    policy: Policy = NO_POLICY,
    get_cached: GetNamespace = lambda _: None,
    horizon: timedelta = timedelta.max,
) -> TimersSet | None:
    """Return the timer for an object that an event reported; None if it needs no timer.

    The event is a hint: a timer that a stale or forged event sets costs one read when it fires. So this function does
    not read the owner, and needs no API rights. When the timer fires, `expire` reads the namespace, the group, and the
    object from which a TTL is inherited.

    Args:
        obj: The object in the event.
        proof: What the event carries of the decision of our watch, which read the namespace. The timer carries it on,
            and only `expire` checks it.
        catalogue: The kinds that may be deleted.
        clock: This process's clock.
        telemetry: Records the verdict.
        policy: The present policy.
        get_cached: Returns a namespace if this process has it cached.
        horizon: How far ahead a timer may be; an object that is due later is left to the sweep.

    Raises:
        EventError: The object has no name or no uid, or one that is not printable.
    """
    ref = ref_of(obj)
    for field, value in (("name", ref.name), ("uid", ref.uid)):
        if not value or not value.isprintable():
            raise EventError(f"data.metadata.{field}: expected printable text that is not empty, got {quote(value)}")
    rule = catalogue.get(ref.api_version, ref.kind)
    if rule is None:
        telemetry.record(Verdict.KEPT, ref, HandlingReason.KIND_NOT_ENABLED, by="schedule")
        return None
    now, context = clock.now(), Context(policy, get_cached(ref.namespace))
    decision, purpose, due_at = _find_timer(obj, rule, now, context)
    if purpose is not Purpose.EXPIRE or due_at is None:
        proof = None
    elif proof is not None and decision.reason is Reason.NAMESPACE_UNREAD:
        due_at = proof.due_at
    if due_at is None:
        telemetry.record(Verdict.KEPT, ref, decision.reason, detail=decision.facts.problem, by="schedule")
        return None
    timer = Timer(ref=ref, purpose=purpose, due_at=due_at, proof=proof)
    timers = tuple(one for one in (timer, _find_warning(ref, decision, now)) if one and one.due_at - now < horizon)
    if not timers:
        telemetry.record(Verdict.KEPT, ref, HandlingReason.LEFT_TO_SWEEP, by="schedule")
        return None
    detail = _UNRANKED if decision.reason is Reason.RANK_UNREAD else ""
    telemetry.record(Verdict.TIMER_SET, ref, decision.reason, by="schedule", due_at=timers[0].due_at, detail=detail)
    return TimersSet(timers=timers)


def _find_warning(ref: ObjectRef, decision: Decision | StopDecision, now: datetime) -> Timer | None:
    """The timer of the warning about an object that is not due yet, or that is archived first."""
    due_at, is_archived_first = decision.facts.due_at, decision.reason in AWAITS_ARCHIVE
    is_ahead = isinstance(decision, Wait) or is_archived_first or decision.reason is Reason.NAMESPACE_UNREAD
    return warn_timer(ref, decision.facts, now=now) if is_ahead and due_at is not None and due_at > now else None


def _find_timer(
    obj: Any, rule: KindRule, now: datetime, context: Context
) -> tuple[Decision | StopDecision, Purpose, datetime | None]:
    """The decision about the object, and when the function of which purpose reads it; None for no timer."""
    decision = decide(obj, rule, now, context)
    if decision.facts.finish.finished and is_archived_now(obj, rule, now, context, decision):
        return decision, Purpose.ARCHIVE, now
    if decision.facts.finish.finished is not False or not is_stop_near(obj, rule, context, now):
        return decision, Purpose.EXPIRE, expire_at(decision, now)
    stop = decide_stop(obj, rule, now, context, finish=decision.facts.finish)
    return stop, Purpose.ENFORCE, _enforce_at(stop, obj, rule, now)


def is_archived_now(
    obj: Any, rule: KindRule, now: datetime, context: Context, decision: Decision | StopDecision
) -> bool:
    """Return whether `archive` reads a finished object now: an archive is wanted, or its unread namespace may want one.

    `archive` then sets the timer of the deletion.
    """
    if not context.policy.archives or not may_archive(obj, rule, context):
        return False
    archiving = decide_archive(obj, rule, now, context, finish=decision.facts.finish)
    return isinstance(archiving, ToArchive) or archiving.reason is Reason.NAMESPACE_UNREAD


def is_stop_near(obj: Any, rule: KindRule, context: Context, now: datetime) -> bool:
    """Return whether a deadline of an unfinished object has to be decided now; a cheap check.

    If only its unread namespace may set a deadline, the namespace is read soon after the start, and soon after the
    object began to wait for it. Later events of the object cause no read, so that clusters without deadlines pay
    little; the sweep finds a default that is set later.
    """
    if not may_stop(obj, rule, context):
        return False
    is_own = not get_annotations(obj).keys().isdisjoint(DEADLINES.values())
    may_be_asked_for = is_own or context.policy.sets_deadline_for(rule)
    if context.namespace is not None or may_be_asked_for or rule.deadline is None:
        return True
    counts_from = find_clock_start(obj, rule.deadline)
    return counts_from is not None and now - counts_from < NEW


def _enforce_at(decision: StopDecision, obj: Any, rule: KindRule, now: datetime) -> datetime | None:
    """When to read a running object; None if only a change, or the sweep, can make its deadline due.

    An object changes often while it runs, so most events must not cause a read:

    - If the namespace was not read, it may set or shorten the deadline. It is read once, soon after the start; a later
      event leaves the timer as it is, unless a write of the object may have set another deadline.
    - If the deadline is over for a while, a safeguard keeps or delays the object, or a timer tries again. Only a write
      of its spec or metadata sets a new timer.
    - A deadline that cannot be enforced is reported after such a write; otherwise the sweep reports it.
    """
    match decision:
        case Wait(due_at):
            return due_at
        case Stop(due_at):
            return due_at if now - due_at < NEW or _is_edited(obj, now) else None
        case Ignore(Reason.NAMESPACE_UNREAD, facts):
            counts_from, own_due_at = facts.active.counts_from, facts.due_at
            if counts_from is not None and now - counts_from < NEW:
                return min(max(now, counts_from + SETTLED), own_due_at or now + SETTLED)
            return own_due_at if _is_edited(obj, now) else None
        case _:
            return now if is_reported_at_once(decision, obj, rule) and _is_edited(obj, now) else None


def _is_edited(obj: Any, now: datetime) -> bool:
    """Return whether the newest write of an object that was not a write of its status is recent, or unknown."""
    edits = [one for one in list_mappings(obj, "metadata.managedFields") if one.get("subresource") != "status"]
    return not edits or any(now - at < NEW for one in edits if (at := _instant_of(one)) is not None)


def _instant_of(entry: Mapping[str, Any]) -> datetime | None:
    try:
        return parse_instant(entry.get("time"))
    except ValueError:
        return None
