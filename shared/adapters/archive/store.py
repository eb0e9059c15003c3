"""What a folder and a bucket have in common: files of bytes under paths; and a probe of a store.

The file is below `probe/`, where no document is. A probe that cannot delete its file leaves it there; the next probe of
the same host replaces nothing, because each probe has a name of its own.
"""

from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol

from shared.errors import TtlError
from shared.ports.archive import StoredFile

PAGE_MAX = 1_000
"""How many files one page of a list has; no store lists more at once."""


class FileStore(Protocol):
    """Files of bytes under paths.

    A store raises the errors of the port `Archive`, and KeyError if a file does not exist.
    """

    def location(self, path: str = "") -> str:
        """The URL of a path, for people."""
        ...

    async def put(self, path: str, data: bytes, *, replaces: bool = False) -> StoredFile:
        """Store a file durably, unless the path exists; then the first file stays, and is returned.

        With `replaces`, the new file takes the place of the first one, in one step.
        """
        ...

    async def head(self, path: str) -> StoredFile:
        """Return what is stored under a path, without its bytes."""
        ...

    async def get(self, path: str, limit: int) -> bytes:
        """Read a file.

        Raises:
            OverflowError: The file has more bytes than the limit. None of them is read.
        """
        ...

    async def put_stream(self, path: str, chunks: AsyncIterator[bytes]) -> None:
        """Store a file durably in a stream, and replace the file that exists."""
        ...

    def get_stream(self, path: str) -> AsyncIterator[bytes]:
        """Read a file in chunks."""
        ...

    def files(self, prefix: str) -> AsyncIterator[Sequence[StoredFile]]:
        """List the files below a prefix in the order of their paths, a page at a time."""
        ...

    def folders(self, prefix: str) -> AsyncIterator[str]:
        """List the names of the folders right below a prefix, in order."""
        ...

    async def delete(self, paths: Sequence[str]) -> None:
        """Delete files; a path that does not exist counts as deleted."""
        ...


def whole_second_after(instant: datetime) -> datetime:
    """The next whole second.

    Stores report whole seconds, rounded down, in some answers and fractions in others. This is equal for both, and
    never before the instant at which the store accepted the file.
    """
    return instant.replace(microsecond=0) + timedelta(seconds=1)


PROBE_FOLDER = "probe"
"""The folder of the probes."""

_LIMIT = 4_096


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """What a probe found out.

    Attributes:
        location: Where the file was written.
        problems: Each step that failed, with its error: `write`, `read`, `list`, `delete`.
        stored_at: When the store accepted the file, by its own clock, rounded up to a second; None if it did not.
    """

    location: str
    problems: Mapping[str, TtlError] = field(default_factory=dict)
    stored_at: datetime | None = None


async def probe_store(store: FileStore, name: str) -> ProbeResult:
    """Write, read, list and delete one file. The steps after a write that failed are not tried.

    Args:
        store: The store.
        name: The name of the file, which no other probe has.
    """
    path = f"{PROBE_FOLDER}/{name}"
    data = f"a probe of ttl-after-finished: {name}\n".encode()
    try:
        stored_at = (await store.put(path, data)).stored_at
    except TtlError as error:
        return ProbeResult(store.location(path), {"write": error})
    steps: Mapping[str, Awaitable[None]] = {
        "read": _read(store, path, data),
        "list": _list(store, path),
        "delete": store.delete([path]),
    }
    problems: dict[str, TtlError] = {}
    for step, act in steps.items():
        try:
            await act
        except TtlError as error:
            problems[step] = error
    return ProbeResult(store.location(path), problems, stored_at)


async def _read(store: FileStore, path: str, data: bytes) -> None:
    try:
        found = await store.get(path, _LIMIT)
    except (KeyError, OverflowError):
        found = b""
    if found != data:
        raise TtlError(f"{store.location(path)}: expected the {len(data)} bytes that were written, got others")


async def _list(store: FileStore, path: str) -> None:
    found = [one.path async for page in store.files(f"{PROBE_FOLDER}/") for one in page]
    if path not in found:
        raise TtlError(f"{store.location(path)}: expected the file in a list, got {len(found)} other files")
