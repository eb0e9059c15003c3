"""The requests for fired timers: when one is lost, and what counts as a sign of it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, cast

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from shared.adapters.timers.nats.connection import NatsConnection
from shared.adapters.timers.nats.pull import SILENCE_SECONDS, Pull
from tests.simulation.virtualloop import VirtualLoop

pytestmark = pytest.mark.anyio


class Connection:
    """Notes the inbox of each request; a test answers through `receive`."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.receive: list[Callable[[Msg], Awaitable[None]]] = []

    async def subscribe(self, on_message: Callable[[Msg], Awaitable[None]]) -> tuple[str, "Connection"]:
        self.receive.append(on_message)
        return f"inbox-{len(self.receive)}", self

    async def unsubscribe(self, subscription: object) -> None:
        """The inbox is used no more."""

    async def send(self, _subject: str, _body: bytes, inbox: str) -> None:
        self.asked.append(inbox)


@pytest.fixture(scope="module")
def anyio_backend() -> tuple[str, dict[str, Any]]:
    """Each test runs in virtual time."""
    return "asyncio", {"loop_factory": partial(VirtualLoop, 0)}


@pytest.fixture
def connection() -> Connection:
    return Connection()


@asynccontextmanager
async def pulling(connection: Connection) -> AsyncIterator[Pull]:
    async def ignore(_message: Msg) -> None:
        """A fired timer."""

    async def repaired() -> None:
        """The consumer is there."""

    pull = Pull(cast("NatsConnection", connection), "next", ignore, repaired)
    task = asyncio.create_task(pull.run())
    try:
        yield pull
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def heartbeat() -> Msg:
    return Msg(cast("Client", None), "inbox-1", "", b"", {"Status": "100"})


async def test_request_without_a_sign_is_sent_again_by_another_inbox(connection: Connection) -> None:
    async with pulling(connection):
        await asyncio.sleep(2.5 * SILENCE_SECONDS)
    assert connection.asked == ["inbox-1", "inbox-2", "inbox-3"]


async def test_request_with_heartbeats_is_not_repeated(connection: Connection) -> None:
    async with pulling(connection):
        for _ in range(20):
            await asyncio.sleep(SILENCE_SECONDS / 4)
            await connection.receive[0](heartbeat())
    assert connection.asked == ["inbox-1"]


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"Status": "503", "Description": "\nNats-Subject: $JS.API.CONSUMER.MSG.NEXT.t.expire"}, "JetStream is off"),
        ({"Status": "503"}, "JetStream is off"),
        ({"Status": "409", "Description": "Consumer Deleted"}, "refuse to deliver these timers: Consumer Deleted"),
        ({"Status": "400", "Description": "\nNats-Subject: x"}, "no reason given (status 400)"),
    ],
)
async def test_refusal_is_a_sentence_and_no_header(
    connection: Connection, caplog: pytest.LogCaptureFixture, headers: dict[str, str], expected: str
) -> None:
    async with pulling(connection):
        await asyncio.sleep(0.1)
        await connection.receive[0](Msg(cast("Client", None), "inbox-1", "", b"", headers))
        await asyncio.sleep(SILENCE_SECONDS)
    (error,) = [cast("Any", one).fields["error"] for one in caplog.records if one.getMessage().startswith("fired")]
    assert expected in error
    assert "Nats-Subject" not in error
    assert "nats-server" in error
