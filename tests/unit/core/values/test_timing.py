"""How far ahead an object gets a timer."""

from datetime import timedelta

import pytest

from shared.core.decision.namespaces import namespace_of
from shared.core.kinds.rule import Catalogue
from shared.core.values.timing import HORIZON_MIN, horizon, sweep_ahead
from shared.usecases.timers import schedule
from tests.builders import JOB, ago, job, namespace
from tests.fakes import FakeClock, FakeTelemetry

pytestmark = pytest.mark.anyio

INTERVAL = timedelta(minutes=10)
AHEAD = int(horizon(INTERVAL).total_seconds())


@pytest.mark.parametrize("seconds", [1, 60, 600, 86_400])
def test_horizon_is_no_shorter_than_the_range_of_a_sweep(seconds):
    interval = timedelta(seconds=seconds)
    assert horizon(interval) == max(2 * interval, HORIZON_MIN) >= sweep_ahead(interval)


@pytest.mark.parametrize(
    ("ttl", "verdict", "reason"),
    [(AHEAD - 1, "timer-set", "not-due"), (AHEAD, "kept", "left-to-sweep"), (10**9, "kept", "left-to-sweep")],
)
async def test_schedule_leaves_objects_due_beyond_the_horizon_to_the_sweep(ttl, verdict, reason):
    known, telemetry = namespace_of(namespace("ci")), FakeTelemetry()

    answer = await schedule(
        job(complete=ago(0), ttl=ttl),
        catalogue=Catalogue((JOB,)),
        clock=FakeClock(),
        telemetry=telemetry,
        get_cached=lambda _: known,
        horizon=horizon(INTERVAL),
    )

    assert telemetry.verdicts() == [(verdict, reason)]
    assert (answer is not None) == (verdict == "timer-set")
