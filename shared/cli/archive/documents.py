"""The documents of an archived object: read, and printed as YAML or JSON; and what is missing of its logs."""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import yaml

from shared.cli.archive.source import ArchiveSource
from shared.cli.output.printing import inform, plural
from shared.core.archive.copies import describe_rivals, find_damage
from shared.core.archive.document import Document, Record
from shared.core.archive.identity import SourceCluster
from shared.core.archive.layout import ArchiveKey, parse_key
from shared.core.values.objects import format_instant, get_text, list_mappings, printable, ref_of
from shared.errors import AbsentDocumentError, DamagedDocumentError, TtlError
from shared.evaluation.children import CHILDREN_MAX
from shared.ports.archive import Archive, SignedArchive, Stored
from shared.usecases.archives.search import ArchiveSelection, Chosen, list_selected

CHILDREN_BYTES_MAX = 256 * 1024 * 1024
"""Maximum number of bytes of the children of one object that a command has in memory at once."""

OTHERS_READ_MAX = 100
"""Documents that are read to find another version, if the one that is asked for is damaged."""

_Base: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_OTHER_NUMBER = re.compile(
    r"[-+]?0o[0-7_]+|[-+]?0b[01_]+|[-+]?[0-9_.]+[eE][-+]?[0-9]+|[0-9]+(:[0-5]?[0-9])+(\.[0-9]*)?"
)
"""Texts that are numbers for some YAML parsers, and texts for this one."""

_IN_PART = ("cut:", "broken-off:", "kept:")
"""The problems with which a part of a log is stored."""


