"""What happens to dependents if a garbage collector runs."""

import pytest

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def _collected(server):
    if not server.collects_garbage:
        pytest.skip("no kube-controller-manager beside the kube-apiserver")


def owned_by(owner, kind="Job", version="batch/v1", **more):
    metadata = owner["metadata"]
    return {"apiVersion": version, "kind": kind, "name": metadata["name"], "uid": metadata["uid"], **more}


def is_gone(answer):
    return answer.status == 404


@pytest.mark.parametrize("policy", ["Background", "Foreground"])
async def test_dependents_are_deleted_with_their_owner(api, policy):
    job = await api.job("owner")
    await api.pod("dependent", ownerReferences=[owned_by(job, controller=True, blockOwnerDeletion=True)])
    assert (await api.delete(api.jobs("owner"), {"propagationPolicy": policy})).status == 200
    await api.becomes(api.pods("dependent"), is_gone)
    await api.becomes(api.jobs("owner"), is_gone)


async def test_job_deleted_without_options_leaves_its_pods_without_owner(api):
    job = await api.job("owner")
    await api.pod("dependent", ownerReferences=[owned_by(job, controller=True)])
    await api.delete(api.jobs("owner"))
    await api.becomes(api.jobs("owner"), is_gone)
    assert "ownerReferences" not in (await api.get(api.pods("dependent"))).meta


async def test_dependent_of_two_owners_outlives_the_first(api):
    first, second = await api.config_map("first"), await api.config_map("second")
    references = [owned_by(first, "ConfigMap", "v1"), owned_by(second, "ConfigMap", "v1")]
    await api.config_map("dependent", ownerReferences=references)
    await api.delete(api.config_maps("first"), {"propagationPolicy": "Background"})
    answer = await api.becomes(api.config_maps("dependent"), lambda a: len(a.meta["ownerReferences"]) == 1)
    assert answer.meta["ownerReferences"] == [references[1]]
    await api.delete(api.config_maps("second"), {"propagationPolicy": "Background"})
    await api.becomes(api.config_maps("dependent"), is_gone)


async def test_foreground_deletion_waits_for_a_blocking_dependent(api):
    job = await api.job("owner")
    reference = owned_by(job, blockOwnerDeletion=True)
    await api.config_map("dependent", ownerReferences=[reference], finalizers=["example.dev/keep"])
    await api.delete(api.jobs("owner"), {"propagationPolicy": "Foreground"})
    await api.becomes(api.config_maps("dependent"), lambda a: "deletionTimestamp" in a.meta)
    assert (await api.get(api.jobs("owner"))).meta["finalizers"] == ["foregroundDeletion"]
    await api.patch(api.config_maps("dependent"), {"metadata": {"finalizers": None}})
    await api.becomes(api.jobs("owner"), is_gone)


async def test_grandchildren_are_deleted_with_their_owner(api):
    job = await api.job("owner")
    child = await api.config_map("child", ownerReferences=[owned_by(job)])
    await api.config_map("grandchild", ownerReferences=[owned_by(child, "ConfigMap", "v1")])
    await api.delete(api.jobs("owner"), {"propagationPolicy": "Background"})
    await api.becomes(api.config_maps("grandchild"), is_gone)
