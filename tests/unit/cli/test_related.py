"""The owners whose deletion deletes a held object."""

import pytest

from shared.cli.objects.related import OWNERS_MAX, find_deleting_owners
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


async def deleting_of(obj, *others, policy=NO_POLICY, cluster=None):
    cluster = cluster or FakeCluster()
    for one in others:
        cluster.put(one)
    evaluator = Evaluator(cluster, KINDS, lambda: policy)
    return await find_deleting_owners(obj, evaluator, reason="the logs", flags=("--context=x",))


@pytest.mark.parametrize(
    ("owner", "policy", "why"),
    [
        (job(complete=ago(100), ttl=60), NO_POLICY, "is due now"),
        (job(complete=ago(100), ttl=160), NO_POLICY, "is due in 1m"),
        (job(ttl=60), NO_POLICY, "has a TTL by spec.ttlSecondsAfterFinished"),
        (job(), FOR_ALL, "may get a TTL from a policy or its namespace"),
        (job(complete=ago(100)), FOR_ALL, "is due in 58m20s"),
        (having(job(), "metadata.deletionTimestamp", "2026-01-02T03:04:05Z"), NO_POLICY, "is being deleted"),
        (job(complete=ago(100), ttl=160, hold="why"), NO_POLICY, "is deleted by its own controller"),
    ],
)
async def test_owner_that_is_due_or_has_a_ttl_is_named_with_the_command_that_keeps_it(owner, policy, why):
    (found,) = await deleting_of(held_pod(owner), owner, policy=policy)
    assert found.message.startswith(f"Job ci/build-42 {why}")
    assert "the garbage collector then deletes this object too, even if it is held" in found.message
    assert "`kubectl ttl hold jobs.batch/build-42 --reason 'the logs' -n ci --context=x`" in found.fix


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
async def test_owner_that_is_kept_or_orphans_is_not_named(owner, policy):
    assert await deleting_of(held_pod(owner), owner, policy=policy) == []


async def test_owner_in_an_exempt_namespace_is_not_named():
    owner = job(complete=ago(100))
    assert await deleting_of(held_pod(owner), owner, namespace("ci", exempt="true"), policy=FOR_ALL) == []


async def test_unfinished_owner_with_a_namespace_default_is_named():
    (found,) = await deleting_of(held_pod(job()), job(), namespace("ci", default_ttl="1h"))
    assert "may get a TTL from a policy or its namespace" in found.message


async def test_chain_is_followed_to_the_owner_that_is_due():
    pipeline = run_of("PipelineRun", "release", annotations={"ttlafterfinished.dev/ttl": "1h"})
    task = child_of(run_of("TaskRun", "build", annotations={"ttlafterfinished.dev/hold": "why"}), pipeline)
    (found,) = await deleting_of(held_pod(task), task, pipeline)
    assert (found.ref.kind, found.ref.name) == ("PipelineRun", "release")


async def test_each_due_owner_of_a_chain_is_named():
    pipeline = run_of("PipelineRun", "release", annotations={"ttlafterfinished.dev/ttl": "1h"})
    task = child_of(run_of("TaskRun", "build", annotations={"ttlafterfinished.dev/ttl": "1h"}), pipeline)
    assert [one.ref.kind for one in await deleting_of(held_pod(task), task, pipeline)] == [
        "TaskRun",
        "PipelineRun",
    ]


async def test_cycle_of_owners_ends():
    first, second = run_of("TaskRun", "a"), run_of("TaskRun", "b")
    cluster = FakeCluster()
    assert await deleting_of(held_pod(first), child_of(first, second), child_of(second, first), cluster=cluster) == []
    assert cluster.counted()["get"] == OWNERS_MAX


async def test_owner_that_no_longer_exists_is_named():
    (found,) = await deleting_of(held_pod(job()))
    assert found.message.startswith("Job ci/build-42 no longer exists; the garbage collector then deletes this object")
    assert found.fix == ""


async def test_owner_that_may_not_be_read_is_unknown():
    cluster = FakeCluster()
    cluster.fail("get", ForbiddenError("no right"))
    (found,) = await deleting_of(held_pod(job()), cluster=cluster)
    assert found.message.startswith("unknown whether Job ci/build-42 is deleted, and this object with it: no right")


async def test_remaining_owner_is_mentioned():
    owner, other = job(complete=ago(100), ttl=60), job(name="other", uid="other-uid")
    (found,) = await deleting_of(held_pod(owner, other), owner, other)
    assert found.message.endswith("unless another owner remains")


@pytest.mark.parametrize(
    "obj", [pod("Succeeded"), held_pod(job(ttl=1), controller=False), held_pod({**job(), "kind": "Strange"})]
)
async def test_object_without_a_controller_owner_of_a_known_kind_has_none(obj):
    assert await deleting_of(obj, job(ttl=1)) == []
