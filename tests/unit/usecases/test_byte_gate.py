"""The gate for bytes: its limit, its order, and what a cancelled request gives back."""

import asyncio

import pytest

from shared.usecases.archives.byte_gate import ByteGate

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend():
    """The gate wakes one request after the other, in a number of turns that asyncio's order makes certain."""
    return "asyncio"


class Task:
    """Holds bytes of a gate until it may end."""

    def __init__(self, gate, size):
        self.holds, self.may_end = asyncio.Event(), asyncio.Event()
        self.task = asyncio.ensure_future(self._hold(gate, size))

    async def _hold(self, gate, size):
        async with gate.hold(size):
            self.holds.set()
            await self.may_end.wait()

    async def end(self):
        self.may_end.set()
        await self.task


async def start(gate, *sizes):
    """Tasks that ask for bytes, in this order."""
    tasks = [Task(gate, size) for size in sizes]
    await _settle()
    return tasks


async def _settle():
    for _ in range(5):
        await asyncio.sleep(0)


def holding(tasks):
    return [task.holds.is_set() for task in tasks]


async def test_requests_within_the_limit_pass_at_once():
    gate = ByteGate(10)
    tasks = await start(gate, 4, 6)

    assert holding(tasks) == [True, True]
    assert gate.in_flight == 10
    for task in tasks:
        await task.end()
    assert gate.in_flight == 0


async def test_request_beyond_the_limit_waits_for_bytes():
    gate = ByteGate(10)
    first, second = tasks = await start(gate, 8, 3)
    assert holding(tasks) == [True, False]

    await first.end()
    await _settle()

    assert second.holds.is_set()
    await second.end()


async def test_large_request_is_not_overtaken_by_small_ones():
    gate = ByteGate(10)
    first, large, small = tasks = await start(gate, 2, 9, 1)
    assert holding(tasks) == [True, False, False]

    await first.end()
    await _settle()

    assert holding(tasks) == [True, True, True]
    await large.end()
    await small.end()


async def test_request_larger_than_the_limit_passes_alone():
    gate = ByteGate(10)
    first, huge, last = tasks = await start(gate, 1, 50, 1)
    assert holding(tasks) == [True, False, False]

    await first.end()
    await _settle()
    assert holding(tasks) == [True, True, False]

    await huge.end()
    await _settle()
    assert last.holds.is_set()
    await last.end()


async def test_error_gives_the_bytes_back():
    gate = ByteGate(10)

    with pytest.raises(ValueError, match="why"):
        async with gate.hold(10):
            raise ValueError("why")

    assert gate.in_flight == 0


async def test_cancelled_holder_gives_its_bytes_back():
    gate = ByteGate(10)
    first, second = await start(gate, 10, 10)

    first.task.cancel()
    await _settle()

    assert second.holds.is_set()
    assert gate.in_flight == 10
    await second.end()


async def test_cancelled_request_lets_those_behind_it_pass():
    gate = ByteGate(10)
    first, large, small = await start(gate, 5, 10, 5)

    large.task.cancel()
    await _settle()

    assert small.holds.is_set()
    await first.end()
    await small.end()
    assert gate.in_flight == 0


async def test_request_that_is_cancelled_as_it_gets_its_turn_gives_its_bytes_back():
    gate = ByteGate(10)
    first, second, third = await start(gate, 10, 10, 10)

    first.may_end.set()
    await asyncio.sleep(0)  # the first ends: the second has its turn, and has not run yet
    second.task.cancel()
    await _settle()

    assert not second.holds.is_set()
    assert third.holds.is_set()
    await third.end()
    assert gate.in_flight == 0


async def test_all_waiting_requests_can_be_cancelled_at_once():
    gate = ByteGate(10)
    first, *others = await start(gate, 10, 3, 3, 3)

    for other in others:
        other.task.cancel()
    first.may_end.set()
    await _settle()

    assert not any(holding(others))
    assert gate.in_flight == 0
    (later,) = await start(gate, 10)
    assert later.holds.is_set()
    await later.end()
