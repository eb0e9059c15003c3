"""Read what a key has in the stream, by the server that leads the stream, or that still believes so.

nats-server finds the last message of a filter at once, and so the first one of a subject without wildcards. For the
first message of a filter with wildcards, it goes through the stream: 7 ms with 100,000 timers, seen in 2.15.2.
"""

import asyncio

from shared.adapters.timers.nats.connection import NatsConnection, StreamMessage
from shared.adapters.timers.nats.subjects import KeySubjects


async def contents_of(connection: NatsConnection, key: KeySubjects) -> list[StreamMessage]:
    """Return the newest schedule of a key, if it has one, and all its fired messages.

    The schedule is read first: if it fires in the meantime, it is among the fired messages.

    Raises:
        TryLaterError: The servers do not answer.
    """
    head = await connection.last(key.heads)
    fired, newest = await asyncio.gather(connection.first(key.fired, 1), connection.last(key.fired))
    found = []
    while fired and newest and fired.sequence < newest.sequence:
        found.append(fired)
        fired = await connection.first(key.fired, fired.sequence + 1)
    return found + [one for one in (newest, head) if one]
