"""The one place of keepLast: groups, places, ranks, and the objects that fall out."""

from dataclasses import replace

import pytest

from shared.core.decision.decide import Context, Reason, decide
from shared.core.decision.finish import Finish
from shared.core.decision.namespaces import plain_namespace
from shared.core.decision.ranks import RankGroups, find_ranked, is_kept
from shared.core.kinds.rule import Outcome
from shared.core.policy.matching import OUTCOMES
from shared.core.values.objects import ref_of
from tests.builders import JOB, NOW, ago, having, job, not_none
from tests.unit.core.ttl.test_precedence import rules


def ranked_of(obj, **fields):
    """How a policy of one rule counts an object."""
    decision = decide(obj, JOB, NOW, Context(rules(ttl="0s", **fields), plain_namespace("ci")))
    return find_ranked(ref_of(obj), decision.reason, decision.facts)


def numbered(number, **options):
    return job(name=f"job-{number}", uid=f"uid-{number}", complete=ago(100 - number), **options)


def groups_of(*ranked):
    groups = RankGroups()
    for one in ranked:
        groups.add(one)
    groups.sort()
    return groups


@pytest.mark.parametrize(("newer", "kept", "is_one"), [(None, 2, True), (1, 2, True), (2, 2, False), (0, None, False)])
def test_rank_keeps_an_object_with_fewer_newer_ones_than_the_rule_keeps(newer, kept, is_one):
    assert is_kept(newer, kept) is is_one


def test_ranked_object_has_its_group_its_place_and_its_due_time():
    ranked = ranked_of(numbered(1), keepLast=3)

    assert (ranked.kept, ranked.place, ranked.due_at) == (3, (ago(99), "uid-1"), ago(99))
    assert ranked.group == ("keepLast", "batch/v1", "Job", "ci", "rule-0", "succeeded", "")


@pytest.mark.parametrize(
    ("outcome", "fields", "kept", "group"),
    [
        (Outcome.SUCCEEDED, {"keepLast": 3}, 3, "succeeded"),
        (Outcome.FAILED, {"keepLast": 3}, 3, "failed"),
        (None, {"keepLast": 3}, 3, "unknown"),
        (Outcome.SUCCEEDED, {"keepLast": 3, "keepLastFailed": 5}, 3, "succeeded"),
        (Outcome.FAILED, {"keepLast": 3, "keepLastFailed": 5}, 5, "failed"),
        (None, {"keepLast": 3, "keepLastFailed": 5}, 5, "unknown"),
        (None, {"keepLastFailed": 5}, 5, "unknown"),
        *((one, {"keepLast": 3, "keepLastOutcomes": "together"}, 3, None) for one in OUTCOMES),
    ],
)
def test_outcomes_are_counted_apart_or_together(outcome, fields, kept, group):
    context = Context(rules(ttl="0s", **fields), plain_namespace("ci"))
    decision = decide(numbered(1), JOB, NOW, context, finish=Finish(True, ago(99), outcome))
    ranked = not_none(find_ranked(ref_of(numbered(1)), decision.reason, decision.facts))

    assert (ranked.kept, ranked.group[5]) == (kept, group)


def test_later_rule_keeps_an_object_of_unknown_outcome_that_a_rule_for_failed_ones_leaves():
    first, second = {"ttl": "0s", "keepLastFailed": 1}, {"keepLast": 5}
    context = Context(rules(first, second), plain_namespace("ci"), newer=4)
    decision = decide(numbered(1), JOB, NOW, context, finish=Finish(True, ago(99), None))

    assert decision.reason is Reason.KEPT_LAST


@pytest.mark.parametrize(
    "obj",
    [job(), having(numbered(1), "metadata.deletionTimestamp", "2026-03-14T15:00:00Z")],
    ids=["unfinished", "terminating"],
)
def test_unfinished_or_terminating_object_is_not_counted(obj):
    assert ranked_of(obj, keepLast=3) is None


def test_object_that_another_reason_keeps_is_counted_without_a_due_time():
    held = ranked_of(numbered(1, hold="why"), keepLast=3)

    assert held.due_at is None
    assert groups_of(held, ranked_of(numbered(2), keepLast=3)).count_newer(held) == 1


def test_objects_of_one_finish_time_are_in_the_order_of_their_uids():
    first, second = (ranked_of(job(uid=uid, complete=ago(9)), keepLast=1) for uid in "ab")
    groups = groups_of(second, first)

    assert (groups.count_newer(first), groups.count_newer(second)) == (1, 0)


def test_later_state_of_an_object_is_not_counted_as_another_one():
    ranked, other = (ranked_of(numbered(number), keepLast=1) for number in (1, 2))
    later_state = replace(ranked, finished_at=ago(1))
    groups = groups_of(later_state, other)

    assert groups.count_newer(ranked, listed=later_state) == 1
    assert groups.count_newer(ranked) == 2


def test_objects_beyond_those_that_the_rule_keeps_fall_out_newest_first():
    ranked = [ranked_of(numbered(number), keepLast=2) for number in range(5)]

    assert list(groups_of(*ranked).list_fallen(ranked[4])) == ["uid-2", "uid-1", "uid-0"]


def test_object_that_no_group_has_has_no_newer_ones():
    ranked = ranked_of(numbered(1), keepLast=2)

    assert RankGroups().count_newer(ranked) == 0
    assert list(RankGroups().list_fallen(ranked)) == []
    assert decide(numbered(1), JOB, NOW, Context(rules(keepLast=1, ttl="0s"), newer=1)).reason is not Reason.KEPT_LAST
