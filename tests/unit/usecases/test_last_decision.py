"""The last decision before a DELETE uses facts that are a few seconds old at most, also if other reads are slow."""

import asyncio
from datetime import timedelta

import pytest

from shared.adapters.config.policy_file import POLICY_POLL_SECONDS
from shared.adapters.kubernetes.requests import LEAVE_SECONDS_MAX
from shared.core.policy.limits import BreakerLimits, Limits
from shared.core.values.objects import ref_of
from shared.evaluation.evaluator import Evaluator
from shared.evaluation.namespaces_and_owners import NAMESPACE_AGE_SECONDS_MAX
from shared.messages import ObjectDeleted, Purpose, SweepStep, Timer, TimersSet
from shared.safeguards.safeguards import Safeguards
from shared.safeguards.shared_state import Runtime, SharedState
from shared.usecases.expire import DELETION
from shared.usecases.handler import Handler
from tests.builders import NOW, ago, annotated, ended, job, namespace, owned_by, pod
from tests.fakes import FakeCluster, FakePublisher, FakeState, FakeTelemetry, ReadClock
from tests.installation import KINDS
from tests.simulation.virtualloop import VirtualLoop
from tests.sweeps import sweep_with
from tests.unit.core.ttl.test_precedence import rules

SLOW = 9.0
"""Seconds of a read: longer than facts count, and short enough for two of them within `ATTEMPT_SECONDS_MAX`."""


def loop_time():
    """The loop's own time, as a wall clock."""
    return NOW + timedelta(seconds=asyncio.get_running_loop().time())


class SlowCluster(FakeCluster):
    """An API server with slow GETs that records the time of each DELETE and each exemption."""

    def __init__(self, clock):
        super().__init__(clock)
        self.seconds = {}
        self.exempt_at = None
        self.deleted_at = []

    async def get(self, rule, ref):
        found = await super().get(rule, ref)
        await asyncio.sleep(self.seconds.get(rule.kind, 0))
        return found

    async def delete(self, rule, obj, **options):
        self.deleted_at.append(asyncio.get_running_loop().time())
        return await super().delete(rule, obj, **options)

    def exempt(self):
        self.put(namespace("ci", exempt="true"))
        self.exempt_at = asyncio.get_running_loop().time()

    @property
    def late(self):
        """How long after the exemption the last DELETE was sent."""
        return max((at - self.exempt_at for at in self.deleted_at), default=0.0)


class Bench:
    """One process that deletes, on a loop with virtual time."""

    def __init__(self, policy=None, count_seconds=0.0):
        self.clock = ReadClock(loop_time)
        self.cluster, self.telemetry, self.publisher = SlowCluster(self.clock), FakeTelemetry(), FakePublisher()
        self.policy = policy or rules(ttl="never")
        self.count_seconds = count_seconds
        limits = Limits(breaker=BreakerLimits(count=1_000, share=1.0, at_least=0))
        runtime = Runtime(self.clock, lambda: asyncio.get_running_loop().time(), self.telemetry)
        shared_state = SharedState(FakeState(), runtime, write_event=self.write_event)
        self.safeguards = Safeguards(
            lambda: limits, shared_state, runtime, count_objects=self.count, horizon=timedelta(minutes=20)
        )
        evaluator = Evaluator(self.cluster, KINDS, lambda: self.policy)
        self.expiry = Handler(
            DELETION,
            self.cluster,
            KINDS,
            evaluator,
            self.clock,
            self.telemetry,
            dry_run=False,
            safeguards=self.safeguards,
        )

    async def write_event(self, *_):
        pass

    async def count(self, _):
        """The count of the objects of a kind, for the breaker."""
        await asyncio.sleep(self.count_seconds)
        return 1_000

    async def expire(self, obj):
        timer = Timer(ref=ref_of(self.cluster.put(obj)), purpose=Purpose.EXPIRE, due_at=NOW)
        return await self.expiry.handle(timer)

    async def sweep(self):
        sweep = sweep_with(self.expiry, self.publisher, timedelta(minutes=10), concurrency=8)
        await sweep.sweep(SweepStep())

    def later(self, seconds, act):
        asyncio.get_running_loop().call_later(seconds, act)

    @property
    def tripped(self):
        return self.safeguards._breaker.deletion_counts.total(self.clock.now())


@pytest.fixture
def run():
    """Run a coroutine to its end in virtual time."""
    loop = VirtualLoop(0)
    yield loop.run_until_complete
    loop.close()


def due(name="done", **options):
    return job(complete=ago(7_200), ttl=60, name=name, uid=f"uid-{name}", **options)


