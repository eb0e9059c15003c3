"""A quota that is nearly used up: the oldest objects that may go are found in a LIST, and go before their time."""

import pytest

from shared.core.decision.decide import Reason
from shared.errors import ForbiddenError
from tests.builders import ago, annotated, having, job, owned_by
from tests.fakes import Call
from tests.unit.core.ttl.test_precedence import DONE, rules
from tests.unit.evaluation.test_evaluator import Bench, named

pytestmark = pytest.mark.anyio

PRESSED = rules(ttl="1h", whenQuotaAbove="50%", notBefore="0s")


def early(percent):
    return {"ttl": "1h", "whenQuotaAbove": percent, "notBefore": "0s"}


@pytest.fixture
def bench():
    return Bench()


def quota(*, hard, used, resource="count/jobs.batch"):
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "objects", "namespace": "ci", "uid": "quota"},
        "status": {"hard": {resource: str(hard)}, "used": {resource: str(used)}},
    }


async def test_quota_lets_the_oldest_objects_go(bench):
    bench.policy = PRESSED
    bench.pile(6)
    bench.cluster.put(quota(hard=8, used=6))

    decisions = [await bench.decide(named(n, complete=ago(6 - n))) for n in range(6)]

    assert [one.reason for one in decisions] == [Reason.OVER_QUOTA] * 2 + [Reason.NOT_DUE] * 4
    assert bench.cluster.counted() == {"list": 2}  # the quotas, and the Jobs


async def test_quota_below_the_percentage_needs_no_list_of_objects(bench):
    bench.policy = PRESSED
    bench.cluster.put(quota(hard=20, used=6))

    assert (await bench.decide(DONE)).reason is Reason.NOT_DUE
    assert bench.cluster.calls == [Call("list", "resourcequotas")]


async def test_usage_of_a_quota_that_is_behind_deletes_no_more_objects(bench):
    """The status of a quota follows a DELETE later, and an object with a finalizer still counts."""
    bench.policy = PRESSED
    bench.pile(5)
    bench.cluster.put(having(named(9, complete=ago(60)), "metadata.deletionTimestamp", "2026-03-14T15:00:00Z"))
    bench.cluster.put(quota(hard=8, used=8))

    decisions = [await bench.decide(named(n, complete=ago(5 - n))) for n in range(5)]

    assert [one.reason for one in decisions] == [Reason.OVER_QUOTA] + [Reason.NOT_DUE] * 4


async def test_quota_passes_over_objects_that_may_not_go(bench):
    bench.policy = rules(ttl="1h", whenQuotaAbove="50%", notBefore="0s", keepLast=1, keepLastBy={"label": "app"})
    bench.cluster.put(having(named(0, complete=ago(30)), "metadata.labels", {"app": "alone"}))
    bench.cluster.put(named(1, complete=ago(20), hold="why"))
    bench.cluster.put(annotated(named(2, complete=ago(15)), ttl="never"))
    bench.cluster.put(owned_by(named(3, complete=ago(12)), "Job"))
    bench.cluster.put(named(4, complete=ago(10)))
    bench.cluster.put(named(5, complete=ago(5)))
    bench.cluster.put(job(name="owner", uid="owner-uid"))
    bench.cluster.put(quota(hard=12, used=7))

    assert (await bench.decide(named(4, complete=ago(10)))).reason is Reason.OVER_QUOTA
    assert (await bench.decide(owned_by(named(3, complete=ago(12)), "Job"))).reason is Reason.OWNER_UNFINISHED


@pytest.mark.parametrize(
    ("owner", "reason"),
    [
        (None, Reason.NOT_DUE),  # it is gone: the older object has to go, and its place is enough
        (job(name="owner", uid="owner-uid"), Reason.OVER_QUOTA),
        (ForbiddenError("jobs is forbidden"), Reason.NOT_DUE),
    ],
    ids=["gone", "unfinished", "unreadable"],
)
async def test_younger_object_goes_only_if_the_owner_of_the_older_one_is_known_to_keep_it(bench, owner, reason):
    bench.policy = PRESSED
    bench.cluster.put(owned_by(named(3, complete=ago(12)), "Job"))
    bench.cluster.put(named(4, complete=ago(10)))
    bench.cluster.put(quota(hard=3, used=2))
    if isinstance(owner, ForbiddenError):
        bench.cluster.fail("get", owner, on="owner")
    elif owner:
        bench.cluster.put(owner)

    assert (await bench.decide(named(4, complete=ago(10)))).reason is reason


