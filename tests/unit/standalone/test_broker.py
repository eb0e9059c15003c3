"""The local broker and functions that answer as over HTTP; its pauses are counted, not slept."""

import asyncio
import base64
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from shared.adapters.events.answers import FunctionAnswer
from shared.adapters.events.cloudevents import Event, parse_event, to_http
from shared.core.values.objects import ObjectRef
from shared.errors import TryLaterError
from shared.messages import Purpose, Timer
from shared.standalone.broker import DELIVERIES_MAX, HOPS, LocalBroker, Undelivered, report_dead_letter, subscribers_of
from shared.standalone.triggers import ManifestError, Trigger
from shared.usecases.impatient import SWEEP_PUBLISH_SECONDS_MAX, ImpatientPublisher
from tests.fakes import FakeTelemetry

pytestmark = pytest.mark.anyio

STRUCTURED = {"content-type": "application/cloudevents+json"}
ANYTHING = Event(id="1", source="/test", type="test.any", data=b'{"a":1}', extensions={"kind": "Job"})
REF = ObjectRef("batch/v1", "Job", "default", "one", "uid-1")
FIRED = Timer(ref=REF, purpose=Purpose.EXPIRE, due_at=datetime(2026, 1, 1, tzinfo=UTC))


def trigger_of(name: str, type_: str = "", **delivery):
    ref = {"apiVersion": "serving.knative.dev/v1", "kind": "Service", "name": name}
    filters = [{"exact": {"type": type_}}] if type_ else []
    spec = {"broker": "default", "filters": filters, "subscriber": {"ref": ref}, "delivery": delivery}
    return Trigger.model_validate({"metadata": {"name": name}, "spec": spec})


def reply(type_: str, **attributes) -> FunctionAnswer:
    return FunctionAnswer(200, *to_http(Event(id="r", source="/reply", type=type_, data=b"{}", **attributes)))


def text(status: int, body: str, **headers: str) -> FunctionAnswer:
    return FunctionAnswer(status, {"content-type": "text/plain; charset=utf-8", **headers}, body.encode())


@dataclass
class Function:
    """Answers with the given statuses or responses in turn, the last one again and again."""

    answers: list
    events: list[Event] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    all_slots_taken: asyncio.Event = field(default_factory=asyncio.Event)

    async def respond(self, headers: Mapping[str, str], body: bytes) -> FunctionAnswer:
        self.headers.append(dict(headers))
        self.events.append(parse_event(headers, body))
        if len(self.events) == DELIVERIES_MAX:
            self.all_slots_taken.set()
        answer = self.answers[min(len(self.events), len(self.answers)) - 1]
        if isinstance(answer, int):
            return FunctionAnswer(answer)
        return await answer(self.events[-1]) if asyncio.iscoroutinefunction(answer) else answer()


@dataclass
class World:
    """A broker, and what it did beside calling its functions."""

    broker: LocalBroker
    dead: list[tuple[Event, Undelivered]]
    pauses: list[float]


class Recorded:
    def __init__(self):
        self.dead = []

    def report(self, event, undelivered):
        self.dead.append((event, undelivered))


def broker_of(functions, triggers, recorded, sleep):
    broker = LocalBroker(dead_letter=recorded.report, source="/local")
    broker.subscribe(subscribers_of(triggers, {name: one.respond for name, one in functions.items()}, sleep=sleep))
    return broker


@contextlib.asynccontextmanager
async def world_of(functions, triggers):
    recorded, pauses = Recorded(), []

    async def sleep(seconds):
        pauses.append(seconds)
        await asyncio.sleep(0)

    broker = broker_of(functions, triggers, recorded, sleep)
    yield World(broker, recorded.dead, pauses)
    await broker.close(grace_seconds=0.01)  # a function that hangs on purpose is cancelled


async def test_event_is_delivered_unchanged():
    event = Event("1", "/s", "t", "sub", datetime(2026, 1, 1, tzinfo=UTC), b'{"a":"\xc3\xa9"}', {"kind": "Job"})
    function = Function([204])
    async with world_of({"f": function}, [trigger_of("f")]) as world:
        assert await world.broker.send(event) == ()
    assert function.events == [event]
    assert function.headers[0]["prefer"] == "reply"


