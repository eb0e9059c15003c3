"""Find stored resource versions by what a person knows of an object, without reading the documents.

The keys of an archive are its index: see `shared.core.archive.layout`. A search lists the folders above the day, and
below them only what it asks for.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime

from shared.core.archive.layout import CLUSTER_SCOPED, prefix_of
from shared.core.values.objects import format_instant
from shared.errors import AbsentDocumentError, TtlError
from shared.ports.archive import Archive, Stored

LISTS_OF_DAYS_MAX = 16
"""Days that are listed concurrently in the search for one name."""

MatchKind = Callable[[str, str], bool]
"""Returns whether an API group and a kind are asked for."""


@dataclass(frozen=True, slots=True)
class ArchiveSelection:
    """The stored resource versions that are asked for.

    Attributes:
        cluster: The cluster, as in the keys.
        namespaces: The namespaces, empty text for cluster-scoped objects; None for all.
        matches: Which kinds; None for all.
        name: The name of the object; empty for all.
        since: The first day; None for all.
    """

    cluster: str
    namespaces: Sequence[str] | None = None
    matches: MatchKind | None = None
    name: str = ""
    since: date | None = None

    @property
    def _is_whole_namespace(self) -> bool:
        return self.matches is None and not self.name and self.since is None


async def list_selected(archive: Archive, selection: ArchiveSelection) -> AsyncIterator[Sequence[Stored]]:
    """List what is selected, a page at a time, in the order of the keys; no page is empty.

    The days of one name are listed concurrently: there are as many as the archive has days.
    """
    if selection.name:
        if found := await find_versions(archive, selection):
            yield sorted(found, key=lambda one: one.key.path)
        return
    async for prefix in prefixes_of(archive, selection):
        async for page in archive.ls(prefix):
            if page:
                yield page


async def prefixes_of(archive: Archive, selection: ArchiveSelection) -> AsyncIterator[str]:
    """Yield the longest prefixes that have only what is selected."""
    cluster = selection.cluster
    if selection._is_whole_namespace and selection.namespaces is None:  # noqa: SLF001 - of this module
        yield prefix_of(cluster)
        return
    async for namespace in _namespaces(archive, selection):
        if selection._is_whole_namespace:  # noqa: SLF001 - of this module
            yield prefix_of(cluster, namespace)
            continue
        async for kind in archive.folders(prefix_of(cluster, namespace)):
            if selection.matches is None or selection.matches(*_parse_kind(kind)):
                async for prefix in _prefixes_of_kind(archive, selection, (cluster, namespace, kind)):
                    yield prefix


async def _namespaces(archive: Archive, selection: ArchiveSelection) -> AsyncIterator[str]:
    if selection.namespaces is None:
        async for name in archive.folders(prefix_of(selection.cluster)):
            yield name
    else:
        for name in sorted(selection.namespaces):
            yield name or CLUSTER_SCOPED


async def _prefixes_of_kind(
    archive: Archive, selection: ArchiveSelection, parts: tuple[str, str, str]
) -> AsyncIterator[str]:
    if selection.since is None and not selection.name:
        yield prefix_of(*parts)
        return
    first = selection.since.isoformat() if selection.since else ""
    async for day in archive.folders(prefix_of(*parts)):
        if day >= first:
            yield prefix_of(*parts, day, *([selection.name] if selection.name else []))


def _parse_kind(folder: str) -> tuple[str, str]:
    """The API group and the kind of a folder: `Job.v1.batch`."""
    kind, _, version = folder.partition(".")
    return version.partition(".")[2], kind


async def find_versions(archive: Archive, selection: ArchiveSelection) -> list[Stored]:
    """Find all stored resource versions of the objects with the name of a selection, the newest first."""
    prefixes = [prefix async for prefix in prefixes_of(archive, selection)]
    slots = asyncio.Semaphore(LISTS_OF_DAYS_MAX)

    async def list_day(prefix: str) -> list[Stored]:
        async with slots:
            return [one async for page in archive.ls(prefix) for one in page]

    found = [one for day in await asyncio.gather(*map(list_day, prefixes)) for one in day]
    return sorted(found, key=_age, reverse=True)


def _age(stored: Stored) -> tuple[datetime, int, str]:
    """What sorts resource versions by age; the store's clock may give two of them one instant."""
    version = stored.key.resource_version
    return stored.stored_at, int(version) if version.isdecimal() else 0, version


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which of the stored resource versions of one name is asked for; the newest that fits is chosen.

    Attributes:
        uid: The uid; empty for any.
        resource_version: The resource version; empty for any.
        at: The archive's state at this instant; None for now.
        digest: The digest of the document; empty for any.
    """

    uid: str = ""
    resource_version: str = ""
    at: datetime | None = None
    digest: str = ""

    def fits(self, stored: Stored) -> bool:
        """Return whether a stored resource version is asked for."""
        key = stored.key
        return (
            self.uid in ("", key.uid)
            and self.resource_version in ("", key.resource_version)
            and (self.at is None or stored.stored_at <= self.at)
            and self.digest in ("", key.digest)
        )


@dataclass(frozen=True, slots=True)
class Chosen:
    """The resource version that was chosen.

    Attributes:
        stored: The resource version.
        others: The newest resource version of each other object of the same name that fits, too.
        versions: How many resource versions of the same object are stored.
        twins: The other documents of the same resource version of the same object that fit: all but one of them
            have to be damaged.
        rest: The documents of other versions and objects of the name that fit, the newest first.
    """

    stored: Stored
    others: Sequence[Stored] = ()
    versions: int = 1
    twins: Sequence[Stored] = ()
    rest: Sequence[Stored] = ()

    def describe_others(self) -> str:
        """Say that the archive has several objects of the name; empty if it has one."""
        if not self.others:
            return ""
        uids = ", ".join(f"{one.key.uid} (archived {format_instant(one.stored_at)})" for one in self.others[:3])
        more = f" and {len(self.others) - 3} more" if len(self.others) > 3 else ""  # noqa: PLR2004 - as above
        return (
            f"{len(self.others) + 1} objects of this name are archived; this is the newest, uid {self.stored.key.uid}; "
            f"for another, set --uid: {uids}{more}"
        )


def choose(found: Sequence[Stored], wanted: Wanted, *, what: str) -> Chosen:
    """Choose the resource version that is asked for.

    Args:
        found: The stored resource versions of one name, the newest first.
        wanted: Which of them is asked for.
        what: The object, for messages: `Job ci/build-42`.

    Raises:
        AbsentDocumentError: None is stored, or none fits.
        TtlError: They are of several kinds.
    """
    if not found:
        raise AbsentDocumentError(f"{what} is not in the archive")
    kinds = sorted({f"{one.key.kind}.{one.key.group}".removesuffix(".") for one in found})
    if len(kinds) > 1:
        raise TtlError(f"{what}: the kind is ambiguous in the archive: expected one of {', '.join(kinds)}")
    fitting = [one for one in found if wanted.fits(one)]
    if not fitting:
        raise AbsentDocumentError(f"{what}: {_describe_misfit(found, wanted)}")
    first = fitting[0]
    others: dict[str, Stored] = {}
    for one in fitting:
        if one.key.uid != first.key.uid:
            others.setdefault(one.key.uid, one)
    versions = sum(one.key.uid == first.key.uid for one in found)
    twins = [one for one in fitting[1:] if one.key.version == first.key.version]
    rest = [one for one in fitting if one.key.version != first.key.version]
    return Chosen(first, tuple(others.values()), versions, twins, rest)


def _describe_misfit(found: Sequence[Stored], wanted: Wanted) -> str:
    asked = [
        *([f"uid {wanted.uid}"] if wanted.uid else []),
        *([f"resource version {wanted.resource_version}"] if wanted.resource_version else []),
        *([f"archived at or before {format_instant(wanted.at)}"] if wanted.at else []),
        *([f"digest {wanted.digest}"] if wanted.digest else []),
    ]
    shown = [
        f"uid {one.key.uid}, resource version {one.key.resource_version}, archived {format_instant(one.stored_at)}"
        for one in found[:3]
    ]
    more = f" and {len(found) - 3} more" if len(found) > 3 else ""  # noqa: PLR2004 - as many as a line has room for
    return f"none is stored with {' and '.join(asked)}; stored: {'; '.join(shown)}{more}"
