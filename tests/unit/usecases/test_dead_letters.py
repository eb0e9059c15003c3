"""Dead letters are logged and counted, and reported by one Event, with any content."""

import asyncio
import base64
import dataclasses
from functools import partial

import pytest
from starlette.requests import Request

from shared.adapters.config.settings import Settings
from shared.adapters.events.answers import answering
from shared.adapters.events.cloudevents import EVENT_BYTES_MAX, Event
from shared.adapters.events.dead_letter_events import letter_of, read_letter
from shared.bootstrap.build import build
from shared.bootstrap.config import ProcessConfig
from shared.errors import ForbiddenError, TryLaterError
from shared.usecases import deadletter
from shared.usecases.deadletter import PROBLEMS_MAX, DeadLetter, DeadLetters
from tests.builders import shipped_kinds
from tests.fakes import FakeClock, FakeCluster, FakeTelemetry

FILTER = "http://broker-filter.knative-eventing.svc.cluster.local/triggers/ttl-after-finished/expire/0a1b"


def encoded(text):
    return base64.b64encode(text.encode()).decode()


def letter(**parts):
    parts = {"type": "t", "id": "1", "source": "/s", "subject": "", "function": "expire", "status": "422"} | parts
    return DeadLetter(**{"detail": "data.ref: field required", **parts})


class Reports(list):
    """The Events that were written."""

    async def __call__(self, reason, message):
        self.append((reason, message))


def dead_letters(write_event=None):
    telemetry, clock = FakeTelemetry(), FakeClock()
    return DeadLetters(clock, telemetry, Reports() if write_event is None else write_event), telemetry, clock


# The parts of a letter


@pytest.mark.parametrize(
    ("url", "function"),
    [
        (FILTER, "expire"),
        (FILTER + "/", "expire"),
        ("http://schedule.ttl-after-finished.svc.cluster.local", "schedule"),
        ("https://schedule-abc.a.run.app/x", "schedule-abc"),
        ("", ""),
        ("http://[", ""),
        ("not a url", ""),
    ],
)
def test_letter_names_the_function_that_did_not_accept_it(url, function):
    assert letter_of(Event("1", "/s", "t", extensions={"knativeerrordest": url})).function == function


@pytest.mark.parametrize(
    ("data", "detail"),
    [
        (encoded("data.ref: field\n required"), "data.ref: field required"),
        (encoded("cut off")[:-3], "cut of"),
        ("", ""),
        ("plain words!", "plain words!"),
        (encoded("x" * 5_000), "x" * 500),
        ("é" * 5_000, "é" * 500),
        (encoded("\x1b[2J all well"), "\N{REPLACEMENT CHARACTER}[2J all well"),
    ],
)
def test_letter_contains_the_last_answer(data, detail):
    assert letter_of(Event("1", "/s", "t", extensions={"knativeerrordata": data})).detail == detail


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({"content-type": "text/plain", "ce-id": "1", "ce-source": "/s", "ce-type": "t"}, b"no JSON"),
        ({"ce-id": "1", "ce-source": "/s", "ce-type": "t", "ce-time": "yesterday"}, b""),
        ({"ce-id": "1", "ce-source": "/s", "ce-type": "t", "content-type": "application/json"}, b" " * 3_000_000),
    ],
)
def test_letter_of_a_malformed_event_contains_what_can_be_read(headers, body):
    event = read_letter({**headers, "ce-knativeerrorcode": "415"}, body)
    read = letter_of(event)
    assert (read.id, read.source, read.type, read.status) == ("1", "/s", "t", "415")


def test_letter_parts_are_short_and_one_line():
    long = "x" * 2_000_000
    errors = {"knativeerrordest": f"http://{long}", "knativeerrorcode": long, "knativeerrordata": long}
    read = letter_of(Event(long, long, long, subject=long, extensions=errors))
    assert {len(part) for part in dataclasses.astuple(read)} == {500}

    read = letter_of(read_letter({"ce-id": "1%0Aanother%20line", "ce-type": "t%1B[2J"}, b""))
    assert (read.id, read.type) == ("1 another line", "t\N{REPLACEMENT CHARACTER}[2J")


def test_letter_is_made_of_any_input():
    read = letter_of(read_letter({"content-type": "application/cloudevents+json"}, b"{"))
    assert read == letter(type="", id="", source="", function="", status="", detail="")


