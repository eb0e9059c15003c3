"""The gate for bytes, under any order of requests, ends and cancellations."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from shared.usecases.byte_gate import ByteGate

LIMIT = 100

TURNS_MAX = 400
"""Of the event loop, until all requests have ended: one request after the other takes less than ten each."""

_ASK = st.tuples(st.just("ask"), st.integers(0, 150))
_STEPS = st.lists(st.one_of(_ASK, st.tuples(st.sampled_from(["end", "cancel"]), st.integers(0, 20))), max_size=40)


class Holders:
    """Tasks at one gate, and what they hold at each time."""

    def __init__(self):
        self.gate = ByteGate(LIMIT)
        self.held: dict[int, int] = {}
        self.order: list[int] = []
        self.tasks: list[tuple[asyncio.Task, asyncio.Event]] = []

    def ask(self, size):
        may_end = asyncio.Event()
        task = asyncio.ensure_future(self._hold(len(self.tasks), size, may_end))
        self.tasks.append((task, may_end))

    def end(self, number):
        if self.tasks:
            self.tasks[number % len(self.tasks)][1].set()

    def cancel(self, number):
        if self.tasks:
            self.tasks[number % len(self.tasks)][0].cancel()

    async def _hold(self, number, size, may_end):
        async with self.gate.hold(size):
            self.held[number] = size
            self.order.append(number)
            self.check()
            try:
                await may_end.wait()
            finally:
                del self.held[number]

    def check(self):
        assert sum(self.held.values()) <= LIMIT or sum(1 for size in self.held.values() if size) == 1


@given(steps=_STEPS, ticks=st.lists(st.integers(0, 3), min_size=40, max_size=40))
def test_gate_never_exceeds_its_limit_keeps_the_order_and_forgets_nothing(steps, ticks):
    async def play():
        holders = Holders()
        for (step, number), pause in zip(steps, ticks, strict=False):
            getattr(holders, step)(number)
            for _ in range(pause):
                await asyncio.sleep(0)
            holders.check()
        for _, may_end in holders.tasks:
            may_end.set()
        for _ in range(TURNS_MAX):
            await asyncio.sleep(0)
        assert all(task.done() for task, _ in holders.tasks)  # no request waits for ever
        await asyncio.gather(*(task for task, _ in holders.tasks), return_exceptions=True)
        assert holders.order == sorted(holders.order)
        assert holders.gate.in_flight == 0

    asyncio.run(play())
