"""Which archives a process opens, and how often."""

import asyncio

import pytest

from shared.core.namespaces import NAMESPACES, plain_namespace
from shared.core.policy.archives import ArchiveDestination
from shared.errors import ForbiddenError, PermanentError, TryLaterError
from tests.archives import opened_archives
from tests.builders import namespace, not_none
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
        (TryLaterError("429"), TryLaterError, "429"),
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


async def test_uid_that_is_no_uuid_is_not_an_id():
    cluster = FakeCluster()
    cluster.put(namespace("kube-system"))

    with pytest.raises(PermanentError, match="expected a UUID as the uid of namespace kube-system"):
        await opened_archives("prod", cluster).find_cluster()


async def test_archive_of_another_archiver_cannot_be_opened():
    with pytest.raises(PermanentError, match="another archiver stores its objects"):
        await opened_archives().open("main", ArchiveDestination(native="tekton-results"))
