"""The rank of an object: the objects of its group are listed once for all callers, and counted."""

import pytest

from shared.core.decision.decide import Expire, Ignore, Reason
from shared.errors import ForbiddenError
from shared.evaluation.ranks import FALLEN_MAX
from tests.builders import ago, annotated, having
from tests.unit.core.ttl.test_precedence import DONE, rules
from tests.unit.evaluation.test_evaluator import Bench, named

pytestmark = pytest.mark.anyio


@pytest.fixture
def bench():
    return Bench()


async def test_rank_keeps_the_newest_objects(bench):
    bench.policy = rules(ttl="0s", keepLast=3)
    bench.pile(6)

    decisions = [await bench.decide(named(n, complete=ago(6 - n))) for n in range(6)]

    assert [type(one) for one in decisions] == [Expire] * 3 + [Ignore] * 3
    assert {one.reason for one in decisions[3:]} == {Reason.KEPT_LAST}
    assert bench.cluster.counted() == {"list": 1}


async def test_rank_counts_all_pages(bench):
    bench.policy = rules(ttl="0s", keepLast=3)
    bench.cluster.page_size = 2
    bench.pile(6)

    assert isinstance(await bench.decide(named(2, complete=ago(4))), Expire)
    assert bench.cluster.counted() == {"list": 3}


async def test_rank_of_equal_finish_times_is_by_uid(bench):
    bench.policy = rules(ttl="0s", keepLast=1)
    for number in range(2):
        bench.cluster.put(named(number, complete=ago(9)))

    kinds = [type(await bench.decide(named(number, complete=ago(9)))) for number in range(2)]

    assert kinds == [Expire, Ignore]


async def test_rank_counts_failed_objects_apart(bench):
    bench.policy = rules(ttl="0s", keepLast=1)
    for number, how in enumerate(("complete", "failed", "complete", "failed")):
        bench.cluster.put(named(number, **{how: ago(10 - number)}))

    kinds = [
        type(await bench.decide(named(number, **{how: ago(10 - number)})))
        for number, how in enumerate(("complete", "failed", "complete", "failed"))
    ]

    assert kinds == [Expire, Expire, Ignore, Ignore]


async def test_rank_ignores_other_groups(bench):
    bench.policy = rules(ttl="0s", keepLast=1, keepLastBy={"label": "app"})
    for number, app in enumerate("abab"):
        bench.cluster.put(having(named(number, complete=ago(10 - number)), "metadata.labels", {"app": app}))

    obj = having(named(1, complete=ago(9)), "metadata.labels", {"app": "b"})

    assert isinstance(await bench.decide(obj), Expire)
    assert (
        await bench.decide(having(named(2, complete=ago(8)), "metadata.labels", {"app": "a"}))
    ).reason == "kept-last"


