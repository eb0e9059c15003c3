"""The brake: a person stops all deletions of an installation, and starts them again.

The brake is a key of the shared state, beside the breaker. While the key is there, every process that deletes keeps
what is due. The last check of a DELETE uses a read that is at most `CACHED_SECONDS` old, and the DELETE leaves the
process within `LEAVE_SECONDS_MAX` after that check.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from shared.errors import TtlError
from shared.ports import EventReason, State, WriteEvent
from shared.safeguards.state_schema import BrakeStop, Data, parse_state, with_stop, without_stop

REASON_CHARACTERS_MAX = 1_000
"""The rest of a longer reason is cut, so that its length never prevents a stop."""


async def stop_deletions(state: State, write_event: WriteEvent, stop: BrakeStop) -> BrakeStop | None:
    """Stop all deletions of the processes that read this state.

    Args:
        state: The shared state.
        write_event: Writes a Kubernetes Event about the installation. If it fails, the deletions are stopped anyway.
        stop: Who stops them, when and why.

    Returns:
        The stop that this one replaces; None if there was none.

    Raises:
        TtlError: The state cannot be read or written: nothing is stopped.
    """
    stop = replace(stop, why=stop.why[:REASON_CHARACTERS_MAX])
    before = await _swap(state, lambda data: with_stop(data, stop))
    with suppress(TtlError):
        await write_event(EventReason.STOPPED, f"nothing is deleted {stop}", "Warning")
    return before


async def start_deletions(state: State, write_event: WriteEvent, *, by: str) -> BrakeStop | None:
    """Start the deletions again; every process that reads this state sees it within seconds.

    Args:
        state: The shared state.
        write_event: As for `stop_deletions`.
        by: The name of the person, for the Event.

    Returns:
        The stop that has ended; None if there was none.

    Raises:
        TtlError: The state cannot be read or written.
    """
    stop = await _swap(state, without_stop)
    if stop is not None:
        with suppress(TtlError):
            await write_event(
                EventReason.STARTED, f"{by} started the deletions again; they were stopped {stop}", "Normal"
            )
    return stop


async def _swap(state: State, change: Callable[[Data], dict[str, str]]) -> BrakeStop | None:
    """Write the change; returns the stop that was there before it."""
    before: list[BrakeStop | None] = [None]

    def write(data: Data) -> dict[str, str]:
        before[0] = parse_state(data).stop
        return change(data)

    await state.write(write)
    return before[0]
