"""Read the pending timers of the stream, page by page."""

import asyncio
import json
from contextlib import suppress

from nats.aio.msg import Msg

from shared.adapters.timers.nats.acks import ACK_ANSWER_SECONDS
from shared.adapters.timers.nats.connection import NatsConnection
from shared.adapters.timers.nats.records import is_cancellation, timer_of
from shared.adapters.timers.nats.subjects import is_cancelled
from shared.errors import TryLaterError
from shared.messages import Timer
from shared.ports import TimerFilter, TimerPage

_END = "204"
_NONE = "404"


class Pages:
    """Reads pages.

    Any server that stores the stream answers, so a page may lack what was set in the last moments: a server that is
    not the leader may be behind.

    Args:
        connection: The connection.
        stream: The name of the stream.
    """

    def __init__(self, connection: NatsConnection, stream: str) -> None:
        self._connection, self._stream = connection, stream

    async def read(self, after: str, limit: int, wanted: TimerFilter) -> TimerPage:
        """Read a page in the order of the sequences; a position is a sequence.

        Raises:
            TryLaterError: The servers do not answer.
            ValueError: `after` is no sequence.
        """
        if after and not (after.isascii() and after.isdecimal()):
            raise ValueError(f"expected a position in the stream of the timers, got {after!r}")
        messages = await self._read(int(after or 0) + 1, limit)
        timers = []
        for message in messages:
            headers = message.headers or {}
            if is_cancelled(headers.get("Nats-Subject", "")) or is_cancellation(headers):
                continue
            with suppress(ValueError):  # another program wrote the message
                timers.append(timer_of(message.data))
        position = (messages[-1].headers or {})["Nats-Sequence"] if len(messages) == limit else ""
        return TimerPage(tuple(filter(wanted.matches, _without_twins(timers))), position)

    async def _read(self, sequence: int, limit: int) -> list[Msg]:
        messages: list[Msg] = []
        ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        async def receive(message: Msg) -> None:
            status = (message.headers or {}).get("Status")
            if status is None:
                messages.append(message)
            elif not ended.done():
                ended.set_result(status)

        inbox, subscription = await self._connection.subscribe(receive)
        try:
            request = {"seq": sequence, "batch": limit, "next_by_subj": f"{self._stream}.>"}
            await self._connection.send(f"$JS.API.DIRECT.GET.{self._stream}", json.dumps(request).encode(), inbox)
            status = await asyncio.wait_for(ended, ACK_ANSWER_SECONDS)
        except TimeoutError as error:
            raise TryLaterError(f"no answer by NATS within {ACK_ANSWER_SECONDS:.0f} s") from error
        finally:
            if not self._connection.closed:
                await subscription.unsubscribe()
        if status not in (_END, _NONE):
            raise TryLaterError(f"the timers cannot be read now: NATS answers {status}")
        return messages


def _without_twins(timers: list[Timer]) -> list[Timer]:
    """Return the last timer of each key: a replaced one may still wait to be dropped."""
    return list({timer.key: timer for timer in timers}.values())