class _Dumper(_Base):  # type: ignore[misc]  # chosen at run time
    """Writes what every YAML parser reads as the same values; it uses no aliases."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - yaml's signature
        return True


def _represent_text(dumper: Any, text: str) -> Any:
    style = "|" if "\n" in text else "'" if _OTHER_NUMBER.fullmatch(text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def as_yaml(obj: Any) -> str:
    """Return an object as YAML, which kubectl reads back without a change."""
    text: str = yaml.dump(
        obj, Dumper=_Dumper, sort_keys=True, allow_unicode=True, default_flow_style=False, width=1_000
    )
    return text


def as_text(objects: Sequence[dict[str, Any]], output: str) -> str:
    """Return objects as YAML documents, or as JSON: one object, or a List of several."""
    if output == "yaml":
        return "---\n".join(as_yaml(one) for one in objects)
    if len(objects) == 1:
        return json.dumps(objects[0], indent=4, ensure_ascii=False) + "\n"
    items = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
    return json.dumps(items, indent=4, ensure_ascii=False) + "\n"


async def read_chosen(archive: Archive, chosen: Chosen) -> tuple[Chosen, Document]:
    """Read the document that was chosen, or another one of the same version if that is damaged; say so then.

    Raises:
        TtlError: It cannot be read, all documents of the version are damaged, or several are not and differ, so that
            one may be forged. If they are signed, none is: then the first is read, and a note names the others.
    """
    is_signed = _is_signed(archive)
    damaged: list[DamagedDocumentError] = []
    good: tuple[Stored, Document] | None = None
    documents = (chosen.stored, *chosen.twins)
    for place, one in enumerate(documents):
        if good is not None and one.key.digest == good[0].key.digest:
            continue
        try:
            document = await _read(archive, one.key)
        except DamagedDocumentError as error:
            damaged.append(error)
            continue
        if good is None:
            good = one, document
        elif is_signed:
            rivals = describe_rivals(one.key, [good[0].location, one.location], are_signed=True)
            inform(printable(f"note: {rivals}; this is {good[0].location}"))
            break
        else:
            rivals = describe_rivals(one.key, [good[0].location, *(other.location for other in documents[place:])])
            raise DamagedDocumentError(f"archive {archive.name}: {rivals}")
    if good is None:
        raise DamagedDocumentError(f"{damaged[0]}{await _advise_other(archive, chosen)}")
    stored, document = good
    if stored is not chosen.stored:
        read = f"this is another document of the same version: {stored.location}"
        inform(printable(f"note: {chosen.stored.location} is damaged (see `archive verify`); {read}"))
    return replace(chosen, stored=stored), document


async def _advise_other(archive: Archive, chosen: Chosen) -> str:
    """Name the newest undamaged version of the name: a writer to the archive can store any number of newer ones."""
    for one in chosen.rest[:OTHERS_READ_MAX]:
        with suppress(AbsentDocumentError, DamagedDocumentError):
            await _read(archive, one.key)
            version = f"--uid {one.key.uid} --resource-version {one.key.resource_version}"
            return f"; the newest undamaged version was archived {format_instant(one.stored_at)}: set {version}"
    return ""


async def _read(archive: Archive, key: ArchiveKey) -> Document:
    """Read a document, and check that it is about the object that its key names.

    Raises:
        TtlError: It cannot be read, or it is damaged.
    """
    document = await archive.read(key)
    if problem := find_damage(key, document):
        raise DamagedDocumentError(f"archive {archive.name}: {key.path} is damaged: {problem}")
    return document


async def read_children(source: ArchiveSource, parent: ArchiveKey, document: Document) -> list[Document]:
    """Read the children that were archived with an object.

    Raises:
        TtlError: One of them cannot be read or is none, or there are too many, or they are too large. Or the archive
            has another undamaged document of the same version of a child, so that one may be forged.
    """
    paths = document.record.children
    if len(paths) > CHILDREN_MAX:
        raise TtlError(f"expected at most {CHILDREN_MAX} children, got {len(paths)}: restore them one by one")
    children, keys, size = [], [], 0
    for path in paths:
        try:
            key = parse_key(path)
        except ValueError as error:
            raise DamagedDocumentError(f"archive {source.name}: {parent.path} is damaged: {error}") from None
        child = await _read(source.archive, key)
        children.append(child)
        keys.append(key)
        size = _check_size(size + len(child.text))
        if (key.cluster, key.namespace) != (parent.cluster, parent.namespace):
            raise DamagedDocumentError(f"archive {source.name}: {key.path} is not a child of {parent.path}")
    family = {parent.uid, *(ref_of(child.obj).uid for child in children)}
    for child in children:
        # Its record may name no parent, or another one: a document is stored once, by the first that needs it.
        owners = {get_text(owner, "uid") for owner in list_mappings(child.obj, "metadata.ownerReferences")}
        if not owners & family:
            problem = f"{ref_of(child.obj)} is not a child of {parent.path}"
            raise DamagedDocumentError(f"archive {source.name}: {problem}")
    if not _is_signed(source.archive):  # a signed document is not forged
        await _check_rivals(source, keys)
    return children


async def _check_rivals(source: ArchiveSource, keys: Sequence[ArchiveKey]) -> None:
    """Check that the archive has no other document of the same version; the record of an owner names only one.

    Another writer can put any day into the key, so all days of the kinds in the namespace are listed.

    Raises:
        DamagedDocumentError: It has one that is not damaged.
    """
    wanted = {key.version: key for key in keys}
    kinds = {(key.group, key.kind) for key in keys}
    found: dict[tuple[str, ...], list[Stored]] = {}
    for cluster, namespace in {(key.cluster, key.namespace) for key in keys}:
        selection = ArchiveSelection(cluster, [namespace], lambda *kind: kind in kinds)
        async for page in list_selected(source.archive, selection):
            for one in page:
                if one.key.version in wanted:
                    found.setdefault(one.key.version, []).append(one)
    for version, documents in found.items():
        key = wanted[version]
        others = [one for one in documents if one.key.digest != key.digest]
        good = [one for one in others[:OTHERS_READ_MAX] if await _is_readable(source.archive, one.key)]
        if good or len(others) > OTHERS_READ_MAX:
            own = [one.location for one in documents if one.key.digest == key.digest]
            rivals = describe_rivals(key, [*own, *(one.location for one in good or others)])
            raise DamagedDocumentError(f"archive {source.name}: {rivals}; or restore the object without --children")


def _is_signed(archive: Archive) -> bool:
    return isinstance(archive, SignedArchive) and archive.is_signed


async def _is_readable(archive: Archive, key: ArchiveKey) -> bool:
    try:
        await _read(archive, key)
    except (AbsentDocumentError, DamagedDocumentError):
        return False
    return True


def _check_size(size: int) -> int:
    if size > CHILDREN_BYTES_MAX:
        raise TtlError(f"expected at most {CHILDREN_BYTES_MAX} bytes of children, got more: restore them one by one")
    return size


def origin_of(key: ArchiveKey, document: Document) -> SourceCluster:
    """Return the cluster of a document."""
    return SourceCluster(key.cluster, document.record.cluster_id)


def describe_record(document: Document, stored: Stored) -> str:
    """Say in one line what was archived, when by the clock of the store, on which cluster, and why."""
    record = document.record
    parts = [f"resource version {stored.key.resource_version}, archived {format_instant(stored.stored_at)}"]
    parts.append(f"cluster {origin_of(stored.key, document)}")
    if record.finished_at:
        parts.append(f"{record.outcome or 'finished'} {format_instant(record.finished_at)}")
    if record.due_at:
        by = f" by {record.ttl_from}" if record.ttl_from else ""
        parts.append(f"due {format_instant(record.due_at)}{by}")
    if record.children:
        parts.append(f"children: {len(record.children)}")
    if record.logs:
        parts.append(f"logs: {len(record.logs)}")
    redacted = "; the data of this Secret was not archived" if record.redacted else ""
    return f"{ref_of(document.obj)}: {', '.join(parts)}{redacted}"


def describe_log_problems(record: Record) -> Iterator[str]:
    """Say for each container what is missing of its log: `no log of ok-jf9xx/main: refused: …`."""
    for container, problem in record.log_problems.items():
        what = "the log of {} is not complete" if problem.startswith(_IN_PART) else "no log of {}"
        yield f"{what.format(container)}: {problem}"


def explain_no_logs(record: Record) -> str:
    """Say why an object has no stored logs."""
    if record.log_problems:
        return f"no log was stored: {plural(len(record.log_problems), 'log')} missing"
    if record.with_logs:
        return "no logs were archived with the object: neither it nor its children had a container with a log"
    return "no logs were archived with the object: nothing has set `logs: true` for it when it was archived"


def count_logs(record: Record) -> str:
    """`3 logs, 1 log missing`."""
    stored, missing = len(record.logs), sum(not one.startswith(_IN_PART) for one in record.log_problems.values())
    return ", ".join([plural(stored, "log"), *([f"{plural(missing, 'log')} missing"] if missing else [])])
