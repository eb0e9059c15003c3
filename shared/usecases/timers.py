"""Timers are asked for: keep them."""

from datetime import timedelta

from shared.messages import TimersSet
from shared.ports import Clock, HandlingReason, Telemetry, Timers, Verdict

LEFT_TO_SWEEP = HandlingReason.LEFT_TO_SWEEP
"""The reason of an object that is due beyond the horizon: a sweep sets its timer once it is due soon enough."""


async def set_timers(
    wanted: TimersSet, *, timers: Timers, clock: Clock, horizon: timedelta, telemetry: Telemetry
) -> None:
    """Set what was asked for; returns once it is durable, so that the answer can be relied on.

    Args:
        wanted: The timers.
        timers: The engine.
        clock: The engine's.
        horizon: How far ahead a timer is kept; one beyond it is left to the sweep, and is no error.
        telemetry: Told of those.

    Raises:
        TryLaterError: It could not be stored now.
    """
    now = clock.now()
    near = [timer for timer in wanted.timers if timer.due_at - now < horizon]
    if near:
        await timers.set(near)
    for timer in wanted.timers:
        if timer.due_at - now >= horizon:
            telemetry.record(Verdict.KEPT, timer.ref, LEFT_TO_SWEEP, by="timers")