async def test_event_without_data_has_no_content_type():
    function = Function([204])
    async with world_of({"f": function}, [trigger_of("f")]) as world:
        assert await world.broker.send(Event(id="1", source="/s", type="t")) == ()
    assert "content-type" not in function.headers[0]


async def test_only_matching_triggers_get_an_event():
    functions = {name: Function([204]) for name in ("a", "b", "c")}
    triggers = [trigger_of("a", "test.any"), trigger_of("b", "other"), trigger_of("c")]
    async with world_of(functions, triggers) as world:
        await world.broker.send(ANYTHING)
    assert {name: len(function.events) for name, function in functions.items()} == {"a": 1, "b": 0, "c": 1}


async def test_event_without_a_matching_trigger_succeeds():
    async with world_of({"f": Function([204])}, [trigger_of("f", "other")]) as world:
        assert await world.broker.send(ANYTHING) == ()
    assert world.dead == []


def test_trigger_without_a_function_raises():
    function = Function([204]).respond
    with pytest.raises(ManifestError, match=r"Trigger f: spec\.subscriber\.ref\.name: expected one of a, b, got 'f'"):
        subscribers_of([trigger_of("f")], {"b": function, "a": function})


RETRIED = [404, 408, 409, 429, 500, 501, 502, 503, 504, 599]
FINAL = [300, 301, 302, 304, 307, 400, 401, 403, 405, 410, 412, 413, 415, 422, 425, 451]


@pytest.mark.parametrize("status", RETRIED)
async def test_transient_status_is_retried(status):
    function = Function([status, status, 204])
    async with world_of({"f": function}, [trigger_of("f", retry=2)]) as world:
        assert await world.broker.send(ANYTHING) == ()
    assert len(function.events) == 3
    assert world.dead == []


@pytest.mark.parametrize("status", RETRIED)
async def test_retries_end_after_the_limit(status):
    function = Function([status])
    async with world_of({"f": function}, [trigger_of("f", retry=2)]) as world:
        (undelivered,) = await world.broker.send(ANYTHING)
    assert len(function.events) == 3
    assert (undelivered.trigger, undelivered.status, undelivered.retryable) == ("f", status, True)
    assert [event.id for event, _ in world.dead] == ["1"]


@pytest.mark.parametrize("status", FINAL)
async def test_permanent_status_is_not_retried(status):
    function = Function([status])
    async with world_of({"f": function}, [trigger_of("f", retry=2)]) as world:
        (undelivered,) = await world.broker.send(ANYTHING)
    assert len(function.events) == 1
    assert (undelivered.status, undelivered.retryable) == (status, False)
    assert len(world.dead) == 1
    assert world.pauses == []


@pytest.mark.parametrize("status", [200, 201, 202, 204])
async def test_empty_2xx_is_success(status):
    async with world_of({"f": Function([status])}, [trigger_of("f")]) as world:
        assert await world.broker.send(ANYTHING) == ()


async def test_dead_letter_has_destination_code_and_data():
    poison = Function([lambda: text(422, "ttl: expected a duration, got 'soon'")])
    async with world_of({"f": poison}, [trigger_of("f")]) as world:
        await world.broker.send(ANYTHING)
    ((event, undelivered),) = world.dead
    assert undelivered.detail == "ttl: expected a duration, got 'soon'"
    assert event.data == ANYTHING.data
    assert event.extensions["kind"] == "Job"
    assert event.extensions["knativeerrordest"].endswith("/f")
    assert event.extensions["knativeerrorcode"] == "422"
    assert base64.b64decode(event.extensions["knativeerrordata"]).decode() == undelivered.detail


async def test_long_error_is_cut_off():
    function = Function([lambda: text(400, "x" * 100_000)])
    async with world_of({"f": function}, [trigger_of("f")]) as world:
        await world.broker.send(ANYTHING)
    assert len(world.dead[0][0].extensions["knativeerrordata"]) == 1024