async def test_finished_object_returns_those_that_a_quota_lets_go(bench):
    bench.policy = PRESSED
    bench.pile(6)
    bench.cluster.put(quota(hard=8, used=6))

    evaluation = await bench.evaluated(named(5, complete=ago(1)))

    assert {one.ref.name: one.due_at for one in evaluation.fallen} == {"job-000": ago(6), "job-001": ago(5)}


async def test_object_that_a_fact_keeps_from_its_quota_is_not_among_those_that_go_because_of_it(bench):
    """Timers in the past would fire at once: its own again, and those of two such objects each other's."""
    bench.policy = PRESSED
    unread = [owned_by(named(number, complete=ago(12 - number), ttl=3600), "Job") for number in range(2)]
    for obj in (*unread, named(2, complete=ago(8)), named(3, complete=ago(6)), quota(hard=2, used=4)):
        bench.cluster.put(obj)
    bench.cluster.fail("get", ForbiddenError("jobs is forbidden"), on="owner")

    evaluations = [await bench.evaluated(obj) for obj in unread]

    assert [one.decision.reason for one in evaluations] == [Reason.NOT_DUE] * 2
    assert [[one.ref.name for one in found.fallen] for found in evaluations] == [["job-002"]] * 2


async def test_object_whose_owner_cannot_be_read_any_more_is_not_among_those_that_go(bench):
    """The order of what goes is used for a second, and was made while its owner was known to be gone."""
    bench.policy = PRESSED
    first = owned_by(named(0, complete=ago(12), ttl=3600), "Job")
    for obj in (first, named(1, complete=ago(8)), named(2, complete=ago(6)), quota(hard=2, used=3)):
        bench.cluster.put(obj)
    assert [one.ref.name for one in (await bench.evaluated(named(2, complete=ago(6)))).fallen] == ["job-000", "job-001"]

    bench.cluster.fail("get", ForbiddenError("jobs is forbidden"), on="owner")
    evaluation = await bench.evaluated(first)

    assert evaluation.decision.reason is Reason.NOT_DUE
    assert [one.ref.name for one in evaluation.fallen] == ["job-001"]


async def test_quotas_that_may_not_be_listed_change_no_decision(bench):
    bench.policy = PRESSED
    bench.cluster.fail("list", ForbiddenError("resourcequotas is forbidden"), on="resourcequotas")

    decisions = [await bench.decide(DONE) for _ in range(2)]

    assert {(one.reason, one.facts.problem) for one in decisions} == {(Reason.NOT_DUE, "resourcequotas is forbidden")}
    ((problem, _),) = bench.telemetry.problems
    assert problem == "quotas may not be listed: objects keep their normal TTL"


async def test_rules_with_other_percentages_share_one_order_of_what_goes(bench):
    """If each percentage had an order of its own, both would make the same room, and too many objects would go."""
    bench.policy = rules(
        {"name": "build", "match": {"labels": {"matchLabels": {"app": "build"}}}, **early("40%")},
        {"name": "others", **early("60%")},
    )
    apps = [{"app": "build"} if n < 3 else {"app": "other"} for n in range(8)]
    objects = [having(named(n, complete=ago(8 - n)), "metadata.labels", app) for n, app in enumerate(apps)]
    for one in objects:
        bench.cluster.put(one)
    bench.cluster.put(quota(hard=10, used=8))

    decisions = [await bench.decide(one) for one in objects]

    assert [one.reason for one in decisions] == [Reason.OVER_QUOTA] * 3 + [Reason.NOT_DUE] * 5
