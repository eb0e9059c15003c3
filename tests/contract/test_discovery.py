"""The served kinds among those with rules, and how changes of discovery are followed while a process runs."""

import logging

import pytest

from shared.adapters.kubernetes import discovery
from shared.adapters.kubernetes.connect import connect
from shared.core.values.objects import ref_of
from shared.errors import AbsentKindError
from tests.builders import JOB, POD
from tests.contract.definitions import reported

pytestmark = pytest.mark.anyio


@pytest.fixture
def at_once(monkeypatch):
    """A 404 has a group read again, however lately it was read."""
    monkeypatch.setattr(discovery, "REREAD_SECONDS", 0.0)


async def test_built_in_kinds_are_served_as_in_their_rules(cluster):
    assert await cluster.served((JOB, POD)) == (JOB, POD)


async def test_kind_whose_crd_is_not_installed_is_not_served(cluster, crds):
    assert await cluster.served((JOB, crds.rule("Chaos", "chaos", "v1"), POD)) == (JOB, POD)


async def test_plural_scope_and_version_come_from_discovery(cluster, crds):
    await crds.install("PodChaos", "podchaos", "v1beta1", "v1", scope="Cluster")
    guessed = crds.rule("PodChaos", "podchaoses", "v1beta1", "v1", "v1alpha1")

    (rule,) = await cluster.served((guessed,))

    assert reported(rule) == ("v1", "podchaos", "Cluster")
    assert [one.rpartition("/")[2] for one in rule.api_versions] == ["v1", "v1beta1", "v1alpha1"]


async def test_unknown_preferred_version_falls_back_to_the_first_served_version(cluster, crds):
    await crds.install("Run", "runs", "v1beta1", "v1alpha1", "v2")
    (rule,) = await cluster.served((crds.rule("Run", "runs", "v1", "v1alpha1", "v1beta1"),))

    assert reported(rule) == ("v1alpha1", "runs", "Namespaced")


async def test_preferred_version_selects_one_of_two_rules_for_a_kind(cluster, crds):
    await crds.install("MPIJob", "mpijobs", "v1beta1", "v1")
    older, newer = crds.rule("MPIJob", "mpijobs", "v1beta1"), crds.rule("MPIJob", "mpijobs", "v1")

    assert await cluster.served((older, JOB, newer)) == (newer, JOB)


async def test_kind_in_unknown_versions_is_not_served_and_reported_once(cluster, crds, caplog):
    await crds.install("Run", "runs", "v7")
    with caplog.at_level(logging.WARNING, "ttl"):
        for _ in range(3):
            assert await cluster.served((crds.rule("Run", "runs", "v1"), JOB)) == (JOB,)

    (record,) = caplog.records
    assert record.fields == {"kind": "Run", "served": f"{crds.group}/v7", "known": f"{crds.group}/v1"}


async def test_removed_version_is_replaced_by_the_served_one(cluster, crds, at_once):
    await crds.install("Run", "runs", "v1beta1", "v1alpha1")
    (before,) = await cluster.served((crds.rule("Run", "runs", "v1beta1", "v1alpha1"),))
    old = await crds.create("v1beta1", "runs", "Run")
    await crds.unserve("runs", "v1beta1")

    snapshot = await cluster.get(before, ref_of(old))
    (after,) = await cluster.served((crds.rule("Run", "runs", "v1beta1", "v1alpha1"),))

    assert (reported(before)[0], reported(after)[0]) == ("v1beta1", "v1alpha1")
    assert snapshot.obj["apiVersion"] == f"{crds.group}/v1alpha1"
    assert ref_of(snapshot.obj) != ref_of(old)
    assert ref_of(snapshot.obj).is_same(ref_of(old))
    assert [ref_of(one) for one in (await cluster.list_page(before)).items] == [ref_of(snapshot.obj)]
    assert await cluster.delete(before, old) is True, "by uid and resourceVersion, which no version has its own"
    assert await cluster.get(before, ref_of(old)) is None


async def test_removed_version_of_a_rule_is_replaced_before_any_discovery(cluster, crds):
    await crds.install("PodChaos", "podchaos", "v1")
    created = await crds.create("v1", "podchaos", "PodChaos")

    snapshot = await cluster.get(crds.rule("PodChaos", "podchaoses", "v1beta1", "v1"), ref_of(created))

    assert ref_of(snapshot.obj) == ref_of(created)


async def test_cluster_scoped_kind_is_listed_read_and_deleted(cluster, crds):
    await crds.install("Backup", "backups", "v1", scope="Cluster")
    created = await crds.create("v1", "backups", "Backup", namespace=False)
    (rule,) = await cluster.served((crds.rule("Backup", "backups", "v1"),))

    assert [ref_of(one) for one in (await cluster.list_page(rule)).items] == [ref_of(created)]
    assert (await cluster.get(rule, ref_of(created))).obj["metadata"]["uid"] == created["metadata"]["uid"]
    assert await cluster.delete(rule, created) is True


async def test_kind_whose_crd_is_removed_is_no_longer_served(cluster, crds, at_once):
    await crds.install("Run", "runs", "v1")
    rule = crds.rule("Run", "runs", "v1")
    assert await cluster.served((rule,)) == (rule,)
    await crds.remove("runs")

    with pytest.raises(AbsentKindError):
        await cluster.list_page(rule)
    assert await cluster.served((rule, JOB)) == (JOB,)


async def test_watch_of_a_removed_version_raises(server, crds, at_once):
    await crds.install("Run", "runs", "v1beta1", "v1")
    rule = crds.rule("Run", "runs", "v1beta1")
    cluster = await connect(kubeconfig=str(server.kubeconfig))
    version = (await cluster.list_page(rule)).resource_version
    await crds.unserve("runs", "v1beta1")

    with pytest.raises(AbsentKindError):
        async for _ in cluster.watch(rule, version, seconds=1):
            pass
    await cluster.close()
