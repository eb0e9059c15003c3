"""The archives of the contract: a folder, a bucket of a real S3 server, obstore's memory, and the fake."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from shared.core.archive.document import Document, Record, canonical
from shared.core.archive.layout import ArchiveKey
from shared.ports.archive import Archive
from tests import archives

ARCHIVED_AT = datetime(2026, 3, 14, 15, 9, 26, tzinfo=UTC)
_numbers = itertools.count()


@dataclass(frozen=True)
class Subject:
    """An archive under test.

    Attributes:
        archive: The archive.
        again: Opens the same archive once more, as another process does.
        write: Stores bytes under a path, past the archive.
        read: Reads the bytes under a path, past the archive.
    """

    archive: Archive
    again: Callable[[], Archive]
    write: Callable[[str, bytes], None]
    read: Callable[[str], bytes]


def in_folder(root: Path) -> tuple[Callable[[str, bytes], None], Callable[[str], bytes]]:
    """Write and read the files of a folder."""

    def write(path: str, data: bytes) -> None:
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)

    return write, lambda path: (root / path).read_bytes()


def make_object(name: str = "nightly", **fields: Any) -> dict[str, Any]:
    """A Job with a uid and a resourceVersion of its own."""
    number = next(_numbers)
    metadata = {"name": name, "namespace": "ci", "uid": f"uid-{number}", "resourceVersion": str(1_000 + number)}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {}, **fields}


def make_document(obj: dict[str, Any], **record: Any) -> Document:
    return Document(Record(archived_at=ARCHIVED_AT, rule="all", **record), canonical(obj))


def key_of(
    obj: dict[str, Any], document: Document, *, cluster: str = "prod", day: date = date(2026, 3, 14)
) -> ArchiveKey:
    return archives.key_of(obj, document.digest, cluster=cluster, day=day)


def make(name: str = "nightly", *, cluster: str = "prod", day: date = date(2026, 3, 14), **fields: Any):
    """A key, and its document."""
    obj = make_object(name, **fields)
    document = make_document(obj)
    return key_of(obj, document, cluster=cluster, day=day), document
