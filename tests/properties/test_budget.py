"""The budget under any sequence of requests: it never exceeds its rates, and every object passes in the end."""

import heapq
import random
from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.core.policy.limits import Rate
from shared.safeguards.budget import SLOT_LATE_SECONDS, Budget
from tests.builders import not_none

rates = st.builds(Rate, st.sampled_from([0.2, 0.7, 1.0, 3.0, 7.0, 10.0, 50.0]), st.sampled_from([1.0, 2.0, 5.0, 20.0]))
arrivals = st.lists(
    st.tuples(st.floats(0, 30), st.sampled_from("abc"), st.floats(0, 1)),  # arrival, namespace, lateness
    min_size=1,
    max_size=80,
)


def allowed(rate, seconds):
    return rate.burst + rate.per_second * seconds + max(1.0, rate.per_second * SLOT_LATE_SECONDS)


def play(budget, coming, *, late):
    """Each object asks until it passes, each retry `late` times its own number later; return the passes in order."""
    queue = [(at, number, namespace) for number, (at, namespace, _) in enumerate(coming)]
    heapq.heapify(queue)
    through: list[tuple[float, str]] = []
    asked: defaultdict[int, int] = defaultdict(int)
    while queue:
        now, number, namespace = heapq.heappop(queue)
        asked[number] += 1
        answer = budget.ask(f"uid-{number}", namespace, now)
        if answer is None:
            through.append((now, namespace))
        else:
            assert answer.at is not None
            heapq.heappush(queue, (answer.at + coming[number][2] * late, number, namespace))
    return through, asked


def assert_held(times, rate):
    for first, start in enumerate(times):
        for last in range(first, len(times)):
            assert last - first + 1 <= allowed(rate, times[last] - start) + 1e-3


@given(st.none() | rates, st.none() | rates, arrivals, st.sampled_from([0.0, 0.4, 3.0, 90.0]))
def test_budget_never_exceeds_its_rates_and_lets_every_object_pass(everywhere, per_namespace, coming, late):
    budget = Budget(everywhere, per_namespace, horizon=1e9)
    through, _ = play(budget, coming, late=late)

    assert len(through) == len(coming)
    if everywhere:
        assert_held([at for at, _ in through], everywhere)
    for namespace in "abc" if per_namespace else "":
        assert_held([at for at, where in through if where == namespace], per_namespace)
    assert len(budget._waiting) == 0


@given(rates, st.none() | rates, arrivals)
def test_budget_lets_an_object_pass_at_its_first_slot(everywhere, per_namespace, coming):
    _, asked = play(Budget(everywhere, per_namespace, horizon=1e9), coming, late=SLOT_LATE_SECONDS / 2)
    assert max(asked.values()) <= 2


@pytest.mark.parametrize("late", [0.0, SLOT_LATE_SECONDS / 2])
@pytest.mark.parametrize("slower", [0.2, 1.0, 3.0])
def test_budget_holds_in_a_crowd_with_two_unrelated_rates(slower, late):
    """A slot takes a token of both buckets at almost the same time; otherwise some slots would be refused."""
    order = random.Random(slower)
    coming = [(order.uniform(0, 5), order.choice("abcdefgh"), order.random()) for _ in range(400)]
    _, asked = play(Budget(Rate(slower * 2.3, 2), Rate(slower, 1), horizon=1e9), coming, late=late)
    assert max(asked.values()) == 2


@given(rates, arrivals)
def test_budget_backlog_drains_at_the_rate(rate, coming):
    through, _ = play(Budget(rate, None, horizon=1e9), coming, late=0.0)
    assert max(at for at, _ in through) <= max(at for at, *_ in coming) + (len(coming) + 1) / rate.per_second + 1


@given(rates, st.lists(st.floats(0, 100), min_size=1, max_size=20))
def test_budget_answer_is_the_same_before_the_slot(rate, instants):
    budget = Budget(rate, None, horizon=1e9)
    crowd = 2 * int(rate.burst) + 200
    answers = [budget.ask(f"uid-{number}", "a", 0.0) for number in range(crowd)]
    last = not_none(not_none(answers[-1]).at)
    for now in sorted(instants):
        if now < last - 1:
            assert not_none(budget.ask(f"uid-{crowd - 1}", "a", now)).at == last


@pytest.mark.parametrize("waiting_max", [3, 10])
def test_budget_with_few_slots_lets_every_object_pass_by_sweeps(waiting_max):
    budget = Budget(Rate(1.0), None, horizon=60, waiting_max=waiting_max)
    left = [f"uid-{number}" for number in range(40)]
    for now in range(400):
        left = [uid for uid in left if budget.ask(uid, "a", float(now)) is not None]
        assert len(budget._waiting) <= waiting_max
    assert left == []
