"""A foreign archiver behind a webhook: what each of its answers means."""

import asyncio
import json
from contextlib import asynccontextmanager, nullcontext
from datetime import timedelta

import pytest
from aiohttp import web

from shared.adapters.archive.webhook import WebhookArchive
from shared.adapters.events.cloudevents import EVENT_BYTES_MAX
from shared.core.archive.document import Document, Record
from shared.errors import ForbiddenError, PermanentError, TryLaterError
from tests.archives import copied_of
from tests.builders import NOW, ago, job, later, stamp
from tests.loopback import answering_with

pytestmark = pytest.mark.anyio

COPIED = copied_of(job(complete=ago(60)))
DOCUMENT = Document(Record(archived_at=NOW, finished_at=ago(60)), COPIED.text)
HEADERS = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "test", "ce-type": "dev.ttlafterfinished.archive.done"}


def done(request, **changes):
    about = {name: request[name] for name in ("ref", "resourceVersion", "digest")}
    return about | {"archivedAt": stamp(ago(5)), "location": "there"} | changes


@asynccontextmanager
async def archiver(status=200, answer=done, headers=HEADERS, path=""):
    asked = []

    async def handle(request: web.Request) -> web.Response:
        asked.append(json.loads(await request.read()))
        body = answer(asked[-1]) if answer else None
        if body is None:
            return web.Response(status=status)
        return web.json_response(body, status=status, headers=headers)

    async with answering_with(handle) as url:
        archive = WebhookArchive("main", f"{url}{path}")
        try:
            yield archive, asked
        finally:
            await archive.close()


async def test_object_is_sent_and_the_answer_is_the_acknowledgement():
    async with archiver() as (archive, asked):
        stored = await archive.put(COPIED.key, DOCUMENT)

    assert (stored.key, stored.stored_at, stored.location) == (COPIED.key, ago(5), "there")
    assert (asked[0]["object"], asked[0]["digest"], asked[0]["cluster"]) == (
        DOCUMENT.obj,
        COPIED.key.digest,
        COPIED.key.cluster,
    )


async def test_question_has_no_object():
    async with archiver() as (archive, asked):
        assert await archive.confirm(COPIED.key) is not None

    assert asked[0]["object"] is None


@pytest.mark.parametrize(("status", "answer"), [(404, None), (204, None), (202, None)])
async def test_archiver_that_does_not_hold_the_version_confirms_nothing(status, answer):
    async with archiver(status, answer) as (archive, _):
        assert await archive.confirm(COPIED.key) is None


async def test_archiver_that_stores_later_may_say_so_in_words():
    async with archiver(202, lambda _: {"status": "accepted"}, headers={}) as (archive, _):
        assert await archive.confirm(COPIED.key) is None


@pytest.mark.parametrize("status", [202, 204, 408, 409, 429, 500, 503])
async def test_archiver_that_stores_later_or_is_busy_is_asked_again(status):
    async with archiver(status, None) as (archive, _):
        with pytest.raises(TryLaterError):
            await archive.put(COPIED.key, DOCUMENT)


@pytest.mark.parametrize(("status", "error"), [(400, PermanentError), (401, ForbiddenError), (403, ForbiddenError)])
async def test_archiver_that_refuses_is_an_error(status, error):
    async with archiver(status, None) as (archive, _):
        with pytest.raises(error, match=f"answered {status}"):
            await archive.put(COPIED.key, DOCUMENT)


@pytest.mark.parametrize("changes", [{"digest": "0" * 64}, {"resourceVersion": "1"}])
async def test_answer_about_another_version_does_not_count(changes):
    """It may be that of a cache before the archiver."""
    async with archiver(answer=lambda request: done(request, **changes)) as (archive, _):
        with pytest.raises(TryLaterError, match="another version"):
            await archive.confirm(COPIED.key)


