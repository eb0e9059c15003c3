"""The forecast of a sweep: what it counts, and when it says nothing."""

import pytest

from shared.core.decision.forecast import FORECAST_HOURS
from shared.errors import ForbiddenError
from shared.messages import SweepStep
from shared.usecases.sweeps.chains import SweepChains
from tests.builders import ago, job, pod, trainjob
from tests.unit.usecases.test_sweep import START, Bench

pytestmark = pytest.mark.anyio

JOBS, TRAINJOBS = ("batch", "Job"), ("trainer.kubeflow.org", "TrainJob")


def hours(**counts):
    """The counts of a kind: `in_2=3` are 3 objects in the second hour."""
    numbers = [0] * (FORECAST_HOURS + 2)
    for name, count in counts.items():
        numbers[{"now": 0, "later": -1}.get(name) or int(name.partition("_")[2] or 0)] = count
    return numbers


async def swept(bench, step=START):
    """The steps of a sweep, to its end."""
    steps = []
    while step is not None:
        steps.append(step)
        step = await bench.sweep(step)
    return steps


async def test_waiting_objects_are_counted_by_kind_and_hour():
    bench = Bench()
    bench.put(3, complete=ago(60), ttl=90 * 60)  # due in 89 minutes: in the second hour
    bench.put(2, trainjob, "train", complete=ago(60), ttl="30d")
    bench.cluster.put(job(complete=ago(60), ttl=600, name="soon", uid="soon"))
    bench.cluster.put(job(complete=ago(60), ttl=30, name="due", uid="due"))  # deleted, so not in the forecast
    bench.cluster.put(job(name="running", uid="running"))
    bench.cluster.put(job(complete=ago(60), name="no-ttl", uid="no-ttl"))
    await swept(bench)
    assert bench.telemetry.forecasts == [{JOBS: hours(in_1=1, in_2=3), TRAINJOBS: hours(later=2)}]


async def test_forecast_of_several_steps_counts_all_of_them_once():
    bench = Bench(page_size=2)
    bench.put(9, complete=ago(60), ttl=300_000)
    bench.cluster.on_list = lambda: bench.clock.advance(11)
    assert len(await swept(bench)) > 3
    assert bench.telemetry.forecasts == [{JOBS: hours(later=9)}]


async def test_repeated_step_leaves_no_forecast():
    bench = Bench(page_size=2)
    bench.put(9, complete=ago(60), ttl=300_000)
    bench.cluster.on_list = lambda: bench.clock.advance(11)
    second = await bench.sweep()
    await bench.sweep(second)
    await swept(bench, second)
    assert bench.telemetry.sweeps
    assert bench.telemetry.forecasts == []


async def test_steps_of_another_process_leave_no_forecast():
    first, second = Bench(page_size=2), Bench(page_size=2)
    for bench in (first, second):
        bench.put(9, complete=ago(60), ttl=300_000)
    first.cluster.on_list = lambda: first.clock.advance(11)
    await swept(second, await first.sweep())
    assert second.telemetry.forecasts == []


async def test_sweep_of_some_kinds_leaves_no_forecast():
    bench = Bench()
    bench.put(3, complete=ago(60), ttl=5_000)
    await swept(bench, SweepStep(kinds=("batch/v1/Job",)))
    assert bench.telemetry.forecasts == []


async def test_kind_that_is_passed_over_is_not_in_the_forecast():
    bench = Bench()
    bench.put(2, complete=ago(60), ttl=5_000)
    bench.put(2, trainjob, "train", complete=ago(60), ttl="30d")
    bench.cluster.fail("list", ForbiddenError("jobs is forbidden"), on="jobs")
    await swept(bench)
    assert bench.telemetry.forecasts == [{TRAINJOBS: hours(later=2)}]


async def test_kind_of_which_a_later_page_fails_is_not_in_the_forecast():
    bench = Bench(page_size=2)
    bench.put(4, complete=ago(60), ttl=5_000)
    bench.cluster.on_list = lambda: bench.cluster.fail("list", ForbiddenError("jobs is forbidden"), on="jobs")
    await swept(bench)
    assert [record.name for record in bench.telemetry.records] == ["job-000", "job-001"]  # those of the first page
    assert bench.telemetry.forecasts == [{}]


async def test_pods_of_a_deadline_are_not_in_the_forecast():
    bench = Bench()
    bench.cluster.put(pod(name="running", uid="running"))
    await swept(bench)
    assert bench.telemetry.forecasts == [{}]


async def test_memory_of_forecasts_is_bounded():
    chains = SweepChains()
    for number in range(20):
        chains.forecasts.find(SweepStep(sweep_id=f"{number}", whole=True))
    assert len(chains.forecasts._sweeps) == 4
    assert chains.end(SweepStep(sweep_id="0", whole=True)) is None
    assert chains.end(SweepStep(sweep_id="19", whole=True)) is not None
