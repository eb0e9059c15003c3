"""An object changed: find the timer that it needs."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from shared.core.decide import Context, Decision, Expire, Ignore, Reason, Wait, decide
from shared.core.kinds.catalogue import Catalogue
from shared.core.namespaces import Namespace
from shared.core.objects import quote, ref_of
from shared.core.policy.policy import NO_POLICY, Policy
from shared.errors import EventError
from shared.messages import Purpose, Timer, TimersSet
from shared.ports import Clock, HandlingReason, Telemetry, Verdict

SOON = timedelta(minutes=10)
"""If an object is due within this time, its namespace is read when the timer fires, and not at once."""

GetNamespace = Callable[[str], Namespace | None]


async def schedule(  # noqa: PLR0913 - each is a port or a fact
    obj: Any,
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
    not read the owner, and needs no API rights. `expire` reads the namespace and the group when the timer fires.

    Args:
        obj: The object in the event.
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
    now = clock.now()
    decision = decide(obj, rule, now, Context(policy, get_cached(ref.namespace)))
    due_at = _due_at(decision, now)
    if due_at is None:
        telemetry.record(Verdict.KEPT, ref, decision.reason, detail=decision.facts.problem, by="schedule")
        return None
    if due_at - now >= horizon:
        telemetry.record(Verdict.KEPT, ref, HandlingReason.LEFT_TO_SWEEP, by="schedule")
        return None
    telemetry.record(Verdict.TIMER_SET, ref, decision.reason, by="schedule", due_at=due_at)
    return TimersSet(timers=(Timer(ref=ref, purpose=Purpose.EXPIRE, due_at=due_at),))


def _due_at(decision: Decision, now: datetime) -> datetime | None:
    """When to read the object; None if only a change can make it due."""
    match decision:
        case Wait(due_at) | Expire(due_at):
            return due_at
        case Ignore(Reason.NAMESPACE_UNREAD, facts):
            # Objects that this one pushes out of its group are due now, whenever this one is due.
            is_soon = facts.keep_last_rule is None and facts.due_at is not None and facts.due_at - now < SOON
            return facts.due_at if is_soon else now
        case Ignore(Reason.KEPT_LAST):
            return now
        case _:
            return None
