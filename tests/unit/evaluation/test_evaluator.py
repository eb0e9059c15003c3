"""The evaluator decides about an object by its namespace, its owner and its rank; it reads only what matters."""

import asyncio

import pytest

from shared.core.decision.decide import Expire, Ignore, Reason, Wait
from shared.core.kinds.rule import Catalogue
from shared.errors import AbsentKindError, ForbiddenError, PermanentError, TryLaterError
from shared.evaluation.evaluator import Evaluator
from shared.ports import Snapshot
from tests.builders import (
    JOB,
    NOW,
    POD,
    TRAINJOB,
    ago,
    annotated,
    ended,
    having,
    job,
    namespace,
    owned_by,
    pod,
    shipped_kinds,
    trainjob,
)
from tests.fakes import FakeCluster, FakeTelemetry
from tests.unit.core.ttl.test_precedence import DONE, rules

pytestmark = pytest.mark.anyio

KINDS = Catalogue((JOB, POD, TRAINJOB))
OWNED = owned_by(pod(containers=(ended(at=ago(60)),), ttl="30"), "Job")
OWNER = {"name": "owner", "uid": "owner-uid", "namespace": "ci"}


class Bench:
    """An evaluator over a fake API server."""

    def __init__(self, kinds=KINDS):
        self.cluster, self.telemetry = FakeCluster(), FakeTelemetry()
        self.policy = rules(minAge="0s")
        self.evaluator = Evaluator(self.cluster, kinds, lambda: self.policy, telemetry=self.telemetry)

    async def decide(self, obj, rule=JOB):
        return await self.evaluator.decide(Snapshot(obj, NOW), rule)

    async def evaluated(self, obj):
        return await self.evaluator.evaluate(Snapshot(obj, NOW), JOB)

    def pile(self, count, **parts):
        """Jobs that finished one after another, the last a second ago."""
        for number in range(count):
            self.cluster.put(named(number, complete=ago(count - number), **parts))


def named(number, **parts):
    return job(name=f"job-{number:03}", uid=f"job-{number:03}", **parts)


@pytest.fixture
def bench():
    return Bench()


@pytest.fixture
def cluster():
    return FakeCluster()


async def decided(obj, cluster, *, rule=POD, kinds=KINDS):
    return await Evaluator(cluster, kinds).decide(Snapshot(obj, NOW), rule)


async def test_evaluator_reads_nothing_for_an_object_without_an_owner(cluster):
    assert isinstance(await decided(pod(containers=(ended(at=ago(60)),), ttl="30"), cluster), Expire)
    assert cluster.calls == []


async def test_evaluator_keeps_an_object_of_an_unfinished_owner(cluster):
    cluster.put(job(**OWNER))

    assert (await decided(OWNED, cluster)).reason is Reason.OWNER_UNFINISHED


async def test_evaluator_does_not_keep_an_object_of_a_finished_owner(cluster):
    cluster.put(job(complete=ago(10), **OWNER))

    assert isinstance(await decided(OWNED, cluster), Expire)


async def test_evaluator_keeps_an_object_that_a_finished_owner_would_recreate(cluster):
    """A Sandbox of agent-sandbox recreates its Pod after a deletion."""
    kinds = Catalogue((POD, JOB.model_copy(update={"dependents": "kept"})))
    cluster.put(job(complete=ago(10), **OWNER))

    assert (await decided(OWNED, cluster, kinds=kinds)).reason is Reason.OWNER_UNFINISHED
    cluster.remove(OWNER["name"])
    assert isinstance(await decided(OWNED, cluster, kinds=kinds), Expire)


async def test_evaluator_does_not_keep_an_object_whose_owner_is_gone(cluster):
    assert isinstance(await decided(OWNED, cluster), Expire)


async def test_evaluator_does_not_keep_an_object_for_another_object_of_the_owners_name(cluster):
    cluster.put(job(**{**OWNER, "uid": "another"}))

    assert isinstance(await decided(OWNED, cluster), Expire)


async def test_evaluator_keeps_an_object_of_an_owner_of_unknown_shape(cluster):
    cluster.put(having(job(**OWNER), "status.conditions", "gibberish"))

    assert (await decided(OWNED, cluster)).reason is Reason.OWNER_UNFINISHED


async def test_evaluator_keeps_an_object_of_an_unknown_owner_kind_without_a_read(cluster):
    obj = owned_by(OWNED, "ReplicaSet", api_version="apps/v1")

    assert (await decided(obj, cluster)).reason is Reason.OWNER_UNKNOWN
    assert cluster.calls == []