@pytest.mark.parametrize(
    "newer",
    [
        named(2),
        having(named(2, complete=ago(1)), "metadata.deletionTimestamp", "2026-03-14T15:00:00Z"),
        named(2, conditions=[{"type": "Complete", "status": "True"}]),
        having(named(2, complete=ago(1)), "metadata.labels", {"app": "other"}),
        named(2, complete=ago(1), namespace="elsewhere"),
    ],
    ids=["unfinished", "terminating", "of an unknown time", "of another rule", "in another namespace"],
)
async def test_rank_ignores_objects_that_no_rule_counts(bench, newer):
    selector = {"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}
    bench.policy = rules(match={"labels": selector}, ttl="0s", keepLast=1)
    bench.cluster.put(named(1, complete=ago(9)))
    bench.cluster.put(newer)

    assert (await bench.decide(named(1, complete=ago(9)))).reason is Reason.KEPT_LAST


async def test_rank_lists_again_when_the_list_misses_the_finish(bench):
    bench.policy = rules(ttl="0s", keepLast=1)
    bench.cluster.put(named(1, complete=ago(9)))
    bench.cluster.put(named(2))
    await bench.decide(named(1, complete=ago(9)))
    done = bench.cluster.put(named(2, complete=ago(1)))

    evaluation = await bench.evaluated(done)

    assert evaluation.decision.reason is Reason.KEPT_LAST
    assert [one.ref.name for one in evaluation.fallen] == ["job-001"]
    assert bench.cluster.counted() == {"list": 2}


async def test_rank_returns_fallen_objects_newest_first_and_bounded(bench):
    bench.policy = rules(ttl="0s", keepLast=2)
    bench.pile(FALLEN_MAX + 10)
    last = FALLEN_MAX + 9

    evaluation = await bench.evaluated(named(last, complete=ago(1)))

    assert [one.ref.name for one in evaluation.fallen] == [f"job-{last - 2 - n:03}" for n in range(FALLEN_MAX)]
    assert evaluation.fallen[0].due_at == ago(3)


async def test_rank_does_not_return_held_objects_as_fallen(bench):
    bench.policy = rules(ttl="0s", keepLast=1)
    bench.cluster.put(named(0, complete=ago(20), hold="why"))
    bench.cluster.put(named(1, complete=ago(10)))
    bench.cluster.put(named(2, complete=ago(1)))

    evaluation = await bench.evaluated(named(2, complete=ago(1)))

    assert [one.ref.name for one in evaluation.fallen] == ["job-001"]


async def test_rank_keeps_all_objects_when_they_may_not_be_listed(bench):
    bench.policy = rules(ttl="0s", keepLast=1)
    bench.cluster.fail("list", ForbiddenError("jobs is forbidden"))

    decision = await bench.decide(DONE)

    assert (decision.reason, decision.facts.problem) == (Reason.RANK_UNREAD, "jobs is forbidden")


async def test_rank_lists_again_after_a_new_policy(bench):
    bench.policy = rules(ttl="0s", keepLast=1)
    bench.pile(3)
    obj = named(1, complete=ago(2))
    assert isinstance(await bench.decide(obj), Expire)

    bench.policy = rules(ttl="0s", keepLast=2)

    assert (await bench.decide(obj)).reason is Reason.KEPT_LAST


# maxCount


async def test_max_count_lets_all_but_the_newest_go(bench):
    bench.policy = rules(maxCount=3)
    bench.pile(6)

    decisions = [await bench.decide(named(n, complete=ago(6 - n))) for n in range(6)]

    assert [one.reason for one in decisions] == [Reason.OVER_COUNT] * 3 + [Reason.NO_TTL] * 3
    assert [(one.facts.counted.newer, one.facts.counted.total) for one in decisions] == [(5 - n, 6) for n in range(6)]
    assert decisions[1].facts.counted.since == ago(2)
    assert bench.cluster.counted() == {"list": 1}


async def test_max_count_counts_held_objects_but_not_terminating_ones(bench):
    bench.policy = rules(maxCount=1)
    bench.cluster.put(having(named(1, complete=ago(1)), "metadata.deletionTimestamp", "2026-03-14T15:00:00Z"))
    bench.cluster.put(named(2, complete=ago(5), hold="why"))
    bench.cluster.put(named(3, complete=ago(9)))

    assert (await bench.decide(named(2, complete=ago(5)))).reason is Reason.NO_TTL
    assert (await bench.decide(named(3, complete=ago(9)))).reason is Reason.OVER_COUNT


async def test_max_count_returns_the_oldest_objects_first_and_bounded(bench):
    bench.policy = rules(maxCount=2)
    bench.pile(FALLEN_MAX + 10, annotations={})
    last = FALLEN_MAX + 9

    evaluation = await bench.evaluated(named(last, complete=ago(1)))

    assert evaluation.decision.reason is Reason.NO_TTL
    assert [one.ref.name for one in evaluation.fallen] == [f"job-{n:03}" for n in range(FALLEN_MAX)]


async def test_max_count_does_not_return_objects_that_stay(bench):
    bench.policy = rules(maxCount=1)
    bench.cluster.put(named(0, complete=ago(20), hold="why"))
    bench.cluster.put(annotated(named(1, complete=ago(15)), ttl="never"))
    bench.cluster.put(named(2, complete=ago(10)))
    bench.cluster.put(named(3, complete=ago(1)))

    evaluation = await bench.evaluated(named(3, complete=ago(1)))

    assert [one.ref.name for one in evaluation.fallen] == ["job-002"]


async def test_max_count_deletes_nothing_when_objects_may_not_be_listed(bench):
    bench.policy = rules(maxCount=1)
    bench.cluster.fail("list", ForbiddenError("jobs is forbidden"))

    decision = await bench.decide(DONE)

    assert (decision.reason, decision.facts.problem) == (Reason.NO_TTL, "jobs is forbidden")


async def test_object_that_is_due_by_its_ttl_is_not_counted(bench):
    bench.policy = rules(ttl="1s", maxCount=1)

    assert (await bench.decide(DONE)).reason is Reason.EXPIRED
    assert bench.cluster.calls == []
