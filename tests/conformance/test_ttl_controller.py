"""The cases of Kubernetes' own TTL controller for Jobs, in its numbers and under its names.

kubernetes/kubernetes pkg/controller/ttlafterfinished/ttlafterfinished_controller_test.go has the first nine, all of
its unit tests; the others are what ttlafterfinished_controller.go, the Job controller and the API server do besides,
without a test of their own there.
"""

from datetime import timedelta

import pytest

from shared.core.decision.decide import Reason
from shared.core.kinds.rule import Catalogue
from shared.core.values.objects import ref_of
from shared.evaluation.evaluator import Evaluator
from shared.messages import Purpose, Timer
from shared.usecases.expire import DELETION
from shared.usecases.handler import Handler
from tests.builders import JOB, NOW, ago, condition, having, job, later, owned_by, status_written, without
from tests.conformance.answers import answer, seconds
from tests.fakes import FakeClock, FakeCluster, FakeTelemetry


@pytest.mark.parametrize(
    ("completed", "failed", "ttl", "remaining"),
    [
        pytest.param(None, None, 100, Reason.UNFINISHED, id="1: Job unfinished"),
        pytest.param(NOW, None, None, Reason.NO_TTL, id="2: Job completed now, no TTL"),
        pytest.param(NOW, None, 0, seconds(0), id="3: Job completed now, 0s TTL"),
        pytest.param(NOW, None, 10, seconds(10), id="4: Job completed now, 10s TTL"),
        pytest.param(ago(10), None, 15, seconds(5), id="5: Job completed 10s ago, 15s TTL"),
        pytest.param(None, NOW, None, Reason.NO_TTL, id="6: Job failed now, no TTL"),
        pytest.param(None, NOW, 0, seconds(0), id="7: Job failed now, 0s TTL"),
        pytest.param(None, NOW, 10, seconds(10), id="8: Job failed now, 10s TTL"),
        pytest.param(None, ago(10), 15, seconds(5), id="9: Job failed 10s ago, 15s TTL"),
    ],
)
def test_ttl_controller_time_left_matches(completed, failed, ttl, remaining):
    assert answer(job(complete=completed, failed=failed, ttl=ttl), JOB) == remaining


# What finishes a Job, and when: all of these have a TTL of ten seconds.
@pytest.mark.parametrize(
    ("conditions", "remaining"),
    [
        pytest.param([condition("Complete", ago(60), status="False")], Reason.UNFINISHED, id="10: Complete is False"),
        pytest.param(
            [condition("Complete", ago(60), status="Unknown")], Reason.UNFINISHED, id="10: Complete is Unknown"
        ),
        pytest.param([condition("FailureTarget", ago(60))], Reason.UNFINISHED, id="11: FailureTarget alone"),
        pytest.param([condition("SuccessCriteriaMet", ago(60))], Reason.UNFINISHED, id="11: SuccessCriteriaMet alone"),
        pytest.param(
            [condition("FailureTarget", ago(35)), condition("Failed", ago(5))],
            seconds(5),
            id="12: FailureTarget, then Failed: the time of Failed",
        ),
        pytest.param(
            [condition("SuccessCriteriaMet", ago(6)), condition("Complete", ago(5))],
            seconds(5),
            id="13: SuccessCriteriaMet, then Complete: the time of Complete",
        ),
        pytest.param([condition("Complete")], Reason.FINISH_TIME_UNKNOWN, id="14: Complete without its time"),
        pytest.param([condition("Complete", later(60))], seconds(70), id="15: finished in the future: deferred"),
    ],
)
def test_ttl_controller_finish_time_matches(conditions, remaining):
    assert answer(job(conditions=conditions, ttl=10), JOB) == remaining


def test_completion_time_is_not_read():
    """13: it is a second earlier than the condition."""
    obj = having(job(complete=ago(5), ttl=10), "status.completionTime", "2026-03-14T15:09:20Z")

    assert answer(obj, JOB) == seconds(5)


def test_condition_without_a_time_keeps_the_job():
    """14: an error there, tried for ever; kept here."""
    obj = status_written(job(conditions=[condition("Failed")], ttl=0), ago(60))

    assert answer(obj, JOB) == Reason.FINISH_TIME_UNKNOWN


def test_terminating_job_is_kept():
    """16"""
    obj = having(job(complete=ago(60), ttl=10), "metadata.deletionTimestamp", "2026-03-14T15:09:00Z")

    assert answer(obj, JOB) == Reason.TERMINATING


@pytest.mark.parametrize(
    ("remaining", "expected"),
    [
        pytest.param(timedelta(microseconds=1), timedelta(microseconds=1), id="21: a microsecond before"),
        pytest.param(timedelta(0), timedelta(0), id="21: exactly due"),
    ],
)
def test_job_is_due_at_the_exact_instant(remaining, expected):
    assert answer(job(complete=ago(10), ttl=10), JOB, now=NOW - remaining) == expected


@pytest.mark.parametrize("owner_unfinished", [True, False])
def test_job_with_an_owner_is_due(owner_unfinished):
    """22"""
    obj = owned_by(job(complete=ago(10), ttl=10), "CronJob")

    assert answer(obj, JOB, owner_unfinished=owner_unfinished) == seconds(0)


def test_job_of_another_controller_is_due():
    """A.1 of its source: spec.managedBy is not looked at."""
    obj = having(job(complete=ago(10), ttl=10), "spec.managedBy", "kueue.x-k8s.io/multikueue")

    assert answer(obj, JOB) == seconds(0)


# What changed since the timer was set, by the fresh read that it makes before it deletes.

DUE = job(complete=ago(60), ttl=30)
FRESH = {
    "17: the TTL was raised": (having(DUE, "spec.ttlSecondsAfterFinished", 90), "deferred"),
    "18: the TTL was removed": (without(DUE, "spec.ttlSecondsAfterFinished"), "kept"),
    "19: recreated under the same name, unfinished": (job(ttl=30, uid="another"), "already-gone"),
    "the same": (DUE, "deleted"),
}


def expiry(cluster, telemetry):
    kinds = Catalogue((JOB,))
    return Handler(DELETION, cluster, kinds, Evaluator(cluster, kinds), FakeClock(), telemetry, dry_run=False)


def fired():
    return Timer(ref=ref_of(DUE), purpose=Purpose.EXPIRE, due_at=ago(30))


@pytest.mark.anyio
@pytest.mark.parametrize(("fresh", "outcome"), FRESH.values(), ids=FRESH)
async def test_fresh_object_decides_at_the_deletion(fresh, outcome):
    cluster, telemetry = FakeCluster(FakeClock()), FakeTelemetry()
    cluster.put(fresh)

    reported = await expiry(cluster, telemetry).handle(fired())

    assert bool(cluster.deleted) is (outcome == "deleted")
    assert (reported is None) is (outcome in ("kept", "already-gone"))


@pytest.mark.anyio
async def test_object_recreated_between_read_and_delete_is_kept():
    """20"""
    cluster, telemetry = FakeCluster(FakeClock()), FakeTelemetry()
    cluster.put(DUE)
    cluster.before_delete = lambda _: cluster.put(job(ttl=30, uid="another"))

    assert await expiry(cluster, telemetry).handle(fired()) is None

    assert cluster.deleted == []
    assert [call.verb for call in cluster.calls] == ["get", "delete", "get"]