def failing(error):
    async def fail(_event):
        raise error

    return fail


@pytest.mark.parametrize("error", [ZeroDivisionError("secret"), TimeoutError(), asyncio.CancelledError()], ids=repr)
async def test_bug_of_a_function_is_a_500_with_a_stack_trace_in_the_log(error, caplog):
    async with world_of({"f": Function([failing(error)])}, [trigger_of("f", retry=3)]) as world:
        (undelivered,) = await world.broker.send(ANYTHING)
    assert len(world.pauses) == 3
    assert (undelivered.status, undelivered.retryable, undelivered.detail) == (500, True, "Internal Server Error")
    lines = [record for record in caplog.records if record.message == "function failed"]
    assert [line.fields["function"] for line in lines] == ["f"] * 4
    assert all(line.exc_info[1] is error for line in lines)


BACKOFF = {
    "exponential": ({"backoffPolicy": "exponential", "backoffDelay": "PT0.2S"}, [0.2, 0.4, 0.8, 1.6]),
    "linear": ({"backoffPolicy": "linear", "backoffDelay": "PT0.2S"}, [0.0, 0.2, 0.4, 0.6]),
    "none": ({}, [0.0, 0.0, 0.0, 0.0]),
}


@pytest.mark.parametrize(("backoff", "pauses"), BACKOFF.values(), ids=BACKOFF)
async def test_pauses_follow_the_delivery_of_the_trigger(backoff, pauses):
    async with world_of({"f": Function([503])}, [trigger_of("f", retry=4, **backoff)]) as world:
        await world.broker.send(ANYTHING)
    assert world.pauses == pytest.approx(pauses)


RETRY_AFTER = {
    "longer-than-the-backoff": (503, "7", {}, 7.0),
    "too-many-requests": (429, "7", {}, 7.0),
    "shorter-than-the-backoff": (503, "0", {}, 1.0),
    "another-status": (500, "7", {}, 1.0),
    "absurd": (503, "99999999", {}, 60.0),
    "maximum-of-the-trigger": (503, "7", {"retryAfterMax": "PT3S"}, 3.0),
    "switched-off": (503, "7", {"retryAfterMax": "PT0S"}, 1.0),
    "date": (503, "Wed, 21 Oct 2099 07:28:00 GMT", {}, 1.0),
    "junk": (503, "soon", {}, 1.0),
    "negative": (503, "-7", {}, 1.0),
}


@pytest.mark.parametrize(("status", "text", "delivery", "pause"), RETRY_AFTER.values(), ids=RETRY_AFTER)
async def test_retry_after_is_a_lower_bound(status, text, delivery, pause):
    busy = Function([lambda: FunctionAnswer(status, {"retry-after": text}), 204])
    backoff: dict[str, Any] = {"retry": 1, "backoffPolicy": "exponential", "backoffDelay": "PT1S"}
    async with world_of({"f": busy}, [trigger_of("f", **backoff, **delivery)]) as world:
        assert await world.broker.send(ANYTHING) == ()
    assert world.pauses == [pause]


async def test_reply_is_delivered_before_send_returns():
    first, second, third = Function([lambda: reply("b")]), Function([lambda: reply("c")]), Function([204])
    triggers = [trigger_of("a", "a"), trigger_of("b", "b"), trigger_of("c", "c")]
    async with world_of({"a": first, "b": second, "c": third}, triggers) as world:
        assert await world.broker.send(Event(id="1", source="/s", type="a")) == ()
        assert [event.type for event in third.events] == ["c"]
        assert third.events[0].source == "/reply"


async def test_structured_reply_is_a_reply():
    body = b'{"specversion":"1.0","id":"r","source":"/r","type":"b","data":{"x":1}}'
    first = Function([lambda: FunctionAnswer(200, STRUCTURED, body)])
    second = Function([204])
    async with world_of({"a": first, "b": second}, [trigger_of("a", "test.any"), trigger_of("b", "b")]) as world:
        assert await world.broker.send(ANYTHING) == ()
    assert [event.type for event in second.events] == ["b"]


