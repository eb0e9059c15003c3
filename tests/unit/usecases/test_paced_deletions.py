"""Deletions of timers and of sweeps wait for a permit before they read, and decide after they have waited."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from shared.core.values.objects import ref_of
from shared.errors import TryLaterError
from shared.evaluation.evaluator import Evaluator
from shared.messages import ObjectDeleted, Purpose, SweepStep, Timer, TimersSet
from shared.safeguards.pace import PERMIT_SECONDS_MAX, PERMITS_MIN, SLOW_SECONDS, Pace
from shared.safeguards.safeguards import Safeguards
from shared.usecases.enforce import ENFORCEMENT
from shared.usecases.expire import DELETION
from shared.usecases.handler import Handler
from tests.builders import JOB, NOW, POD, ago, annotated, ended, job, pod
from tests.fakes import FakeCluster, FakePublisher, FakeTelemetry, ReadClock
from tests.installation import KINDS
from tests.simulation.virtualloop import VirtualLoop
from tests.sweeps import sweep_with
from tests.unit.core.ttl.test_precedence import rules

WORKERS = 8


def loop_now():
    return asyncio.get_running_loop().time()


class SlowCluster(FakeCluster):
    """An API server whose DELETEs take some seconds, by kind."""

    def __init__(self, clock):
        super().__init__(clock)
        self.seconds: dict[str, float] = {}
        self.in_flight = self.peak = 0

    async def delete(self, rule, obj, **options):
        self.in_flight += 1
        self.peak = max(self.peak, self.in_flight)
        try:
            await asyncio.sleep(self.seconds.get(rule.kind, 0.01))
            return await super().delete(rule, obj, **options)
        finally:
            self.in_flight -= 1


class NeverAsked(Safeguards):
    """Safeguards of an object that is not due any more when it gets its permit."""

    def __init__(self):
        pass

    async def ask(self, rule, obj, *, by):
        raise AssertionError("a decision from before the wait was carried out")


class Bench:
    """A process whose permits are as few as its workers."""

    def __init__(self):
        clock = ReadClock(lambda: NOW + timedelta(seconds=loop_now()))
        self.cluster, self.telemetry, self.publisher = SlowCluster(clock), FakeTelemetry(), FakePublisher()
        self.policy = rules(ttl="60s")
        self.pace = Pace(self.telemetry, WORKERS)
        evaluator = Evaluator(self.cluster, KINDS, lambda: self.policy)
        self.expiry = Handler(
            DELETION, self.cluster, KINDS, evaluator, clock, self.telemetry, dry_run=False, pace=self.pace, by="sweep"
        )

    def put(self, count, make, prefix):
        return [self.cluster.put(make(f"{prefix}-{number:03}")) for number in range(count)]

    async def expire(self, obj):
        return await self.expiry.handle(Timer(ref=ref_of(obj), purpose=Purpose.EXPIRE, due_at=NOW))

    async def sweep(self):
        sweep = sweep_with(self.expiry, self.publisher, timedelta(minutes=10), concurrency=WORKERS)
        await sweep.sweep(SweepStep())

    async def take_all_permits(self, seconds, rule=JOB):
        """Another handler holds every permit of a kind for so long; returns once it does."""

        async def hold():
            async with self.pace.permit(rule, "others"):
                await asyncio.sleep(seconds)

        for _ in range(WORKERS):
            self.holders = [*getattr(self, "holders", []), asyncio.create_task(hold())]
        await asyncio.sleep(0.1)


def due_job(name="done"):
    return job(complete=ago(7_200), name=name, uid=f"uid-{name}")


def due_pod(name):
    return annotated(pod("Succeeded", containers=[ended(at=ago(7_200))], name=name, uid=f"uid-{name}"), ttl="60s")


@pytest.fixture
def run():
    """Run a coroutine to its end in virtual time."""
    loop = VirtualLoop(0)
    yield loop.run_until_complete
    loop.close()


def test_expire_reads_after_it_has_a_permit(run):
    async def live():
        bench = Bench()
        (obj,) = bench.put(1, due_job, "done")
        await bench.take_all_permits(5.0)
        answer = asyncio.create_task(bench.expire(obj))
        await asyncio.sleep(4.0)
        assert bench.cluster.calls == []
        assert isinstance(await answer, ObjectDeleted)
        assert [call.verb for call in bench.cluster.calls] == ["get", "delete"]

    run(live())


def test_expire_without_a_permit_in_time_sets_a_timer_and_reads_nothing(run):
    async def live():
        bench = Bench()
        (obj,) = bench.put(1, due_job, "done")
        await bench.take_all_permits(60.0)
        answer = await bench.expire(obj)
        assert isinstance(answer, TimersSet)
        assert loop_now() == pytest.approx(PERMIT_SECONDS_MAX, abs=0.2)
        assert bench.telemetry.verdicts() == [("timer-set", "try-later")]
        assert "get" not in bench.cluster.counted()

    run(live())


def test_sweep_decides_again_after_it_has_waited_for_a_permit(run):
    async def live():
        bench = Bench()
        bench.put(1, due_job, "done")
        await bench.take_all_permits(5.0)
        asyncio.get_running_loop().call_later(2.0, setattr, bench, "policy", rules(ttl="never"))
        bench.expiry = replace(bench.expiry, safeguards=NeverAsked())
        await bench.sweep()
        assert bench.cluster.names == {"done-000"}
        assert bench.telemetry.verdicts() == [("kept", "never")]

    run(live())


def test_sweep_of_objects_that_are_not_due_needs_no_permit(run):
    async def live():
        bench = Bench()
        bench.policy = rules(ttl="365d")
        bench.put(20, due_job, "later")
        await bench.take_all_permits(60.0)
        began_at = loop_now()
        await bench.sweep()
        assert loop_now() - began_at < 1

    run(live())


def test_sweep_spreads_overdue_objects_by_jitter_while_no_permit_is_free(run):
    async def live():
        bench = Bench()
        bench.policy = rules(ttl="60s", jitter="10m")
        bench.put(5, due_job, "done")
        await bench.take_all_permits(60.0)
        await bench.sweep()
        assert loop_now() < 1
        assert bench.telemetry.verdicts() == [("timer-set", "jitter")] * 5

    run(live())


def test_sweep_of_a_dry_run_needs_no_permit(run):
    async def live():
        bench = Bench()
        bench.put(5, due_job, "done")
        bench.expiry = replace(bench.expiry, dry_run=True)
        await bench.take_all_permits(60.0)
        await bench.sweep()
        assert loop_now() < 1
        assert {verdict for verdict, _ in bench.telemetry.verdicts()} == {"would-delete"}

    run(live())


def test_webhook_that_hangs_for_one_namespace_does_not_refuse_permits_to_another(run):
    async def live():
        bench = Bench()
        hanging = [bench.cluster.put(due_job(f"hangs-{number:03}")) for number in range(30)]
        bench.cluster.seconds["Job"] = 15.0
        await asyncio.gather(*(bench.expire(one) for one in hanging))  # the permits fall
        left = [one for one in hanging if one["metadata"]["name"] in bench.cluster.names]
        tasks = [asyncio.create_task(bench.expire(one)) for one in left]
        await asyncio.sleep(PERMIT_SECONDS_MAX + 1)
        bench.cluster.seconds.clear()  # for the DELETEs from now on
        began_at = loop_now()
        others = [due_job(f"fine-{number:03}") for number in range(10)]
        for one in others:
            one["metadata"]["namespace"] = "another"
            bench.cluster.put(one)
        answers = await asyncio.gather(*(bench.expire(one) for one in others))
        assert all(isinstance(one, ObjectDeleted) for one in answers)
        assert loop_now() - began_at < 1
        await asyncio.gather(*tasks)

    run(live())


def test_sweep_slows_down_while_deletes_are_slow_and_deletes_everything_later(run):
    async def live():
        bench = Bench()
        bench.put(100, due_job, "done")
        bench.cluster.seconds["Job"] = 2 * SLOW_SECONDS
        asyncio.get_running_loop().call_later(20, bench.cluster.seconds.clear)
        for _ in range(3):
            await bench.sweep()
        permits = [permits for name, permits in bench.telemetry.paces if name == JOB.name]
        assert min(permits) == PERMITS_MIN
        assert bench.cluster.peak <= WORKERS
        assert bench.cluster.names == set()
        assert permits[-1] > PERMITS_MIN

    run(live())


def test_kind_whose_webhook_hangs_does_not_slow_the_timers_of_another_kind(run):
    async def live():
        bench = Bench()
        jobs, pods = bench.put(30, due_job, "hangs"), bench.put(30, due_pod, "fine")
        bench.cluster.seconds["Job"] = 15.0
        hanging = [asyncio.create_task(bench.expire(one)) for one in jobs]
        await asyncio.sleep(0.1)
        began_at = loop_now()
        await asyncio.gather(*(bench.expire(one) for one in pods))
        assert loop_now() - began_at < 1
        await asyncio.gather(*hanging)
        paces = dict(bench.telemetry.paces)
        assert paces[POD.name] == WORKERS
        assert paces[JOB.name] < WORKERS

    run(live())


def test_kind_whose_webhook_hangs_does_not_hold_the_sweep_of_another_kind(run):
    async def live():
        bench = Bench()
        bench.put(200, due_job, "hangs")
        bench.put(30, due_pod, "fine")
        bench.cluster.seconds["Job"] = hangs = 30.0
        sweep = asyncio.create_task(bench.sweep())
        await asyncio.sleep(hangs + PERMIT_SECONDS_MAX + 1)  # one round of all workers, and one wait
        assert not [name for name in bench.cluster.names if name.startswith("fine")]
        await sweep

    run(live())


def test_429_to_a_delete_of_a_timer_pauses_the_sweep(run):
    async def live():
        bench = Bench()
        (obj,) = bench.put(1, due_job, "refused")
        bench.cluster.fail("delete", TryLaterError("429", retry_after_seconds=3, is_overload=True), on="refused-000")
        await bench.expire(obj)
        bench.put(5, due_pod, "fine")
        began_at = loop_now()
        await bench.sweep()
        assert loop_now() - began_at == pytest.approx(3, abs=0.2)
        assert bench.cluster.names == {"refused-000"}

    run(live())


def test_handlers_of_all_purposes_share_one_pace(run):
    async def live():
        bench = Bench()
        assert replace(bench.expiry, procedure=ENFORCEMENT).pace is bench.pace

    run(live())
