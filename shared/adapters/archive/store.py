"""What a folder and a bucket have in common: files of bytes under paths."""

from collections.abc import AsyncIterator, Sequence
from datetime import datetime, timedelta
from typing import Protocol

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
