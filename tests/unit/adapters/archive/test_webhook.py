"""A foreign archiver behind a webhook: what each of its answers means."""

import json
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from shared.adapters.archive.webhook import WebhookArchive
from shared.core.archive.document import Document, Record
from shared.errors import ForbiddenError, PermanentError, TryLaterError
from tests.archives import copied_of
from tests.builders import NOW, ago, job, stamp
from tests.loopback import answering_with

pytestmark = pytest.mark.anyio

COPIED = copied_of(job(complete=ago(60)))
DOCUMENT = Document(Record(archived_at=NOW), COPIED.text)
HEADERS = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "test", "ce-type": "dev.ttlafterfinished.archive.done"}


def done(request, **changes):
    about = {name: request[name] for name in ("ref", "resourceVersion", "digest")}
    return about | {"archivedAt": stamp(ago(5)), "location": "there"} | changes


@asynccontextmanager
async def archiver(status=200, answer=done, headers=HEADERS):
    asked = []

    async def handle(request: web.Request) -> web.Response:
        asked.append(json.loads(await request.read()))
        body = answer(asked[-1]) if answer else None
        if body is None:
            return web.Response(status=status)
        return web.json_response(body, status=status, headers=headers)

    async with answering_with(handle) as url:
        archive = WebhookArchive("main", url, "east")
        try:
            yield archive, asked
        finally:
            await archive.close()


async def test_object_is_sent_and_the_answer_is_the_acknowledgement():
    async with archiver() as (archive, asked):
        stored = await archive.put(COPIED.key, DOCUMENT)

    assert (stored.key, stored.stored_at, stored.location) == (COPIED.key, ago(5), "there")
    assert (asked[0]["object"], asked[0]["digest"], asked[0]["cluster"]) == (DOCUMENT.obj, COPIED.key.digest, "east")


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


@pytest.mark.parametrize(
    "changes", [{"digest": "0" * 64}, {"resourceVersion": "1"}, {"archivedAt": "soon"}, {"digest": "short"}]
)
async def test_answer_about_another_version_does_not_count(changes):
    async with archiver(answer=lambda request: done(request, **changes)) as (archive, _):
        with pytest.raises(PermanentError):
            await archive.confirm(COPIED.key)


async def test_answer_that_is_no_event_does_not_count():
    async with archiver(headers={}) as (archive, _):
        with pytest.raises(PermanentError, match=r"expected archive\.done"):
            await archive.confirm(COPIED.key)


async def test_archiver_that_is_not_there_is_asked_again():
    archive = WebhookArchive("main", "http://127.0.0.1:1/", "east")
    with pytest.raises(TryLaterError, match="archive main"):
        await archive.confirm(COPIED.key)
    await archive.close()


async def test_archiver_cannot_be_read_or_listed():
    archive = WebhookArchive("main", "http://127.0.0.1:1/", "east")
    with pytest.raises(PermanentError, match="a webhook only stores"):
        await archive.read(COPIED.key)
    with pytest.raises(PermanentError, match="a webhook only stores"):
        archive.ls()
