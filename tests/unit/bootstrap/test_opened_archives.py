"""Which archives a process opens, and how often."""

import asyncio
from dataclasses import replace

import pytest

from shared.core.decision.namespaces import NAMESPACES, plain_namespace
from shared.core.policy.archives import ArchiveDestination
from shared.errors import ForbiddenError, PermanentError, TryLaterError
from shared.evaluation import archive_identity
from shared.evaluation import namespaces_and_owners as namespaces
from tests.archives import opened_archives
from tests.builders import having, namespace, not_none
from tests.fakes import FakeCluster

pytestmark = pytest.mark.anyio
KUBE_SYSTEM = plain_namespace("kube-system").ref


def destination(url: str = "file:///archive") -> ArchiveDestination:
    return ArchiveDestination(url=url)


async def test_tasks_at_the_same_time_share_one_archive():
    archives = opened_archives()

    opened = await asyncio.gather(*(archives.open("main", destination()) for _ in range(20)))

    assert len({id(one) for one in opened}) == 1


async def test_archive_whose_destination_changes_is_opened_again():
    archives = opened_archives()
    first = await archives.open("main", destination())

    assert await archives.open("main", destination("file:///elsewhere")) is not first
    assert await archives.open("second", destination()) is not first


async def test_id_of_the_cluster_is_the_uid_of_kube_system_and_is_read_once():
    cluster = FakeCluster()
    uid = not_none(await cluster.get(NAMESPACES, KUBE_SYSTEM)).ref.uid
    cluster.namespace_reads.clear()
    archives = opened_archives("prod", cluster)

    found = [await archives.find_cluster() for _ in range(3)]

    assert {(one.name, one.id, one.part) for one in found} == {("prod", uid, f"prod.{uid[:8]}")}
    assert len(cluster.namespace_reads) == 1


@pytest.mark.parametrize(
    ("failure", "raised", "said"),
    [
        (TryLaterError("429"), TryLaterError, "the API server: GET namespace kube-system: 429"),
        (
            ForbiddenError("403"),
            PermanentError,
            "403; grant get on namespace kube-system",
        ),
    ],
)
async def test_unreadable_id_of_the_cluster_is_an_error_until_it_can_be_read(failure, raised, said):
    cluster = FakeCluster()
    cluster.fail("get-namespace", failure, on="kube-system")
    archives = opened_archives("prod", cluster)

    with pytest.raises(raised, match=f"the id of this cluster cannot be read: {said}"):
        await archives.find_cluster()


async def test_read_of_the_id_that_hangs_is_an_error_and_is_repeated_later(monkeypatch):
    monkeypatch.setattr(archive_identity, "ID_SECONDS_MAX", 0.01)
    cluster, reads = FakeCluster(), list[str]()
    get = cluster.get

    async def hang(rule, ref, **options):
        reads.append(ref.name)
        await asyncio.sleep(60)

    monkeypatch.setattr(cluster, "get", hang)
    archives = opened_archives("prod", cluster)
    for _ in range(3):
        with pytest.raises(TryLaterError, match="API server does not answer GET namespace kube-system") as error:
            await archives.find_cluster()
        assert error.value.outage == ""
    assert reads == ["kube-system"]

    monkeypatch.setattr(cluster, "get", get)
    monkeypatch.setattr(archive_identity, "ID_SECONDS_MAX", 5.0)
    archives.identity._hung_at = not_none(archives.identity._hung_at) - 6.0
    assert (await archives.find_cluster()).name == "prod"


async def test_id_of_another_cluster_behind_the_same_address_is_found(monkeypatch):
    cluster = FakeCluster()
    archives = opened_archives("prod", cluster)
    first = await archives.find_cluster()
    uid = f"ffffffff{first.id[8:]}"
    get = cluster.get

    async def other(rule, ref, **options):
        snapshot = not_none(await get(rule, ref, **options))
        return replace(snapshot, obj=having(snapshot.obj, "metadata.uid", uid))

    monkeypatch.setattr(cluster, "get", other)
    assert await archives.find_cluster() == first

    monkeypatch.setattr(archive_identity, "ID_AGE_SECONDS_MAX", 0.0)
    monkeypatch.setattr(namespaces, "NAMESPACE_AGE_SECONDS_MAX", 0.0)

    assert (await archives.find_cluster()).id == uid


async def test_uid_that_is_no_uuid_is_not_an_id():
    cluster = FakeCluster()
    cluster.put(namespace("kube-system"))

    with pytest.raises(PermanentError, match="expected a UUID as the uid of namespace kube-system"):
        await opened_archives("prod", cluster).find_cluster()


async def test_archive_of_another_archiver_cannot_be_opened():
    with pytest.raises(PermanentError, match="another archiver stores its objects"):
        await opened_archives().open("main", ArchiveDestination(native="tekton-results"))
