"""What processes count together, whoever writes when: nothing is lost, nothing counts twice, nothing can break it."""

import json
from collections import Counter
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from shared.core.objects import ObjectRef
from shared.core.policy.limits import BreakerLimits, RecreationLimits
from shared.safeguards.deletion_counts import WRITES_MAX, Tally
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
        self.tallies, self.data, self.now = [Tally(LIMITS) for _ in range(3)], {}, NOW
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
def test_all_know_of_all_deletions_once_they_have_written(played):
    at = Installation()
    for number, step in played:
        step(at, number)
    for number in (0, 1, 2, 0, 1, 2):
        at.write(number)

    assert {tally.total(at.now) for tally in at.tallies} == {at.counted.total()}


@given(st.text() | values.map(json.dumps), st.booleans())
def test_whatever_stands_there_processes_go_on(text, is_written):
    tally, names = Tally(LIMITS), Recreations(LOOP)
    data = {DELETIONS: text, NAMES: text}
    for one in (tally, names):
        one.learn(data, NOW, is_written=is_written)
    tally.count("Pod", NOW)
    names.deleted(REF, NOW)
    for one in (tally, names):
        data = one.merge(data, NOW)
        one.learn(data, NOW, is_written=True)
    assert tally.total(NOW) == 1
    assert not names.is_loop(REF, NOW)


@given(values, values)
def test_whatever_stands_in_its_shape_processes_go_on(value, other):
    tally, names = Tally(LIMITS), Recreations(LOOP)
    tally.count("Pod", NOW)
    names.deleted(REF, NOW)
    data = names.merge(tally.merge({}, NOW), NOW)
    told = json.loads(data[DELETIONS])
    forged = {
        DELETIONS: json.dumps({**told, "kinds": {"Pod": value, "Job": {"5": value, **told["kinds"]["Pod"]}}}),
        NAMES: json.dumps({"a": value, "b": {"c": value, "d": other}}),
    }
    for one in (tally, names):
        forged = one.merge(forged, NOW)
        one.learn(forged, NOW, is_written=True)
    assert tally.total(NOW) >= 1
    assert json.loads(forged[NAMES])["Job.batch/ci/nightly"]