def test_expire_deletes_nothing_when_a_namespace_is_exempted_during_a_slow_count_of_the_kind(run):
    async def live():
        bench = Bench(count_seconds=SLOW)
        bench.later(3, bench.cluster.exempt)
        assert await bench.expire(due()) is None
        assert bench.cluster.names == {"done"}
        assert bench.telemetry.verdicts() == [("kept", "exempt")]
        assert bench.tripped == 0  # a deletion that did not happen is subtracted

    run(live())


def test_expire_deletes_nothing_when_a_namespace_is_exempted_during_a_slow_read_of_the_owner(run):
    async def live():
        bench = Bench()
        owner = job(complete=ago(9_000), name="owner", uid="owner-uid")
        child = annotated(pod("Succeeded", containers=[ended(at=ago(7_200))]), ttl="60s")
        bench.cluster.put(owner)
        bench.cluster.seconds["Job"] = SLOW
        bench.later(3, bench.cluster.exempt)
        assert await bench.expire(owned_by(child, "Job")) is None
        assert bench.cluster.deleted == []
        assert bench.telemetry.verdicts() == [("kept", "exempt")]

    run(live())


def test_sweep_keeps_a_namespace_that_is_exempted_during_a_slow_count_of_the_kind(run):
    async def live():
        bench = Bench(count_seconds=SLOW)
        for number in range(40):
            bench.cluster.put(due(f"job-{number}"))
        bench.later(3, bench.cluster.exempt)
        await bench.sweep()
        assert bench.cluster.deleted == []

    run(live())


def test_no_delete_is_sent_later_than_the_bound_after_an_exemption(run):
    """Holds for any time of the exemption and any duration of each read."""

    async def live(count_seconds, namespace_seconds, exempt_after):
        bench = Bench(count_seconds=count_seconds)
        bench.cluster.seconds["Namespace"] = namespace_seconds
        bench.later(exempt_after, bench.cluster.exempt)
        for number in range(60):
            await bench.expire(due(f"job-{number}"))
            await asyncio.sleep(0.5)
        assert bench.cluster.late <= NAMESPACE_AGE_SECONDS_MAX
        return bool(bench.cluster.deleted_at)

    cases = [(count, place, at) for count in (0.0, 3.0, SLOW) for place in (0.0, 2.0, 4.5) for at in (2, 7, 22, 26)]
    deleted = [run(live(*case)) for case in cases]
    assert any(deleted)


def test_expire_retries_later_if_a_namespace_is_read_too_slowly(run):
    async def live():
        bench = Bench()
        bench.cluster.seconds["Namespace"] = NAMESPACE_AGE_SECONDS_MAX + 1
        assert isinstance(await bench.expire(due()), TimersSet)
        assert bench.telemetry.verdicts() == [("timer-set", "try-later")]
        assert bench.cluster.deleted == []

    run(live())


def test_expire_obeys_a_policy_that_is_reloaded_during_a_slow_count_of_the_kind(run):
    async def live():
        bench = Bench(count_seconds=SLOW, policy=rules(ttl="60s"))

        def reload():
            bench.policy = rules(ttl="never")

        bench.later(3, reload)
        assert await bench.expire(job(complete=ago(7_200))) is None
        assert bench.telemetry.verdicts() == [("kept", "never")]

    run(live())


def test_expire_deletes_after_a_slow_read_of_the_owner_if_nothing_changed(run):
    async def live():
        bench = Bench()
        owner = job(complete=ago(9_000), name="owner", uid="owner-uid")
        child = annotated(pod("Succeeded", containers=[ended(at=ago(7_200))]), ttl="60s")
        bench.cluster.put(owner)
        bench.cluster.seconds["Job"] = SLOW
        assert isinstance(await bench.expire(owned_by(child, "Job")), ObjectDeleted)

    run(live())


def test_expire_deletes_after_a_slow_count_of_the_kind_if_nothing_changed(run):
    async def live():
        bench = Bench(count_seconds=SLOW)
        assert isinstance(await bench.expire(due()), ObjectDeleted)
        assert bench.tripped == 1

    run(live())


def test_sweep_deletes_everything_if_the_count_is_slow(run):
    async def live():
        bench = Bench(count_seconds=SLOW)
        for number in range(40):
            bench.cluster.put(due(f"job-{number}"))
        await bench.sweep()
        assert bench.cluster.names == set()

    run(live())


def test_no_delete_is_sent_five_seconds_after_its_namespace_was_read():
    assert NAMESPACE_AGE_SECONDS_MAX + LEAVE_SECONDS_MAX <= 5.0


def test_no_delete_is_sent_three_seconds_after_its_policy_was_replaced():
    assert POLICY_POLL_SECONDS + LEAVE_SECONDS_MAX <= 3.0
