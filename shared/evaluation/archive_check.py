"""Find out whether an archive has acknowledged exactly the version of an object that was read.

The stored document is the acknowledgement. Its key comes from the object, so no index has to be trusted: an object
that has changed since has another key. Before a deletion the document is read back and compared byte by byte.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, TypeVar

from shared.core.archive.archiving import ArchiveFact, Archiving
from shared.core.archive.copies import ArchiveCopy, copy_of, find_acknowledged_at
from shared.core.archive.gate import find_archiving
from shared.core.archive.layout import ArchiveKey
from shared.core.decision.facts import Case, Context
from shared.core.decision.finish import finish_of
from shared.core.kinds.rule import KindRule
from shared.core.policy.archives import ArchiveDestination
from shared.core.values.objects import get_annotations
from shared.errors import AbsentDocumentError, PermanentError, TryLaterError, TtlError
from shared.ports import Archive, Archives, ConfirmingArchive, Stored, loop_now

ARCHIVE_SECONDS_MAX = 8.0
"""How long an archive may take to answer, well below the time for one timer."""

AWAY_SECONDS = 5.0
"""How long an archive that did not answer is not asked again, so that an outage does not slow down a sweep."""

ACKNOWLEDGED_MAX = 100_000
"""Acknowledged versions that are remembered, so that a sweep does not ask for each of them again."""

_Known = tuple[ArchiveDestination, ArchiveFact]
_Away = tuple[float, str]
_Clock = Callable[[], datetime]
_T = TypeVar("_T")


@dataclass
class ArchiveCheck:
    """Asks the archives of the policy; all callers of a process share what it remembers.

    Attributes:
        archives: The archives; None if this process can reach none.
    """

    archives: Archives | None = None
    _known: dict[str, _Known] = field(default_factory=dict)
    _away: dict[str, _Away] = field(default_factory=dict)

    async def find(self, obj: Any, rule: KindRule, context: Context) -> ArchiveFact | None:
        """Return whether this version is stored: what this process remembers, or else what `read_back` returns.

        Returns:
            What is known; None if no archive is wanted.

        Raises:
            PermanentError: It cannot be found out: the archive is away, or refuses. The object is kept.
        """
        archiving = find_wanted(obj, rule, context)
        if archiving is None or archiving.native:
            return None
        copied = await self._copy(obj, rule, context, archiving)
        _, destination = self._reachable(archiving, context)
        where, known = self._known.get(copied.key.path, (None, None))
        if known is not None and where == destination and known.is_about(obj, archiving):
            return known
        return await self._look(archiving, copied, context)

    async def read_back(self, obj: Any, rule: KindRule, context: Context) -> ArchiveFact | None:
        """Read the stored document, and compare it with the object; see `find`.

        Returns:
            With `acknowledged_at` only if the bytes are those of the object, and if the children and logs that are
            wanted were stored with it; see `find_acknowledged_at` for the instant.

        Raises:
            PermanentError: It cannot be found out, or the document is damaged. The object is kept.
        """
        archiving = find_wanted(obj, rule, context)
        if archiving is None or archiving.native:
            return None
        return await self._look(archiving, await self._copy(obj, rule, context, archiving), context)

    async def read_back_as(self, archiving: Archiving, obj: Any, rule: KindRule, context: Context) -> ArchiveFact:
        """Read the stored document of an object that the caller wants archived; see `read_back`."""
        return await self._look(archiving, await self._copy(obj, rule, context, archiving), context)

    async def _look(self, archiving: Archiving, copied: ArchiveCopy, context: Context) -> ArchiveFact:
        archives, destination = self._reachable(archiving, context)
        self._known.pop(copied.key.path, None)
        archive = await self._open(archiving, context)
        fact = await self._ask(archiving.to, _read_back(archive, archiving, copied, archives.now))
        if fact.acknowledged_at is not None:
            self.remember(fact, copied.key, destination)
        return fact

    def find_outage(self, name: str) -> str:
        """Why an archive is not asked now: it did not answer a moment ago; empty if it may be asked."""
        until, problem = self._away.get(name, (0.0, ""))
        return problem if loop_now() < until else ""

    def remember(self, fact: ArchiveFact, key: ArchiveKey, destination: ArchiveDestination) -> None:
        """Remember an acknowledgement of the archive at a destination; the oldest one is forgotten.

        The document may be lost later, so what is remembered is never a proof for a deletion.
        """
        if len(self._known) >= ACKNOWLEDGED_MAX:
            del self._known[next(iter(self._known))]
        self._known[key.path] = destination, replace(fact, is_read_back=False)

    async def _copy(self, obj: Any, rule: KindRule, context: Context, archiving: Archiving) -> ArchiveCopy:
        archives, destination = self._reachable(archiving, context)
        try:
            cluster = await archives.find_cluster()
        except TryLaterError as error:  # an outage of the API server, and not of the archive
            raise PermanentError(str(error)) from None
        try:
            return copy_of(obj, rule, cluster=cluster, secrets=destination.secrets)
        except ValueError as error:
            raise PermanentError(f"the object cannot be archived: {error}") from None

    async def _open(self, archiving: Archiving, context: Context) -> Archive:
        archives, destination = self._reachable(archiving, context)
        if problem := self.find_outage(archiving.to):
            raise PermanentError(problem)
        return await self._ask(archiving.to, archives.open(archiving.to, destination))

    def _reachable(self, archiving: Archiving, context: Context) -> tuple[Archives, ArchiveDestination]:
        destination = context.policy.archives.get(archiving.to)
        if self.archives is None or destination is None:
            raise PermanentError(f"archive {archiving.to}: this process has no access to it")
        return self.archives, destination

    async def _ask(self, name: str, answer: Awaitable[_T]) -> _T:
        """Await an answer of an archive.

        An outage is repeated for other objects, so it must not name this one.

        Raises:
            PermanentError: It does not answer, or refuses.
        """
        try:
            async with asyncio.timeout(ARCHIVE_SECONDS_MAX):
                return await answer
        except TryLaterError as error:
            problem, outage = _named(name, error), error.outage
        except TimeoutError:
            outage = f"no answer within {ARCHIVE_SECONDS_MAX:g} s"
            problem = f"archive {name}: {outage}"
        except PermanentError as error:
            raise type(error)(_named(name, error)) from None
        if outage:
            self._away[name] = loop_now() + AWAY_SECONDS, f"archive {name}: {outage}"
        raise PermanentError(problem)


def _named(name: str, error: TtlError) -> str:
    """The error with the name of the archive, which the errors of a store have."""
    prefix = f"archive {name}: "
    return prefix + str(error).removeprefix(prefix)


def find_wanted(obj: Any, rule: KindRule, context: Context) -> Archiving | None:
    """How an object is archived; None if no archive is wanted, or if that is unknown."""
    try:
        return find_archiving(Case(obj, rule, context, get_annotations(obj), finish_of(obj, rule)))
    except (ValueError, LookupError):
        return None


async def _read_back(archive: Archive, archiving: Archiving, copied: ArchiveCopy, now: _Clock) -> ArchiveFact:
    key = copied.key
    nothing = ArchiveFact(archiving.to, key.uid, key.resource_version, is_read_back=True, digest=key.digest)
    if isinstance(archive, ConfirmingArchive):
        confirmed = await archive.confirm(key)
        if confirmed is None:
            return nothing
        found = replace(nothing, children=True, logs=True)
        return _acknowledged(found, confirmed, finished_at=copied.finished_at, now=now())
    stored = await archive.find(key)
    if stored is None:
        return nothing
    try:
        document = await archive.read(key)
    except AbsentDocumentError:
        return nothing
    found = replace(nothing, location=stored.location)
    if document.text != copied.text:
        return replace(found, problem=f"archive {archiving.to}: {stored.location} is not the object that was read")
    record = document.record
    found = replace(found, children=record.with_children, logs=record.with_logs, archive_id=record.archive_id)
    if not (record.has_all_of(archiving) and record.is_of(stored.archive_id)):
        return found
    return _acknowledged(found, stored, archived_at=record.archived_at, now=now())


def _acknowledged(fact: ArchiveFact, stored: Stored, *, now: datetime, **known: datetime | None) -> ArchiveFact:
    """The fact with the instant of the acknowledgement, or with why that does not count."""
    fact = replace(fact, location=stored.location)
    try:
        at = find_acknowledged_at(stored.stored_at, now=now, **known)
    except ValueError as error:
        return replace(fact, problem=f"archive {fact.to}: {stored.location}: {error}")
    return replace(fact, acknowledged_at=at)
