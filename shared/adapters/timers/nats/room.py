"""How many bytes the timers may take.

The server cannot refuse messages of a full stream that has schedules: it would discard the oldest timers instead. So
each process reads the size of the stream at most once a second, and adds what it stores itself in between.
"""

import time
from collections.abc import Sequence

from shared.adapters.timers.nats.heads import NewTimer
from shared.adapters.timers.nats.stream import TimerStream
from shared.errors import TryLaterError

ROOM_READ_SECONDS = 1.0
"""How old the size of the stream may be; in this time, each other process may store more."""

STREAM_FULL_SECONDS = 10.0
"""Retry-After if the stream is full: due timers may have fired by then."""

_OVERHEAD_BYTES = 400  # the subject, the headers and the record of a message


class StreamRoom:
    """Knows whether the stream is full.

    Args:
        stream: The stream.
        bytes_max: The maximum size.
    """

    def __init__(self, stream: TimerStream, bytes_max: int) -> None:
        self._stream, self._bytes_max = stream, bytes_max
        self._used, self._read_at = 0, -ROOM_READ_SECONDS

    async def take(self, timers: Sequence[NewTimer]) -> TryLaterError | None:
        """Count timers that are about to be stored.

        Returns:
            Why no timer may be added; None if there is room. What replaces a timer is stored all the same.

        Raises:
            TryLaterError: The size of the stream cannot be read.
        """
        now = time.monotonic()
        if now - self._read_at >= ROOM_READ_SECONDS:
            read_at, self._read_at = self._read_at, now  # other calls do not read meanwhile
            try:
                self._used = int((await self._stream.info())["bytes"])
            except TryLaterError:
                self._read_at = read_at
                raise
        wanted = sum(len(timer.body or b"") + _OVERHEAD_BYTES for timer in timers)
        if self._used + wanted > self._bytes_max:
            return TryLaterError(
                f"the stream of the timers is full: {self._used} of {self._bytes_max} bytes (TTL_NATS_BYTES)",
                retry_after_seconds=STREAM_FULL_SECONDS,
            )
        self._used += wanted
        return None
