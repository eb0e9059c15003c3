"""Look up what an archive holds of one version of an object, whether that is wanted now, and the message about it."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from shared.core.archive.archiving import ArchiveFact, Archiving
from shared.core.archive.copies import CLOCK_DIFFERENCE_MAX, ArchiveCopy, find_acknowledged_at
from shared.core.archive.document import Record
from shared.core.archive.layout import ArchiveKey
from shared.core.values.objects import ObjectRef
from shared.errors import AbsentDocumentError, DamagedDocumentError, PermanentError, UnsignedDocumentError
from shared.messages import ObjectArchived, Timer
from shared.ports import Archive, ConfirmingArchive, Stored

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
