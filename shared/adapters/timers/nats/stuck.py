"""Find fired timers that the servers do not deliver, and set them again.

A consumer has an ack floor, a sequence. It counts each message up to the floor as acknowledged, and does not deliver
it. The servers remove an acknowledged message within some seconds. A fired timer that stays for longer was either never
delivered, or acknowledged and brought back. nats-server 2.15.2 causes both if it is killed under load
(`tests/crash/test_nats_cluster.py`), and does not say which one it is. So the timer is set again: it is a hint, and one
too many costs a read.

The servers have a repair that removes all messages up to the floor, some seconds after a restart, and then every 2 to
2.5 minutes. If it runs before this search, a timer that was never delivered is lost, until the next sweep finds its
object.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from nats.aio.msg import Msg

from shared.adapters.timers.nats.connection import NatsConnection
from shared.adapters.timers.nats.pages import read_messages, sequence_of
from shared.adapters.timers.nats.schedules import fired_subjects
from shared.errors import TryLaterError

SEARCH_SECONDS = 10.0
"""The time between two searches. With 300,000 pending timers, a search takes a server 12 ms."""

REMOVAL_SECONDS = 3.0
"""How long a message stays below the floor until it counts as stuck; an acknowledged one usually stays shorter."""

SET_AT_ONCE = 256
"""Maximum number of timers that are set again in parallel."""

_log = logging.getLogger("ttl")


class StuckTimers:
    """Searches for stuck timers.

    Args:
        connection: The connection.
        stream: The name of the stream.
        consumers: The names of the consumers.
        set_again: Sets the timer of a fired message, due now.
    """

    def __init__(
        self,
        connection: NatsConnection,
        stream: str,
        consumers: Sequence[str],
        set_again: Callable[[Msg], Awaitable[None]],
    ) -> None:
        self._connection, self._stream, self._consumers = connection, stream, consumers
        self._set_again, self._restarted = set_again, asyncio.Event()

    def restart(self) -> None:
        """Search now: a server may have been restarted."""
        self._restarted.set()

    async def run(self) -> None:
        """Search at the start, after each reconnection, and every SEARCH_SECONDS, until cancelled."""
        reported = ""
        while True:
            self._restarted.clear()
            try:
                for consumer in self._consumers:
                    await self._search(consumer)
                reported = ""
            except TryLaterError as error:
                if str(error) != reported:
                    reported = str(error)
                    _log.warning("no search for stuck timers", extra={"fields": {"error": reported}})
            with suppress(TimeoutError):
                async with asyncio.timeout(SEARCH_SECONDS):
                    await self._restarted.wait()

    async def _search(self, consumer: str) -> None:
        info = await self._connection.api(f"CONSUMER.INFO.{self._stream}.{consumer}")
        floor, subjects = info["ack_floor"]["stream_seq"], fired_subjects(self._stream, consumer)
        if not await self._below(subjects, floor, limit=1):
            return
        # Not above the last sequence of now: a timer that is set again must not be taken for another stuck one.
        last = min(floor, (await self._connection.api(f"STREAM.INFO.{self._stream}"))["state"]["last_seq"])
        await asyncio.sleep(REMOVAL_SECONDS)
        number = 0
        while stuck := await self._below(subjects, last, limit=SET_AT_ONCE):
            await asyncio.gather(*map(self._revive, stuck))
            number += len(stuck)
        if number:
            fields = {"purpose": consumer, "timers": number, "floor": floor, "last": last}
            _log.warning("timers set again that the NATS servers would not deliver", extra={"fields": fields})

    async def _below(self, subjects: str, last: int, limit: int) -> list[Msg]:
        found = await read_messages(self._connection, self._stream, subjects, limit=limit)
        return [one for one in found if sequence_of(one) <= last]

    async def _revive(self, fired: Msg) -> None:
        await self._set_again(fired)
        await self._connection.delete(sequence_of(fired))
