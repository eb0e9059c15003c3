"""Report the end of a sweep by a Kubernetes Event, so that a sweep with nothing to do is visible."""

from collections.abc import Awaitable, Callable, Sequence

from shared.core.kinds.rule import KindRule
from shared.errors import TtlError
from shared.messages import SweepStep
from shared.ports import EventReason, Telemetry, WriteEvent


async def report_end(
    step: SweepStep,
    find_served: Callable[[], Awaitable[Sequence[KindRule]]],
    *,
    write_event: WriteEvent | None,
    telemetry: Telemetry,
) -> None:
    """Write an Event about the end of a sweep of all kinds.

    Args:
        step: The last step, with the counts of all steps, and all kinds that the sweep could not list.
        find_served: Finds the kinds that were swept.
        write_event: Writes the Event; None for no Event.
        telemetry: Receives a problem if the Event cannot be written: the sweep has ended anyway.
    """
    if write_event is None or not step.whole:
        return
    try:
        swept = [rule for rule in await find_served() if f"{rule.api_version}/{rule.kind}" not in step.passed_over]
        kinds = ", ".join(rule.name for rule in swept) or "no kinds"
        message = f"listed all objects of {kinds}: sweep {step.sweep_id}, steps: {step.step + 1}"
        if unset := step.counts.get("timers_not_set", 0):
            message += f"; the timers of {unset} objects could not be set: the next sweep tries again"
        if step.passed_over:
            left_out = f"could not list {', '.join(step.passed_over)}; {message}"
            await write_event(EventReason.SWEPT_IN_PART, left_out, "Warning")
        else:
            await write_event(EventReason.SWEPT, message, "Warning" if unset else "Normal")
    except TtlError as error:
        telemetry.problem("could not write an Event", error=str(error))
