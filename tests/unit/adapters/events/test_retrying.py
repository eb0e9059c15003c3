"""Retries of events to a sink that fails for a while: a real HTTP server, and pauses that are only recorded."""

import pytest
from aiohttp import web

from shared.adapters.events.cloudevents import Event, parse_event
from shared.adapters.events.publisher import RETRIES, HttpPublisher, retrying
from shared.errors import PermanentError, TryLaterError
from tests.loopback import answering_with

pytestmark = pytest.mark.anyio

PAUSES_SECONDS = [0.5, 1, 2, 4, 8, 16]

EVENT = Event(id="uid/1042/update", source="https://10.0.0.1", type="dev.knative.apiserver.resource.update", data=b"{}")


class Sink:
    """Answers with the given statuses, one after the other, then with 202."""

    def __init__(self):
        self.url = ""
        self.statuses = []
        self.ids = []

    async def handle(self, request):
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.ids.append(parse_event(headers, await request.read()).id)
        return web.Response(status=self.statuses.pop(0) if self.statuses else 202)


@pytest.fixture
async def sink():
    sink = Sink()
    async with answering_with(sink.handle) as url:
        sink.url = f"{url}/"
        yield sink


@pytest.fixture
async def publisher(sink):
    publisher = HttpPublisher(sink.url, source="/test")
    yield publisher
    await publisher.close()


class Pauses(list):
    """Records each requested pause, and does not wait."""

    async def sleep(self, seconds):
        self.append(seconds)


def patient(take, jitter=0.0):
    pauses = Pauses()
    return retrying(take, sleep=pauses.sleep, jitter=lambda: jitter), pauses


async def test_accepted_event_is_sent_once(sink, publisher):
    send, pauses = patient(publisher.send)
    await send(EVENT)

    assert sink.ids == [EVENT.id]
    assert pauses == []


@pytest.mark.parametrize("status", [404, 408, 409, 429, 500, 502, 503, 504])
async def test_event_with_a_retryable_status_is_sent_until_it_is_accepted(sink, publisher, status):
    sink.statuses = [status] * 3
    send, pauses = patient(publisher.send)
    await send(EVENT)

    assert sink.ids == [EVENT.id] * 4
    assert pauses == [0.5, 1, 2]


@pytest.mark.parametrize("status", [400, 401, 403, 413, 422])
async def test_event_with_a_permanent_status_is_not_sent_again(sink, publisher, status):
    sink.statuses = [503, status]
    send, _ = patient(publisher.send)
    with pytest.raises(PermanentError, match=f"refused {EVENT.type} with {status}"):
        await send(EVENT)

    assert len(sink.ids) == 2


async def test_retries_end_after_half_a_minute(sink, publisher):
    sink.statuses = [503] * 100
    send, pauses = patient(publisher.send)
    with pytest.raises(TryLaterError, match="answered 503"):
        await send(EVENT)

    assert pauses == PAUSES_SECONDS
    assert 30 < sum(pauses) < 40
    assert len(sink.ids) == RETRIES + 1


@pytest.mark.parametrize(("jitter", "factor"), [(0.0, 1.0), (1.0, 0.75)])
async def test_pauses_between_retries_have_jitter(sink, publisher, jitter, factor):
    sink.statuses = [503] * 4
    send, pauses = patient(publisher.send, jitter)
    await send(EVENT)

    assert pauses == [factor * pause for pause in PAUSES_SECONDS[:4]]


async def test_event_for_an_unreachable_sink_is_retried():
    publisher = HttpPublisher("http://127.0.0.1:1/", source="/test")
    send, pauses = patient(publisher.send)
    with pytest.raises(TryLaterError, match=r"cannot publish to http://127\.0\.0\.1:1/"):
        await send(EVENT)
    await publisher.close()

    assert pauses == PAUSES_SECONDS
