"""The usage of quotas: which ResourceQuota counts the objects of a kind, and how many of them have to go."""

import pytest

from shared.core.decision.capacity import QuotaPressure, QuotaUsage, usages_of
from tests.builders import JOB, POD


def quota(name="objects", *, spec=None, **status):
    return {"metadata": {"name": name}, "spec": spec or {}, "status": status}


def counting(hard="50", used="47", resource="count/jobs.batch"):
    return quota(hard={resource: hard}, used={resource: used})


def test_quota_of_a_kind_is_read_from_its_status():
    assert usages_of([counting()], JOB) == (QuotaUsage("objects", "count/jobs.batch", 50, 47),)
    assert usages_of([counting(resource="count/pods")], POD) == (QuotaUsage("objects", "count/pods", 50, 47),)


@pytest.mark.parametrize(("text", "number"), [("1k", 1_000), ("2Ki", 2_048), (7, 7), ("1.5k", 1_500)])
def test_quota_is_read_as_a_quantity(text, number):
    assert usages_of([counting(hard=text)], JOB)[0].hard == number


@pytest.mark.parametrize(
    "given",
    [
        counting(resource="jobs.batch"),
        counting(resource="count/jobs"),
        counting(resource="count/pods"),
        counting(hard="0"),
        counting(hard="-1"),
        counting(hard="many"),
        counting(hard="1.5"),
        counting(used=None),
        counting(used=[]),
        quota(hard={"count/jobs.batch": "50"}),
        quota(hard=[], used="x"),
        counting() | {"spec": {"scopes": ["BestEffort"]}},
        counting() | {"spec": {"scopeSelector": {"matchExpressions": []}}},
        {},
        None,
    ],
)
def test_quota_that_counts_no_objects_of_the_kind_is_left_out(given):
    assert usages_of([given], JOB) == ()


def test_quota_of_running_pods_is_left_out():
    assert usages_of([counting(resource="pods")], POD) == ()


@pytest.mark.parametrize(
    ("used", "live", "excess"),
    [(45, None, 0), (46, None, 1), (50, None, 5), (50, 46, 1), (46, 50, 5), (50, 45, 0), (45, 50, 0), (60, 60, 15)],
)
def test_excess_is_what_has_to_go_until_the_usage_is_not_above(used, live, excess):
    assert QuotaUsage("objects", "count/jobs.batch", 50, used).excess(90, live) == excess


def test_fullest_quota_counts():
    wide, narrow = (QuotaUsage(str(hard), "count/jobs.batch", hard, 47) for hard in (100, 50))
    pressure = QuotaPressure((wide, narrow), older=1)

    assert pressure.fullest(90) == narrow
    assert pressure.is_over(90)
    assert not pressure.is_over(95)
    assert QuotaPressure().fullest(90) is None
