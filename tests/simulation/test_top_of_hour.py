"""The model of the top of the hour is right on few timers, and the page about scale has its numbers."""

import pytest

from tests.builders import ROOT
from tests.simulation.top_of_hour import HOUR_SECONDS, Load, Outcome, simulate, simulate_each, table

pytestmark = pytest.mark.timeout(480)  # a machine that does other work takes several times as long

FEW = Load(timers=60_000, hours=1)
CLOSE = 0.1
"""Counts by second give each share the same part of a second; the places give each kind the same part, too."""


@pytest.mark.parametrize("per_second", [14, 20], ids=["never-empty", "empty-after-half-an-hour"])
def test_counts_by_second_agree_with_each_timer_and_the_real_places(per_second):
    due = list(FEW.due())
    counted, each = simulate(due, per_second), simulate_each(due, per_second)
    assert counted.timers == sum(counted.late.values()) == each.total() == FEW.timers
    held = Outcome(each.total(), each, (0, 0), 0, ())
    for percent in (50, 90, 99, 100):
        assert counted.percentile(percent) == pytest.approx(held.percentile(percent), rel=CLOSE)


def test_load_has_each_timer_once():
    due = list(Load(timers=10_007, hours=2, ttl_spread_seconds=600).due())
    assert sum(sum(found.values()) for found in due) == 10_007
    assert len(due) == 2 * HOUR_SECONDS


def test_total_time_follows_from_the_limit():
    """A queue that is never empty takes its timers divided by the limit."""
    load = Load(timers=100_000, hours=1)
    assert simulate(load.due(), 10).clear == pytest.approx(100_000 / 10, abs=2)


def test_page_about_scale_has_the_numbers_of_the_model():
    assert table() in (ROOT / "docs/explanation/timers-at-scale.md").read_text()
