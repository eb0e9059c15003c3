"""An owner is read once, by its kind, its name and its uid."""

import pytest

from shared.core.decision.facts import NOTHING_KNOWN
from shared.core.kinds.rule import Catalogue
from shared.core.values.objects import ObjectRef
from shared.errors import AbsentKindError
from shared.evaluation.namespaces_and_owners import Owners, is_unfinished_by_kind, with_owner
from tests.builders import JOB, POD, ago, having, job, owned_by, pod, rule_of, shipped_kinds
from tests.fakes import FakeCluster

pytestmark = pytest.mark.anyio

OWNER = ObjectRef("batch/v1", "Job", "ci", "owner", "owner-uid")
FREE = JOB.model_copy(update={"dependents": "free"})
ENDLESS = JOB.model_copy(update={"never_finishes": "why"})


@pytest.mark.parametrize(
    ("rules", "unfinished"),
    [((), True), ((POD,), True), ((JOB,), None), ((FREE,), False), ((ENDLESS,), True), ((ENDLESS, JOB), None)],
    ids=["no rules", "unknown kind", "finishes", "free dependents", "never finishes", "one version finishes"],
)
def test_owner_is_read_only_if_its_kind_does_not_decide(rules, unfinished):
    assert is_unfinished_by_kind(OWNER, Catalogue(rules)) is unfinished


FAILED, RUNNING = pod("Failed"), pod("Running")


@pytest.mark.parametrize(
    ("api_version", "kind", "obj", "unfinished", "unknown"),
    [
        ("apps/v1", "ReplicaSet", FAILED, False, False),
        ("apps/v1", "ReplicaSet", pod("Succeeded"), False, False),
        ("apps/v1beta2", "ReplicaSet", FAILED, False, False),
        ("v1", "ReplicationController", FAILED, False, False),
        ("apps/v1", "ReplicaSet", RUNNING, True, False),
        ("apps/v1", "ReplicaSet", pod("Unknown"), True, False),
        ("apps/v1", "ReplicaSet", pod(7), True, False),
        ("apps/v1", "ReplicaSet", job(complete=ago(9)), True, False),
        ("example.com/v1", "ReplicaSet", FAILED, True, True),
        ("v1", "ReplicaSet", FAILED, True, True),
        ("apps/v1", "ReplicationController", FAILED, True, True),
        ("", "", FAILED, True, True),
        ("apps/v1", "StatefulSet", FAILED, True, False),
        ("apps/v1", "DaemonSet", FAILED, True, False),
        ("apps/v1", "Deployment", FAILED, True, False),
        ("v1", "Node", FAILED, True, False),
        ("batch/v1", "Job", FAILED, None, False),
        ("batch/v1", "CronJob", FAILED, False, False),
    ],
)
def test_kind_of_an_owner_frees_only_what_it_has_replaced(api_version, kind, obj, unfinished, unknown):
    owned = owned_by(obj, kind, api_version=api_version)
    context = with_owner(NOTHING_KNOWN, owned, rule_of(obj), shipped_kinds())

    assert (context.owner_unfinished, context.owner_unknown) == (unfinished, unknown)


@pytest.mark.parametrize(("controller", "unfinished"), [("Job", None), ("ReplicaSet", False)])
def test_only_the_controller_of_two_owners_counts(controller, unfinished):
    versions = {"Job": "batch/v1", "ReplicaSet": "apps/v1"}
    references = [
        {"apiVersion": version, "kind": kind, "name": kind, "uid": kind, "controller": kind == controller}
        for kind, version in versions.items()
    ]
    obj = having(FAILED, "metadata.ownerReferences", references)

    assert with_owner(NOTHING_KNOWN, obj, POD, shipped_kinds()).owner_unfinished is unfinished


def test_owner_replaces_finished_objects_only_if_each_rule_of_its_kind_says_so():
    replica_set, *_ = shipped_kinds().of("apps", "ReplicaSet")
    other = replica_set.model_copy(update={"replaces_finished": ()})
    owned = owned_by(FAILED, "ReplicaSet", api_version="apps/v1")

    assert with_owner(NOTHING_KNOWN, owned, POD, Catalogue((replica_set, other))).owner_unfinished


async def test_found_owner_has_its_rule_and_its_object():
    cluster = FakeCluster()
    cluster.put(job(name="owner", uid="owner-uid", complete=ago(9)))

    found = await Owners(cluster, Catalogue((JOB,))).find(OWNER)

    assert (found.ref, found.rule.kind) == (OWNER, "Job")
    assert found.snapshot is not None
    assert found.snapshot.obj["metadata"]["uid"] == "owner-uid"


@pytest.mark.parametrize("others", [(), (job(name="owner", uid="another"),)], ids=["gone", "created again"])
async def test_owner_that_no_longer_exists_has_no_object(others):
    cluster = FakeCluster()
    for one in others:
        cluster.put(one)

    assert (await Owners(cluster, Catalogue((JOB,))).find(OWNER)).snapshot is None


async def test_cluster_scoped_owner_is_found_without_a_namespace():
    cluster = FakeCluster()
    cluster.serve_cluster_scoped("Job")
    cluster.put(job(name="owner", uid="owner-uid", namespace=""))

    found = await Owners(cluster, Catalogue((JOB,))).find(OWNER)

    assert found.ref.namespace == ""
    assert found.snapshot is not None


async def test_owner_of_a_kind_without_a_rule_is_absent():
    with pytest.raises(AbsentKindError):
        await Owners(FakeCluster(), Catalogue((POD,))).find(OWNER)
