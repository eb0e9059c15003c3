"""Which files have expired, and when a round may delete them."""

from datetime import UTC, datetime, timedelta

import pytest

from shared.core.archive.prune import PruneCount, find_prune_refusal, is_expired, select_days

NOW = datetime(2026, 3, 14, 15, 9, tzinfo=UTC)
DAY = timedelta(days=1)


def test_file_expires_at_keep_and_not_before():
    assert is_expired(NOW - 90 * DAY, 90 * DAY, NOW)
    assert not is_expired(NOW - 90 * DAY + timedelta(seconds=1), 90 * DAY, NOW)
    assert not is_expired(NOW + DAY, 90 * DAY, NOW)


def test_days_after_the_last_that_may_have_expired_files_are_not_needed():
    days = ["2026-03-10", "2026-03-12", "2026-03-13", "2026-03-14"]
    assert select_days(days, 2 * DAY, NOW) == (["2026-03-10", "2026-03-12"], ["2026-03-13", "2026-03-14"])


def test_day_after_now_may_have_expired_files():
    """A wrong finish time: its file was not stored after now, whatever its day says."""
    days = ["2026-03-10", "2026-03-14", "2026-03-15", "9999-01-01"]
    assert select_days(days, 2 * DAY, NOW) == (["2026-03-10", "2026-03-15", "9999-01-01"], ["2026-03-14"])


def test_folder_that_is_no_day_is_an_error():
    with pytest.raises(ValueError, match="yesterday"):
        select_days(["yesterday"], DAY, NOW)


@pytest.mark.parametrize(
    ("count", "everything", "refusal"),
    [
        (PruneCount(0, 0, 0), False, ""),
        (PruneCount(0, 0, 5), False, ""),
        (PruneCount(1, 0, 100), False, ""),
        (PruneCount(50, 0, 50), False, ""),
        (PruneCount(51, 0, 49), False, "51 of 100 files have expired, which is more than 50%"),
        (PruneCount(3, 0, 0), False, "all 3 files have expired"),
        (PruneCount(3, 0, 0), True, ""),
        (PruneCount(51, 0, 49), True, ""),
    ],
)
def test_round_that_would_delete_too_much_is_refused(count, everything, refusal):
    found = find_prune_refusal(count, everything=everything)
    assert found.startswith(refusal)
    assert bool(found) == bool(refusal)
    assert not found or "--all" in found
