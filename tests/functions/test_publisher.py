"""Published events, as a Broker receives and answers them."""

import asyncio
from contextlib import nullcontext
from functools import partial
from typing import Any

import pytest
from aiohttp import web

from shared.adapters.events.cloudevents import parse_event
from shared.adapters.events.publisher import PUBLISH_ANSWER_BYTES_MAX, HttpPublisher, bound_token
from shared.errors import EventError, PermanentError, TryLaterError
from shared.messages import Purpose, Timer
from tests.functions.wire import FIRED, timer
from tests.loopback import answering_with, answering_without_end, elsewhere

pytestmark = pytest.mark.anyio

MESSAGE = Timer.model_validate(timer())


class Broker:
    """Answers each event the same way, and records it."""

    def __init__(self):
        self.url = ""
        self.answer: dict[str, Any] = {"status": 202}
        self.received = []
        self.methods = []

    async def handle(self, request):
        self.methods.append(request.method)
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.received.append((headers, await request.read()))
        if request.path == "/login":
            return web.Response(text="please log in")
        return web.Response(**self.answer)


@pytest.fixture
async def broker():
    broker = Broker()
    async with answering_with(broker.handle) as url:
        broker.url = f"{url}/ns/default"
        yield broker


@pytest.fixture
async def publisher(broker):
    publisher = HttpPublisher(broker.url, source="/test")
    yield publisher
    await publisher.close()


async def test_published_event_arrives_unchanged(broker, publisher):
    await publisher.publish(MESSAGE)

    event = parse_event(*broker.received[0])
    assert (event.type, event.id, event.source, event.subject) == (FIRED, MESSAGE.id, "/test", MESSAGE.subject)
    assert Timer.model_validate_json(event.data) == MESSAGE


async def test_published_timer_has_its_trace_as_attribute_and_as_header(broker, publisher):
    traced = MESSAGE.model_copy(update={"traceparent": f"00-{'a' * 32}-{'b' * 16}-01"})
    await publisher.publish(traced)
    await publisher.publish(MESSAGE)

    (first, _), (second, _) = broker.received
    assert first["ce-traceparent"] == first["traceparent"] == traced.traceparent
    assert not {"ce-traceparent", "traceparent"} & second.keys()


async def test_rotated_token_is_sent_with_the_next_event(broker, tmp_path):
    token_file = tmp_path / "token"
    publisher = HttpPublisher(broker.url, source="/test", token=partial(bound_token, token_file))
    for token in (None, "first\n", "second", None):
        token_file.write_text(token) if token else token_file.unlink(missing_ok=True)
        await publisher.publish(MESSAGE)
    await publisher.close()

    assert [headers.get("authorization") for headers, _ in broker.received] == [
        None, "Bearer first", "Bearer second", None
    ]  # fmt: skip


async def test_unreadable_token_raises_try_later(broker, tmp_path):
    publisher = HttpPublisher(broker.url, source="/test", token=partial(bound_token, tmp_path))

    with pytest.raises(TryLaterError, match=f"{tmp_path}: "):
        await publisher.publish(MESSAGE)
    await publisher.close()
    assert broker.received == []


@pytest.mark.parametrize("rubbish", [b"\xff\xfe", b"first\nsecond", "tök".encode()], ids=repr)
async def test_invalid_token_raises_try_later(broker, tmp_path, rubbish):
    token_file = tmp_path / "token"
    token_file.write_bytes(rubbish)
    publisher = HttpPublisher(broker.url, source="/test", token=partial(bound_token, token_file))

    with pytest.raises(TryLaterError, match=f"{token_file}: "):
        await publisher.publish(MESSAGE)
    await publisher.close()
    assert broker.received == []


async def test_many_events_can_be_published_at_once(broker, publisher):
    await asyncio.gather(*(publisher.publish(MESSAGE) for _ in range(50)))

    assert len(broker.received) == 50


async def test_events_that_wait_for_their_answers_delay_no_other_event():
    """The timer engine may have 96 deliveries of each purpose in flight, and those of `archive` take minutes."""
    waiting, all_wait, answered = 0, asyncio.Event(), asyncio.Event()

    async def handle(request):
        nonlocal waiting
        if request.headers["ce-purpose"] == Purpose.ARCHIVE:
            waiting += 1
            if waiting == 150:
                all_wait.set()
            await answered.wait()
        return web.Response(status=202)

    async with answering_with(handle) as url:
        publisher = HttpPublisher(url, source="/test")
        slow = MESSAGE.model_copy(update={"purpose": Purpose.ARCHIVE})
        async with asyncio.TaskGroup() as group:
            for _ in range(150):
                group.create_task(publisher.publish(slow))
            await all_wait.wait()
            await publisher.publish(MESSAGE)
            answered.set()
        await publisher.close()


@pytest.mark.parametrize("status", [200, 202, 204])
async def test_status_below_300_is_accepted(broker, publisher, status):
    broker.answer = {"status": status}

    await publisher.publish(MESSAGE)


@pytest.mark.parametrize("status", [404, 408, 409, 429, 500, 502, 503, 504])
async def test_retryable_status_raises_try_later(broker, publisher, status):
    broker.answer = {"status": status, "text": "x" * 5_000}

    with pytest.raises(TryLaterError, match=str(status)) as error:
        await publisher.publish(MESSAGE)
    assert len(str(error.value)) < 400


@pytest.mark.parametrize("status", [400, 401, 403, 413, 422])
async def test_other_status_raises_permanent_error(broker, publisher, status):
    broker.answer = {"status": status, "body": b"\xff not admitted"}

    with pytest.raises(PermanentError, match=f"with {status}: .* not admitted"):
        await publisher.publish(MESSAGE)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirect_is_refused(broker, publisher, status):
    async with elsewhere() as (url, arrived):
        broker.answer = {"status": status, "headers": {"location": f"{url}/login"}}
        with pytest.raises(PermanentError, match=f"answered {status}, a redirect to {url};"):
            await publisher.publish(MESSAGE)
    assert broker.methods == ["POST"]
    assert arrived == []


async def test_unreachable_sink_raises_try_later():
    publisher = HttpPublisher("http://127.0.0.1:1/", source="/test")
    with pytest.raises(TryLaterError, match=r"cannot publish to http://127\.0\.0\.1:1/"):
        await publisher.publish(MESSAGE)
    await publisher.close()


async def test_message_with_an_unprintable_id_is_not_sent(broker, publisher):
    ref = {**timer()["ref"], "uid": "x"}
    message = Timer.model_validate({**timer(), "ref": ref})
    object.__setattr__(message.ref, "uid", "a\nb")

    with pytest.raises(EventError, match="id: expected printable text"):
        await publisher.publish(message)
    assert broker.received == []


@pytest.mark.parametrize(("status", "error"), [(202, None), (400, PermanentError), (503, TryLaterError)])
async def test_answer_without_end_is_read_up_to_its_limit(status, error):
    handle, sent = answering_without_end(status)
    async with answering_with(handle) as url:
        publisher = HttpPublisher(url, source="/test")
        try:
            with pytest.raises(error) if error else nullcontext():
                await publisher.publish(MESSAGE)
        finally:
            await publisher.close()
    assert PUBLISH_ANSWER_BYTES_MAX <= sent[0] < 32 * 1024 * 1024  # the buffers of both sockets have some MiB
