"""Which archive a destination is, by the shared states that a command can read."""

from datetime import timedelta
from pathlib import Path

import pytest

from shared.adapters.archive.archive import StoreArchive
from shared.adapters.archive.open_archive import open_archive
from shared.cli.archive.source import check_identity
from shared.cli.deleters.in_force import NamespaceState
from shared.core.archive.document import Document, Record, canonical
from shared.core.archive.identity import MARKER, KnownArchive, Marker
from shared.errors import OtherArchiveError, PermanentError
from shared.evaluation.archive_identity import IdentifiedArchive
from shared.safeguards.state_schema import StateContents
from shared.usecases.archives.retention import prune_archive
from tests.archives import key_of
from tests.builders import NOW, job

pytestmark = pytest.mark.anyio


@pytest.fixture
async def archive(tmp_path: Path) -> StoreArchive:
    """An archive with one document."""
    found = open_archive("main", f"file://{tmp_path}/archive")
    await found.write_marker(Marker("right", NOW, "prod.0a1b2c3d"))
    document = Document(Record(archived_at=NOW), canonical(job()))
    await found.put(key_of(job(), document.digest, day=NOW.date()), document)
    return found


def remembers(archive_id: str, *, name: str = "main", location: str = "file:///elsewhere") -> NamespaceState:
    return NamespaceState("home", StateContents(archives={name: KnownArchive(archive_id, location)}))


READABLE = NamespaceState("home", StateContents(archives={}))
UNREADABLE = NamespaceState("run", StateContents(), unread="403")
DAMAGED = NamespaceState("home", StateContents(archives=None))


@pytest.mark.parametrize(
    "states",
    [[remembers("right")], [READABLE, remembers("right")], [remembers("right"), remembers("other")]],
    ids=["remembered", "by the second state", "also another archive of the name by the second"],
)
async def test_remembered_archive_is_checked(archive: StoreArchive, states: list[NamespaceState]) -> None:
    found = await check_identity(archive, [*states, UNREADABLE])
    assert (found.unchecked, found.ids is not None) == ("", True)


@pytest.mark.parametrize(
    ("first", "why"),
    [(remembers("other"), "expected archive other"), (UNREADABLE, "the shared state cannot be read: 403")],
    ids=["another archive", "unreadable"],
)
async def test_second_state_does_not_outvote_that_of_the_installation(
    archive: StoreArchive, first: NamespaceState, why: str
) -> None:
    """A `run` of another user may have left it, so `prune` wants a word."""
    found = await check_identity(archive, [first, remembers("right")])
    assert why in found.unchecked


@pytest.mark.parametrize("is_absent", [False, True])
async def test_other_archive_is_the_error_of_the_functions(
    archive: StoreArchive, is_absent: bool, tmp_path: Path
) -> None:
    if is_absent:
        (tmp_path / "archive" / MARKER).unlink()
    for state in (remembers("other"), remembers("other", name="renamed", location=archive.location)):
        with pytest.raises(OtherArchiveError, match="expected archive other; the volume may not be mounted"):
            await check_identity(archive, [state, UNREADABLE])


@pytest.mark.parametrize(
    ("states", "why"),
    [
        ([READABLE, remembers("other", name="second")], "no installation and no `run` on this cluster remembers"),
        ([READABLE, UNREADABLE], "the shared state cannot be read: 403"),
        ([], "no installation and no `run`"),
    ],
)
async def test_archive_that_nothing_remembers_is_not_checked(
    archive: StoreArchive, states: list[NamespaceState], why: str
) -> None:
    found = await check_identity(archive, states)
    assert (found.ids, why in found.unchecked) == (None, True)


async def test_damaged_memory_of_ids_is_an_error(archive: StoreArchive) -> None:
    with pytest.raises(PermanentError, match="archive adopt"):
        await check_identity(archive, [DAMAGED])


async def test_prune_deletes_nothing_in_a_volume_that_takes_the_place_of_a_checked_one(
    archive: StoreArchive, tmp_path: Path
) -> None:
    """Another archive, with the same files, is mounted between the check and the first deletion."""
    checked = await check_identity(archive, [remembers("right")])
    assert checked.ids is not None
    (tmp_path / "archive" / MARKER).write_bytes(Marker("other", NOW, "prod.0a1b2c3d").to_bytes())
    identified = IdentifiedArchive(archive, checked.ids)

    report = await prune_archive(identified, timedelta(days=1), NOW + timedelta(days=100_000), everything=True)

    assert "expected archive right" in report.problem
    assert report.deleted == 0
    assert len([file async for page in archive.files() for file in page]) == 1
