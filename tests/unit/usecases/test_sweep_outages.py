"""A sweep while the Broker or the timer engine is away deletes first and waits once; the next sweep sets timers."""

import asyncio

import pytest

from shared.errors import PermanentError, TryLaterError
from shared.messages import ObjectDeleted, TimersSet
from shared.usecases.impatient import (
    OUTAGE_AFTER_SECONDS,
    OUTAGE_SECONDS,
    SWEEP_PUBLISH_SECONDS_MAX,
    ImpatientPublisher,
)
from tests.builders import ago
from tests.fakes import FakePublisher
from tests.unit.usecases.test_sweep import START, Bench

pytestmark = pytest.mark.anyio

RETRIES_SECONDS = 51.0
"""How long the Trigger of `timers` retries."""

DUE, SOON = 8, 12


class SlowBroker(FakePublisher):
    """A Broker that refuses one type of events, only after the retries of its Trigger."""

    def __init__(self, bench, away):
        super().__init__()
        self.bench, self.away, self.seconds, self.attempts = bench, away, RETRIES_SECONDS, []

    async def publish(self, message):
        if isinstance(message, self.away or ()):
            self.attempts.append(len(self.bench.cluster.deleted))
            await asyncio.sleep(self.seconds)
            raise TryLaterError("timers answered 503: the NATS servers have no storage left")
        await super().publish(message)


def world(away):
    """A cluster whose sweep has several steps, each with some objects that are due and some that need a timer."""
    bench = Bench(page_size=5)
    for number in range(DUE):
        bench.put(1, prefix=f"{number}-due", complete=ago(60), ttl=30)
    for number in range(SOON):
        bench.put(1, prefix=f"{number}-soon", complete=ago(60), ttl=600)
    bench.cluster.on_list = lambda: bench.clock.advance(11)
    bench.publisher = SlowBroker(bench, away)
    object.__setattr__(bench._sweep, "publisher", bench.publisher)
    return bench


async def timed_sweep(bench):
    """Run all steps of a sweep; how long they take in seconds, and how many they are."""
    now = asyncio.get_running_loop().time
    started, steps, step = now(), 1, await bench.sweep(START)
    while step is not None:
        step, steps = await bench.sweep(step), steps + 1
    return now() - started, steps


async def test_sweep_deletes_first_waits_once_for_its_timers_and_the_next_sweep_sets_them():
    bench = world(away=TimersSet)

    seconds, steps = await timed_sweep(bench)

    assert steps > 1
    assert len(bench.cluster.deleted) == len(bench.published(ObjectDeleted)) == DUE
    assert seconds == pytest.approx(SWEEP_PUBLISH_SECONDS_MAX, abs=1)
    (deleted_before,) = bench.publisher.attempts
    assert deleted_before > 0  # all that the first step has found
    (counts,) = bench.telemetry.sweeps
    assert (counts["deleted"], counts["timers_set"], counts["timers_not_set"]) == (DUE, 0, SOON)
    assert sum(fields["timers"] for text, fields in bench.telemetry.problems if "set timers" in text) == SOON

    bench.publisher.away = None  # NATS is back
    seconds, _ = await timed_sweep(bench)

    assert seconds == pytest.approx(0, abs=1)
    assert len(bench.timers()) == SOON


async def test_each_deletion_does_not_wait_for_a_broker_that_hangs():
    bench = world(away=ObjectDeleted)

    seconds, _ = await timed_sweep(bench)

    assert len(bench.cluster.deleted) == DUE
    assert len(bench.publisher.attempts) == DUE  # no later sweep finds them, so each is tried
    assert SWEEP_PUBLISH_SECONDS_MAX <= seconds < 2 * SWEEP_PUBLISH_SECONDS_MAX
    assert len(bench.timers()) == SOON  # another type of event has no outage
    problems = [fields for text, fields in bench.telemetry.problems if text == "could not publish a deletion"]
    assert len(problems) == DUE


async def test_failure_that_is_fast_is_no_outage():
    bench = world(away=ObjectDeleted)
    bench.publisher.seconds = OUTAGE_AFTER_SECONDS / 2

    await timed_sweep(bench)

    assert len(bench.publisher.attempts) == DUE


async def test_outage_of_a_long_sweep_is_tried_again_by_one_message_after_a_while():
    bench = world(away=TimersSet)
    publisher = ImpatientPublisher(bench.publisher)
    timers = TimersSet.model_construct(timers=())

    for pause in (0.0, 0.0, OUTAGE_SECONDS):
        await asyncio.sleep(pause)
        results = await asyncio.gather(*(publisher.publish(timers) for _ in range(3)), return_exceptions=True)
        assert all(isinstance(one, TryLaterError) for one in results)
    assert len(bench.publisher.attempts) == 3 + 0 + 1

    await asyncio.sleep(OUTAGE_SECONDS)
    bench.publisher.away = None
    await publisher.publish(timers)
    await publisher.publish(timers)
    assert len(bench.publisher.published) == 2


class Answering:
    """A Publisher with one answer for each call, each after its own time."""

    def __init__(self, *answers):
        self.answers = list(answers)

    async def publish(self, _message):
        seconds, error = self.answers.pop(0)
        await asyncio.sleep(seconds)
        if error:
            raise error


TIMERS = TimersSet.model_construct(timers=())


async def test_success_meanwhile_is_no_outage():
    publisher = ImpatientPublisher(Answering((2, TryLaterError("slow 503")), (1, None), (0, None)))

    results = await asyncio.gather(publisher.publish(TIMERS), publisher.publish(TIMERS), return_exceptions=True)

    assert sum(isinstance(one, TryLaterError) for one in results) == 1
    await publisher.publish(TIMERS)  # is tried


async def test_refusal_ends_an_outage():
    publisher = ImpatientPublisher(Answering((2, TryLaterError("slow 503")), (0, PermanentError("413")), (0, None)))
    with pytest.raises(TryLaterError):
        await publisher.publish(TIMERS)
    await asyncio.sleep(OUTAGE_SECONDS)
    with pytest.raises(PermanentError):
        await publisher.publish(TIMERS)

    await publisher.publish(TIMERS)  # is tried
