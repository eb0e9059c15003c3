"""Look up what an archive holds of one version of an object, whether that is wanted now, and the message about it.

`FormerDocuments` copies what an archive has under a former name of the cluster, with its children and logs. The keys of
a version before ids have only the name of the cluster, and a cluster can be renamed. The old documents acknowledge
nothing, but their children and logs may not exist anywhere else any more.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from shared.core.archive.archiving import ArchiveFact, Archiving
from shared.core.archive.copies import CLOCK_DIFFERENCE_MAX, ArchiveCopy, find_acknowledged_at, find_damage
from shared.core.archive.document import Document, Record, canonical, digest_of, without_secret_data
from shared.core.archive.identity import is_former_part
from shared.core.archive.layout import ArchiveKey, container_of, log_path, parse_key, parse_log_path, prefix_of
from shared.core.values.objects import ObjectRef
from shared.errors import AbsentDocumentError, DamagedDocumentError, PermanentError, TtlError, UnsignedDocumentError
from shared.evaluation.pod_logs import LogGap
from shared.messages import ObjectArchived, Timer
from shared.ports import Archive, ConfirmingArchive, Stored, loop_now
from shared.usecases.archives.byte_gate import ByteGate
from shared.usecases.archives.logs import LOG_HELD_BYTES, find_log_size

REPLACED_AFTER = timedelta(hours=1)
"""How long a document whose time in the archive is ahead is waited for, by its record, before it is stored again."""


@dataclass(frozen=True, slots=True)
class Found:
    """A document that is stored.

    Attributes:
        stored: Where it is, and when the store accepted it.
        record: Its line about the archiving; None if the document is damaged.
        is_valid: Whether its signature counts, or none is wanted. If not, another writer may have written the record.
    """

    stored: Stored
    record: Record | None
    is_valid: bool = True

    def whole_record(self, archiving: Archiving, *, now: datetime) -> Record | None:
        """Its record if it has everything that is wanted; None if it has to be replaced.

        A document whose times are ahead may count soon. So it is replaced only if it is old, or if its own record is
        ahead: otherwise each sweep would store it again, with a new time that is ahead as well.
        """
        record = self.record
        if record is None or not self.is_valid or not record.is_of(self.stored.archive_id):
            return None
        try:
            find_acknowledged_at(self.stored.stored_at, archived_at=record.archived_at, now=now)
        except ValueError:
            if not now - REPLACED_AFTER <= record.archived_at <= now + CLOCK_DIFFERENCE_MAX:
                return None
        return record if record.has_all_of(archiving) else None

    def joined_to(self, record: Record) -> Record:
        """A record that replaces it, with the children and logs that it names: they may not exist any more."""
        if self.record is None:
            return record
        return record.joined(self.record, unsigned=None if self.is_valid else self.stored.key)


@dataclass(frozen=True, slots=True)
class AcknowledgedCopy:
    """An object that an archive has acknowledged.

    Attributes:
        copied: What is stored, and under which key.
        at: When the archive acknowledged it; see `find_acknowledged_at`.
        location: Where it is stored.
        size: Its size in the store, in bytes; 0 if it was stored before.
        children: How many children were stored with it.
        logs: How many logs were stored with it.
    """

    copied: ArchiveCopy
    at: datetime
    location: str
    size: int = 0
    children: int = 0
    logs: int = 0


async def look_up(archive: Archive, key: ArchiveKey) -> Found | None:
    """Find and read the document under a key; None if nothing is stored, or if the archive shows no documents.

    A damaged document stays until it is replaced: another archiver may have replaced it meanwhile. One whose only fault
    is its signature still names children and logs.

    Raises:
        TtlError: See the port `Archive`.
    """
    if isinstance(archive, ConfirmingArchive):
        return None
    stored = await archive.find(key)
    if stored is None:
        return None
    try:
        return Found(stored, (await archive.read(key)).record)
    except AbsentDocumentError:
        return None
    except UnsignedDocumentError as error:
        return Found(stored, error.record, is_valid=False)
    except DamagedDocumentError:
        return Found(stored, None)


async def find_acknowledged(
    archive: Archive, copied: ArchiveCopy, found: Found | None, archiving: Archiving, *, now: datetime
) -> AcknowledgedCopy | None:
    """The object, if it is stored with everything that is wanted.

    Args:
        archive: The archive.
        copied: The version of the object.
        found: What `look_up` has found.
        archiving: What is wanted.
        now: The present, by the clock of this process.

    Raises:
        TtlError: See `ConfirmingArchive`; or a foreign archiver answers with a time that does not count.
    """
    if isinstance(archive, ConfirmingArchive):
        confirmed = await archive.confirm(copied.key)
        if confirmed is None:
            return None
        at = acknowledged_at(archive, confirmed, finished_at=copied.finished_at, now=now)
        return AcknowledgedCopy(copied, at, confirmed.location)
    record = found.whole_record(archiving, now=now) if found is not None else None
    if found is None or record is None:
        return None
    at = acknowledged_at(archive, found.stored, archived_at=record.archived_at, now=now)
    return AcknowledgedCopy(copied, at, found.stored.location, children=len(record.children), logs=len(record.logs))


def acknowledged_at(archive: Archive, stored: Stored, *, now: datetime, **known: datetime | None) -> datetime:
    """Return when an archive acknowledged what it stores of an object; see `find_acknowledged_at`.

    Raises:
        PermanentError: The clock of the archive is too far ahead of the clock of this process.
    """
    try:
        return find_acknowledged_at(stored.stored_at, now=now, **known)
    except ValueError as error:
        raise PermanentError(f"archive {archive.name}: {stored.location}: {error}") from None


def archived_of(ref: ObjectRef, archive: str, written: AcknowledgedCopy, *, timer: Timer | None) -> ObjectArchived:
    """The message about an object that an archive has acknowledged."""
    return ObjectArchived(
        ref=ref,
        archive=archive,
        resource_version=written.copied.key.resource_version,
        digest=written.copied.key.digest,
        location=written.location,
        archived_at=written.at,
        children=written.children,
        logs=written.logs,
        timer=timer,
    )


def archived_before(fact: ArchiveFact, ref: ObjectRef, timer: Timer | None) -> ObjectArchived | None:
    """The message about an object that an archive had acknowledged before; its children and logs are not counted."""
    if fact.acknowledged_at is None:
        return None
    return ObjectArchived(
        ref=ref,
        archive=fact.to,
        resource_version=fact.resource_version,
        digest=fact.digest,
        location=fact.location,
        archived_at=fact.acknowledged_at,
        timer=timer,
    )


LISTED_SECONDS_MAX = 5.0
"""How old the list of the clusters in an archive may be: a process of an older version may add one."""

COPIES_AT_ONCE = 16
"""Children or logs of one document that are copied at the same time."""

_log = logging.getLogger("ttl")
_LOST = (AbsentDocumentError, DamagedDocumentError, ValueError)


@dataclass(frozen=True, slots=True)
class _Listed:
    """The clusters in an archive, or why they cannot be listed, and when that was, by the clock of the loop."""

    archive: Archive
    at: float
    parts: Sequence[str] | TtlError


@dataclass(slots=True)
class FormerDocuments:
    """The documents of this cluster under its former names.

    Attributes:
        gate: Bounds the logs that are copied at the same time.
    """

    gate: ByteGate
    _listed: dict[str, _Listed] = field(default_factory=dict)
    _listing: dict[str, tuple[Archive, asyncio.Task[_Listed]]] = field(default_factory=dict)

    async def adopt(
        self, archive: Archive, copied: ArchiveCopy, found: Found | None, *, now: datetime, secrets: bool = False
    ) -> Found | None:
        """Copy the document of a version of an object, its children and its logs to their present keys.

        What is damaged or absent is not copied. Then the copy does not count as stored with its children or logs, so
        that those that still exist are stored.

        Args:
            archive: The archive.
            copied: The version of the object.
            found: What is stored under its present key.
            now: The present, by the clock of this process.
            secrets: Whether the data of Secrets is stored.

        Returns:
            The document under the present key: the copy, or else `found`.

        Raises:
            TtlError: See the port `Archive`.
        """
        if isinstance(archive, ConfirmingArchive):
            return found
        is_valid = found is None or found.is_valid
        record = _own_record(found) if found is not None and is_valid else None
        was_moved = False
        for part in await self._parts(archive, copied):
            former = replace(copied.key, cluster=part)
            document = await _read(archive, former, copied.cluster_id)
            if document is not None:
                moved = await _Move(archive, former, copied, self.gate, now, secrets=secrets).move(document.record)
                record, was_moved = moved if record is None else record.joined(moved), True
        if record is None or not was_moved:
            return found
        if found is not None and not is_valid:
            record = found.joined_to(record)
        archived_at = max(record.archived_at, now)
        update = {"archived_at": archived_at, "redacted": copied.is_redacted, "cluster_id": copied.cluster_id}
        record = record.model_copy(update=update)
        await archive.put(copied.key, Document(record, copied.text), replaces=found is not None)
        return await look_up(archive, copied.key)

    async def _parts(self, archive: Archive, copied: ArchiveCopy) -> list[str]:
        """The former names of the cluster that the archive has, as in the keys."""
        listed = self._listed.get(archive.name)
        if listed is None or listed.archive is not archive or loop_now() - listed.at > LISTED_SECONDS_MAX:
            listed = await self._list(archive)
        if isinstance(listed.parts, TtlError):
            raise listed.parts
        own = copied.key.cluster
        return [one for one in listed.parts if is_former_part(one, own=own, cluster_id=copied.cluster_id)]

    async def _list(self, archive: Archive) -> _Listed:
        """List the clusters. All that wait share one list, and its error; one that is cancelled does not end it."""
        of, listing = self._listing.get(archive.name, (None, None))
        if listing is None or of is not archive or listing.done():
            listing = asyncio.create_task(_list_parts(archive))
            self._listing[archive.name] = archive, listing
        listed = await asyncio.shield(listing)
        if not isinstance(listed.parts, TtlError):
            self._listed[archive.name] = listed
        return listed


async def _list_parts(archive: Archive) -> _Listed:
    parts: Sequence[str] | TtlError
    try:
        parts = [one async for one in archive.folders(prefix_of())]
    except TtlError as error:
        parts = error
    return _Listed(archive, loop_now(), parts)


@dataclass(frozen=True, slots=True)
class _Move:
    """Copies the children and the logs of one document."""

    archive: Archive
    former: ArchiveKey
    copied: ArchiveCopy
    gate: ByteGate
    now: datetime
    secrets: bool = False
    _moved: dict[str, str] = field(default_factory=dict)

    async def move(self, record: Record) -> Record:
        """Copy the children and logs that a record names; return it with their present keys."""
        logs, problems, with_logs = list[str](), dict(record.log_problems), record.with_logs
        for path, copy in await self._copy_all(record.logs, self._copy_log):
            if isinstance(copy, str):
                logs.append(copy)
            else:
                problems[container_of(path)], with_logs = f"{LogGap.GONE}: {copy}", False
        found = await self._copy_all(record.children, self._copy_child)
        children = [copy for _, copy in found if isinstance(copy, str)]
        with_children = record.with_children and len(children) == len(record.children)
        return record.model_copy(
            update={
                "children": tuple(children),
                "logs": tuple(logs),
                "log_problems": problems,
                "with_children": with_children,
                "with_logs": with_logs,
            }
        )

    async def _copy_all(
        self, paths: Sequence[str], copy: Callable[[str], Awaitable[str]]
    ) -> list[tuple[str, str | Exception]]:
        """Copy some at a time; return each path with that of its copy, or with why it is lost."""

        async def try_one(path: str) -> tuple[str, str | Exception]:
            try:
                return path, await copy(path)
            except _LOST as error:
                self._report(path, error)
                return path, error

        done: list[tuple[str, str | Exception]] = []
        for start in range(0, len(paths), COPIES_AT_ONCE):
            done += await asyncio.gather(*map(try_one, paths[start : start + COPIES_AT_ONCE]))
        return done

    async def _copy_child(self, path: str) -> str:
        if path in self._moved:  # a child of two owners
            return self._moved[path]
        former = self._checked(parse_key(path), path)
        document = await self.archive.read(former)
        if problem := _find_problem(former, document, self.copied.cluster_id):
            raise ValueError(f"{path}: {problem}")
        obj = document.obj
        text = document.text if self.secrets or without_secret_data(obj) is obj else canonical(without_secret_data(obj))
        present = replace(former, cluster=self.copied.key.cluster, digest=digest_of(text))
        self._moved[path] = present.path
        known = await look_up(self.archive, present)
        record = known.record if known is not None and known.is_valid else None
        if known is None or record is None or not record.is_of(known.stored.archive_id):
            record = await replace(self, former=former).move(document.record)
            if known is not None and not known.is_valid:
                record = known.joined_to(record)
            update = {
                "archived_at": max(record.archived_at, self.now),
                "redacted": record.redacted or text != document.text,
                "cluster_id": self.copied.cluster_id,
            }
            await self.archive.put(
                present, Document(record.model_copy(update=update), text), replaces=known is not None
            )
        return present.path

    async def _copy_log(self, path: str) -> str:
        key, container = parse_log_path(path)
        present = log_path(replace(self._checked(key, path), cluster=self.copied.key.cluster), container)
        async with self.gate.hold(LOG_HELD_BYTES, self.copied.key.namespace):
            if await find_log_size(self.archive, present) is None:
                await self.archive.put_log(present, self.archive.read_log(path))
        return present

    def _checked(self, key: ArchiveKey, path: str) -> ArchiveKey:
        """Return the key of a child or of the Pod of a log, if it can belong to the document.

        Raises:
            ValueError: It is in another cluster or namespace.
        """
        if (key.cluster, key.namespace) != (self.former.cluster, self.former.namespace):
            raise ValueError(f"{path} is not in the cluster and the namespace of {self.former.path}")
        return key

    def _report(self, path: str, error: Exception) -> None:
        _log.warning("archive %s: cannot copy %s of %s: %s", self.archive.name, path, self.former.path, error)


def _find_problem(key: ArchiveKey, document: Document, cluster_id: str) -> str:
    """Why a stored document is not that of its key in this cluster; empty if it is."""
    if document.record.cluster_id not in ("", cluster_id):
        return f"its record names the cluster with id {document.record.cluster_id}"
    return find_damage(key, document)


async def _read(archive: Archive, key: ArchiveKey, cluster_id: str) -> Document | None:
    """Read the document of a former key; None if there is none that can be copied."""
    try:
        document = await archive.read(key)
    except AbsentDocumentError:
        return None
    except DamagedDocumentError as error:
        _log.warning("%s", error)
        return None
    if problem := _find_problem(key, document, cluster_id):
        _log.warning("archive %s: %s is not copied: %s", archive.name, key.path, problem)
        return None
    return document


def _own_record(found: Found) -> Record | None:
    """The record under the present key; what one of another archive says of children and logs does not count."""
    record = found.record
    if record is None or record.is_of(found.stored.archive_id):
        return record
    return record.model_copy(update={"with_children": False, "with_logs": False})