async def test_evaluator_keeps_an_object_whose_owner_is_forbidden(cluster):
    cluster.fail("get", ForbiddenError("jobs is forbidden"))

    assert (await decided(OWNED, cluster)).reason is Reason.OWNER_UNREAD


async def test_evaluator_raises_when_the_owner_cannot_be_read_now(cluster):
    cluster.fail("get", TryLaterError("busy"))

    with pytest.raises(TryLaterError):
        await decided(OWNED, cluster)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (PermanentError("no such name"), Reason.OWNER_UNREAD),
        (AbsentKindError("not served"), Reason.OWNER_UNFINISHED),
    ],
)
async def test_evaluator_keeps_an_object_whose_owner_can_never_be_read(cluster, error, reason):
    cluster.fail("get", error)

    assert (await decided(OWNED, cluster)).reason is reason


async def test_evaluator_ignores_an_owner_that_is_not_the_controller(cluster):
    cluster.put(job(**OWNER))
    obj = owned_by(OWNED, "Job", controller=False)

    assert isinstance(await decided(obj, cluster), Expire)
    assert cluster.calls == []


async def test_evaluator_does_not_read_the_owner_of_an_object_that_is_kept_anyway(cluster):
    assert isinstance(await decided(annotated(OWNED, hold="why"), cluster), Ignore)
    assert cluster.calls == []


async def test_evaluator_ignores_the_owner_when_an_annotation_says_so(cluster):
    assert isinstance(await decided(annotated(OWNED, owner="ignore"), cluster), Expire)
    assert cluster.calls == []


async def test_evaluator_ignores_the_owner_of_a_kind_whose_rule_says_so(cluster):
    obj = owned_by(trainjob(complete=ago(60), ttl="30"), "Job")

    assert isinstance(await decided(obj, cluster, rule=TRAINJOB), Expire)
    assert cluster.calls == []


@pytest.mark.parametrize("scope", ["Cluster", "Namespaced"])
async def test_evaluator_reads_an_owner_that_discovery_reports_as_cluster_scoped(cluster, scope):
    cluster.serve_cluster_scoped("Job")
    cluster.put(job(**{**OWNER, "namespace": ""}))
    rule = JOB.model_copy(update={"scope": scope})

    verdict = await decided(OWNED, cluster, kinds=Catalogue((rule, POD)))

    assert verdict.reason is Reason.OWNER_UNFINISHED


async def test_evaluator_finds_an_owner_by_any_version_in_the_reference(cluster):
    cluster.put(job(complete=ago(10), **OWNER))
    obj = owned_by(OWNED, "Job", api_version="batch/v2alpha1")

    assert isinstance(await decided(obj, cluster), Expire)


async def test_evaluator_waits_for_an_object_of_a_finished_owner(cluster):
    cluster.put(job(complete=ago(10), **OWNER))

    assert isinstance(await decided(annotated(OWNED, ttl="1h"), cluster), Wait)


async def test_owner_with_free_dependents_keeps_nothing():
    bench = Bench()
    bench.policy = rules(ttl="1s")
    maker = JOB.model_copy(update={"dependents": "free"})
    evaluator = Evaluator(bench.cluster, Catalogue((maker,)), lambda: bench.policy)
    bench.cluster.put(job(name="owner", uid="owner-uid"))

    assert isinstance(await evaluator.decide(Snapshot(owned_by(DONE, "Job"), NOW), JOB), Expire)
    assert bench.cluster.calls == []


