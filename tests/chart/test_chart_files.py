"""The committed chart equals the generated one, and its conditions are short and right.

tests/docs compares digests instead: in a moment, and without kubectl.
"""

import random

import pytest

from tests.chart.conditions import expression, holds, minimal
from tests.chart.files import BY_HAND, CHART, render


@pytest.mark.verify
@pytest.mark.timeout(600)  # it builds each variant of each object
def test_chart_is_what_make_chart_writes():
    made = render()
    committed = {str(path.relative_to(CHART)): path.read_text() for path in CHART.rglob("*") if path.is_file()}
    stale = {name for name in made.keys() | committed.keys() - BY_HAND if made.get(name) != committed.get(name)}
    assert not stale, "knative/chart is stale: run make chart"


# How conditions become short


@pytest.mark.parametrize(
    ("wanted", "refused", "text"),
    [
        ([{"a"}, {"a", "b"}], [set(), {"b"}], 'has "a" $on'),
        ([set()], [{"a"}], 'not (has "a" $on)'),
        ([{"a", "b"}], [set(), {"a"}, {"b"}], 'and (has "a" $on) (has "b" $on)'),
        ([{"a"}, {"b"}, {"a", "b"}], [set()], 'or (has "a" $on) (has "b" $on)'),
        ([{"a"}], [set()], 'has "a" $on'),
    ],
)
def test_condition_is_the_shortest_that_separates(wanted, refused, text):
    assert expression(minimal(map(frozenset, wanted), map(frozenset, refused))) == text


def test_condition_holds_in_all_wanted_combinations_and_in_no_refused_one():
    every = [frozenset(name for bit, name in enumerate("abcde") if number >> bit & 1) for number in range(32)]
    for seed in range(50):
        wanted = [one for one in every if random.Random(f"{seed} {sorted(one)}").random() < 0.4]
        terms = minimal(wanted, set(every) - set(wanted))
        assert [one for one in every if any(holds(term, one) for term in terms)] == wanted
