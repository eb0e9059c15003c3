"""Deletion counts: each process writes its own key, a repeated write changes nothing, and all keys stay small."""

import json
from collections.abc import Mapping
from datetime import timedelta

import pytest

from shared.core.policy.limits import BreakerLimits
from shared.safeguards.deletion_counts import (
    COUNTED_KINDS_MAX,
    KEYS_MAX,
    LENGTH_MAX,
    OTHER_KINDS,
    OTHER_LIMITS_LENGTH_MAX,
    PART_COUNT_MAX,
    PARTS,
    DeletionCounts,
)
from shared.safeguards.state_schema import DELETIONS, LAST_TRIP, Trip, with_trip, without_trip
from tests.builders import NOW, later
from tests.counts import counting, counts, keys_of

LIMITS = BreakerLimits(count=3, window=timedelta(minutes=10))
LATER_LIMITS = BreakerLimits(count=4, window=timedelta(minutes=20))
WINDOW = LIMITS.window.total_seconds() * (1 + 1 / PARTS)  # with the last part


def write(process, data, now=NOW):
    """The data after a write that was answered."""
    data = process.merge(data, now)
    process.learn(data, now, is_written=True)
    return data


def read(data, now=NOW, limits=LIMITS):
    """The deletions that a process without its own sees."""
    process = DeletionCounts(limits)
    process.learn(data, now, is_written=False)
    return process.total(now)


def ended_of(data):
    """The key of processes that have ended."""
    (name,) = [name for name in keys_of(data) if name.endswith(".ended")]
    return name


def many(data, number, *, now=NOW, limits=LIMITS):
    """The data after so many processes have come, deleted an object each, and ended."""
    for _ in range(number):
        data = counting(1, limits, now=now).merge(data, now)
    return data


# Writes


