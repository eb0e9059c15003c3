"""The outbox: objects in parallel, events of one object in order, only the newest event, and limited memory."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from shared.adapters.events.cloudevents import Event
from shared.source.watches import EVENTS_IN_FLIGHT_MAX, OUTBOX_BYTES_MAX, Outbox

pytestmark = pytest.mark.anyio


class Sink:
    """Takes an event when its object is let through."""

    def __init__(self):
        self.begun = []
        self.sent = []
        self._gates = {}

    def gate(self, uid):
        return self._gates.setdefault(uid, asyncio.Event())

    def open(self, *uids):
        for uid in uids:
            self.gate(uid).set()

    async def send(self, event):
        self.begun.append(event.id)
        await self.gate(event.subject).wait()
        self.sent.append(event.id)


@asynccontextmanager
async def outbox_to(sink):
    async with asyncio.TaskGroup() as group:
        outbox = Outbox(sink.send, group)
        yield outbox
        outbox.cancel()


def event(uid, version=1, data=b"{}"):
    return Event(id=f"{uid}/{version}", source="/test", type="update", subject=uid, data=data)


async def settle():
    """Let everything run that can: only then the virtual time goes on."""
    await asyncio.sleep(1)


async def test_slow_object_delays_no_other():
    sink = Sink()
    sink.open(*(f"quick-{number}" for number in range(200)))
    async with outbox_to(sink) as outbox:
        await outbox.put("slow", event("slow"))
        await settle()
        for number in range(200):
            await outbox.put(f"quick-{number}", event(f"quick-{number}"))
            await settle()

        assert sink.sent == [f"quick-{number}/1" for number in range(200)]
        assert sink.begun[0] == "slow/1"


async def test_events_of_one_object_stay_in_order_and_the_newest_replaces_older_ones():
    sink = Sink()
    async with outbox_to(sink) as outbox:
        for version in (1, 2, 3):
            await outbox.put("one", event("one", version))
            await settle()
        assert sink.begun == ["one/1"]
        sink.open("one")
        await settle()

        assert sink.sent == ["one/1", "one/3"]


async def test_events_in_flight_are_limited():
    sink = Sink()
    names = [f"{number}" for number in range(EVENTS_IN_FLIGHT_MAX + 5)]
    async with outbox_to(sink) as outbox:
        for name in names:
            await outbox.put(name, event(name))
        await settle()
        assert len(sink.begun) == EVENTS_IN_FLIGHT_MAX
        sink.open(*names)
        await settle()

        assert sorted(sink.sent) == sorted(f"{name}/1" for name in names)


async def test_put_waits_while_the_outbox_is_full():
    sink = Sink()
    megabyte = b"x" * 2**20
    fits = OUTBOX_BYTES_MAX // len(megabyte) + 1  # one more than the limit may be in it
    async with outbox_to(sink) as outbox:
        for number in range(fits):
            await outbox.put(f"{number}", event(f"{number}", data=megabyte))
        putting = asyncio.create_task(outbox.put("late", event("late")))
        await settle()
        assert not putting.done()

        sink.open("7")
        await settle()
        assert putting.done()
        assert "late/1" in sink.begun


async def test_replaced_event_frees_its_bytes():
    sink = Sink()
    megabyte = b"x" * 2**20
    async with outbox_to(sink) as outbox:
        await outbox.put("one", event("one"))
        for version in range(3 * OUTBOX_BYTES_MAX // len(megabyte)):
            await outbox.put("one", event("one", version, megabyte))
        await settle()

        assert sink.begun == ["one/1"]


async def test_cancel_ends_the_events_in_flight():
    sink = Sink()
    async with outbox_to(sink) as outbox:
        for number in range(EVENTS_IN_FLIGHT_MAX + 5):
            await outbox.put(f"{number}", event(f"{number}"))
        await settle()

    assert sink.sent == []
