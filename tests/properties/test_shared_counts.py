"""Shared counts under any sequence of writes: no deletion is lost or counted twice, and no data break a process."""

import json
from collections import Counter
from collections.abc import Mapping
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from shared.core.objects import ObjectRef
from shared.core.policy.limits import BreakerLimits, RecreationLimits
from shared.safeguards.deletion_counts import WRITES_MAX, DeletionCounts
from shared.safeguards.recreation import Recreations
from shared.safeguards.state_schema import DELETIONS, NAMES
from tests.builders import NOW

LIMITS = BreakerLimits(count=1)
LOOP = RecreationLimits(times=3)
REF = ObjectRef("batch/v1", "Job", "ci", "nightly", "uid")

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text() | st.integers().map(str), inner, max_size=3),
)


class Installation:
    """Three processes that count, and what they share."""

    def __init__(self):
        self.tallies, self.data, self.now = [DeletionCounts(LIMITS) for _ in range(3)], {}, NOW
        self.counted: Counter[int] = Counter()

    def count(self, number):
        self.tallies[number].count("Pod", self.now)
        self.counted[number] += 1

    def take_back(self, number):
        if self.counted[number]:
            self.tallies[number].take_back("Pod", self.now)
            self.counted[number] -= 1

    def write(self, number):
        self.data = self.tallies[number].merge(self.data, self.now)
        self.tallies[number].learn(self.data, self.now, is_written=True)

    def write_unanswered(self, number):
        self.data = self.tallies[number].merge(self.data, self.now)

    def fail(self, number):
        self.tallies[number].merge(self.data, self.now)

    def wait(self, number):
        self.now = min(self.now + timedelta(seconds=5), NOW + LIMITS.window)


STEPS = [
    Installation.count,
    Installation.take_back,
    Installation.write,
    Installation.write_unanswered,
    Installation.fail,
    Installation.wait,
]


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from(STEPS)), max_size=2 * WRITES_MAX))
def test_counts_of_all_processes_are_equal_after_their_writes(played):
    at = Installation()
    for number, step in played:
        step(at, number)
    for number in (0, 1, 2, 0, 1, 2):
        at.write(number)

    assert {deletion_counts.total(at.now) for deletion_counts in at.tallies} == {at.counted.total()}


@given(st.text() | values.map(json.dumps), st.booleans())
def test_counts_continue_after_any_text(text, is_written):
    deletion_counts, names = DeletionCounts(LIMITS), Recreations(LOOP)
    data: Mapping[str, str] = {DELETIONS: text, NAMES: text}
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
    data = names.merge(deletion_counts.merge({}, NOW), NOW)
    reported = json.loads(data[DELETIONS])
    forged: Mapping[str, str] = {
        DELETIONS: json.dumps({**reported, "kinds": {"Pod": value, "Job": {"5": value, **reported["kinds"]["Pod"]}}}),
        NAMES: json.dumps({"a": value, "b": {"c": value, "d": other}}),
    }
    for one in (deletion_counts, names):
        forged = one.merge(forged, NOW)
        one.learn(forged, NOW, is_written=True)
    assert deletion_counts.total(NOW) >= 1
    assert json.loads(forged[NAMES])["Job.batch/ci/nightly"]