def test_count_is_written_under_a_key_of_its_process():
    one, other = counting(2, LIMITS), counting(3, LIMITS)
    data = write(other, write(one, {"another": "text"}))

    assert counts(data) == {"Pod": 5}
    assert len(keys_of(data)) == 2
    assert all(set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789.") for name in keys_of(data))
    assert data["another"] == "text"
    one.learn(data, NOW, is_written=False)
    assert (one.total(NOW), other.total(NOW), read(data)) == (5, 5, 5)


@pytest.mark.parametrize("times", [1, 5])
def test_count_of_a_write_that_is_repeated_is_exact(times):
    process = counting(2, LIMITS)
    data: Mapping[str, str] = {}
    for _ in range(times):
        data = process.merge(data, NOW)  # written, and not answered
    process.count("Pod", NOW)
    for _ in range(times):
        data = process.merge(data, NOW)
    process.learn(data, NOW, is_written=False)

    assert (read(data), process.total(NOW)) == (3, 3)
    assert not process.has_unwritten
    assert process.merge(data, NOW) == data


def test_count_of_a_write_that_was_lost_is_exact():
    process = counting(2, LIMITS)
    process.merge({}, NOW)
    process.learn({}, NOW, is_written=False)

    assert process.has_unwritten
    assert read(write(process, {})) == 2


def test_count_during_a_write_is_written_next():
    process = counting(1, LIMITS)
    process.merge({}, NOW)
    process.count("Pod", NOW)
    data = process.merge({}, NOW)  # after a conflict it is asked again
    process.count("Pod", NOW)
    process.learn(data, NOW, is_written=True)

    assert process.total(NOW) == 3
    assert read(process.merge(data, NOW)) == 3


def test_counts_that_are_taken_back_are_not_counted_as_moved():
    data: Mapping[str, str] = {}
    for _ in range(KEYS_MAX + 2):  # so many that the oldest are moved to the key of ended processes
        data = write(counting(1, LIMITS), data)
    process = DeletionCounts(LIMITS)
    for _ in range(3):
        process.count("Job.batch", NOW)
        data = write(process, data)
        process.take_back("Job.batch", NOW)
        data = write(process, data)

    assert process.of("Job.batch", NOW) == 0
    assert process.total(NOW) == read(data) == KEYS_MAX + 2


def test_count_of_a_process_remains_after_its_end_under_a_new_id():
    data = write(counting(2, LIMITS), {})
    restarted = DeletionCounts(LIMITS)
    restarted.learn(data, NOW, is_written=False)
    restarted.count("Pod", NOW)

    assert restarted.total(NOW) == read(write(restarted, data)) == 3


def test_count_that_is_taken_back_is_subtracted():
    process = counting(2, LIMITS)
    data = write(process, {})

    process.take_back("Pod", later(30))  # three parts after it was counted
    data = write(process, data, later(30))
    assert (process.of("Pod", later(30)), read(data, later(30))) == (1, 1)

    process.take_back("Job.batch", later(30))
    assert process.total(later(30)) == 1
    process.take_back("Pod", later(30))
    assert keys_of(write(process, data, later(30))) == []


def test_count_of_an_idle_process_is_not_written():
    process = counting(1, LIMITS)
    process.take_back("Pod", NOW)
    assert not process.has_unwritten


# Time


def test_count_ends_with_the_window():
    process = counting(7, LIMITS)
    data = write(process, {})

    assert read(data, later(LIMITS.window.total_seconds() - 1)) == 7
    assert process.total(later(WINDOW)) == read(data, later(WINDOW)) == 0
    assert not process.has_unwritten


def test_count_that_ends_during_a_write_does_not_reduce_others():
    process = counting(7, LIMITS)
    data = process.merge({}, NOW)
    process.count("Pod", later(WINDOW))
    process.learn(data, later(WINDOW), is_written=True)

    assert process.total(later(WINDOW)) == 1


def test_key_that_has_ended_is_removed_by_the_next_process_that_writes():
    data = many({}, 5)
    data = many(data, 3, limits=LATER_LIMITS)  # they remain for a longer window
    assert len(keys_of(write(counting(1, LIMITS, now=later(WINDOW)), data, later(WINDOW)))) == 4
    assert len(keys_of(write(counting(1, LIMITS, now=later(3_000)), data, later(3_000)))) == 1


@pytest.mark.parametrize(("ahead", "is_counted"), [(30, True), (3_600, False), (1e9, False)])
def test_count_far_in_the_future_is_ignored(ahead, is_counted):
    data = counting(3, LIMITS, now=later(ahead)).merge({}, later(ahead))
    assert read(data) == 3 * is_counted


def test_process_with_a_wrong_clock_takes_no_count_away_from_a_process():
    one, ahead = counting(2, LIMITS), counting(1, LIMITS, now=later(3_600))
    data = write(ahead, write(one, {}), later(3_600))
    one.learn(data, NOW, is_written=False)

    assert one.total(NOW) == read(write(one, data)) == 2


# Other limits


def test_count_for_other_limits_is_ignored_and_stays():
    data = write(counting(2, LATER_LIMITS), write(counting(1, LIMITS), {}))
    assert (read(data), read(data, limits=LATER_LIMITS)) == (1, 2)


def test_keys_for_other_limits_are_bounded():
    legal = many({}, 2 * KEYS_MAX, limits=LATER_LIMITS)
    assert read(write(counting(1, LIMITS), legal), limits=LATER_LIMITS) == 2 * KEYS_MAX

    until = int(later(60).timestamp())
    forged = {f"{DELETIONS}other.{number}": json.dumps({"until": until, "x": "x" * 9_000}) for number in range(99)}
    forged |= {f"{DELETIONS}{number}": json.dumps({"until": number}) for number in (1, "5", None, 1.5)}
    data = write(counting(1, LIMITS), forged)
    assert OTHER_LIMITS_LENGTH_MAX - 10_000 < sum(map(len, data.values())) < OTHER_LIMITS_LENGTH_MAX


# Released


def tripped(data):
    return with_trip(data, Trip(NOW, "too many"))


def test_trip_removes_the_counts_of_all_processes():
    data = tripped(many({}, 3))
    assert (keys_of(data), data[LAST_TRIP]) == ([], "2026-03-14T15:09:26Z")


@pytest.mark.parametrize("is_seen", [True, False])
@pytest.mark.parametrize("release", [without_trip, lambda data: {LAST_TRIP: data[LAST_TRIP]}])
def test_count_before_a_trip_does_not_return_after_the_release(is_seen, release):
    process, unwritten = counting(2, LIMITS), counting(2, LIMITS)
    data = write(process, {})
    unwritten.learn(data, NOW, is_written=False)
    data = tripped(data)
    for one in (process, unwritten) if is_seen else ():
        one.learn(data, NOW, is_written=False)
        assert one.merge(data, NOW) == data
    data = release(data)
    for one in (process, unwritten):
        one.learn(data, NOW, is_written=False)
        assert one.total(NOW) == 0
    for one in (process, unwritten):
        one.count("Pod", NOW)
        data = write(one, data)
    assert read(data) == 2


def test_count_before_a_trip_by_hand_does_not_return_after_the_release():
    process = counting(2, LIMITS)
    data = without_trip({**write(process, {}), "breaker": "stop!" * 99})
    assert len(data[LAST_TRIP]) < 99
    process.learn(data, NOW, is_written=False)
    assert process.total(NOW) == 0


def test_count_starts_from_zero_after_a_breaker_that_a_user_opened_and_closed():
    process = counting(2, LIMITS)
    data = write(process, {})
    process.learn({**data, "breaker": "stop"}, NOW, is_written=False)
    process.learn(data, NOW, is_written=False)

    assert process.total(NOW) == 0
    assert keys_of(write(process, data)) == []


def test_count_is_not_written_while_the_breaker_is_open():
    data = {"breaker": "stop"}
    assert counting(2, LIMITS).merge(data, NOW) == data


def test_release_of_a_closed_breaker_changes_nothing():
    data = {**many({}, 2), LAST_TRIP: "2026-01-02T03:04:05Z"}
    assert without_trip(data) == data


# Edited by a user


def test_count_survives_a_deleted_configmap():
    process = counting(2, LIMITS)
    data = write(process, {LAST_TRIP: "2026-01-02T03:04:05Z"})
    process.learn({}, NOW, is_written=False)

    assert process.total(NOW) == 2
    assert counts(data) == counts(write(process, {})) == {"Pod": 2}


@pytest.mark.parametrize("text", ["", "{}", '{"kinds": {"Pod": {"29445387": 999}}}', "[" * 5_000])
def test_key_that_a_user_edited_is_written_again(text):
    process = counting(2, LIMITS)
    data = write(process, {})
    (name,) = keys_of(data)
    process.learn({name: text}, NOW, is_written=False)

    assert process.total(NOW) == 2
    assert process.merge({name: text}, NOW) == data


@pytest.mark.parametrize("number", [-5, 0, 1.5, True, "9", None, PART_COUNT_MAX + 1, 10**400, {}])
def test_count_that_is_invalid_is_ignored(number):
    data = write(counting(1, LIMITS), {})
    ((name, text),) = data.items()
    ((part, _),) = json.loads(text)["kinds"]["Pod"].items()
    kinds = {"Job.batch": {part: number, "x": 5, "9" * 9_999: 5}, "Pod": number}
    text = json.dumps({"until": number, "kinds": kinds}) if number != 10**400 else f'{{"kinds": {"9" * 9_999}}}'

    assert read({name: text}) == 0
    assert counts(write(counting(1, LIMITS), {name: text})) == {"Pod": 1}


# Bounds


def test_counts_of_many_processes_move_to_one_key():
    data = many({}, 3 * KEYS_MAX)
    assert len(keys_of(data)) <= KEYS_MAX + 2
    assert read(data) == 3 * KEYS_MAX
    data = write(counting(1, LIMITS, now=later(WINDOW)), data, later(WINDOW))
    assert len(keys_of(data)) == 1


def test_count_that_another_process_moved_is_counted_once():
    process = counting(5, LIMITS)
    data = write(process, {})
    (name,) = keys_of(data)
    process.count("Pod", later(20))
    data = many(data, KEYS_MAX + 1, now=later(10))
    assert name not in data
    assert json.loads(data[ended_of(data)])["kinds"]

    process.learn(data, later(20), is_written=False)
    assert process.total(later(20)) == KEYS_MAX + 7
    data = write(process, data, later(20))
    assert process.total(later(20)) == read(data, later(20)) == KEYS_MAX + 7
    assert sum(json.loads(data[name])["kinds"]["Pod"].values()) == 1

    data = {}
    process.learn(data, later(20), is_written=False)
    assert process.total(later(20)) == 6  # its own


def test_move_that_is_repeated_counts_once():
    data = many({}, KEYS_MAX + 1)
    process = counting(1, LIMITS)
    moved = process.merge(data, NOW)
    assert read(moved) == read(process.merge(moved, NOW)) == KEYS_MAX + 2


def test_key_with_many_kinds_is_bounded_and_its_total_is_exact():
    process = counting(2, LIMITS)
    for number in range(COUNTED_KINDS_MAX + 10):
        process.count(f"Kind-{number}.{'g' * 200}", NOW)
    data = write(process, {})
    (text,) = data.values()

    assert len(json.loads(text)["kinds"]) == COUNTED_KINDS_MAX + 1
    assert counts(data)[OTHER_KINDS] == 11
    assert read(data) == COUNTED_KINDS_MAX + 12


def test_state_of_any_size_is_reduced():
    own = counting(1, LIMITS)
    ((name, text),) = own.merge({}, NOW).items()
    ((part, _),) = json.loads(text)["kinds"]["Pod"].items()
    parts = {str(int(part) - number): PART_COUNT_MAX for number in range(1_000)}
    kinds = {f"Kind-{number}.{'g' * 200}": parts for number in range(COUNTED_KINDS_MAX + 10)}
    forged = json.dumps({"until": 10**400, "kinds": kinds})
    prefix, _, _ = name.rpartition(".")
    data = own.merge({f"{prefix}.{number}": forged for number in range(3)}, NOW)

    assert sum(map(len, data.values())) < LENGTH_MAX + 200_000
    kinds = json.loads(data[ended_of(data)])["kinds"]
    assert len(kinds) == COUNTED_KINDS_MAX + 1
    assert max(map(len, kinds.values())) <= PARTS + 1
    assert max(max(parts.values()) for parts in kinds.values()) == PART_COUNT_MAX