NO_ANSWERS = {
    "no event": ({}, done),
    "another event": (HEADERS | {"ce-type": "dev.ttlafterfinished.timer.set"}, done),
    "a field that cannot be read": (HEADERS, lambda request: done(request, archivedAt="soon")),
    "a digest that cannot be read": (HEADERS, lambda request: done(request, digest="short")),
    "more bytes than an event has": (HEADERS, lambda request: done(request, location="x" * EVENT_BYTES_MAX)),
}


@pytest.mark.parametrize(("headers", "answer"), NO_ANSWERS.values(), ids=NO_ANSWERS)
async def test_archiver_whose_answer_is_no_acknowledgement_is_asked_again(headers, answer):
    async with archiver(headers=headers, answer=answer) as (archive, _):
        with pytest.raises(TryLaterError, match=r"expected archive\.done"):
            await archive.confirm(COPIED.key)


@pytest.mark.parametrize("cut", [False, True], ids=["whole", "cut off"])
async def test_answer_is_read_to_its_end_however_many_segments_it_has(cut):
    async def handle(request: web.Request) -> web.StreamResponse:
        body = json.dumps(done(json.loads(await request.read()))).encode()
        length = len(body) + (1 if cut else 0)
        response = web.StreamResponse(
            headers=HEADERS | {"Content-Length": str(length), "Content-Type": "application/json"}
        )
        await response.prepare(request)
        for start in range(0, len(body), 40):
            await response.write(body[start : start + 40])
            await asyncio.sleep(0)  # a segment of its own
        if cut and request.transport is not None:
            request.transport.close()
        return response

    async with answering_with(handle) as url:
        archive = WebhookArchive("main", url)
        with pytest.raises(TryLaterError) if cut else nullcontext():
            assert await archive.confirm(COPIED.key) is not None
        await archive.close()


async def test_archiver_that_is_not_there_is_asked_again():
    archive = WebhookArchive("main", "http://127.0.0.1:1/")
    with pytest.raises(TryLaterError, match="archive main"):
        await archive.confirm(COPIED.key)
    await archive.close()


async def test_archiver_cannot_be_read_or_listed():
    archive = WebhookArchive("main", "http://127.0.0.1:1/")
    with pytest.raises(PermanentError, match="a webhook only stores"):
        await archive.read(COPIED.key)
    with pytest.raises(PermanentError, match="a webhook only stores"):
        archive.ls()


EARLY = timedelta(minutes=-6)


def archived_at(instant):
    return lambda request: done(request, archivedAt=stamp(instant))


@pytest.mark.parametrize("instant", [ago(10**9), ago(60) + EARLY])
async def test_acknowledgement_of_a_put_is_after_the_finish(instant):
    async with archiver(answer=archived_at(instant)) as (archive, _):
        with pytest.raises(PermanentError, match="archivedAt: expected an instant from the finish"):
            await archive.put(COPIED.key, DOCUMENT)


@pytest.mark.parametrize("instant", [ago(10**9), NOW.replace(hour=0, minute=0) + EARLY])
async def test_confirmation_is_after_the_day_of_the_finish(instant):
    async with archiver(answer=archived_at(instant)) as (archive, _):
        with pytest.raises(PermanentError, match="archivedAt"):
            await archive.confirm(COPIED.key)


@pytest.mark.parametrize("instant", [ago(60), ago(300), NOW, later(240)])
async def test_clocks_may_differ_by_minutes(instant):
    async with archiver(answer=archived_at(instant)) as (archive, _):
        assert (await archive.put(COPIED.key, DOCUMENT)).stored_at == instant
        confirmed = await archive.confirm(COPIED.key)
        assert confirmed is not None
        assert confirmed.stored_at == instant


SECRET = "/hooks/path-secret?token=query-secret"


ECHOES = {
    "the URL": "cannot POST /hooks/path-secret?token=query-secret",
    "escaped": "&#x2F;hooks&#x2F;path-secret?token&#x3D;query-secret",
    "the last part of the path": "no hook path-secret",
    "the value of the query": "bad token query-secret",
    "a part of the value": "unknown token ending in -secret",
}


