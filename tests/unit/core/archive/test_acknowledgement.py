"""The grace counts from the latest instant that is known, and no clock that is far ahead counts."""

from datetime import timedelta

import pytest

from shared.core.archive.copies import CLOCK_DIFFERENCE_MAX, find_acknowledged_at
from tests.builders import LONG_AGO, NOW, ago, later

SECOND = timedelta(seconds=1)


@pytest.mark.parametrize(
    ("stored_at", "known", "expected"),
    [
        (ago(10), {}, ago(10)),
        (ago(10), {"archived_at": ago(20)}, ago(10)),
        (LONG_AGO, {"archived_at": ago(20)}, ago(20)),  # the clock of the archive is behind, or was set back
        (LONG_AGO, {"finished_at": ago(30)}, ago(30)),
        (NOW + CLOCK_DIFFERENCE_MAX, {"archived_at": NOW}, NOW + CLOCK_DIFFERENCE_MAX),
        (ago(10), {"finished_at": later(10**9)}, later(10**9)),  # no clock of the archive: the object is not due either
    ],
)
def test_latest_instant_counts(stored_at, known, expected):
    assert find_acknowledged_at(stored_at, now=NOW, **known) == expected


@pytest.mark.parametrize(
    ("stored_at", "archived_at", "what"),
    [
        (NOW + CLOCK_DIFFERENCE_MAX + SECOND, ago(10), "the time in the archive"),
        (later(10**9), None, "the time in the archive"),
        (ago(10), NOW + CLOCK_DIFFERENCE_MAX + SECOND, "archivedAt"),
    ],
)
def test_instant_that_is_far_ahead_does_not_count(stored_at, archived_at, what):
    with pytest.raises(ValueError, match=f"^{what}: expected an instant until now"):
        find_acknowledged_at(stored_at, archived_at=archived_at, now=NOW)
