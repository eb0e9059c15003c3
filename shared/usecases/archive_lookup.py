"""Look up what an archive holds of one version of an object, and whether that is what is wanted now."""

from dataclasses import dataclass

from shared.core.archive.archiving import Archiving
from shared.core.archive.document import Record
from shared.core.archive.layout import ArchiveKey
from shared.errors import AbsentDocumentError, DamagedDocumentError
from shared.ports import Archive, Stored


@dataclass(frozen=True, slots=True)
class Found:
    """A document that is stored.

    Attributes:
        stored: Where it is, and when the store accepted it.
        record: Its line about the archiving; None if the document is damaged.
    """

    stored: Stored
    record: Record | None

    def whole_record(self, archiving: Archiving) -> Record | None:
        """Its record if it has everything that is wanted; None if the document has to be replaced."""
        return self.record if self.record is not None and self.record.has_all_of(archiving) else None


async def look_up(archive: Archive, key: ArchiveKey) -> Found | None:
    """Find and read the document under a key; None if nothing is stored.

    A damaged document stays until it is replaced: another archiver may have replaced it meanwhile.

    Raises:
        TtlError: See the port `Archive`.
    """
    stored = await archive.find(key)
    if stored is None:
        return None
    try:
        return Found(stored, (await archive.read(key)).record)
    except AbsentDocumentError:
        return None
    except DamagedDocumentError:
        return Found(stored, None)
