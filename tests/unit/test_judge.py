"""Deciding about an object together with its owner."""

import pytest

from shared.core.decide import Expire, Ignore, Reason, Wait
from shared.core.kinds.catalogue import Catalogue
from shared.errors import AbsentKindError, ForbiddenError, PermanentError, TryLaterError
from shared.evaluation.evaluator import Evaluator
from shared.ports import Snapshot
from tests.builders import JOB, NOW, POD, TRAINJOB, ago, annotated, ended, having, job, owned_by, pod, trainjob
from tests.fakes import FakeCluster

pytestmark = pytest.mark.anyio

KINDS = Catalogue((JOB, POD, TRAINJOB))
OWNED = owned_by(pod(containers=(ended(at=ago(60)),), ttl="30"), "Job")
OWNER = {"name": "owner", "uid": "owner-uid", "namespace": "ci"}


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture
def cluster():
    return FakeCluster()


async def decided(obj, cluster, *, rule=POD, kinds=KINDS):
    return await Evaluator(cluster, kinds).decide(Snapshot(obj, NOW), rule)


async def test_an_object_of_nobody_needs_no_read(cluster):
    assert isinstance(await decided(pod(containers=(ended(at=ago(60)),), ttl="30"), cluster), Expire)
    assert cluster.calls == []


async def test_an_unfinished_owner_keeps_it(cluster):
    cluster.put(job(**OWNER))

    assert (await decided(OWNED, cluster)).reason is Reason.OWNER_UNFINISHED


async def test_a_finished_owner_does_not(cluster):
    cluster.put(job(complete=ago(10), **OWNER))

    assert isinstance(await decided(OWNED, cluster), Expire)


async def test_a_finished_owner_that_would_make_another_keeps_it(cluster):
    """A Sandbox of agent-sandbox runs its Pod again once that is gone."""
    kinds = Catalogue((POD, JOB.model_copy(update={"dependents": "kept"})))
    cluster.put(job(complete=ago(10), **OWNER))

    assert (await decided(OWNED, cluster, kinds=kinds)).reason is Reason.OWNER_UNFINISHED
    cluster.remove(OWNER["name"])
    assert isinstance(await decided(OWNED, cluster, kinds=kinds), Expire)


async def test_nor_an_owner_that_is_gone(cluster):
    assert isinstance(await decided(OWNED, cluster), Expire)


async def test_nor_another_object_of_the_owners_name(cluster):
    cluster.put(job(**{**OWNER, "uid": "another"}))

    assert isinstance(await decided(OWNED, cluster), Expire)


async def test_an_owner_of_unknown_shape_keeps_it(cluster):
    cluster.put(having(job(**OWNER), "status.conditions", "gibberish"))

    assert (await decided(OWNED, cluster)).reason is Reason.OWNER_UNFINISHED


async def test_an_owner_of_a_kind_nobody_knows_keeps_it_without_a_read(cluster):
    obj = owned_by(OWNED, "ReplicaSet", api_version="apps/v1")

    assert (await decided(obj, cluster)).reason is Reason.OWNER_UNFINISHED
    assert cluster.calls == []


async def test_an_owner_that_may_not_be_read_keeps_it(cluster):
    cluster.fail("get", ForbiddenError("jobs is forbidden"))

    assert (await decided(OWNED, cluster)).reason is Reason.OWNER_UNFINISHED


async def test_an_owner_that_cannot_be_read_now_is_an_error(cluster):
    cluster.fail("get", TryLaterError("busy"))

    with pytest.raises(TryLaterError):
        await decided(OWNED, cluster)


@pytest.mark.parametrize("error", [PermanentError("no such name"), AbsentKindError("not served")])
async def test_an_owner_that_can_never_be_read_keeps_what_it_owns(cluster, error):
    cluster.fail("get", error)

    assert (await decided(OWNED, cluster)).reason is Reason.OWNER_UNFINISHED


async def test_an_owner_that_does_not_manage_it_does_not_count(cluster):
    cluster.put(job(**OWNER))
    obj = owned_by(OWNED, "Job", controller=False)

    assert isinstance(await decided(obj, cluster), Expire)
    assert cluster.calls == []


async def test_the_owner_is_not_read_where_something_else_keeps_it(cluster):
    assert isinstance(await decided(annotated(OWNED, hold="why"), cluster), Ignore)
    assert cluster.calls == []


async def test_an_annotation_may_say_that_the_owner_does_not_count(cluster):
    assert isinstance(await decided(annotated(OWNED, owner="ignore"), cluster), Expire)
    assert cluster.calls == []


async def test_a_kind_whose_owner_does_not_count(cluster):
    obj = owned_by(trainjob(complete=ago(60), ttl="30"), "Job")

    assert isinstance(await decided(obj, cluster, rule=TRAINJOB), Expire)
    assert cluster.calls == []


async def test_an_owner_without_a_namespace_is_looked_for_where_it_is(cluster):
    everywhere = JOB.model_copy(update={"scope": "Cluster"})
    cluster.put(job(**{**OWNER, "namespace": ""}))

    verdict = await decided(OWNED, cluster, kinds=Catalogue((everywhere, POD)))

    assert verdict.reason is Reason.OWNER_UNFINISHED


async def test_an_owner_that_the_cluster_says_is_without_a_namespace_too(cluster):
    cluster.scopes["Job"] = "Cluster"
    cluster.put(job(**{**OWNER, "namespace": ""}))

    assert (await decided(OWNED, cluster)).reason is Reason.OWNER_UNFINISHED


async def test_an_owner_is_found_whatever_version_the_reference_names(cluster):
    cluster.put(job(complete=ago(10), **OWNER))
    obj = owned_by(OWNED, "Job", api_version="batch/v2alpha1")

    assert isinstance(await decided(obj, cluster), Expire)


async def test_not_due_yet_with_a_finished_owner_is_waited_for(cluster):
    cluster.put(job(complete=ago(10), **OWNER))

    assert isinstance(await decided(annotated(OWNED, ttl="1h"), cluster), Wait)
