"""The accepted plan in the shared state, read totally, and the hashes of rules: others after each change of a rule."""

import json

import pytest

from shared.adapters.config.policy_file import parse_policy
from shared.safeguards.state_schema import (
    ACCEPTED_PLAN,
    AcceptedPlan,
    BrakeStop,
    hash_unused_rules,
    parse_accepted_plan,
    parse_state,
    with_accepted_plan,
    with_stop,
    without_stop,
)
from tests.builders import NOW, shipped_kinds

PLAN = AcceptedPlan(NOW, "ann", frozenset(["0f3c", "9a1b"]))
FIRST = {"name": "rotated", "match": {"kinds": ["configmaps"]}, "unused": {"ttl": "1d"}}
SECOND = {"name": "old", "match": {"kinds": ["secrets"]}, "unused": {"ttl": "7d"}}


def test_accepted_plan_is_read_as_it_was_written_and_replaces_an_earlier_one():
    data = with_accepted_plan(with_accepted_plan({}, AcceptedPlan(NOW, "bob", frozenset(["x"]))), PLAN)
    assert parse_accepted_plan(data) == PLAN
    assert str(PLAN).startswith("on 2026-")


def test_brake_and_accepted_plan_leave_each_other():
    stop = BrakeStop(NOW, "maintenance", "me")
    data = with_accepted_plan(with_stop({}, stop), PLAN)
    assert parse_state(data).stop == stop
    assert parse_accepted_plan(without_stop(data)) == PLAN


@pytest.mark.parametrize("text", ["", "yes", "[]", "{}", '{"rules":["a"]}', '{"at":"2026-01-02T03:04:05Z","rules":1}'])
def test_value_that_cannot_be_read_counts_as_none(text):
    assert parse_accepted_plan({ACCEPTED_PLAN: text}) is None


def hashes(*rules, **policy):
    text = json.dumps({"rules": [*rules]} | policy)
    return hash_unused_rules(parse_policy(text, shipped_kinds(), name="policy.yaml"))


def test_equal_rules_have_equal_hashes():
    spelled = FIRST | {"unused": {"ttl": "24h", "audit": False}}
    assert hashes(FIRST, SECOND) == hashes(spelled, SECOND)
    assert hashes(FIRST, SECOND).keys() == {"rotated", "old"}


@pytest.mark.parametrize(
    "change",
    [
        {"unused": {"ttl": "2d"}},
        {"unused": {"ttl": "1d", "audit": True}},
        {"match": {"kinds": ["configmaps", "secrets"]}},
        {"match": {"kinds": ["configmaps"], "namespaces": {"names": ["ci"]}}},
        {"match": {"kinds": ["configmaps"], "labels": {"matchLabels": {"a": "b"}}}},
        {"when": "object.metadata.name.startsWith('a')"},
        {"archive": {"to": "main"}},
    ],
    ids=str,
)
def test_change_of_a_rule_changes_its_hash_and_that_of_later_rules(change):
    archives = {"archives": {"main": {"url": "file:///archive"}}}
    before, after = hashes(FIRST, SECOND, **archives), hashes(FIRST | change, SECOND, **archives)
    assert before["rotated"] != after["rotated"]
    assert before["old"] != after["old"]


def test_change_of_a_later_rule_leaves_the_hash_of_an_earlier_one():
    assert hashes(FIRST)["rotated"] == hashes(FIRST, SECOND)["rotated"]


def test_other_expressions_have_other_hashes():
    one, other = (FIRST | {"when": f"object.metadata.name.startsWith('{name}')"} for name in "ab")
    assert hashes(one) != hashes(other)


def test_rule_without_unused_has_no_hash_and_changes_none():
    jobs = {"name": "jobs", "match": {"kinds": ["jobs"]}, "ttl": "1h"}
    assert hashes(jobs, FIRST) == hashes(FIRST)
