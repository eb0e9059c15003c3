"""The pace under any load and any health of the API server: its bounds hold, and it recovers."""

import asyncio
from collections import defaultdict

from hypothesis import example, given, settings
from hypothesis import strategies as st

from shared.errors import TryLaterError
from shared.safeguards.pace import PERMIT_SECONDS_MAX, PERMITS_MIN, SLOW_SECONDS, Pace, Window
from tests.builders import JOB, POD
from tests.fakes import FakeTelemetry
from tests.simulation.virtualloop import VirtualLoop

BUSY = "429"
health = st.sampled_from([0.001, 0.05, 0.9, 1.1, 4.0, 12.0, 503, BUSY])
deletions = st.lists(
    st.tuples(st.sampled_from([JOB, POD]), st.sampled_from(["a", "b", "c"]), st.floats(0, 20), health, st.booleans()),
    min_size=1,
    max_size=60,
)
answers = st.lists(st.tuples(st.booleans(), st.integers(0, 5)), max_size=200)


class Server:
    """An API server whose answers a test gives, and what it sees."""

    def __init__(self, permits_max: int) -> None:
        self.telemetry = FakeTelemetry()
        self.pace = Pace(self.telemetry, permits_max)
        self.permits_max = permits_max
        self.in_flight: defaultdict[str, int] = defaultdict(int)
        self.deleted = self.late = 0

    async def delete(self, rule, answer, namespace="a") -> None:
        """Delete one object; a permit that was given is within the bounds at that moment."""
        began_at = asyncio.get_running_loop().time()
        try:
            async with self.pace.permit(rule, namespace):
                assert asyncio.get_running_loop().time() - began_at <= PERMIT_SECONDS_MAX
                self.in_flight[rule.name] += 1
                assert self.in_flight[rule.name] <= self.permits_max
                try:
                    await self._answer(rule, answer)
                finally:
                    self.in_flight[rule.name] -= 1
        except TryLaterError:
            self.late += 1
        else:
            self.deleted += 1

    async def _answer(self, rule, answer) -> None:
        with self.pace.timing(rule):
            await asyncio.sleep(0.01 if answer in (503, BUSY) else answer)
            if answer == BUSY:
                raise TryLaterError(BUSY, retry_after_seconds=3.0, is_overload=True)
            if answer == 503:
                raise TryLaterError("503")

    async def delete_at(self, rule, namespace, at, answer, is_cut_off) -> None:
        await asyncio.sleep(at)
        task = asyncio.ensure_future(self.delete(rule, answer, namespace))
        if is_cut_off:
            await asyncio.sleep(0.5)
            task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        if not task.cancelled():
            task.result()


@settings(deadline=None)
@given(st.integers(1, 12), deletions, st.integers(0, 3))
def test_pace_holds_its_bounds_and_recovers_when_the_server_is_well(permits_max, coming, seed):
    async def live():
        server = Server(permits_max)
        await asyncio.gather(*(server.delete_at(*one) for one in coming))
        permits_min = min(PERMITS_MIN, permits_max)
        assert all(permits_min <= permits <= permits_max for _, permits in server.telemetry.paces)
        assert not any(server.in_flight.values())
        assert not any(lane._in_flight or lane._waiting or lane._stuck for lane in server.pace._lanes.values())

        server.deleted, rest = 0, 2 * (permits_max + 1) ** 2
        for _ in range(rest):
            await server.delete(JOB, 0.001)
            await server.delete(POD, 0.001)
        assert server.deleted == 2 * rest  # no permit was lost
        last = dict(server.telemetry.paces)
        assert last == {JOB.name: permits_max, POD.name: permits_max}
        began_at = asyncio.get_running_loop().time()
        await asyncio.gather(*(server.delete(JOB, 0.5) for _ in range(permits_max)))
        assert asyncio.get_running_loop().time() - began_at < 2 * 0.5  # all at once

    loop = VirtualLoop(seed)
    try:
        loop.run_until_complete(live())
    finally:
        loop.close()


@settings(deadline=None, max_examples=25)
@example(17, 5, 0.78125, 3)
@given(st.integers(2, 30), st.integers(PERMITS_MIN, 40), st.floats(0.02, 0.8), st.integers(1, 3))
def test_pace_holds_the_latency_of_a_server_of_any_capacity(permits_max, capacity, service_seconds, namespaces):
    """If a server carries out fewer DELETEs at once than there are workers, the pace finds how many."""
    permits_max *= 4

    async def live():
        pace, places, seconds = Pace(FakeTelemetry(), permits_max), asyncio.Semaphore(capacity), list[float]()
        left = list(range(60 * capacity + 20 * permits_max))

        async def work(namespace: str) -> None:
            while left:
                left.pop()
                try:
                    async with pace.permit(JOB, namespace):
                        with pace.timing(JOB):
                            sent_at = asyncio.get_running_loop().time()
                            async with places:
                                await asyncio.sleep(service_seconds)
                            seconds.append(asyncio.get_running_loop().time() - sent_at)
                except TryLaterError as error:
                    await asyncio.sleep(error.retry_after_seconds)

        await asyncio.gather(*(work(str(number % namespaces)) for number in range(permits_max)))
        later = sorted(seconds[len(seconds) // 2 :])
        assert later[len(later) // 2] <= SLOW_SECONDS + service_seconds

    loop = VirtualLoop(1)
    try:
        loop.run_until_complete(live())
    finally:
        loop.close()


@given(st.integers(1, 50), answers)
def test_window_holds_its_bounds_and_recovers_whatever_was_answered(permits_max, given_answers):
    window = Window(permits_max)
    now = 0.0
    for is_slow, in_flight in given_answers:
        while window.in_flight < min(in_flight, window.permits):
            window.enter()
        now += 1
        window.answered(now - 0.5, now, is_slow=is_slow)
        assert min(PERMITS_MIN, permits_max) <= window.permits <= permits_max
        if window.in_flight:
            window.leave()
    for _ in range(5 * (permits_max + 5) ** 2):
        now += 1
        window.answered(now - 0.5, now, is_slow=False)
    assert window.permits == permits_max
