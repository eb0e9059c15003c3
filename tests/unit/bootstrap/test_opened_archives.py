"""Which archives a process opens, and how often."""

import asyncio

import pytest

from shared.bootstrap.archives import OpenedArchives
from shared.core.policy.archives import ArchiveDestination
from shared.errors import PermanentError

pytestmark = pytest.mark.anyio


def destination(url: str = "file:///archive") -> ArchiveDestination:
    return ArchiveDestination(url=url)


async def test_tasks_at_the_same_time_share_one_archive():
    archives = OpenedArchives("east")

    opened = await asyncio.gather(*(archives.open("main", destination()) for _ in range(20)))

    assert len({id(one) for one in opened}) == 1


async def test_archive_whose_destination_changes_is_opened_again():
    archives = OpenedArchives("east")
    first = await archives.open("main", destination())

    assert await archives.open("main", destination("file:///elsewhere")) is not first
    assert await archives.open("second", destination()) is not first


async def test_archive_of_another_archiver_cannot_be_opened():
    with pytest.raises(PermanentError, match="another archiver stores its objects"):
        await OpenedArchives("east").open("main", ArchiveDestination(native="tekton-results"))
