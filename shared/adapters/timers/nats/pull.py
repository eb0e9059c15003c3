"""Pull the fired timers of one purpose from the servers."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

from nats.aio.msg import Msg

from shared.adapters.timers.nats.connection import NatsConnection
from shared.errors import TryLaterError

PULL_BATCH = 256
"""Fired timers per request."""

EXPIRES_SECONDS = 20.0
"""How long the servers keep a request."""

HEARTBEAT_SECONDS = 1.0
"""How often the servers report that they still have the request."""

SILENCE_SECONDS = 2.5 * HEARTBEAT_SECONDS
"""After this time without a heartbeat, a request is lost: its server may have died, and this process uses another."""

_NANOSECONDS = 1_000_000_000
_HEARTBEAT, _NONE_LISTENS = "100", "503"
_ENDED = ("404", "408")  # the consumer had nothing, or the request expired
_log = logging.getLogger("ttl")


class Pull:
    """The requests for the fired timers of one purpose.

    Args:
        connection: The connection.
        subject: Where to ask: `$JS.API.CONSUMER.MSG.NEXT.STREAM.CONSUMER`.
        on_message: Called with each fired timer.
        repair: Called after a refusal: makes the consumer again if it was deleted.
    """

    def __init__(
        self,
        connection: NatsConnection,
        subject: str,
        on_message: Callable[[Msg], Awaitable[None]],
        repair: Callable[[], Awaitable[object]],
    ) -> None:
        self._connection, self._subject, self._on_message, self._repair = connection, subject, on_message, repair
        self._heard = asyncio.Event()
        self._left, self._is_lost, self._refusal = 0, False, ""

    def restart(self) -> None:
        """Ask again: the servers have lost the request."""
        self._is_lost = True
        self._heard.set()

    async def run(self) -> None:
        """Pull until cancelled.

        Raises:
            TtlError: The consumer cannot be made again.
        """
        while True:
            inbox, subscription = await self._connection.subscribe(self._receive)
            self._left, self._is_lost = 0, False
            try:
                while not self._is_lost:  # what a lost request still brings must not be counted: another inbox
                    await self._pull(inbox)
            finally:
                await self._connection.unsubscribe(subscription)

    async def _pull(self, inbox: str) -> None:
        """Send a request if the last one has ended, and wait for the next message."""
        if self._refusal:
            _log.error("fired timers not pulled", extra={"fields": {"from": self._subject, "error": self._refusal}})
            self._refusal = ""
            with suppress(TryLaterError):
                await self._repair()
            await asyncio.sleep(HEARTBEAT_SECONDS)
        self._heard.clear()
        try:
            if self._left <= 0:
                await self._connection.send(self._subject, _REQUEST, inbox)
                self._left = PULL_BATCH
            async with asyncio.timeout(SILENCE_SECONDS):
                await self._heard.wait()
        except TryLaterError:
            await asyncio.sleep(HEARTBEAT_SECONDS)
        except TimeoutError:
            self._is_lost = True

    async def _receive(self, message: Msg) -> None:
        headers = message.headers or {}
        status, description = headers.get("Status"), headers.get("Description", "")
        if status is None:
            self._left -= 1
            await self._on_message(message)
        elif status != _HEARTBEAT:  # the request has ended
            self._left = 0
            if status not in _ENDED and "Leadership" not in description:
                self._refusal = _sentence_of(status, description)
        self._heard.set()


_REQUEST = json.dumps(
    {
        "batch": PULL_BATCH,
        "expires": int(EXPIRES_SECONDS * _NANOSECONDS),
        "idle_heartbeat": int(HEARTBEAT_SECONDS * _NANOSECONDS),
    }
).encode()


def _sentence_of(status: str, description: str) -> str:
    """Say why the servers deliver no timers.

    The client library takes the first header for the description if the servers send none; such a text begins with a
    line break.
    """
    if status == _NONE_LISTENS:
        return (
            "no NATS server answers for the consumer of these timers: JetStream is off, or stopped because its disk is "
            "full, or the consumer has no leader or was deleted; it is made again, else see the log of nats-server"
        )
    reason = "" if description[:1].isspace() else description.strip()
    return (
        f"the NATS servers refuse to deliver these timers: {reason or 'no reason given'} (status {status}); "
        "look at the consumer, and at the log of nats-server"
    )