async def test_rejected_reply_becomes_a_dead_letter():
    triggers = [trigger_of("a", "test.any"), trigger_of("b", "b")]
    async with world_of({"a": Function([lambda: reply("b")]), "b": Function([403])}, triggers) as world:
        (undelivered,) = await world.broker.send(ANYTHING)
    assert undelivered.trigger == "b"
    assert [event.id for event, _ in world.dead] == ["r"]


async def test_reply_loop_ends_after_the_limit_of_hops():
    echo = Function([lambda: reply("test.any")])
    async with world_of({"f": echo}, [trigger_of("f", "test.any")]) as world:
        (undelivered,) = await world.broker.send(ANYTHING)
    assert len(echo.events) == HOPS
    assert "knativebrokerttl" in undelivered.detail
    assert not undelivered.retryable
    assert len(world.dead) == 1


HOPS_GIVEN = {"3": 2, "1": 0, "0": 0, "-5": 0, "junk": HOPS}


@pytest.mark.parametrize(("given", "deliveries"), HOPS_GIVEN.items(), ids=HOPS_GIVEN)
async def test_hops_count_down_from_the_value_of_the_event(given, deliveries):
    # The function tries to restart the count, without effect.
    echo = Function([lambda: reply("loop", extensions={"knativebrokerttl": "255"})])
    async with world_of({"f": echo}, [trigger_of("f")]) as world:
        await world.broker.send(Event(id="1", source="/s", type="loop", extensions={"knativebrokerttl": given}))
    assert len(echo.events) == deliveries
    assert len(world.dead) == 1
    assert all("knativebrokerttl" not in event.extensions for event in echo.events)


NAMED = b'{"specversion":"1.0","id":"r","source":"/r","type":"b",'
JUNK = {
    "text": text(200, "OK"),
    "json": FunctionAnswer(200, {"content-type": "application/json"}, b"{}"),
    "event-without-id": FunctionAnswer(200, {"ce-specversion": "1.0", "ce-source": "/", "ce-type": "x"}),
    "structured-no-json": FunctionAnswer(200, STRUCTURED, b"{"),
    "attribute-with-newline": FunctionAnswer(200, STRUCTURED, NAMED + b'"subject":"a\\nb"}'),
    "extension-name-with-newline": FunctionAnswer(200, STRUCTURED, NAMED + b'"a\\r\\nb":"x"}'),
    "batch": FunctionAnswer(200, {"content-type": "application/cloudevents-batch+json"}, b"[]"),
}


@pytest.mark.parametrize("answer", JUNK.values(), ids=JUNK)
async def test_2xx_with_an_unknown_body_fails(answer):
    function = Function([lambda: answer])
    async with world_of({"f": function}, [trigger_of("f", "test.any", retry=1)]) as world:
        (undelivered,) = await world.broker.send(ANYTHING)
    assert len(function.events) == 2
    assert (undelivered.status, undelivered.retryable) == (502, True)
    assert len(world.dead) == 1


async def test_event_with_an_invalid_attribute_becomes_a_dead_letter():
    function = Function([204])
    async with world_of({"f": function}, [trigger_of("f")]) as world:
        (undelivered,) = await world.broker.send(Event(id="1", source="/s", type="t", subject="a\nb"))
    assert function.events == []
    assert (undelivered.status, undelivered.retryable) == (400, False)
    assert "subject" in undelivered.detail


def hanging_until(released: asyncio.Event):
    async def hang(_event):
        await released.wait()
        return FunctionAnswer(204)

    return hang


async def test_slow_function_does_not_block_another():
    released = asyncio.Event()
    slow, quick = Function([hanging_until(released)]), Function([204])
    triggers = [trigger_of("slow", "slow"), trigger_of("quick", "quick")]
    async with world_of({"slow": slow, "quick": quick}, triggers) as world, asyncio.TaskGroup() as group:
        for n in range(DELIVERIES_MAX * 3):
            group.create_task(world.broker.send(Event(id=str(n), source="/s", type="slow")))
        async with asyncio.timeout(10):
            await slow.all_slots_taken.wait()
            for n in range(10):
                await world.broker.send(Event(id=str(n), source="/s", type="quick"))
        assert len(quick.events) == 10
        assert len(slow.events) == DELIVERIES_MAX
        released.set()
    assert len(slow.events) == DELIVERIES_MAX * 3


