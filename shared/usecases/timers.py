"""Store the timers that a `timer.set` event contains, and fire those that the server of the engine sends."""

from datetime import timedelta

from shared.errors import EventError
from shared.messages import Timer, TimersSet
from shared.ports import Clock, FiredTask, HandlingReason, TaskTimers, Telemetry, Timers, Verdict


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