@pytest.mark.parametrize("echo", ECHOES.values(), ids=ECHOES)
@pytest.mark.parametrize("status", [202, 400, 401, 404, 409, 429, 500, 503])
async def test_path_and_query_of_the_url_are_never_in_an_error(status, echo):
    async with archiver(status, lambda _: {"error": echo}, headers={}, path=SECRET) as (archive, _):
        with pytest.raises((PermanentError, TryLaterError), match="127") as caught:
            await archive.put(COPIED.key, DOCUMENT)

    assert "secret" not in str(caught.value)
    assert "secret" not in getattr(caught.value, "outage", "")


@pytest.mark.parametrize("path", ["", "/", "/?", "?"])
async def test_answer_is_in_the_error_if_the_url_has_no_path_and_no_query(path):
    async with archiver(400, lambda _: {"error": "no room for Jobs"}, headers={}, path=path) as (archive, _):
        with pytest.raises(PermanentError, match=r"answered 400: .*no room for Jobs"):
            await archive.put(COPIED.key, DOCUMENT)


@pytest.mark.parametrize("name", ["ce-type", "ce-specversion", "ce-no_name"])
async def test_answer_that_is_no_acknowledgement_is_not_in_the_error(name):
    headers = {**HEADERS, name: "application/no-hook-path-secret"}
    async with archiver(headers=headers, path=SECRET) as (archive, _):
        with pytest.raises(TryLaterError, match=r"expected archive\.done") as caught:
            await archive.confirm(COPIED.key)

    assert "secret" not in str(caught.value)


async def test_error_of_the_client_has_no_path_of_the_url():
    """Such as a status line that is not HTTP: its error has the URL."""

    async def answer(_, writer):
        writer.write(b"HTTP/1.1 path-secret\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    archive = WebhookArchive("main", f"http://127.0.0.1:{port}/hooks/%70ath-secret?token=query-secret%2B")
    with pytest.raises(TryLaterError, match=f"127.0.0.1:{port}: ") as caught:
        await archive.confirm(COPIED.key)
    await archive.close()
    server.close()

    assert "secret" not in str(caught.value)
    assert "secret" not in caught.value.outage


@pytest.mark.parametrize("changes", [{"digest": "0" * 64}, {"digest": "short"}, {"archivedAt": stamp(ago(10**9))}])
async def test_path_and_query_of_the_url_are_not_in_an_error_about_an_answer(changes):
    async with archiver(answer=lambda request: done(request, **changes), path=SECRET) as (archive, _):
        with pytest.raises((PermanentError, TryLaterError)) as caught:
            await archive.confirm(COPIED.key)

    assert "secret" not in str(caught.value)


async def test_location_is_the_host_if_the_archiver_names_none():
    async with archiver(answer=lambda request: done(request, location=""), path=SECRET) as (archive, _):
        stored = await archive.put(COPIED.key, DOCUMENT)

    assert stored.location == archive.location
    assert stored.location.startswith("http://127.0.0.1:")
    assert "secret" not in stored.location


@pytest.mark.parametrize(("status", "is_outage"), [(408, False), (409, False), (429, True), (500, False), (503, True)])
async def test_outage_of_the_archiver_is_told_apart_from_an_error_about_one_key(status, is_outage):
    async with archiver(status, None) as (archive, _):
        with pytest.raises(TryLaterError) as caught:
            await archive.confirm(COPIED.key)

    assert caught.value.outage == (f"{archive.location} answered {status}" if is_outage else "")


async def test_archiver_that_is_not_there_is_an_outage_without_its_path():
    archive = WebhookArchive("main", f"http://127.0.0.1:1{SECRET}")
    with pytest.raises(TryLaterError) as caught:
        await archive.confirm(COPIED.key)
    await archive.close()

    assert caught.value.outage.startswith("http://127.0.0.1:1: ")
    assert "secret" not in str(caught.value)
