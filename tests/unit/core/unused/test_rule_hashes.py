"""The hashes of rules with `unused`: equal for equal rules, and other ones after each change of what they delete."""

import json

import pytest

from shared.adapters.config.policy_file import parse_policy
from shared.core.unused.rule_hashes import hash_unused_rules
from tests.builders import shipped_kinds

FIRST = {"name": "rotated", "match": {"kinds": ["configmaps"]}, "unused": {"ttl": "1d"}}
SECOND = {"name": "old", "match": {"kinds": ["secrets"]}, "unused": {"ttl": "7d"}}


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
