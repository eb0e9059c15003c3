"""Check which archive a destination is before a command uses it, as the processes do."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shared.cli.deleters.in_force import NamespaceState
from shared.errors import OtherArchiveError
from shared.evaluation.archive_identity import IdentifiedArchive
from shared.safeguards.archive_ids import ReadArchiveIds

if TYPE_CHECKING:  # the clients of the stores take long to load
    from shared.adapters.archive.archive import StoreArchive

_NONE_REMEMBERS = "no installation and no `run` on this cluster remembers an archive of this name or destination"


@dataclass(frozen=True, slots=True)
class IdentityCheck:
    """Whether a destination is the archive that an installation or a `run` remembers.

    Attributes:
        ids: What it remembers, for a check at each later use; None if that is unknown.
        unchecked: Why it is unknown which archive the destination is; empty if it is the one that the first state that
            remembers an archive remembers, and each state before it can be read.
    """

    ids: ReadArchiveIds | None = None
    unchecked: str = ""


async def check_identity(archive: "StoreArchive", states: Sequence[NamespaceState]) -> IdentityCheck:
    """Compare the marker of an archive with the shared states of a cluster.

    The destination may be the archive that an installation remembers, or that of a `run`: both may use one name. The
    state of the installation comes first.

    Raises:
        OtherArchiveError: None of those that remember an archive remembers this one.
        TryLaterError: The store is away.
        PermanentError: The store refuses, or what is remembered is damaged.
    """
    other: OtherArchiveError | None = None
    unread = ""
    for state in states:
        unread = unread or (f"the shared state cannot be read: {state.unread}" if state.unread else "")
        ids = ReadArchiveIds((state.contents,))
        if not await ids.find(archive.name, archive.location):
            continue
        try:
            await IdentifiedArchive(archive, ids).identify()
        except OtherArchiveError as error:
            other = other or error
        else:
            # Anyone may leave a state in the namespace of `run`: it is no word about the archive of the installation.
            return IdentityCheck(ids, unread or (str(other) if other is not None else ""))
    if other is not None:
        raise other
    return IdentityCheck(unchecked=unread or _NONE_REMEMBERS)