class TestReplicaSets:
    """The owner of a failed Pod does not exist here: its kind alone decides."""

    EVICTED = owned_by(pod("Failed", containers=(ended(at=ago(60)),)), "ReplicaSet", api_version="apps/v1")

    @pytest.mark.parametrize("source", ["annotation", "policy", "namespace"])
    async def test_ttl_of_any_source_deletes_a_finished_pod_without_a_read_of_its_owner(self, source):
        bench = Bench(shipped_kinds())
        obj = annotated(self.EVICTED, ttl="1s") if source == "annotation" else self.EVICTED
        if source == "policy":
            bench.policy = rules(match={"kinds": ["pods"]}, ttl="1s")
        if source == "namespace":
            bench.cluster.put(namespace("ci", default_ttl="1s"))

        assert isinstance(await bench.decide(obj, POD), Expire)
        assert [call for call in bench.cluster.calls if call.verb == "get"] == []

    async def test_deadline_of_a_policy_stops_no_running_pod(self):
        bench = Bench(shipped_kinds())
        bench.policy = rules(match={"kinds": ["pods"]}, activeDeadline="1s")
        running = having(self.EVICTED, "status.phase", "Running")

        found = await bench.evaluator.evaluate_stop(Snapshot(running, NOW), POD)

        assert found.decision.reason is Reason.OWNER_UNFINISHED

    async def test_rule_that_deletes_owned_objects_keeps_the_pods_of_a_running_job_and_of_a_node(self):
        bench = Bench(shipped_kinds())
        bench.policy = rules(match={"kinds": ["pods"]}, ttl="1s", onOwned="delete")
        bench.cluster.put(job(name="owner", uid="owner-uid"))

        for kind, api_version in [("Job", "batch/v1"), ("Node", "v1"), ("StatefulSet", "apps/v1")]:
            obj = owned_by(self.EVICTED, kind, api_version=api_version)
            assert (await bench.decide(obj, POD)).reason is Reason.OWNER_UNFINISHED, kind
        obj = owned_by(self.EVICTED, "ReplicaSet", api_version="example.com/v1")
        assert isinstance(await bench.decide(obj, POD), Expire)


async def test_owner_that_is_unfinished_keeps_an_object_with_a_policy_ttl(bench):
    bench.policy = rules(ttl="1s")
    bench.cluster.put(job(name="owner", uid="owner-uid"))

    decision = await bench.decide(owned_by(DONE, "Job"))

    assert (decision.reason, decision.facts.owner.name) == (Reason.OWNER_UNFINISHED, "owner")


# The namespace


async def test_namespace_is_read_once_for_all_callers(bench):
    due = annotated(DONE, ttl="1s")

    decisions = await asyncio.gather(*(bench.decide(due) for _ in range(50)))

    assert all(isinstance(one, Expire) for one in decisions)
    assert len(bench.cluster.namespace_reads) == 1


async def test_namespace_annotations_apply_to_its_objects(bench):
    bench.cluster.put(namespace(exempt="true"))

    assert (await bench.decide(annotated(DONE, ttl="1s"))).reason is Reason.EXEMPT


async def test_namespace_is_not_read_when_it_cannot_matter(bench):
    for obj in (job(), annotated(DONE, hold=""), annotated(DONE, ttl="never"), annotated(DONE, ttl="soon")):
        await bench.decide(obj)

    assert bench.cluster.namespace_reads == []


async def test_namespace_that_may_not_be_read_keeps_objects_and_is_reported_once(bench):
    bench.cluster.fail("get-namespace", ForbiddenError("namespaces is forbidden"))

    for _ in range(3):
        decision = await bench.decide(annotated(DONE, ttl="1s"))

    assert decision.reason is Reason.NAMESPACE_UNREAD
    assert decision.facts.problem == "namespaces is forbidden"
    ((message, _),) = bench.telemetry.problems
    assert message == "namespaces may not be read: their objects are kept"


async def test_namespace_that_is_gone_keeps_objects(bench):
    bench.cluster.without_namespaces.add("ci")

    decision = await bench.decide(annotated(DONE, ttl="1s"))

    assert (decision.reason, decision.facts.problem) == (Reason.NAMESPACE_UNREAD, "there is no namespace ci")


async def test_namespace_that_cannot_be_read_now_raises_and_is_read_again(bench):
    bench.cluster.fail("get-namespace", TryLaterError("busy"))

    for _ in range(2):
        with pytest.raises(TryLaterError):
            await bench.decide(annotated(DONE, ttl="1s"))
    assert len(bench.cluster.namespace_reads) == 2


async def test_namespace_that_was_listed_is_not_read_again(bench):
    bench.cluster.put(annotated(DONE, ttl="1s"))
    await bench.evaluator.namespaces.prime()

    assert isinstance(await bench.decide(annotated(DONE, ttl="1s")), Expire)
    assert [call.verb for call in bench.cluster.namespace_reads] == ["list-namespaces"]


async def test_namespaces_are_read_alone_when_they_may_not_be_listed(bench):
    bench.cluster.fail("list-namespaces", ForbiddenError("no"))
    await bench.evaluator.namespaces.prime()

    assert isinstance(await bench.decide(annotated(DONE, ttl="1s")), Expire)
