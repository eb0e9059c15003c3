"""Pull the fired timers of one purpose from the servers: only as many as this process has room for."""

import asyncio
import json
import logging
import time
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
"""After this time without a sign of it, a request is lost: its server may have died, and this process uses another."""

_NANOSECONDS = 1_000_000_000
_HEARTBEAT, _NOBODY = "100", "503"
_log = logging.getLogger("ttl")


class Pull:
    """The requests for the fired timers of one purpose.

    Args:
        connection: The connection.
        subject: Where to ask: `$JS.API.CONSUMER.MSG.NEXT.STREAM.CONSUMER`.
        on_message: Called with each fired timer.
        room: Returns how many more timers this process can hold.
        repair: Called after a refusal: makes the consumer again if it was deleted.
    """

    def __init__(
        self,
        connection: NatsConnection,
        subject: str,
        on_message: Callable[[Msg], Awaitable[None]],
        room: Callable[[], int],
        repair: Callable[[], Awaitable[object]],
    ) -> None:
        self._connection, self._subject = connection, subject
        self._on_message, self._room, self._repair = on_message, room, repair
        self._wake = asyncio.Event()
        self._wanted, self._heard_at = 0, 0.0
        self._is_lost = False
        self._refusal = ""

    def wake(self) -> None:
        """There is room again."""
        self._wake.set()

    def restart(self) -> None:
        """Ask again: the servers have lost the request."""
        self._is_lost = True
        self._wake.set()

    async def run(self) -> None:
        """Pull until cancelled.

        Raises:
            TtlError: The consumer cannot be made again.
        """
        while True:
            await self._pull()

    async def _pull(self) -> None:
        """Pull by one inbox, until a request is lost: what a lost request still brings must not be counted."""
        inbox, subscription = await self._connection.subscribe(self._receive)
        self._wanted, self._is_lost = 0, False
        try:
            while not self._is_lost:
                self._wake.clear()
                if self._refusal:
                    await self._report()
                if self._wanted <= 0 and (room := self._room()) > 0:
                    await self._ask(inbox, min(room, PULL_BATCH))
                await self._wait()
        finally:
            if not self._connection.closed:
                await subscription.unsubscribe()

    async def _ask(self, inbox: str, batch: int) -> None:
        request = {
            "batch": batch,
            "expires": int(EXPIRES_SECONDS * _NANOSECONDS),
            "idle_heartbeat": int(HEARTBEAT_SECONDS * _NANOSECONDS),
        }
        try:
            await self._connection.send(self._subject, json.dumps(request).encode(), inbox)
        except TryLaterError:
            await asyncio.sleep(HEARTBEAT_SECONDS)
        else:
            self._wanted, self._heard_at = batch, time.monotonic()

    async def _wait(self) -> None:
        """Wait until the request has ended and there is room; without a sign of it, ask again.

        The engine may end the wait at any time, so the silence is measured by the clock.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(SILENCE_SECONDS):
                await self._wake.wait()
        if self._wanted > 0 and time.monotonic() - self._heard_at > SILENCE_SECONDS:
            self._is_lost = True

    async def _report(self) -> None:
        _log.error("fired timers not pulled", extra={"fields": {"from": self._subject, "error": self._refusal}})
        self._refusal = ""
        with suppress(TryLaterError):
            await self._repair()
        await asyncio.sleep(HEARTBEAT_SECONDS)

    async def _receive(self, message: Msg) -> None:
        self._heard_at = time.monotonic()
        headers = message.headers or {}
        status = headers.get("Status")
        if status is None:
            self._wanted -= 1
            await self._on_message(message)
        elif status != _HEARTBEAT:  # the request has ended: it expired, or the consumer is not there now
            self._wanted = 0
            if status not in ("404", "408") and "Leadership" not in headers.get("Description", ""):
                self._refusal = _sentence_of(status, headers.get("Description", ""))
        if self._wanted <= 0:
            self._wake.set()


def _sentence_of(status: str, description: str) -> str:
    """Say why the servers deliver no timers.

    The client library takes the first header for the description if the servers send none; such a text begins with a
    line break.
    """
    if status == _NOBODY:
        return (
            "no NATS server answers for the consumer of these timers: JetStream is off, or stopped because its disk is "
            "full, or the consumer has no leader or was deleted; it is made again, else see the log of nats-server"
        )
    reason = "" if description[:1].isspace() else description.strip()
    return (
        f"the NATS servers refuse to deliver these timers: {reason or 'no reason given'} (status {status}); "
        "look at the consumer, and at the log of nats-server"
    )
