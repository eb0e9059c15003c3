"""Find fired timers that the servers do not deliver, and set them again.

A consumer has a floor, a sequence number. It counts each message at or below the floor as acknowledged, and does not
deliver it. The servers remove an acknowledged timer from the stream within some seconds. A fired timer that stays
there for longer has one of two histories:

- A process received and acknowledged it. Then servers were killed, and one brought it back: see `revived.py`.
- The floor passed it, but no process has received it. nats-server 2.15.2 caused this when nodes of a cluster were
  killed under load; `tests/crash/test_nats_cluster.py` kills them.

The servers do not say which history it is. So this module sets the timer again, due now, unless its key has a newer
timer or a cancellation. With the first history, the timer is then delivered again. With the second one, it would
otherwise be lost.

The servers also have a repair, `checkStateForInterestStream` of nats-server. Some seconds after a restart, and then
every 2 to 2.5 minutes, it removes all messages at or below the floor. If it runs before the search of this module, a
timer of the second history is lost, until the next sweep finds its object.
"""

import asyncio
import logging
from contextlib import suppress

from shared.adapters.timers.nats.connection import NatsConnection, StreamMessage
from shared.adapters.timers.nats.heads import Heads, NewTimer, Standing
from shared.adapters.timers.nats.records import SCHEDULER_HEADER, is_cancellation, replaced_by
from shared.adapters.timers.nats.revived import Revived
from shared.adapters.timers.nats.subjects import fired_subjects, key_subjects, token_of
from shared.errors import EventError, TryLaterError
from shared.ports import Clock

SEARCH_SECONDS = 10.0
"""The time between two searches. With 300,000 pending timers, a search takes a server 12 ms."""

REMOVAL_SECONDS = 3.0
"""How long a timer stays at or below the floor until it counts as stuck; usually, an acknowledged one stays shorter."""

SET_AT_ONCE = 256
"""Maximum number of timers that are set again in parallel."""

_log = logging.getLogger("ttl")


class StuckTimers:
    """Searches for stuck timers, and sets them again.

    Args:
        connection: The connection.
        heads: Sets the timers.
        revived: Removes what a stuck cancellation has replaced.
        clock: The wall clock.
        stream: The name of the stream.
    """

    def __init__(self, connection: NatsConnection, heads: Heads, revived: Revived, clock: Clock, stream: str) -> None:
        self._connection, self._heads, self._revived = connection, heads, revived
        self._clock, self._stream = clock, stream
        self._restarted: dict[str, asyncio.Event] = {}

    def wake(self) -> None:
        """A server may have restarted: search now."""
        for restarted in self._restarted.values():
            restarted.set()

    async def run(self, purposes: tuple[str, ...]) -> None:
        """Search at the start, whenever a server may have restarted, and every SEARCH_SECONDS."""
        self._restarted = {token_of(purpose): asyncio.Event() for purpose in purposes}
        async with asyncio.TaskGroup() as group:
            for consumer, restarted in self._restarted.items():
                group.create_task(self._watch(consumer, restarted))

    async def _watch(self, consumer: str, restarted: asyncio.Event) -> None:
        reported = ""
        while True:
            restarted.clear()
            try:
                await self._search(consumer)
            except TryLaterError as error:
                if str(error) != reported:
                    reported = str(error)
                    fields = {"purpose": consumer, "error": reported}
                    _log.warning("no search for stuck timers", extra={"fields": fields})
            else:
                reported = ""
            with suppress(TimeoutError):
                async with asyncio.timeout(SEARCH_SECONDS):
                    await restarted.wait()

    async def _search(self, consumer: str) -> None:
        """Set again what has been at or below the floor of a consumer for some seconds."""
        state = await self._connection.api(f"CONSUMER.INFO.{self._stream}.{consumer}")
        floor = state["ack_floor"]["stream_seq"]
        subjects = fired_subjects(self._stream, consumer)
        if not floor or not await self._below(subjects, 1, floor, maximum=1):
            return
        # Not above the last sequence of now: a timer that is set again must not be taken for another stuck one.
        last = (await self._connection.api(f"STREAM.INFO.{self._stream}"))["state"]["last_seq"]
        await asyncio.sleep(REMOVAL_SECONDS)
        sequence, results = 1, list[bool | BaseException]()
        while stuck := await self._below(subjects, sequence, min(floor, last), maximum=SET_AT_ONCE):
            results += await asyncio.gather(*(self._set_again(one) for one in stuck), return_exceptions=True)
            sequence = stuck[-1].sequence + 1
        if count := sum(result is True for result in results):
            fields = {"purpose": consumer, "timers": count, "floor": floor, "last": last}
            _log.warning("timers set again that the NATS servers would not deliver", extra={"fields": fields})
        for error in results:
            if isinstance(error, BaseException):
                raise error

    async def _below(self, subjects: str, first: int, floor: int, *, maximum: int) -> list[StreamMessage]:
        """Read messages from a sequence up to the floor."""
        found: list[StreamMessage] = []
        while len(found) < maximum and (one := await self._connection.first(subjects, first)):
            if one.sequence > floor:
                break
            found.append(one)
            first = one.sequence + 1
        return found

    async def _set_again(self, fired: StreamMessage) -> bool:
        """Let the servers fire a timer again, unless its key has something newer; then remove the stuck message.

        Returns:
            Whether the timer was set again.

        Raises:
            TryLaterError: The servers do not answer.
        """
        key, headers = key_subjects(fired.subject), fired.headers
        replaced, schedule = replaced_by(headers), headers.get(SCHEDULER_HEADER, "")
        standing, is_set = await self._heads.standing(key, fired.sequence, schedule), False
        if standing is Standing.UNKNOWN:  # another process has just removed it, or the leader knows nothing yet
            return False
        if is_cancellation(headers):
            await self._revived.remove_older(key, replaced)
        elif standing is Standing.CURRENT:
            again = NewTimer(key, fired.body, self._clock.now(), replaced)
            try:
                is_set = await self._heads.postpone(again, fired.sequence, schedule)
            except EventError as error:  # another program wrote it
                _log.error("fired message dropped", extra={"fields": {"subject": fired.subject, "error": str(error)}})
        await self._connection.delete(fired.sequence)
        return is_set
