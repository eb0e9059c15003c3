"""The smallest process around the embedded timer engine: what `functions/timers.py` is to a Broker, for the crash test.

It takes `timer.set` by POST, publishes `timer.fired` to K_SINK, and keeps its timers in the file TTL_TIMERS_PATH.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from shared.adapters.answers import answering
from shared.adapters.clock import SystemClock
from shared.adapters.events import Event, event_of, parse_message, to_http
from shared.adapters.timers.sqlite import SqliteTimers
from shared.errors import TryLaterError
from shared.messages import Message, TimersSet


class Sink:
    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url

    async def publish(self, message: Message) -> None:
        headers, body = to_http(event_of(message, source="crash-test"))
        async with self._session.post(self._url, data=body, headers=headers) as answer:
            if not answer.ok:
                raise TryLaterError(f"the sink answered {answer.status}", retry_after_seconds=0)


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    async with aiohttp.ClientSession() as session:
        sink = Sink(session, os.getenv("K_SINK", ""))
        timers = SqliteTimers(Path(os.getenv("TTL_TIMERS_PATH", "")), SystemClock(), sink)
        running = asyncio.create_task(timers.run())
        app.state.timers = timers
        yield
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


async def timers(request: Request) -> Response:
    async def set_timers(event: Event) -> None:
        await app.state.timers.set(parse_message(event, TimersSet).timers)

    return await answering(set_timers)(request)


app = Starlette(routes=[Route("/", timers, methods=["POST"])], lifespan=lifespan)
