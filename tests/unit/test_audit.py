"""The measurement of the benchmark from an API server's audit log."""

from datetime import UTC, datetime, timedelta

import pytest

from tests.benchmarks.audit import evaluator
from tests.benchmarks.cluster import BenchmarkError

DUE_AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
EXPIRE = "system:serviceaccount:ttl-after-finished:expire"
SWEEP = "system:serviceaccount:ttl-after-finished:sweep"


def entry(verb, name, *, late_ms, user=EXPIRE, code=200, took_ms=10):
    answered_at = DUE_AT + timedelta(milliseconds=late_ms)
    return {
        "verb": verb,
        "user": {"username": user},
        "objectRef": {"resource": "jobs", "name": name},
        "responseStatus": {"code": code},
        "requestReceivedTimestamp": (answered_at - timedelta(milliseconds=took_ms)).isoformat(),
        "stageTimestamp": answered_at.isoformat(),
    }


def test_measurement_uses_the_first_accepted_delete():
    log = [
        entry("get", "a", late_ms=30),
        entry("delete", "a", late_ms=40, code=409),
        entry("get", "a", late_ms=50),
        entry("delete", "a", late_ms=60),
        entry("delete", "b", late_ms=20, user=SWEEP),
        entry("delete", "b", late_ms=80, user="another"),
    ]
    late = evaluator("ours", 2, {"a": DUE_AT, "b": DUE_AT}, log)

    assert (late.jobs, late.p50, late.most, late.read_p50) == (2, 20, 60, 20)
    assert late.deleted_by == {"expire": 1, "sweep": 1}
    assert late.calls == {"DELETE jobs": 1.5, "GET jobs": 1.0}


@pytest.mark.parametrize(
    ("log", "message"),
    [
        ([entry("delete", "a", late_ms=-1)], "before it was due"),
        ([entry("delete", "a", late_ms=5, user="another")], "1 were deleted by others"),
        ([entry("delete", "a", late_ms=5, code=404)], "1 were deleted by others"),
    ],
)
def test_measurement_fails_on_an_early_or_foreign_delete(log, message):
    with pytest.raises(BenchmarkError, match=message):
        evaluator("ours", 1, {"a": DUE_AT}, log)
