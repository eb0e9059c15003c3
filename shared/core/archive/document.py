"""What is stored about one resource version: a line about the archiving, and the object as canonical JSON.

The object is stored as the API server sent it, with its managedFields. Canonical JSON has sorted names, no spaces and
no escapes but those that JSON needs, so that one object has one text and one digest in every process. The line is not
a part of the digest: several archivers may store one version at different times, and the first of them takes effect.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer
from pydantic.alias_generators import to_camel

from shared.core.archive.archiving import Archiving
from shared.core.archive.layout import ArchiveKey, container_of, key_of_log, parse_key
from shared.core.archive.signature import UNSIGNED, SigningKeys, has_signature
from shared.core.values.jsontext import check_json, parse_json
from shared.core.values.objects import ANNOTATION_DOMAIN, format_instant, parse_instant

OBJECT_BYTES_MAX = 16 * 1024 * 1024
"""Maximum number of bytes of an object in a document: as many as one answer of the API server may have. etcd stores
objects of about 1.5 MB."""

RECORD_BYTES_MAX = 24 * 1024 * 1024
"""Maximum number of bytes of the line about the archiving, which names up to 20,000 children and their logs."""

DOCUMENT_BYTES_MAX = RECORD_BYTES_MAX + 1 + OBJECT_BYTES_MAX
"""Maximum number of bytes of a document before compression."""

_Instant = Annotated[
    datetime,
    BeforeValidator(lambda value: value if isinstance(value, datetime) else parse_instant(value)),
    PlainSerializer(format_instant),
]


class Record(BaseModel):
    """The line about the archiving of one resource version.

    Attributes:
        archived_at: When the archiver stored it, by the clock of the API server or its own: by that which is ahead.
        finished_at: When the object finished; null if that is unknown, or if it is a child that has not finished.
        outcome: How the object ended: `succeeded`, `failed`, or null.
        due_at: When the object was due, as far as it was known.
        ttl_from: The annotation, field, policy rule or namespace default that set the TTL.
        rule: The policy rule that had the object archived; empty if an annotation did.
        with_children: Whether the children of the object were stored with it, as far as it had any.
        with_logs: Whether the logs of Pods were stored with it, as far as they could be read.
        parent: The uid of the object whose archiving stored this child; empty for the object itself.
        children: The keys of the children that were stored with it.
        logs: The keys of the logs that were stored with it.
        log_problems: What is missing of the logs and why, by container: `{"worker-0/main": "cut: …"}`.
        redacted: Whether the data of a Secret was left out.
        archive_id: The id of the archive that acknowledged it; empty for one without ids.
        cluster_id: The id of the cluster of the object; empty in a document of a version before ids.
    """

    model_config = ConfigDict(frozen=True, alias_generator=to_camel, populate_by_name=True)

    archived_at: _Instant
    finished_at: _Instant | None = None
    outcome: str | None = None
    due_at: _Instant | None = None
    ttl_from: str = ""
    rule: str = ""
    with_children: bool = False
    with_logs: bool = False
    parent: str = ""
    children: tuple[str, ...] = ()
    logs: tuple[str, ...] = ()
    log_problems: dict[str, str] = Field(default_factory=dict)
    redacted: bool = False
    archive_id: str = ""
    cluster_id: str = ""

    def has_all_of(self, archiving: Archiving) -> bool:
        """Return whether everything that is wanted now was stored with the object."""
        return archiving.is_met_by(children=self.with_children, logs=self.with_logs)

    def is_of(self, archive_id: str) -> bool:
        """Return whether the archive with this id acknowledged it; each one did if the id of the archive is unknown."""
        return self.archive_id == archive_id or not archive_id

    def joined(self, before: "Record", *, unsigned: ArchiveKey | None = None) -> "Record":
        """This record with the children and logs that the record before it has, as far as it lacks them.

        They may not exist any more, so that they cannot be stored again. Of a child that has changed meanwhile, only
        the new version is named. If the object was archived for itself and is now stored as a child, what is known of
        its own archiving stays.

        Args:
            before: The record before it.
            unsigned: The key of its document, if that has no valid signature, so that another writer may have written
                the record before it. Then it only names children and logs that can belong to the object; each child is
                checked for itself when it is read.
        """
        is_own = self.parent and not before.parent and unsigned is None
        own = ("rule", "due_at", "ttl_from", "parent") if is_own else ()
        uids = {parse_key(path).uid for path in self.children}
        named = [path for path in before.children if unsigned is None or _can_belong(path, unsigned, parse_key)]
        children = {*self.children, *(path for path in named if parse_key(path).uid not in uids)}
        logs = {path for path in before.logs if unsigned is None or _can_belong(path, unsigned, key_of_log)}
        read = set(map(container_of, self.logs))
        problems = {name: problem for name, problem in before.log_problems.items() if name not in read}
        return self.model_copy(
            update={name: getattr(before, name) for name in own}
            | {
                "children": tuple(sorted(children)),
                "logs": tuple(sorted({*self.logs, *logs})),
                "log_problems": problems | self.log_problems,
                "with_children": self.with_children or (before.with_children and unsigned is None),
                "with_logs": self.with_logs or (before.with_logs and unsigned is None),
            }
        )


@dataclass(frozen=True, slots=True)
class Document:
    """What is stored about one resource version.

    Attributes:
        record: The line about the archiving.
        text: The object as canonical JSON.
        is_signed: Whether it was read with a signature, which was checked only if there are keys.
    """

    record: Record
    text: bytes
    is_signed: bool = field(default=False, compare=False)

    @property
    def digest(self) -> str:
        """The SHA-256 of the text, in hexadecimal digits."""
        return digest_of(self.text)

    @property
    def obj(self) -> dict[str, Any]:
        """The object.

        Raises:
            JsonLimitError: It is nested too deeply, or has too many values.
            ValueError: The text is not JSON.
        """
        found: dict[str, Any] = parse_json(self.text)
        return found

    def to_bytes(self, path: str = "", keys: SigningKeys = UNSIGNED) -> bytes:
        """Both parts, before compression.

        Args:
            path: The key of the document in the archive, which the signature covers.
            keys: The first of them signs the document.

        Raises:
            ValueError: One of them is too large to be read back.
        """
        line = keys.sign(path, self.record.model_dump_json(by_alias=True).encode())
        _check_sizes(len(line), len(self.text))
        return line + b"\n" + self.text

    @classmethod
    def parse(cls, data: bytes, path: str = "", keys: SigningKeys = UNSIGNED) -> "Document":
        """Read both parts.

        Args:
            data: The bytes.
            path: The key of the document in the archive, which the signature covers.
            keys: One of them has to have signed the document; without any, no signature is checked.

        Raises:
            SignatureError: The signature is wrong, or there is none.
            ValueError: The data has another form, or a part of it is larger than its limit.
        """
        end = data.find(b"\n")
        if end < 0:
            raise ValueError("expected a line about the archiving, and the object in the next line")
        _check_sizes(end, len(data) - end - 1)
        line = data[:end]
        problem = keys.find_problem(path, line)
        try:
            check_json(line)
            document = cls(Record.model_validate_json(line), data[end + 1 :], has_signature(line))
        except ValueError:
            if problem:
                raise SignatureError(problem) from None
            raise
        if problem:
            raise SignatureError(problem, document)
        return document


class SignatureError(ValueError):
    """A document has no signature of one of the keys.

    Attributes:
        document: The document, if it has the form of one; another writer may have stored it.
    """

    def __init__(self, problem: str, document: Document | None = None) -> None:
        super().__init__(problem)
        self.document = document


def _can_belong(path: str, owner: ArchiveKey, parse: Callable[[str], ArchiveKey]) -> bool:
    """Return whether a path is a key in the cluster and the namespace of an object."""
    try:
        key = parse(path)
    except ValueError:
        return False
    return (key.cluster, key.namespace) == (owner.cluster, owner.namespace)


def _check_sizes(record: int, text: int) -> None:
    for what, size, most in (
        ("the line about the archiving", record, RECORD_BYTES_MAX),
        ("the object", text, OBJECT_BYTES_MAX),
    ):
        if size > most:
            raise ValueError(f"{what} has {size} bytes, expected at most {most}")


def canonical(obj: Any) -> bytes:
    """The canonical JSON of an object.

    Raises:
        ValueError: The object has a number that JSON cannot express.
    """
    text = json.dumps(obj, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8", "surrogatepass")


def digest_of(text: bytes) -> str:
    """The SHA-256 of a text, in hexadecimal digits."""
    return hashlib.sha256(text).hexdigest()


def without_secret_data(obj: dict[str, Any]) -> dict[str, Any]:
    """A Secret without its data; any other object unchanged.

    The names of the data stay, so that a person sees what is missing. So do the names of its annotations: many tools
    write the applied object into an annotation of their own, with the data.
    """
    if (obj.get("apiVersion"), obj.get("kind")) != ("v1", "Secret"):
        return obj
    parts = [part for part in ("data", "stringData") if isinstance(obj.get(part), dict)]
    empty: dict[str, Any] = {part: dict.fromkeys(obj[part], "") for part in parts}
    metadata = obj.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    if isinstance(metadata, dict) and isinstance(annotations, dict):
        kept = {name: value if name.startswith(f"{ANNOTATION_DOMAIN}/") else "" for name, value in annotations.items()}
        empty["metadata"] = {**metadata, "annotations": kept}
    return {**obj, **empty}
