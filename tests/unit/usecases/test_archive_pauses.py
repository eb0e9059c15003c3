"""The pauses between the versions of one object that are stored."""

from datetime import timedelta
from itertools import pairwise

import pytest

from shared.usecases.archives import pauses as module
from shared.usecases.archives.pauses import PAUSE_MAX, REMEMBERED, VersionPauses
from tests.builders import NOW


def begin(pauses, seconds, *, uid="uid", version=None, finished_at=NOW):
    """Begin a version some seconds after the finish."""
    now = NOW + timedelta(seconds=seconds)
    return pauses.begin(uid, version or f"{uid} {seconds}", finished_at=finished_at, now=now)


def begun_within(pauses, seconds, *, step=1.0, **options):
    """When versions begin, if an object is written each `step` seconds."""
    times = [number * step for number in range(int(seconds / step))]
    return [at for at in times if begin(pauses, at, **options) is None]


@pytest.mark.parametrize("finished_at", [NOW, None])
def test_each_pause_is_twice_as_long_as_the_one_before_and_at_most_ten_minutes(finished_at):
    begun = begun_within(VersionPauses(), 3600, finished_at=finished_at)

    pauses = [after - before for before, after in pairwise(begun)]
    assert pauses == [*(2**count for count in range(1, 10)), *[600] * 4]


def test_hundred_writes_in_twenty_seconds_store_four_versions():
    assert len(begun_within(VersionPauses(), 20, step=0.2)) == 4


def test_process_that_starts_makes_no_shorter_pauses():
    """It stores one version at once. A client that writes each second has as many stored as without the start."""
    assert begun_within(VersionPauses(), 400)[-1] < 300
    pauses = VersionPauses()

    assert begin(pauses, 300) is None
    assert begin(pauses, 599).until == NOW + timedelta(seconds=600)


def test_version_in_its_pause_is_not_counted_and_may_be_stored_at_its_end():
    pauses = VersionPauses()
    begin(pauses, 0)

    assert {begin(pauses, 1, version=f"{number}") for number in range(50)} == {(NOW + timedelta(seconds=2), 1)}
    assert begin(pauses, 2) is None


def test_another_attempt_on_the_same_version_and_another_object_have_no_pause():
    pauses = VersionPauses()
    begun_within(pauses, 100)
    begin(pauses, 200, version="again")

    assert begin(pauses, 201, version="again") is None
    assert begin(pauses, 201, version="next") is not None
    assert begin(pauses, 201, uid="other") is None


def test_clock_that_was_set_back_makes_no_pause_longer():
    pauses = VersionPauses()
    begin(pauses, 0)

    assert begin(pauses, -3600) is None
    assert begin(pauses, -3599) == (NOW - timedelta(seconds=3596), 2)


def test_object_that_was_stored_first_is_forgotten_first(monkeypatch):
    monkeypatch.setattr(module, "PAUSES_MAX", 2)
    pauses = VersionPauses()
    for uid in ("a", "b", "c"):
        begin(pauses, 0, uid=uid)

    assert [uid for uid in ("c", "b", "a") if begin(pauses, 1, uid=uid)] == ["c", "b"]


def test_object_that_was_not_written_for_an_hour_is_forgotten():
    pauses = VersionPauses()
    begun_within(pauses, 100, finished_at=None)
    end = (PAUSE_MAX + REMEMBERED).total_seconds()
    begin(pauses, 100 + end, uid="other")

    begin(pauses, 101 + end, finished_at=None)
    assert begin(pauses, 102 + end, finished_at=None) == (NOW + timedelta(seconds=103 + end), 1)
