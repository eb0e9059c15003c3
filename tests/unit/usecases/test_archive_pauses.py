"""The pauses between the versions of one object that are stored."""

from datetime import timedelta
from itertools import pairwise

import pytest

from shared.usecases import archive_pauses
from shared.usecases.archive_pauses import PAUSE_MAX, VersionPauses
from tests.builders import NOW


def begin_until(pauses, seconds, *, step=1):
    """Versions that begin if an object is written each `step` seconds for some time."""
    begun = []
    for number, second in enumerate(range(0, seconds, step)):
        if pauses.begin("uid", str(number), now=NOW + timedelta(seconds=second)) is None:
            begun.append(second)
    return begun


def test_each_pause_is_twice_as_long_as_the_one_before_and_at_most_an_hour():
    begun = begin_until(VersionPauses(), 6 * 3600)

    pauses = [later - before for before, later in pairwise(begun)]
    assert pauses == [*(2**count for count in range(1, 12)), 3600, 3600, 3600, 3600]


def test_version_in_its_pause_is_not_counted_and_may_be_stored_at_its_end():
    pauses = VersionPauses()
    pauses.begin("uid", "1", now=NOW)

    early = [pauses.begin("uid", str(number), now=NOW + timedelta(seconds=1)) for number in range(2, 50)]

    assert set(early) == {(NOW + timedelta(seconds=2), 1)}
    assert pauses.begin("uid", "50", now=NOW + timedelta(seconds=2)) is None


def test_another_attempt_on_the_same_version_and_another_object_have_no_pause():
    pauses = VersionPauses()
    begin_until(pauses, 100)
    last = pauses.begin("uid", "again", now=NOW + PAUSE_MAX)

    assert last is None
    assert pauses.begin("uid", "again", now=NOW + PAUSE_MAX) is None
    assert pauses.begin("other", "1", now=NOW) is None


def test_clock_that_was_set_back_makes_no_pause_longer():
    pauses = VersionPauses()
    pauses.begin("uid", "1", now=NOW)

    past = NOW - timedelta(days=1)

    assert pauses.begin("uid", "2", now=past) is None
    assert pauses.begin("uid", "3", now=past) == (past + timedelta(seconds=4), 2)


def test_object_that_was_written_first_is_forgotten_first(monkeypatch):
    monkeypatch.setattr(archive_pauses, "PAUSES_MAX", 2)
    pauses = VersionPauses()
    for uid in ("a", "b", "c"):
        pauses.begin(uid, "1", now=NOW)

    assert [uid for uid in ("c", "b", "a") if pauses.begin(uid, "2", now=NOW)] == ["c", "b"]


@pytest.mark.parametrize("count", [10, 100])
def test_writes_of_twenty_seconds_store_four_versions(count):
    pauses = VersionPauses()
    times = [NOW + timedelta(seconds=20 * number / count) for number in range(count)]

    assert sum(pauses.begin("uid", str(at), now=at) is None for at in times) == 4
