"""The ids of the archives in the shared state: which archive each name of the policy means."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from shared.core.archive.identity import KnownArchive, find_known
from shared.errors import PermanentError, TryLaterError, TtlError
from shared.ports import State, Telemetry
from shared.safeguards.safeguards import Safeguards
from shared.safeguards.shared_state import UNREAD
from shared.safeguards.state_schema import ARCHIVES, NAME, Data, StateContents, parse_state, with_archive

_DAMAGED = f"ConfigMap {NAME}: {ARCHIVES} is no JSON with an id for each archive: run `kubectl ttl archive adopt`"


@dataclass
class SharedArchiveIds:
    """See `shared.ports.ArchiveIds`; all processes of an installation remember the same ids.

    Attributes:
        safeguards: Returns the safeguards of this process, which have its shared state.
        telemetry: Receives what is wrong with an archive, once.
        may_write: Whether new ids are written; a dry run remembers them for itself.
    """

    safeguards: Callable[[], Awaitable[Safeguards]]
    telemetry: Telemetry
    may_write: bool = True
    _own: dict[str, KnownArchive] = field(default_factory=dict)
    _reported: dict[str, str] = field(default_factory=dict)

    async def find(self, name: str, location: str, *, is_fresh: bool = False) -> str:
        """See `shared.ports.ArchiveIds`."""
        try:
            contents = await (await self.safeguards()).shared_state.read(is_fresh=is_fresh)
        except TryLaterError as error:
            raise TryLaterError(f"archive {name}: its id is unknown: {UNREAD}: {error}") from None
        if contents is None:
            raise PermanentError(f"archive {name}: its id is unknown: {UNREAD}; grant get on ConfigMap {NAME}")
        known = {**self._own, **known_archives(contents)}
        found = find_known(known, name, location)
        if found and name not in known:  # a new name of the archive: it keeps the id when its URL changes later
            return await self.remember(name, KnownArchive(found, location))
        return found

    async def remember(self, name: str, known: KnownArchive) -> str:
        """See `shared.ports.ArchiveIds`."""
        if not self.may_write:
            return self._own.setdefault(name, known).id
        try:
            remembered = await (await self.safeguards()).shared_state.remember_archive(name, known)
            return known_archives(remembered)[name].id
        except TtlError as error:
            kind = PermanentError if isinstance(error, PermanentError) else TryLaterError
            raise kind(f"archive {name}: its id {known.id} could not be remembered: {error}") from None

    def report(self, name: str, problem: str) -> None:
        """See `shared.ports.ArchiveIds`."""
        if problem and problem != self._reported.get(name):
            self.telemetry.problem("an archive is not the expected one", archive=name, error=problem)
        self._reported[name] = problem


@dataclass(frozen=True, slots=True)
class ReadArchiveIds:
    """See `shared.ports.ArchiveIds`, for a command: the ids that it has read; it remembers none.

    Attributes:
        contents: The shared state of each namespace that has some; the first one takes precedence.
    """

    contents: tuple[StateContents, ...]

    async def find(self, name: str, location: str, *, is_fresh: bool = False) -> str:  # noqa: ARG002 - the port's
        """See `shared.ports.ArchiveIds`."""
        found = (find_known(known_archives(one), name, location) for one in self.contents)
        return next(filter(None, found), "")

    async def remember(self, name: str, known: KnownArchive) -> str:  # noqa: ARG002 - the port's
        """Return the id of an archive that no process remembers yet."""
        return known.id

    def report(self, name: str, problem: str) -> None:
        """Do nothing: the error names the problem."""


def known_archives(contents: StateContents) -> Mapping[str, KnownArchive]:
    """Return the archives that are remembered.

    Raises:
        PermanentError: They cannot be read: a user may have edited them.
    """
    if contents.archives is None:
        raise PermanentError(_DAMAGED)
    return contents.archives


async def remember_archive(state: State, name: str, known: KnownArchive, *, replaces: bool = False) -> str:
    """Remember an archive of an installation, for `archive init` and `archive adopt`.

    Args:
        state: The shared state of the installation.
        name: The name of the archive in the policy.
        known: The archive.
        replaces: Whether it takes the place of another one that is remembered, and of what cannot be read.

    Returns:
        The id that was remembered before; empty if none was.

    Raises:
        TtlError: The state cannot be read or written.
    """
    before = [""]

    def write(data: Data) -> Data:
        archives = parse_state(data).archives or {}
        before[0] = archives[name].id if name in archives else ""
        return with_archive(data, name, known, replaces=replaces)

    await state.write(write)
    return before[0]
