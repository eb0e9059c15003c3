"""What a cluster serves of the kinds that have rules, and what becomes of it while this process runs."""

import logging

import pytest

from shared.adapters import discovery
from shared.adapters.connect import connect
from shared.core.kinds import KindRule
from shared.core.objects import ref_of
from shared.errors import AbsentKindError
from tests.builders import JOB, POD

pytestmark = pytest.mark.anyio

SCHEMA = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


class Crds:
    """CRDs of a group that only this test knows."""

    def __init__(self, api):
        self.api = api
        self.group = f"{api.namespace}.example.dev"
        self.names = []

    async def install(self, kind, plural, *versions, scope="Namespaced"):
        served = [{"name": name, "served": True, "storage": name == versions[0], "schema": SCHEMA} for name in versions]
        names = {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"}
        body = {"metadata": {"name": f"{plural}.{self.group}"}}
        body["spec"] = {"group": self.group, "scope": scope, "names": names, "versions": served}
        answer = await self.api.post(DEFINITIONS, body)
        assert answer.status == 201, answer
        self.names.append(answer.meta["name"])
        for name in versions:
            await self.api.becomes(f"/apis/{self.group}/{name}/{plural}", lambda a: a.status == 200)
            await self.discovered(name, plural)

    async def unserve(self, plural, version):
        path = f"{DEFINITIONS}/{plural}.{self.group}"
        versions = (await self.api.get(path)).body["spec"]["versions"]
        changed = [{**one, "served": one["served"] and one["name"] != version} for one in versions]
        assert (await self.api.patch(path, {"spec": {"versions": changed}})).status == 200
        await self.api.becomes(f"/apis/{self.group}/{version}/{plural}", lambda a: a.status == 404)
        await self.api.becomes(f"/apis/{self.group}", lambda a: not offers(a, version))

    async def remove(self, plural):
        self.names.remove(f"{plural}.{self.group}")
        await self.api.delete(f"{DEFINITIONS}/{plural}.{self.group}")
        await self.api.becomes(f"/apis/{self.group}", lambda a: a.status == 404)

    async def discovered(self, version, plural):
        """Discovery follows a CRD a little later."""
        path = f"/apis/{self.group}/{version}"
        await self.api.becomes(
            path, lambda a: a.status == 200 and plural in [one["name"] for one in a.body["resources"]]
        )
        await self.api.becomes(f"/apis/{self.group}", lambda a: offers(a, version))
        await self.api.becomes("/apis", lambda a: self.group in [one["name"] for one in a.body["groups"]])

    def rule(self, kind, plural, *versions, scope="Namespaced"):
        versions = [f"{self.group}/{version}" for version in versions]
        update = {"api_versions": tuple(versions), "kind": kind, "plural": plural, "scope": scope}
        return JOB.model_copy(update=update)

    async def create(self, version, plural, kind, name="one", namespace=True):
        path = self.api.path(plural, group=self.group, version=version)
        path = path if namespace else f"/apis/{self.group}/{version}/{plural}"
        body = {"apiVersion": f"{self.group}/{version}", "kind": kind, "metadata": {"name": name}}
        answer = await self.api.post(path, body)
        assert answer.status == 201, answer
        return answer.body


def offers(answer, version):
    return answer.status == 200 and version in [one["version"] for one in answer.body["versions"]]


def told(rule: KindRule):
    return rule.api_version.rpartition("/")[2], rule.plural, rule.scope


@pytest.fixture
async def crds(api):
    crds = Crds(api)
    yield crds
    for name in crds.names:
        await api.delete(f"{DEFINITIONS}/{name}")


@pytest.fixture
async def cluster(server):
    cluster = await connect(kubeconfig=str(server.kubeconfig))
    yield cluster
    await cluster.close()


@pytest.fixture
def at_once(monkeypatch):
    """A 404 has a group read again, however lately it was read."""
    monkeypatch.setattr(discovery, "REREAD_SECONDS", 0.0)


async def test_built_in_kinds_are_served_as_their_rules_say(cluster):
    assert await cluster.served((JOB, POD)) == (JOB, POD)


async def test_a_kind_whose_crd_is_not_installed_is_not_served(cluster, crds):
    assert await cluster.served((JOB, crds.rule("Chaos", "chaos", "v1"), POD)) == (JOB, POD)


async def test_plural_scope_and_version_are_the_clusters(cluster, crds):
    await crds.install("PodChaos", "podchaos", "v1beta1", "v1", scope="Cluster")
    guessed = crds.rule("PodChaos", "podchaoses", "v1beta1", "v1", "v1alpha1")

    (rule,) = await cluster.served((guessed,))

    assert told(rule) == ("v1", "podchaos", "Cluster")
    assert [one.rpartition("/")[2] for one in rule.api_versions] == ["v1", "v1beta1", "v1alpha1"]


async def test_where_no_rule_knows_the_preferred_version_the_first_that_is_served_is_taken(cluster, crds):
    await crds.install("Run", "runs", "v1beta1", "v1alpha1", "v2")
    (rule,) = await cluster.served((crds.rule("Run", "runs", "v1", "v1alpha1", "v1beta1"),))

    assert told(rule) == ("v1alpha1", "runs", "Namespaced")


async def test_of_two_rules_for_one_kind_the_preferred_version_decides(cluster, crds):
    await crds.install("MPIJob", "mpijobs", "v1beta1", "v1")
    older, newer = crds.rule("MPIJob", "mpijobs", "v1beta1"), crds.rule("MPIJob", "mpijobs", "v1")

    assert await cluster.served((older, JOB, newer)) == (newer, JOB)


async def test_a_kind_in_unknown_versions_only_is_not_served_and_said_once(cluster, crds, caplog):
    await crds.install("Run", "runs", "v7")
    with caplog.at_level(logging.WARNING, "ttl"):
        for _ in range(3):
            assert await cluster.served((crds.rule("Run", "runs", "v1"), JOB)) == (JOB,)

    (record,) = caplog.records
    assert record.fields == {"kind": "Run", "served": f"{crds.group}/v7", "known": f"{crds.group}/v1"}


async def test_a_version_that_disappears_is_followed(cluster, crds, at_once):
    await crds.install("Run", "runs", "v1beta1", "v1alpha1")
    (before,) = await cluster.served((crds.rule("Run", "runs", "v1beta1", "v1alpha1"),))
    old = await crds.create("v1beta1", "runs", "Run")
    await crds.unserve("runs", "v1beta1")

    snapshot = await cluster.get(before, ref_of(old))
    (after,) = await cluster.served((crds.rule("Run", "runs", "v1beta1", "v1alpha1"),))

    assert (told(before)[0], told(after)[0]) == ("v1beta1", "v1alpha1")
    assert snapshot.obj["apiVersion"] == f"{crds.group}/v1alpha1"
    assert ref_of(snapshot.obj) != ref_of(old)
    assert ref_of(snapshot.obj).is_same(ref_of(old))
    assert [ref_of(one) for one in (await cluster.list_page(before)).items] == [ref_of(snapshot.obj)]
    assert await cluster.delete(before, old) is True, "by uid and resourceVersion, which no version has its own"
    assert await cluster.get(before, ref_of(old)) is None


async def test_a_kind_without_a_look_at_discovery_is_followed_too(cluster, crds):
    await crds.install("PodChaos", "podchaos", "v1")
    created = await crds.create("v1", "podchaos", "PodChaos")

    snapshot = await cluster.get(crds.rule("PodChaos", "podchaoses", "v1beta1", "v1"), ref_of(created))

    assert ref_of(snapshot.obj) == ref_of(created)


async def test_a_cluster_scoped_kind_is_listed_read_and_deleted(cluster, crds):
    await crds.install("Backup", "backups", "v1", scope="Cluster")
    created = await crds.create("v1", "backups", "Backup", namespace=False)
    (rule,) = await cluster.served((crds.rule("Backup", "backups", "v1"),))

    assert [ref_of(one) for one in (await cluster.list_page(rule)).items] == [ref_of(created)]
    assert (await cluster.get(rule, ref_of(created))).obj["metadata"]["uid"] == created["metadata"]["uid"]
    assert await cluster.delete(rule, created) is True


async def test_a_kind_whose_crd_is_removed_is_not_served_any_more(cluster, crds, at_once):
    await crds.install("Run", "runs", "v1")
    rule = crds.rule("Run", "runs", "v1")
    assert await cluster.served((rule,)) == (rule,)
    await crds.remove("runs")

    with pytest.raises(AbsentKindError):
        await cluster.list_page(rule)
    assert await cluster.served((rule, JOB)) == (JOB,)


async def test_a_watch_of_a_version_that_disappeared_says_so(cluster, crds, at_once):
    await crds.install("Run", "runs", "v1beta1", "v1")
    rule = crds.rule("Run", "runs", "v1beta1")
    version = (await cluster.list_page(rule)).resource_version
    await crds.unserve("runs", "v1beta1")

    with pytest.raises(AbsentKindError):
        async for _ in cluster.watch(rule, version, seconds=1):
            pass
