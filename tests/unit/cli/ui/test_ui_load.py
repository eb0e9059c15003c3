"""The server of the page under a flood: the requests that wait are few."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from itertools import islice
from typing import Any

import pytest

from shared.adapters.kubernetes.reviews import TOKENS_REVIEWED_MAX, Reviews
from shared.cli.ui.app import REQUESTS_AT_ONCE_MAX, REQUESTS_OF_USER_MAX, UiServer, make_app
from shared.cli.ui.cluster_view import CachedView
from shared.cli.ui.command import serve_app
from shared.errors import TryLaterError
from tests.ui_views import view_of
from tests.unit.cli.ui.test_ui_app import Reply, ReviewingServer, Site
from tests.virtual_time import anyio_backend  # noqa: F401 - a fixture

pytestmark = pytest.mark.anyio


class SlowServer(ReviewingServer):
    """An API server that answers when `gate` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()

    async def request(self, _method: str, path: str, *, body: Any) -> Any:
        await self.gate.wait()
        return await super().request(_method, path, body=body)


async def test_more_unknown_tokens_than_are_checked_at_once_are_refused_for_now():
    server = SlowServer()
    reviews = Reviews(server)  # type: ignore[arg-type]
    waiting = [asyncio.create_task(reviews.find_user(f"stranger-{number}")) for number in range(TOKENS_REVIEWED_MAX)]
    await asyncio.sleep(0.01)
    with pytest.raises(TryLaterError, match="too many tokens"):
        await reviews.find_user("one-more")
    server.gate.set()
    assert set(await asyncio.gather(*waiting)) == {None}
    assert await reviews.find_user("ann")


async def test_user_who_is_known_reads_while_strangers_wait():
    server, view = SlowServer(), await view_of()
    server.gate.set()

    async def read() -> Any:
        return view

    site = Site(make_app(UiServer(CachedView(read, seconds=30), 30, Reviews(server)), loopback_only=False))  # type: ignore[arg-type]
    assert (await site.get("/api/v1/overview", authorization="Bearer ann")).status == 200
    server.gate.clear()
    waiting = [
        asyncio.create_task(site.get("/api/v1/overview", authorization=f"Bearer stranger-{number}"))
        for number in range(TOKENS_REVIEWED_MAX + 1)
    ]
    await asyncio.sleep(0.01)
    assert (await site.get("/api/v1/overview", authorization="Bearer ann")).status == 200
    server.gate.set()
    assert sorted([(await one).status for one in waiting]) == [401] * TOKENS_REVIEWED_MAX + [503]


async def test_more_requests_than_are_handled_at_once_are_refused_for_now():
    view, gate = await view_of(), asyncio.Event()

    async def read() -> Any:
        await gate.wait()
        return view

    site = Site(make_app(UiServer(CachedView(read, seconds=30), 30), loopback_only=True))
    waiting = [asyncio.create_task(site.get("/api/v1/overview")) for _ in range(REQUESTS_AT_ONCE_MAX)]
    await asyncio.sleep(0.01)
    reply = await site.get("/api/v1/overview")
    assert (reply.status, reply.headers["retry-after"]) == (503, "5")
    assert (await site.get("/healthz")).status == 200
    gate.set()
    assert {(await one).status for one in waiting} == {200}
    assert (await site.get("/api/v1/overview")).status == 200


async def test_user_with_too_many_requests_leaves_places_to_other_users():
    view, gate = await view_of(), asyncio.Event()

    async def read() -> Any:
        await gate.wait()
        return view

    app = make_app(UiServer(CachedView(read, seconds=30), 30, Reviews(ReviewingServer())), loopback_only=False)  # type: ignore[arg-type]
    site = Site(app)

    def ask(user: str) -> asyncio.Task[Any]:
        return asyncio.create_task(site.get("/api/v1/overview", authorization=f"Bearer {user}"))

    asked = [ask("ann") for _ in range(REQUESTS_AT_ONCE_MAX)]
    async with asyncio.timeout(20):
        ended = islice(asyncio.as_completed(asked), REQUESTS_AT_ONCE_MAX - REQUESTS_OF_USER_MAX)
        assert {(await one).status for one in ended} == {503}
    other = ask("bob")
    await asyncio.sleep(0.05)
    gate.set()
    assert (await other).status == 200
    assert Counter([(await one).status for one in asked]) == {
        503: REQUESTS_AT_ONCE_MAX - REQUESTS_OF_USER_MAX,
        200: REQUESTS_OF_USER_MAX,
    }
    assert (await ask("ann")).status == 200


