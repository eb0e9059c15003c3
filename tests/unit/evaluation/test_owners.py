"""An owner is read once, by its kind, its name and its uid."""

import pytest

from shared.core.kinds.catalogue import Catalogue
from shared.core.objects import ObjectRef
from shared.errors import AbsentKindError
from shared.evaluation.owners import Owners, is_unfinished_by_kind
from tests.builders import JOB, POD, ago, job
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