async def test_events_that_wait_for_their_next_attempt_hold_no_slot():
    awake = asyncio.Event()
    function = Function([503] * DELIVERIES_MAX + [204])

    async def sleep(_seconds):
        await awake.wait()

    broker = broker_of({"f": function}, [trigger_of("f", retry=1)], Recorded(), sleep)
    async with asyncio.TaskGroup() as group:
        for n in range(DELIVERIES_MAX):
            group.create_task(broker.send(Event(id=str(n), source="/s", type="t")))
        async with asyncio.timeout(10):
            await function.all_slots_taken.wait()
            assert await broker.send(ANYTHING) == ()
        awake.set()


async def test_attempt_that_times_out_is_retried():
    function = Function([hanging_until(asyncio.Event()), 204])
    async with world_of({"f": function}, [trigger_of("f", retry=1, timeout="PT0.1S")]) as world:
        assert await world.broker.send(ANYTHING) == ()
    assert len(function.events) == 2


async def test_timeout_is_reported_in_the_detail():
    function = Function([hanging_until(asyncio.Event())])
    async with world_of({"f": function}, [trigger_of("f", timeout="PT0.1S")]) as world:
        (undelivered,) = await world.broker.send(ANYTHING)
    assert undelivered.detail == "dispatch error: no answer within 0.1 s"
    assert (undelivered.status, undelivered.retryable) == (500, True)


async def test_publish_delivers_a_message():
    function = Function([204])
    async with world_of({"expire": function}, [trigger_of("expire", FIRED.type)]) as world:
        await world.broker.publish(FIRED)
    (event,) = function.events
    assert (event.id, event.source, event.type, event.subject) == (FIRED.id, "/local", FIRED.type, "uid-1")
    assert Timer.model_validate_json(event.data) == FIRED


async def test_publish_raises_after_a_transient_error():
    busy = Function([lambda: text(503, "away", **{"retry-after": "9"})])
    async with world_of({"expire": busy}, [trigger_of("expire")]) as world:
        with pytest.raises(TryLaterError, match="expire answered 503: away") as caught:
            await world.broker.publish(FIRED)
    assert caught.value.retry_after_seconds == 9
    assert world.dead == []


async def test_sender_that_does_not_wait_for_all_retries_learns_the_last_answer():
    function = Function([lambda: text(503, "the NATS servers have no storage left\n")])
    slow = {"retry": 8, "backoffPolicy": "exponential", "backoffDelay": "PT0.2S"}
    broker = broker_of({"timers": function}, [trigger_of("timers", FIRED.type, **slow)], Recorded(), asyncio.sleep)

    started = asyncio.get_running_loop().time()
    with pytest.raises(TryLaterError, match=r"timers answered 503: the NATS servers have no storage left$"):
        await ImpatientPublisher(broker).publish(FIRED)

    assert asyncio.get_running_loop().time() - started == pytest.approx(SWEEP_PUBLISH_SECONDS_MAX)


async def test_publish_makes_a_dead_letter_after_a_permanent_error():
    async with world_of({"expire": Function([422])}, [trigger_of("expire")]) as world:
        await world.broker.publish(FIRED)
    assert [undelivered.status for _, undelivered in world.dead] == [422]


async def test_publish_raises_after_a_transient_error_of_a_reply():
    functions = {"expire": Function([lambda: reply("b")]), "timers": Function([503])}
    async with world_of(functions, [trigger_of("expire", FIRED.type), trigger_of("timers", "b")]) as world:
        with pytest.raises(TryLaterError, match="timers answered 503"):
            await world.broker.publish(FIRED)
    assert [event.id for event, _ in world.dead] == ["r"]


