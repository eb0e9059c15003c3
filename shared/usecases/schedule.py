"""An object changed: find the timer that it needs."""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from shared.core.archive.decide_archive import ToArchive, decide_archive, may_archive
from shared.core.archive.gate import AWAITS_ARCHIVE
from shared.core.deadlines.deadline import DEADLINES
from shared.core.deadlines.decide_stop import Stop, StopDecision, decide_stop, may_stop
from shared.core.deadlines.run import find_clock_start
from shared.core.decision.decide import Context, Decision, Ignore, Reason, Wait, decide
from shared.core.decision.namespaces import Namespace
from shared.core.kinds.catalogue import Catalogue
from shared.core.kinds.rule import KindRule
from shared.core.policy.policy import NO_POLICY, Policy
from shared.core.values.objects import ObjectRef, get_annotations, list_mappings, parse_instant, quote, ref_of
from shared.errors import EventError
from shared.messages import Proof, Purpose, Timer, TimersSet
from shared.ports import Clock, HandlingReason, Telemetry, Verdict
from shared.usecases.reports import is_reported_at_once
from shared.usecases.timers import expire_at, warn_timer

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
