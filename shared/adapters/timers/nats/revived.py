"""Remove what a server brings back after kills, so that no timer arrives that was replaced or cancelled.

nats-server (seen in 2.15.2) writes a tombstone for each removed message. When it starts after a kill, it replays the
tombstones. Meanwhile it rewrites each file of which half is removed, and leaves out all tombstones of the file: also
those that it has not replayed yet. What they removed is back after the next kill, unless the server wrote its index
between the kills. It writes the index every 2 to 2.5 minutes. `tests/crash/test_nats_revival.py` shows it.

- A timer that was replaced or cancelled: its key has a newer timer or a cancellation, and gets a cancellation when the
  newer timer was delivered. So it is known to be gone if it fires, also after the newer one: see the order in
  `subjects.py`. The cancellation itself fires after `CANCELLED_FOR`, and then what is older goes.
- A fired timer that was acknowledged, and has nothing newer: it arrives again, by `stuck.py`.
"""

import asyncio
import logging

from nats.aio.msg import Msg
from nats.errors import Error

from shared.adapters.timers.nats.connection import NatsConnection, contents_of
from shared.adapters.timers.nats.records import replaced_by
from shared.adapters.timers.nats.subjects import KeySubjects, key_subjects
from shared.errors import TryLaterError

ENDED_AT_ONCE = 256
"""Maximum number of cancellations that end at once: for each, the stream is read."""

_log = logging.getLogger("ttl")


class Revived:
    """Removes timers that are gone.

    Args:
        connection: The connection.
    """

    def __init__(self, connection: NatsConnection) -> None:
        self._connection = connection
        self._free = asyncio.Semaphore(ENDED_AT_ONCE)
        self._ending: set[asyncio.Task[None]] = set()

    async def end(self, cancellation: Msg) -> None:
        """Start to remove a cancellation that fired, after what its key has from before; wait if there are too many."""
        await self._free.acquire()
        task = asyncio.create_task(self._end(cancellation))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def remove_older(self, key: KeySubjects, last: int) -> None:
        """Remove what a key has up to a sequence. Its contents are read first, since that takes no write.

        An older schedule behind a newer one is not found, and dropped when it fires.

        Raises:
            TryLaterError: The servers do not answer.
        """
        found = await contents_of(self._connection, key) if last else []
        if not any(one.sequence <= last for one in found):
            return
        removed = await self._connection.remove(key.every, last)
        _log.warning("messages removed that a NATS server brought back", extra={"fields": {"messages": removed}})

    async def _end(self, cancellation: Msg) -> None:
        try:
            await self.remove_older(key_subjects(cancellation.subject), replaced_by(cancellation.headers))
            await cancellation.ack()
        except (TryLaterError, Error) as error:  # the servers deliver it again
            _log.debug("cancellation not removed", extra={"fields": {"error": str(error)}})
        finally:
            self._free.release()
