"""The gate for bytes, under any order of requests, ends and cancellations."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from shared.usecases.archives.byte_gate import ByteGate, HeldBytes

LIMIT = 100

TURNS_MAX = 400
"""Of the event loop, until all requests have ended: one request after the other takes less than ten each."""

_SHARE = st.sampled_from([None, "red", "blue", "green"])
_ASK = st.tuples(st.just("ask"), st.tuples(st.integers(0, 150), _SHARE))
_OTHER = st.tuples(st.sampled_from(["end", "cancel", "shrink"]), st.integers(0, 20))
_STEPS = st.lists(st.one_of(_ASK, _OTHER), max_size=40)


class Holders:
    """Tasks at one gate, and what they hold at each time."""

    def __init__(self):
        self.gate = ByteGate(LIMIT)
        self.held: dict[int, HeldBytes] = {}
        self.order: dict[str | None, list[int]] = {}
        self.began: list[int] = []
        self.tasks: list[tuple[asyncio.Task, asyncio.Event]] = []

    def ask(self, request):
        size, share = request
        may_end = asyncio.Event()
        task = asyncio.ensure_future(self._hold(len(self.tasks), size, share, may_end))
        self.tasks.append((task, may_end))

    def end(self, number):
        if self.tasks:
            self.tasks[number % len(self.tasks)][1].set()

    def cancel(self, number):
        if self.tasks:
            self.tasks[number % len(self.tasks)][0].cancel()

    def shrink(self, number):
        if self.held:
            one = list(self.held.values())[number % len(self.held)]
            one.shrink(one.size // 2)

    async def _hold(self, number, size, share, may_end):
        async with self.gate.hold(size, share) as held:
            self.held[number] = held
            self.order.setdefault(share, []).append(number)
            self.began.append(number)
            self.check()
            try:
                await may_end.wait()
            finally:
                del self.held[number]

    def check(self):
        sizes = [one.size for one in self.held.values() if one.size]
        assert sum(sizes) <= LIMIT or len(sizes) == 1


@given(steps=_STEPS, ticks=st.lists(st.integers(0, 3), min_size=40, max_size=40))
def test_gate_never_exceeds_its_limit_keeps_the_order_and_forgets_nothing(steps, ticks):
    async def play():
        holders = Holders()
        for (step, argument), pause in zip(steps, ticks, strict=False):
            getattr(holders, step)(argument)
            for _ in range(pause):
                await asyncio.sleep(0)
            holders.check()
        for _, may_end in holders.tasks:
            may_end.set()
        for _ in range(TURNS_MAX):
            await asyncio.sleep(0)
        assert all(task.done() for task, _ in holders.tasks)  # no request waits for ever
        await asyncio.gather(*(task for task, _ in holders.tasks), return_exceptions=True)
        assert all(numbers == sorted(numbers) for numbers in holders.order.values())
        assert holders.gate.in_flight == 0

    asyncio.run(play())


@given(greedy=st.lists(st.tuples(st.integers(1, 100), st.sampled_from(["red", "blue"])), min_size=1, max_size=30))
def test_whatever_two_shares_ask_for_a_third_one_passes_at_once(greedy):
    """One share may hold a half, and the next one a quarter: what is left is enough for an eighth."""

    async def play():
        holders = Holders()
        for request in greedy:
            holders.ask((min(request[0], LIMIT // 8), request[1]))
        await asyncio.sleep(0)
        holders.ask((LIMIT // 8, "green"))
        await asyncio.sleep(0)
        assert len(greedy) in holders.held
        for _, may_end in holders.tasks:
            may_end.set()
        await asyncio.gather(*(task for task, _ in holders.tasks))

    asyncio.run(play())


@given(others=st.lists(st.tuples(st.integers(1, 150), st.sampled_from(["red", "blue"])), min_size=1, max_size=30))
def test_share_waits_for_one_request_of_each_other_share(others):
    """Also where the gate has room for one request only."""

    async def play():
        holders = Holders()
        for request in others:
            holders.ask(request)
        await asyncio.sleep(0)
        passed = len(holders.held)
        holders.ask((LIMIT, "green"))
        for _ in range(TURNS_MAX):
            for _, may_end in holders.tasks:
                may_end.set()
            await asyncio.sleep(0)
        await asyncio.gather(*(task for task, _ in holders.tasks))
        order = [number for numbers in holders.order.values() for number in numbers]
        assert sorted(order) == list(range(len(others) + 1))
        assert holders.began.index(len(others)) <= passed + 2

    asyncio.run(play())