# The function `deadletter`


async def answered(body, **headers):
    """The status of an HTTP function that takes letters, and the events it was called with."""
    seen = []

    @partial(answering, read=read_letter)
    async def take(event):
        seen.append(event)

    async def receive():
        return {"type": "http.request", "body": body, "more_body": False}

    raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    response = await take(Request({"type": "http", "method": "POST", "headers": raw}, receive))
    return response.status_code, seen


@pytest.mark.parametrize("body", [b"", b"{", b"\xff\x00", b"x" * (EVENT_BYTES_MAX + 1)])
def test_deadletter_accepts_every_letter(body):
    status, seen = asyncio.run(answered(body, ce_type="t", content_type="application/json"))
    assert (status, len(seen), seen[0].type) == (204, 1, "t")


def test_deadletter_logs_counts_and_writes_an_event():
    letters, telemetry, _ = dead_letters()
    asyncio.run(letters.report(letter()))
    ((message, fields),) = telemetry.problems
    assert message == "an event went to the dead letter"
    assert fields == {
        "function": "expire",
        "status": "422",
        "type": "t",
        "id": "1",
        "source": "/s",
        "subject": "",
        "detail": "data.ref: field required",
    }
    assert letters.write_event == [("DeadLetter", "expire did not take t 1: 422 data.ref: field required")]


def test_deadletter_writes_one_event_an_hour_for_the_same_problem():
    letters, telemetry, clock = dead_letters()
    for number in range(3):
        asyncio.run(letters.report(letter(id=str(number))))
    asyncio.run(letters.report(letter(status="503")))
    assert [message.split()[6] for _, message in letters.write_event] == ["422", "503"]
    assert len(telemetry.problems) == 4

    clock.advance(3_600)
    asyncio.run(letters.report(letter()))
    assert len(letters.write_event) == 3


def test_deadletter_bounds_events_when_events_are_forged():
    letters, telemetry, _ = dead_letters()
    for number in range(PROBLEMS_MAX + 20):
        asyncio.run(letters.report(letter(type=f"t{number}")))
    assert len(letters.write_event) == PROBLEMS_MAX
    assert len(telemetry.problems) == PROBLEMS_MAX + 20


def test_deadletter_logs_an_event_that_cannot_be_written():
    async def refuse(*_):
        raise ForbiddenError("events is forbidden")

    letters, telemetry, _ = dead_letters(refuse)
    asyncio.run(letters.report(letter()))
    assert telemetry.problems[1] == ("could not write an Event", {"error": "events is forbidden"})


def test_deadletter_writes_a_failed_event_with_a_later_letter():
    reported, failures = Reports(), [TryLaterError("cannot reach the API server")]

    async def write_event(reason, message):
        if failures:
            raise failures.pop()
        await reported(reason, message)

    letters, _, clock = dead_letters(write_event)
    for number in range(4):
        asyncio.run(letters.report(letter(id=str(number))))
        clock.advance(40)
    assert [message.split()[5] for _, message in reported] == ["2:"]


def test_deadletter_does_not_wait_for_an_api_server_that_hangs(monkeypatch):
    async def hang(*_):
        await asyncio.Event().wait()

    monkeypatch.setattr(deadletter, "WRITE_SECONDS_MAX", 0.01)
    letters, telemetry, _ = dead_letters(hang)
    asyncio.run(letters.report(letter()))
    assert telemetry.problems[1] == ("could not write an Event", {"error": "TimeoutError"})


@pytest.mark.parametrize(
    ("settings", "written"),
    [
        ({"TTL_NAMESPACE": "ttl"}, [("Namespace ttl/ttl", "DeadLetter")]),
        ({"TTL_NAMESPACE": "ttl", "TTL_DRY_RUN": True}, []),
        ({}, []),
    ],
    ids=["reported", "dry-run", "no-namespace"],
)
def test_deadletter_event_is_about_the_installation(settings, written):
    clock, kinds = FakeClock(), shipped_kinds()
    cluster = FakeCluster(clock)
    config = ProcessConfig(
        settings=Settings.model_validate(settings),
        kinds=kinds,
        catalogue=kinds,
        clock=clock,
        telemetry=FakeTelemetry(),
        cluster=cluster,
    )
    asyncio.run(build(config).dead_letters.report(letter()))
    assert [(str(ref), reason) for ref, reason, _ in cluster.events] == written
