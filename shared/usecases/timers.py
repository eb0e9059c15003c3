"""Store the timers that a `timer.set` event contains."""

from datetime import timedelta

from shared.messages import TimersSet
from shared.ports import Clock, HandlingReason, Telemetry, Timers, Verdict


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
