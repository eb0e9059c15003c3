"""Shared counts under any sequence of writes: no deletion is lost or counted twice, and no data break a process."""

import json
from collections import Counter
from collections.abc import Mapping
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.core.policy.limits import BreakerLimits, RecreationLimits
from shared.core.values.objects import ObjectRef
from shared.safeguards import deletion_counts as module
from shared.safeguards.deletion_counts import DeletionCounts
from shared.safeguards.denials import Recreations
from shared.safeguards.state_schema import DELETIONS, LAST_TRIP, NAMES, Trip, with_trip, without_trip
from tests.builders import NOW
from tests.counts import counting, keys_of

LIMITS = BreakerLimits(count=1)
LOOP = RecreationLimits(times=3)
REF = ObjectRef("batch/v1", "Job", "ci", "nightly", "uid")

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text() | st.integers().map(str), inner, max_size=3),
)


class Installation:
    """Processes that count, and what they share."""

    def __init__(self):
        self.processes, self.now = [DeletionCounts(LIMITS) for _ in range(3)], NOW
        self.data: Mapping[str, str] = {}
        self.counted: Counter[DeletionCounts] = Counter()
        self.released: set[int] = set()
        for process in self.processes:
            process.learn(self.data, self.now, is_written=False)

    def count(self, number):
        if number in self.released:  # a process reads the state before it deletes
            self.read(number)
            self.released.discard(number)
        self.processes[number].count("Pod", self.now)
        self.counted[self.processes[number]] += 1

    def take_back(self, number):
        if self.counted[self.processes[number]]:
            self.processes[number].take_back("Pod", self.now)
            self.counted[self.processes[number]] -= 1

    def write(self, number):
        self.data = self.processes[number].merge(self.data, self.now)
        self.processes[number].learn(self.data, self.now, is_written=True)

    def read(self, number):
        self.processes[number].learn(self.data, self.now, is_written=False)

    def write_unanswered(self, number):
        self.data = self.processes[number].merge(self.data, self.now)

    def fail(self, number):
        self.processes[number].merge(self.data, self.now)

    def restart(self, number):
        self.write(number)
        self.processes[number] = DeletionCounts(LIMITS)
        self.read(number)

    def release(self, number):
        self.data = without_trip(with_trip(self.data, Trip(self.now, "too many")))
        self.counted.clear()
        self.released = {0, 1, 2}
        self.now += timedelta(seconds=1)  # the next trip has another instant

    def take_away(self, number):
        self.data = {LAST_TRIP: self.data[LAST_TRIP]} if LAST_TRIP in self.data else {}
        for process in set(self.counted) - set(self.processes):
            del self.counted[process]

    def wait(self, number):
        self.now = min(self.now + timedelta(seconds=5), NOW + LIMITS.window)


STEPS = [
    Installation.count,
    Installation.take_back,
    Installation.write,
    Installation.read,
    Installation.write_unanswered,
    Installation.fail,
    Installation.restart,
    Installation.wait,
]
PLAYS = {
    "any": [*STEPS, Installation.release, Installation.take_away],
    # If a key may be moved at any time, a process may take back what was moved, or not know what it wrote.
    "moved": [one for one in STEPS if one not in (Installation.take_back, Installation.write_unanswered)],
}


def play(steps):
    return st.lists(st.tuples(st.integers(0, 2), st.sampled_from(steps)), max_size=30)


def all_write(at):
    for number in (0, 1, 2, 0, 1, 2):
        at.write(number)
    return {process.total(at.now) for process in at.processes}


@given(play(PLAYS["any"]))
def test_counts_of_all_processes_are_equal_after_their_writes(played):
    at = Installation()
    for number, step in played:
        step(at, number)
    for number in range(3):
        at.read(number)
    assert all_write(at) == {at.counted.total()}


@given(play(PLAYS["moved"]), st.integers(0, 2))
def test_counts_are_equal_if_keys_are_moved(played, keys_max):
    at = Installation()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(module, "KEYS_MAX", keys_max)
        for number, step in played:
            step(at, number)
        assert all_write(at) == {at.counted.total()}


@given(play(STEPS), st.integers(0, 2))
def test_counts_are_never_too_low_if_keys_are_moved(played, keys_max):
    at = Installation()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(module, "KEYS_MAX", keys_max)
        for number, step in played:
            step(at, number)
        assert min(all_write(at)) >= at.counted.total()


@given(st.text() | values.map(json.dumps), st.booleans())
def test_counts_continue_after_any_text(text, is_written):
    deletion_counts, names = DeletionCounts(LIMITS), Recreations(LOOP)
    (key,) = keys_of(counting(1, LIMITS).merge({}, NOW))
    data: Mapping[str, str] = {key: text, f"{DELETIONS}{text}": text, LAST_TRIP: text, NAMES: text}
    for one in (deletion_counts, names):
        one.learn(data, NOW, is_written=is_written)
    deletion_counts.count("Pod", NOW)
    names.deleted(REF, NOW)
    for one in (deletion_counts, names):
        data = one.merge(data, NOW)
        one.learn(data, NOW, is_written=True)
    assert deletion_counts.total(NOW) == 1
    assert not names.is_loop(REF, NOW)


@given(values, values)
def test_counts_continue_after_any_value_of_the_right_shape(value, other):
    deletion_counts, names = DeletionCounts(LIMITS), Recreations(LOOP)
    deletion_counts.count("Pod", NOW)
    names.deleted(REF, NOW)
    data = counting(1, LIMITS).merge({}, NOW)
    (key,) = keys_of(data)
    parts = json.loads(data[key])["kinds"]["Pod"]
    forged: Mapping[str, str] = {
        key: json.dumps({"until": value, "kinds": {"Pod": value, "Job": {"5": value, **parts}}}),
        f"{DELETIONS}other": json.dumps({"until": value, "kinds": other}),
        NAMES: json.dumps({"a": value, "b": {"c": value, "d": other}}),
    }
    for one in (deletion_counts, names):
        forged = one.merge(forged, NOW)
        one.learn(forged, NOW, is_written=True)
    assert deletion_counts.total(NOW) >= 1
    assert json.loads(forged[NAMES])["Job.batch/ci/nightly"]
