"""Retention of an archive: delete what is older than `keep`, and check that the rest is whole."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from shared.core.archive.copies import describe_rivals, find_damage
from shared.core.archive.layout import prefix_of
from shared.core.archive.prune import (
    PruneCount,
    find_prune_refusal,
    is_expired,
    select_days,
)
from shared.errors import AbsentDocumentError, DamagedDocumentError, TtlError
from shared.ports.archive import Archive, SignedArchive, Stored, StoredFile

READS_AT_ONCE = 8
"""Documents that `verify_archive` reads concurrently; it keeps no more than these in memory."""

_DELETED_AT_ONCE = 1_000


@dataclass(frozen=True, slots=True)
class PruneReport:
    """What a round of `prune_archive` did.

    Attributes:
        count: What it found before it deleted.
        deleted: The files that it deleted.
        deleted_bytes: Their bytes in the store.
        skipped: Why it deleted nothing; empty if it deleted all that has expired, or in a dry run would delete it.
        problem: Why it stopped while it deleted; the next round deletes the rest.
    """

    count: PruneCount
    deleted: int = 0
    deleted_bytes: int = 0
    skipped: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class VerifiedDocument:
    """One document that `verify_archive` has read.

    Attributes:
        stored: The document.
        problem: What is wrong with it; empty if nothing is.
    """

    stored: Stored
    problem: str


@dataclass(frozen=True, slots=True)
class _Days:
    """The prefixes of days: those that may have expired files, and those that have none."""

    old: Sequence[str]
    new: Sequence[str]


class _SkippedRoundError(TtlError):
    """A list that the round needs came back empty."""


async def prune_archive(
    archive: Archive,
    keep: timedelta,
    now: datetime,
    *,
    everything: bool = False,
    dry_run: bool = False,
) -> PruneReport:
    """Delete the documents and logs that were stored longer ago than `keep`.

    The round first counts, and then deletes no more than it has counted. It deletes nothing if a list that it needs
    fails or comes back empty, or if more than PRUNE_SHARE_MAX of the archive has expired.

    Args:
        archive: The archive.
        keep: How long files are kept, from when the store accepted them.
        now: The present time, by the clock of the store.
        everything: Whether to delete all that has expired, however much it is.
        dry_run: Whether to count only.
    """
    try:
        days = await _list_days(archive, keep, now)
        count = await _count(archive, days, keep, now)
    except TtlError as error:
        return PruneReport(PruneCount(), skipped=f"nothing was deleted: {error}")
    if refusal := find_prune_refusal(count, everything=everything):
        return PruneReport(count, skipped=f"nothing was deleted: {refusal}")
    if dry_run or not count.expired:
        return PruneReport(count)
    return await _delete(archive, days.old, count, keep, now)


async def verify_archive(archive: Archive, prefixes: Sequence[str] = ("",)) -> AsyncIterator[VerifiedDocument]:
    """Read each document below the prefixes, and check its digest, its identity, and that it is alone of its version.

    `archive` stores one document of a version. Another one with another digest may be forged, so both count as damaged,
    unless both are signed; they come last. A document that was deleted meanwhile is left out.

    Raises:
        TryLaterError: The store is away or slow: nothing is known about the documents that were not yielded.
        PermanentError: The store refuses.
    """
    is_signed = isinstance(archive, SignedArchive) and archive.is_signed
    repeated = set() if is_signed else await _find_repeated(archive, prefixes)
    good = defaultdict[tuple[str, ...], list[Stored]](list)
    async for one in _read_all(archive, prefixes):
        if not one.problem and hash(one.stored.key.version) in repeated:
            good[one.stored.key.version].append(one.stored)
        else:
            yield one
    for several in good.values():
        are_equal = len({stored.key.digest for stored in several}) == 1
        problem = "" if are_equal else describe_rivals(several[0].key, [stored.location for stored in several])
        for stored in several:
            yield VerifiedDocument(stored, problem)


async def _read_all(archive: Archive, prefixes: Sequence[str]) -> AsyncIterator[VerifiedDocument]:
    for prefix in prefixes:
        async for page in archive.ls(prefix):
            for start in range(0, len(page), READS_AT_ONCE):
                part = page[start : start + READS_AT_ONCE]
                problems = await asyncio.gather(*(_verify(archive, one) for one in part))
                for stored, problem in zip(part, problems, strict=True):
                    if problem is not None:
                        yield VerifiedDocument(stored, problem)


async def _find_repeated(archive: Archive, prefixes: Sequence[str]) -> set[int]:
    """List the keys; return the hashes of the versions that have several documents. A hash takes 80 bytes of memory."""
    seen, repeated = set[int](), set[int]()
    for prefix in prefixes:
        async for page in archive.ls(prefix):
            for one in page:
                version = hash(one.key.version)
                (repeated if version in seen else seen).add(version)
    return repeated


async def _verify(archive: Archive, stored: Stored) -> str | None:
    """What is wrong with a document; None if it does not exist any more."""
    try:
        return find_damage(stored.key, await archive.read(stored.key))
    except AbsentDocumentError:
        return None
    except DamagedDocumentError as error:
        return str(error)


async def _list_days(archive: Archive, keep: timedelta, now: datetime) -> _Days:
    old, new = list[str](), list[str]()
    for cluster in await _names(archive, prefix_of()):
        for namespace in await _names(archive, prefix_of(cluster)):
            for kind in await _names(archive, prefix_of(cluster, namespace)):
                # A kind without days is what an earlier round leaves in a folder.
                days = [day async for day in archive.folders(prefix_of(cluster, namespace, kind))]
                try:
                    parts = select_days(days, keep, now)
                except ValueError as error:
                    folder = prefix_of(cluster, namespace, kind)
                    raise _SkippedRoundError(f"{folder} has a folder that is not a day: {error}; remove it") from None
                old += [prefix_of(cluster, namespace, kind, day) for day in parts[0]]
                new += [prefix_of(cluster, namespace, kind, day) for day in parts[1]]
    return _Days(old, new)


async def _names(archive: Archive, prefix: str) -> Sequence[str]:
    names = [name async for name in archive.folders(prefix)]
    if not names:
        raise _SkippedRoundError(f"the list of {prefix} came back empty; check the URL and the rights of this account")
    return names


async def _count(archive: Archive, days: _Days, keep: timedelta, now: datetime) -> PruneCount:
    """Count the files of old days, and those of new days until the share of the expired ones is known to be small."""
    count = PruneCount()
    for prefix in days.old:
        async for page in archive.files(prefix):
            count = _add(count, page, keep, now)
    for prefix in reversed(days.new):
        if count.kept >= count.kept_needed() and count.kept:
            break
        async for page in archive.files(prefix):
            count = _add(count, page, keep, now)
    return count


def _add(count: PruneCount, page: Sequence[StoredFile], keep: timedelta, now: datetime) -> PruneCount:
    expired = [file for file in page if is_expired(file.stored_at, keep, now)]
    return PruneCount(
        count.expired + len(expired),
        count.expired_bytes + sum(file.size for file in expired),
        count.kept + len(page) - len(expired),
    )


async def _delete(
    archive: Archive, prefixes: Sequence[str], count: PruneCount, keep: timedelta, now: datetime
) -> PruneReport:
    report = PruneReport(count)
    try:
        for prefix in prefixes:
            # The list of a day is complete before its first file is deleted: a store may list badly while it deletes.
            files = [file async for page in archive.files(prefix) for file in page]
            expired = [file for file in files if is_expired(file.stored_at, keep, now)]
            for start in range(0, len(expired), _DELETED_AT_ONCE):
                part = expired[start : start + min(_DELETED_AT_ONCE, count.expired - report.deleted)]
                await archive.delete_files([file.path for file in part])
                size = sum(file.size for file in part)
                report = replace(report, deleted=report.deleted + len(part), deleted_bytes=report.deleted_bytes + size)
    except TtlError as error:
        return replace(report, problem=f"stopped after {report.deleted} files: {error}")
    return report
