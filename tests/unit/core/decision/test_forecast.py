"""The hours of a forecast."""

from datetime import timedelta

import pytest

from shared.core.decision.forecast import FORECAST_HOURS, Forecast, find_window
from tests.builders import NOW

LAST = FORECAST_HOURS + 1


@pytest.mark.parametrize(
    ("after", "hours", "window"),
    [
        (timedelta(days=-400), 1, 0),
        (timedelta(0), 1, 0),
        (timedelta(microseconds=1), 1, 1),
        (timedelta(hours=1), 1, 1),
        (timedelta(hours=1, microseconds=1), 1, 2),
        (timedelta(hours=24), 1, 24),
        (timedelta(hours=24, seconds=1), 1, LAST),
        (timedelta(days=900_000), 1, LAST),
        (timedelta(hours=3), 3, 1),
        (timedelta(hours=24), 3, 8),
        (timedelta(hours=25), 3, 9),
    ],
)
def test_window_of_an_instant(after, hours, window):
    assert find_window(NOW + after, NOW, hours=hours) == window


def test_counts_are_apart_for_each_group_and_kind():
    forecast = Forecast()
    forecast.add("batch", "Job", NOW, NOW)
    forecast.add("batch", "Job", NOW + timedelta(minutes=90), NOW)
    forecast.add("example.com", "Job", NOW + timedelta(days=3), NOW)
    assert forecast.counts["batch", "Job"] == [1, 0, 1] + [0] * (LAST - 2)
    assert forecast.counts["example.com", "Job"] == [0] * LAST + [1]

    forecast.forget(["batch/v1/Job", "v1/Pod"])  # of the second one, nothing was counted
    assert set(forecast.counts) == {("example.com", "Job")}