async def test_request_whose_client_has_left_takes_no_place_and_ends_no_read():
    view, gate, reads = await view_of(), asyncio.Event(), []

    async def read() -> Any:
        reads.append(1)
        await gate.wait()
        return view

    app = make_app(UiServer(CachedView(read, seconds=30), 30, Reviews(ReviewingServer())), loopback_only=False)  # type: ignore[arg-type]
    impatient, patient = Site(app), Site(app)

    def ask(site: Site) -> asyncio.Task[Any]:
        return asyncio.create_task(site.get("/api/v1/overview", authorization="Bearer ann"))

    waiting = [ask(impatient) for _ in range(REQUESTS_OF_USER_MAX)]
    await asyncio.sleep(0.05)
    assert (await ask(patient)).status == 503
    impatient.left.set()
    assert {(await one).status for one in waiting} == {503}
    again = ask(patient)
    await asyncio.sleep(0.05)
    gate.set()
    assert (await again).status == 200
    assert len(reads) == 1


class CountedView(CachedView):
    """Says that a request has its place: only then it asks for the view."""

    def __init__(self, read: Callable[[], Awaitable[Any]], *, seconds: float) -> None:
        super().__init__(read, seconds=seconds)
        self.is_asked = asyncio.Event()

    async def get(self) -> Any:
        self.is_asked.set()
        return await super().get()


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # with a socket
@pytest.mark.parametrize("half", [False, True])
async def test_place_is_free_when_the_connection_ends(half, monkeypatch):
    monkeypatch.setattr("shared.cli.ui.app.REQUESTS_AT_ONCE_MAX", 1)
    view, gate = await view_of(), asyncio.Event()

    async def read() -> Any:
        await gate.wait()
        return view

    views = CountedView(read, seconds=30)
    app = make_app(UiServer(views, 30), loopback_only=True)
    other = Site(app)

    async def ask_until_there_is_a_place() -> Reply:
        while (reply := await other.get("/api/v1/overview")).status == 503:
            await asyncio.sleep(0)  # the server has not seen the end yet
        return reply

    async with serve_app(app, "127.0.0.1", 0) as url, asyncio.timeout(60):
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rstrip("/").rpartition(":")[2]))
        writer.write(b"GET /api/v1/overview HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await views.is_asked.wait()
        assert (await other.get("/api/v1/overview")).status == 503
        views.is_asked.clear()
        writer.write_eof() if half else writer.close()
        assert await reader.read() == b""
        waiting = asyncio.create_task(ask_until_there_is_a_place())
        await views.is_asked.wait()
        gate.set()
        assert (await waiting).status == 200
        writer.close()


async def test_review_of_a_client_that_has_left_keeps_its_slot():
    """The API server works on it anyway, so clients that leave cannot make it work on more of them at once."""
    server = SlowServer()
    view = await view_of()

    async def read() -> Any:
        return view

    site = Site(make_app(UiServer(CachedView(read, seconds=30), 30, Reviews(server)), loopback_only=False))  # type: ignore[arg-type]
    waiting = [
        asyncio.create_task(site.get("/api/v1/overview", authorization=f"Bearer stranger-{number}"))
        for number in range(TOKENS_REVIEWED_MAX)
    ]
    await asyncio.sleep(0.05)
    site.left.set()
    await asyncio.sleep(0.05)
    assert not any(one.done() for one in waiting)
    server.gate.set()
    assert [(await one).status for one in waiting] == [401] * TOKENS_REVIEWED_MAX
