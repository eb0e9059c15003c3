"""The brake: a person stops all deletions of an installation, and starts them again.

It is a key of the shared state, beside the breaker. Every process that deletes reads that state, at the latest
`CACHED_SECONDS` before it sends a DELETE, and keeps what is due while the key is there.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from shared.errors import TtlError
from shared.ports import EventReason, State
from shared.safeguards.state_schema import Data, Stop, Tell, parse_standing, with_stop, without_stop

REASON_CHARACTERS_MAX = 1_000
"""Of a reason; the rest is cut, since a long reason must not keep the brake from being set."""

STOPPED = EventReason.STOPPED
"""Of the Kubernetes Event about the installation, when a person stops the deletions."""

STARTED = EventReason.STARTED
"""The same, when a person starts them again."""


async def stop_deletions(state: State, write_event: Tell, stop: Stop) -> Stop | None:
    """Stop all deletions of the processes that read this state.

    Args:
        state: Where it is kept.
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
        await write_event(STOPPED, f"nothing is deleted {stop}", "Warning")
    return before


async def start_deletions(state: State, write_event: Tell, *, by: str) -> Stop | None:
    """Start the deletions again; every process that reads this state sees it within seconds.

    Args:
        state: Where it is kept.
        write_event: As for `stop_deletions`.
        by: The person, for the Event.

    Returns:
        The stop that has ended; None if there was none.

    Raises:
        TtlError: The state cannot be read or written.
    """
    stop = await _swap(state, without_stop)
    if stop is not None:
        with suppress(TtlError):
            await write_event(STARTED, f"{by} started the deletions again; they were stopped {stop}", "Normal")
    return stop


async def _swap(state: State, change: Callable[[Data], dict[str, str]]) -> Stop | None:
    """Write the change; returns the stop that was there before it."""
    before: list[Stop | None] = [None]

    def write(data: Data) -> dict[str, str]:
        before[0] = parse_standing(data).stop
        return change(data)

    await state.write(write)
    return before[0]
