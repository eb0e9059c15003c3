"""Read messages of the stream, page by page.

Any server that stores the stream answers, so a page may lack what was stored in the last moments: a server that is not
the leader may be behind.
"""

import asyncio
import json
from contextlib import suppress

from nats.aio.msg import Msg

from shared.adapters.timers.nats.connection import API_SECONDS, NatsConnection
from shared.adapters.timers.nats.schedules import timer_of
from shared.errors import TryLaterError
from shared.ports import TimerFilter, TimerPage

_END, _NONE = "204", "404"


async def read_page(connection: NatsConnection, stream: str, after: str, limit: int, wanted: TimerFilter) -> TimerPage:
    """Read a page in the order of the sequences; a position is a sequence.

    Raises:
        TryLaterError: The servers do not answer.
        ValueError: `after` is no sequence.
    """
    if after and not (after.isascii() and after.isdecimal()):
        raise ValueError(f"expected a position in the stream of the timers, got {after!r}")
    messages = await read_messages(connection, stream, f"{stream}.>", int(after or 0) + 1, limit)
    timers = []
    for message in messages:
        with suppress(ValueError):  # another program wrote the message
            timers.append(timer_of(message.data))
    position = str(sequence_of(messages[-1])) if len(messages) == limit else ""
    return TimerPage(tuple(filter(wanted.matches, timers)), position)


async def read_messages(
    connection: NatsConnection, stream: str, subjects: str, sequence: int = 1, limit: int = 1
) -> list[Msg]:
    """Read messages under a filter of subjects, from a sequence on.

    Raises:
        TryLaterError: The servers do not answer.
    """
    messages: list[Msg] = []
    ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def receive(message: Msg) -> None:
        status = (message.headers or {}).get("Status")
        if status is None:
            messages.append(message)
        elif not ended.done():
            ended.set_result(status)

    inbox, subscription = await connection.subscribe(receive)
    try:
        request = json.dumps({"seq": sequence, "batch": limit, "next_by_subj": subjects}).encode()
        await connection.send(f"$JS.API.DIRECT.GET.{stream}", request, inbox)
        async with asyncio.timeout(API_SECONDS):
            status = await ended
    except TimeoutError as error:
        raise TryLaterError(f"no answer by NATS within {API_SECONDS:.0f} s") from error
    finally:
        await connection.unsubscribe(subscription)
    if status not in (_END, _NONE):
        raise TryLaterError(f"the timers cannot be read now: NATS answers {status}")
    return messages


def sequence_of(message: Msg) -> int:
    """Return the position of a message that was read."""
    return int((message.headers or {})["Nats-Sequence"])
