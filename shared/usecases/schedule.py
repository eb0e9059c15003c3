"""An object changed: which timer does it need?"""

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
from shared.ports import Clock, Telemetry, Verdict
from shared.usecases.timers import LEFT_TO_SWEEP

SOON = timedelta(minutes=10)
"""Of what is due within this time as far as the object tells, the namespace may be read then, and not at once."""

Recall = Callable[[str], Namespace | None]


async def schedule(  # noqa: PLR0913 - each is a port, or what is known
    obj: Any,
    *,
    catalogue: Catalogue,
    clock: Clock,
    telemetry: Telemetry,
    policy: Policy = NO_POLICY,
    get_cached: Recall = lambda _: None,
    horizon: timedelta = timedelta.max,
) -> TimersSet | None:
    """The timer for an object that an event reported, or None where it needs none.

    The event is a hint: a timer set by a stale or forged one costs a read when it fires, and no more. So the owner
    is not asked for here, and no API right is needed. What only the namespace can tell, or the others of its group,
    is looked up by whoever the timer wakes.

    Args:
        obj: As its event brought it.
        catalogue: The kinds that may be deleted.
        clock: This process's.
        telemetry: Told what was done.
        policy: The one in force.
        get_cached: What this process happens to know of a namespace.
        horizon: What is due later than that from now is left to the sweep.

    Raises:
        EventError: The object has no name or uid, or one that no object can have.
    """
    ref = ref_of(obj)
    for field, value in (("name", ref.name), ("uid", ref.uid)):
        if not value or not value.isprintable():
            raise EventError(f"data.metadata.{field}: expected printable text that is not empty, got {quote(value)}")
    rule = catalogue.get(ref.api_version, ref.kind)
    if rule is None:
        telemetry.record(Verdict.KEPT, ref, "kind-not-enabled", by="schedule")
        return None
    now = clock.now()
    decision = decide(obj, rule, now, Context(policy, get_cached(ref.namespace)))
    due_at = _due_at(decision, now)
    if due_at is None:
        telemetry.record(Verdict.KEPT, ref, decision.reason, detail=decision.facts.problem, by="schedule")
        return None
    if due_at - now >= horizon:
        telemetry.record(Verdict.KEPT, ref, LEFT_TO_SWEEP, by="schedule")
        return None
    telemetry.record(Verdict.TIMER_SET, ref, decision.reason, by="schedule", due_at=due_at)
    return TimersSet(timers=(Timer(ref=ref, purpose=Purpose.EXPIRE, due_at=due_at),))


def _due_at(decision: Decision, now: datetime) -> datetime | None:
    """When to look at the object; None where nothing but a change can make it due."""
    match decision:
        case Wait(due_at) | Expire(due_at):
            return due_at
        case Ignore(Reason.NAMESPACE_UNREAD, facts):
            # Whom its finish pushes out of a group is due now, whenever it is due itself.
            is_soon = facts.keeper is None and facts.due_at is not None and facts.due_at - now < SOON
            return facts.due_at if is_soon else now
        case Ignore(Reason.KEPT_LAST):
            return now
        case _:
            return None
