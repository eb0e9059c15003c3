"""Retention: a round deletes what has expired, or nothing."""

from dataclasses import dataclass, field
from datetime import date, timedelta

import pytest

from shared.core.archive.layout import ArchiveKey, log_path, parse_key
from shared.errors import ForbiddenError, TryLaterError
from shared.usecases.archives.retention import prune_archive, verify_archive
from tests.archives import FakeArchive
from tests.builders import NOW
from tests.contract.archives import make

pytestmark = pytest.mark.anyio

DAY = timedelta(days=1)
KEEP = 90 * DAY


def stored(archive, age_days, name="job", **options):
    """Store a document that is so old."""
    at = NOW - age_days * DAY
    key, document = make(name, day=options.pop("day", at.date()), **options)
    archive.documents[key.path] = document.to_bytes(), at
    return key


@dataclass
class AgedArchive(FakeArchive):
    """Knows which keys have expired."""

    old: list[ArchiveKey] = field(default_factory=list)


@pytest.fixture
def archive():
    """Twelve documents in two clusters, two of them expired."""
    found = AgedArchive()
    for age in (1, 5, 10, 40, 89):
        stored(found, age)
        stored(found, age, cluster="other")
    found.old = [stored(found, 91), stored(found, 200, cluster="other")]
    return found


async def test_round_deletes_what_is_older_than_keep_and_its_logs(archive):
    path = log_path(archive.old[0], "main")
    archive.logs[path], archive.now = b"log", lambda: NOW - 91 * DAY
    report = await prune_archive(archive, KEEP, NOW)
    assert (report.deleted, report.skipped, report.problem) == (3, "", "")
    assert report.deleted_bytes == report.count.expired_bytes > 0
    assert len(archive.documents) == 10
    assert not archive.logs
    assert not {key.path for key in archive.old} & set(archive.documents)
    assert (await prune_archive(archive, KEEP, NOW)).deleted == 0


async def test_dry_run_counts_and_deletes_nothing(archive):
    report = await prune_archive(archive, KEEP, NOW, dry_run=True)
    assert (report.count.expired, report.deleted, len(archive.documents)) == (2, 0, 12)


async def test_document_that_was_stored_late_is_kept_by_its_storage_time(archive):
    late = stored(archive, 3, day=date(2020, 1, 1))
    await prune_archive(archive, KEEP, NOW)
    assert late.path in archive.documents


async def test_document_of_a_finish_in_the_future_expires_by_its_storage_time(archive):
    archive.old.append(stored(archive, 91, "old", day=date(9999, 1, 1)))
    kept = stored(archive, 5, "new", day=date(9999, 1, 1))
    report = await prune_archive(archive, KEEP, NOW)
    assert (report.deleted, report.skipped, report.problem) == (3, "", "")
    assert kept.path in archive.documents
    assert not {key.path for key in archive.old} & set(archive.documents)


async def test_days_that_cannot_have_expired_are_listed_only_as_far_as_needed(archive):
    files, listed = archive.files, []

    def files_below(prefix):
        listed.append(prefix)
        return files(prefix)

    archive.files = files_below
    await prune_archive(archive, KEEP, NOW)
    assert 0 < len({prefix for prefix in listed if "2026-" in prefix}) <= 4


@pytest.mark.parametrize("call", ["folders", "files"])
@pytest.mark.parametrize("error", [TryLaterError("away"), ForbiddenError("no right")], ids=["away", "forbidden"])
async def test_failed_list_skips_the_round(archive, call, error):
    seen = []

    async def fail(name):
        seen.append(name)
        if name == call and seen.count(call) == 2:
            raise error

    archive.before = fail
    report = await prune_archive(archive, KEEP, NOW)
    assert report.skipped == f"nothing was deleted: {error}"
    assert len(archive.documents) == 12
    assert archive.calls["delete_files"] == 0


@pytest.mark.parametrize("prefix", ["v1/", "v1/other/", "v1/prod/ci/"])
async def test_empty_list_skips_the_round(archive, prefix):
    folders = archive.folders

    async def folders_lost(wanted):
        async for name in folders(wanted):
            if wanted != prefix:
                yield name

    archive.folders = folders_lost
    report = await prune_archive(archive, KEEP, NOW, everything=True)
    assert f"the list of {prefix} came back empty" in report.skipped
    assert len(archive.documents) == 12


async def test_empty_archive_skips_the_round():
    assert "came back empty" in (await prune_archive(FakeArchive(), KEEP, NOW)).skipped


async def test_folder_that_is_no_day_skips_the_round(archive):
    archive.documents["v1/prod/ci/Job.v1.batch/yesterday/x/y"] = b"", NOW
    assert "yesterday" in (await prune_archive(archive, KEEP, NOW)).skipped
    assert len(archive.documents) == 13


async def test_wrong_clock_deletes_nothing_unless_all_is_asked_for(archive):
    century = NOW + 36_500 * DAY
    report = await prune_archive(archive, KEEP, century)
    assert "all 12 files have expired" in report.skipped
    assert len(archive.documents) == 12
    assert (await prune_archive(archive, KEEP, century, everything=True)).deleted == 12


async def test_short_keep_that_would_delete_most_of_the_archive_is_refused(archive):
    report = await prune_archive(archive, 3 * DAY, NOW)
    assert "10 of 12 files have expired, which is more than 50%" in report.skipped


async def test_failed_delete_is_reported_and_the_next_round_deletes_the_rest(archive):
    async def fail(name):
        if name == "delete_files":
            del archive.documents[archive.old[0].path]
            raise TryLaterError("away")

    archive.before = fail
    report = await prune_archive(archive, KEEP, NOW)
    assert "away" in report.problem
    assert len(archive.documents) == 11
    archive.before = None
    await prune_archive(archive, KEEP, NOW)
    assert len(archive.documents) == 10


async def test_verify_finds_damaged_and_misplaced_documents(archive):
    keys = [parse_key(path) for path in sorted(archive.documents)]
    archive.documents[keys[1].path] = b"damaged", NOW
    archive.documents[keys[2].path] = archive.documents[keys[3].path]
    found = [one async for one in verify_archive(archive)]
    assert [one.stored.key for one in found] == keys
    assert [one.stored.key for one in found if one.problem] == keys[1:3]


async def test_verify_leaves_out_a_document_that_is_deleted_meanwhile(archive):
    gone = min(archive.documents)

    async def remove(name):
        if name == "read":
            archive.documents.pop(gone, None)

    archive.before = remove
    assert len([one async for one in verify_archive(archive)]) == 11


async def test_verify_ends_with_the_error_of_a_store_that_is_away(archive):
    async def fail(name):
        if name == "read":
            raise TryLaterError("away")

    archive.before = fail
    with pytest.raises(TryLaterError):
        [one async for one in verify_archive(archive)]