async def test_close_waits_for_deliveries_and_their_replies():
    released = asyncio.Event()

    async def slowly_reply(_event):
        await released.wait()
        return reply("b")

    last = Function([204])
    triggers = [trigger_of("a", "test.any"), trigger_of("b", "b")]
    async with world_of({"a": Function([slowly_reply]), "b": last}, triggers) as world, asyncio.TaskGroup() as group:
        sent = group.create_task(world.broker.send(ANYTHING))
        await asyncio.sleep(0.05)
        closed = group.create_task(world.broker.close(grace_seconds=10))
        await asyncio.sleep(0.05)
        assert not closed.done()
        with pytest.raises(TryLaterError, match="closing"):
            await world.broker.send(ANYTHING)
        released.set()
        assert await sent == ()
        await closed
    assert len(last.events) == 1


async def test_close_aborts_after_the_grace_and_raises_to_the_sender():
    function = Function([hanging_until(asyncio.Event())])
    async with world_of({"f": function}, [trigger_of("f")]) as world:
        senders = [asyncio.create_task(world.broker.send(ANYTHING)), asyncio.create_task(world.broker.publish(FIRED))]
        await asyncio.sleep(0.05)
        await world.broker.close(grace_seconds=0.05)
        for sender in senders:
            with pytest.raises(TryLaterError, match="closed before"):
                await sender
    assert world.dead == []


async def test_function_goes_on_after_its_sender_is_cancelled_and_close_waits_for_it():
    released, ended = asyncio.Event(), []

    async def work(_event):
        await released.wait()
        ended.append(True)
        return FunctionAnswer(204)

    async with world_of({"f": Function([work])}, [trigger_of("f")]) as world:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await world.broker.send(ANYTHING)
        closed = asyncio.create_task(world.broker.close(grace_seconds=10))
        await asyncio.sleep(0.05)
        assert not closed.done()
        released.set()
        await closed
    assert ended == [True]


async def test_function_goes_on_after_the_timeout_of_its_trigger():
    released, ended = asyncio.Event(), []

    async def work(_event):
        await released.wait()
        ended.append(True)
        return FunctionAnswer(204)

    async with world_of({"f": Function([work])}, [trigger_of("f", timeout="PT0.05S")]) as world:
        assert len(await world.broker.send(ANYTHING)) == 1
        released.set()
        await world.broker.close(grace_seconds=10)
    assert ended == [True]


async def test_function_that_goes_on_is_cancelled_after_the_grace():
    cancelled = []

    async def work(_event):
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.append(True)

    async with world_of({"f": Function([work])}, [trigger_of("f", timeout="PT0.05S")]) as world:
        await world.broker.send(ANYTHING)
        await world.broker.close(grace_seconds=0.05)
    assert cancelled == [True]


async def test_cancelled_sender_is_cancelled():
    """The end of the broker is an error for a sender; its own cancellation stays one."""
    function = Function([hanging_until(asyncio.Event())])
    async with world_of({"f": function}, [trigger_of("f")]) as world:
        sender = asyncio.create_task(world.broker.send(ANYTHING))
        await asyncio.sleep(0.01)
        sender.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sender


async def test_two_functions_that_match_are_called_at_once():
    released = asyncio.Event()

    async def release(_event):
        released.set()
        return reply("b")

    functions = {"slow": Function([hanging_until(released)]), "quick": Function([release]), "last": Function([204])}
    triggers = [trigger_of("slow", "test.any"), trigger_of("quick", "test.any"), trigger_of("last", "b")]
    async with world_of(functions, triggers) as world, asyncio.timeout(10):
        assert await world.broker.send(ANYTHING) == ()
    assert len(functions["last"].events) == 1


async def test_dead_letter_is_reported_with_its_trigger_and_status():
    telemetry = FakeTelemetry()
    undelivered = Undelivered("expire", "http://x", 422, "no", retryable=False)
    report_dead_letter(telemetry, Event(id="1", source="/s", type="t"), undelivered)
    ((_, fields),) = telemetry.problems
    assert (fields["trigger"], fields["status"], fields["id"]) == ("expire", 422, "1")
