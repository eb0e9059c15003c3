"""Which owners take a held object along."""

import pytest

from shared.cli.objects.owners import OWNERS_MAX, find_deleting_owners
from shared.core.kinds.rule import Catalogue
from shared.core.policy.policy import NO_POLICY, Policy
from shared.errors import ForbiddenError
from shared.evaluation.evaluator import Evaluator
from tests.builders import ago, having, job, kind_rules, namespace, pod
from tests.fakes import FakeCluster

pytestmark = pytest.mark.anyio

KINDS = Catalogue(tuple(kind_rules().values()))
FOR_ALL = Policy.model_validate({"rules": [{"name": "all", "match": {"kinds": ["jobs"]}, "ttl": "1h"}]})
ORPHANS = Policy.model_validate(
    {"rules": [{"name": "all", "match": {"kinds": ["jobs"]}, "ttl": "1h", "propagation": "Orphan"}]}
)


@pytest.fixture
def anyio_backend():
    return "asyncio"


def child_of(obj, *owners, controller=True):
    references = [
        {
            "apiVersion": owner["apiVersion"],
            "kind": owner["kind"],
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
            "controller": controller and number == 0,
        }
        for number, owner in enumerate(owners)
    ]
    return having(obj, "metadata.ownerReferences", references)


def held_pod(*owners, **options):
    return child_of(pod("Succeeded", hold="why"), *owners, **options)


def run_of(kind, name, **options):
    metadata = {"name": name, "namespace": "ci", "uid": f"uid-{name}", "annotations": {}, **options}
    return {"apiVersion": "tekton.dev/v1", "kind": kind, "metadata": metadata, "status": {}}


async def takers_of(obj, *others, policy=NO_POLICY, cluster=None):
    cluster = cluster or FakeCluster()
    for one in others:
        cluster.put(one)
    evaluator = Evaluator(cluster, KINDS, lambda: policy)
    return await find_deleting_owners(
        obj, cluster=cluster, kinds=KINDS, evaluator=evaluator, reason="the logs", flags=("--context=x",)
    )


@pytest.mark.parametrize(
    ("owner", "policy", "why"),
    [
        (job(complete=ago(100), ttl=60), NO_POLICY, "is due now"),
        (job(complete=ago(100), ttl=160), NO_POLICY, "is due in 1m"),
        (job(ttl=60), NO_POLICY, "has a TTL by spec.ttlSecondsAfterFinished"),
        (job(), FOR_ALL, "may get a TTL by a policy or its namespace"),
        (job(complete=ago(100)), FOR_ALL, "is due in 58m20s"),
        (having(job(), "metadata.deletionTimestamp", "2026-01-02T03:04:05Z"), NO_POLICY, "is being deleted"),
        (job(complete=ago(100), ttl=160, hold="why"), NO_POLICY, "is deleted by its own controller"),
    ],
)
async def test_an_owner_that_is_due_or_has_a_ttl_is_named_with_the_command_that_keeps_it(owner, policy, why):
    (taker,) = await takers_of(held_pod(owner), owner, policy=policy)
    assert taker.message.startswith(f"Job ci/build-42 {why}")
    assert "the garbage collector deletes this object with it, held or not" in taker.message
    assert "`kubectl ttl hold jobs.batch/build-42 --reason 'the logs' -n ci --context=x`" in taker.fix


@pytest.mark.parametrize(
    ("owner", "policy"),
    [
        (job(complete=ago(100)), NO_POLICY),
        (job(), NO_POLICY),
        (job(complete=ago(100), hold="why"), FOR_ALL),
        (having(job(), "metadata.annotations", {"ttlafterfinished.dev/ttl": "never"}), FOR_ALL),
        (job(complete=ago(7_200)), ORPHANS),
    ],
)
async def test_an_owner_that_stays_or_orphans_takes_nothing_along(owner, policy):
    assert await takers_of(held_pod(owner), owner, policy=policy) == []


async def test_an_exempt_namespace_keeps_the_owner():
    owner = job(complete=ago(100))
    assert await takers_of(held_pod(owner), owner, namespace("ci", exempt="true"), policy=FOR_ALL) == []


async def test_a_namespace_default_counts_for_an_owner_that_has_not_finished():
    (taker,) = await takers_of(held_pod(job()), job(), namespace("ci", default_ttl="1h"))
    assert "may get a TTL by a policy or its namespace" in taker.message


async def test_the_chain_is_walked_up_to_the_owner_that_is_due():
    pipeline = run_of("PipelineRun", "release", annotations={"ttlafterfinished.dev/ttl": "1h"})
    task = child_of(run_of("TaskRun", "build", annotations={"ttlafterfinished.dev/hold": "why"}), pipeline)
    (taker,) = await takers_of(held_pod(task), task, pipeline)
    assert (taker.ref.kind, taker.ref.name) == ("PipelineRun", "release")


async def test_each_owner_of_a_chain_that_is_due_is_named():
    pipeline = run_of("PipelineRun", "release", annotations={"ttlafterfinished.dev/ttl": "1h"})
    task = child_of(run_of("TaskRun", "build", annotations={"ttlafterfinished.dev/ttl": "1h"}), pipeline)
    assert [one.ref.kind for one in await takers_of(held_pod(task), task, pipeline)] == ["TaskRun", "PipelineRun"]


async def test_a_ring_of_owners_ends():
    first, second = run_of("TaskRun", "a"), run_of("TaskRun", "b")
    cluster = FakeCluster()
    assert await takers_of(held_pod(first), child_of(first, second), child_of(second, first), cluster=cluster) == []
    assert cluster.counted()["get"] == OWNERS_MAX


async def test_an_owner_that_is_gone_is_said_to_take_it_along():
    (taker,) = await takers_of(held_pod(job()))
    assert taker.message.startswith("Job ci/build-42 is gone, and the garbage collector deletes this object")
    assert taker.fix == ""


async def test_an_owner_that_may_not_be_read_is_said_to_be_unknown():
    cluster = FakeCluster()
    cluster.fail("get", ForbiddenError("no right"))
    (taker,) = await takers_of(held_pod(job()), cluster=cluster)
    assert taker.message.startswith("whether Job ci/build-42 is deleted, and this object with it, is unknown: no right")


async def test_another_owner_that_remains_is_mentioned():
    owner, other = job(complete=ago(100), ttl=60), job(name="other", uid="other-uid")
    (taker,) = await takers_of(held_pod(owner, other), owner, other)
    assert taker.message.endswith("unless another of its owners remains")


@pytest.mark.parametrize(
    "obj", [pod("Succeeded"), held_pod(job(ttl=1), controller=False), held_pod({**job(), "kind": "Strange"})]
)
async def test_without_a_controller_owner_of_a_known_kind_nothing_is_said(obj):
    assert await takers_of(obj, job(ttl=1)) == []
