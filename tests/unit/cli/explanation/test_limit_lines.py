"""The lines of `explain` about limits: the place in a group, and the usage of quotas."""

import pytest

from shared.cli.explanation.explanation_text import limit_lines
from shared.core.decision.capacity import Counted, QuotaPressure, QuotaUsage
from tests.unit.core.ttl.test_precedence import DONE, facts, rules

COUNTED = rules(maxCount=50)
QUOTA = rules(ttl="1d", whenQuotaAbove="90%")
GOING = "2 must be deleted, the oldest first, and each not sooner than 10m after its finish"
USAGE = QuotaUsage("objects", "count/jobs.batch", hard=50, used=47)


@pytest.mark.parametrize(
    ("counted", "line"),
    [
        (None, "not counted; limit 50"),
        (Counted(50, 57), "7th oldest of 57 finished objects of its kind in this namespace; limit 50"),
        (Counted(35, 57), "22nd oldest of 57"),
        (Counted(45, 57), "12th oldest of 57"),
    ],
)
def test_place_in_a_group_is_one_line(counted, line):
    ((name, text),) = limit_lines(facts(DONE, COUNTED, counted=counted))

    assert name == "maxCount"
    assert text.startswith(line)
    assert text.endswith("; limit 50, by policy rule rule-0")


@pytest.mark.parametrize(
    ("pressure", "lines"),
    [
        (None, ["not read; limit 90 %, by policy rule rule-0"]),
        (
            QuotaPressure((USAGE,), older=1, live=47),
            [
                "count/jobs.batch of ResourceQuota objects: 47 of 50, 94 %; limit 90 %, by policy rule rule-0",
                f"{GOING}; 1 that have to be deleted finished earlier",
            ],
        ),
    ],
)
def test_quota_shows_its_usage_and_what_has_to_go(pressure, lines):
    assert list(limit_lines(facts(DONE, QUOTA, pressure=pressure))) == [("quota", line) for line in lines]
