"""A store in a bucket of S3, Google Cloud Storage or Azure.

obstore answers a coroutine from a thread of its own, which then still has Python objects to drop. If the interpreter is
finalizing by then, the thread ends the process with SIGABRT: one command in five, after all its work was done. See
PyO3/pyo3-async-runtimes#40.
"""

from __future__ import annotations  # obstore has the types of its dictionaries for type checkers only

import asyncio
import atexit
import time
from collections.abc import AsyncIterator, Awaitable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Literal, TypeVar

import obstore
from obstore.exceptions import AlreadyExistsError
from obstore.store import AzureStore, GCSStore, MemoryStore, S3Store

from shared.adapters.archive.bucket_errors import BUCKET_ERRORS, convert_bucket_error, is_absent
from shared.adapters.archive.store import PAGE_MAX, whole_second_after
from shared.core.archive.destination import Destination
from shared.errors import PermanentError, TryLaterError, TtlError
from shared.ports.archive import StoredFile

if TYPE_CHECKING:
    from obstore import GetResult, ObjectMeta

AnyBucket = AzureStore | GCSStore | MemoryStore | S3Store

OPERATION_SECONDS = 60.0
"""How long one call may take, with all its attempts. The timers do the longer retries."""

_PATH_BYTES_MAX = 1_024  # of S3, Google Cloud Storage and Azure
_PART_BYTES = 5 * 1024 * 1024  # the least that S3 takes
_PARTS_AT_ONCE = 1
_DELETES_AT_ONCE = 16
_CHUNK_BYTES = 256 * 1024
_Returned = TypeVar("_Returned")


class BucketStore:
    """A store in a bucket."""

    def __init__(self, name: str, destination: Destination, bucket: AnyBucket) -> None:
        self._name, self._destination, self._bucket = name, destination, bucket
        wait_at_exit()

    def location(self, path: str = "") -> str:
        """The URL of a path."""
        return self._destination.location(path)

    async def put(self, path: str, data: bytes, *, replaces: bool = False) -> StoredFile:
        """Store a file, unless its path exists, or in place of the file that exists.

        The answer of a put can be lost, and a conflict does not say that the file exists (S3: 409). So the bucket is
        always asked for the file. Its answer also gives the time of the acceptance.
        """
        self._check_length(path)
        mode: Literal["create", "overwrite"] = "overwrite" if replaces else "create"
        put = obstore.put_async(self._bucket, path, data, mode=mode, use_multipart=False)
        conflict: Exception | None = None
        try:
            await self._within(put, "store", path)
        except AlreadyExistsError as error:
            conflict = error
        try:
            file = await self.head(path)
        except KeyError:
            if conflict:
                raise self._error(conflict, "store", path) from None
            what = self._what("store", path)
            raise TryLaterError(f"{what}: the bucket accepted it and does not have it; check its rules") from None
        if conflict is None and file.size != len(data):
            raise self._size_error(path, file.size, len(data), replaces=replaces)
        return file

    def _size_error(self, path: str, found: int, sent: int, *, replaces: bool) -> TtlError:
        """The error for a file of another size; two archivers may replace a file at the same time."""
        what = self._what("store", path)
        if replaces:
            return TryLaterError(f"{what}: the file has {found} bytes instead of {sent}; another client may replace it")
        return PermanentError(f"{what}: the bucket has {found} of {sent} bytes; delete it, check the bucket")

    async def head(self, path: str) -> StoredFile:
        """Return what is stored under a path."""
        try:
            return _file(await self._within(obstore.head_async(self._bucket, path), "look up", path))
        except FileNotFoundError:
            raise KeyError(path) from None

    async def get(self, path: str, limit: int) -> bytes:
        """Read a file. Its bytes are counted, too: an answer may have more of them than the size in its header."""
        try:
            result = await self._within(obstore.get_async(self._bucket, path), "read", path)
            if result.meta["size"] > limit:
                raise OverflowError
            data = bytearray()
            async for chunk in self._chunks(result, path):
                data += chunk
                if len(data) > limit:
                    raise OverflowError
            return bytes(data)
        except FileNotFoundError:
            raise KeyError(path) from None

    async def put_stream(self, path: str, chunks: AsyncIterator[bytes]) -> None:
        """Store a file in a stream, and replace the file that exists; a short one is sent at once."""
        self._check_length(path)
        head = bytearray()
        async for chunk in chunks:
            head += chunk
            if len(head) > _PART_BYTES:
                break
        else:
            await self._within(obstore.put_async(self._bucket, path, bytes(head), use_multipart=False), "store", path)
            return
        await self._put_parts(path, bytes(head), chunks)

    async def get_stream(self, path: str) -> AsyncIterator[bytes]:
        """Read a file in chunks."""
        try:
            result = await self._within(obstore.get_async(self._bucket, path), "read", path)
            async for chunk in self._chunks(result, path):
                yield chunk
        except FileNotFoundError:
            raise KeyError(path) from None

    async def _chunks(self, result: GetResult, path: str) -> AsyncIterator[bytes]:
        stream = aiter(result.stream(min_chunk_size=_CHUNK_BYTES))
        while chunk := await self._within(_next(stream), "read", path):
            yield bytes(chunk)

    async def files(self, prefix: str) -> AsyncIterator[Sequence[StoredFile]]:
        """List the files below a prefix."""
        pages = aiter(obstore.list(self._bucket, prefix or None, chunk_size=PAGE_MAX))
        while page := await self._within(_next(pages), "list", prefix):
            yield [_file(meta) for meta in page]

    async def folders(self, prefix: str) -> AsyncIterator[str]:
        """List the names of the folders right below a prefix."""
        listed = obstore.list_with_delimiter_async(self._bucket, prefix or None)
        for folder in sorted((await self._within(listed, "list", prefix))["common_prefixes"]):
            yield folder.rstrip("/").rpartition("/")[2]

    async def delete(self, paths: Sequence[str]) -> None:
        """Delete files."""
        if isinstance(self._bucket, S3Store):  # one request for 1,000 files, which does not fail for absent ones
            await self._within(obstore.delete_async(self._bucket, list(paths)), "delete", paths[0])
            return
        for start in range(0, len(paths), _DELETES_AT_ONCE):
            await asyncio.gather(*map(self._delete, paths[start : start + _DELETES_AT_ONCE]))

    async def _delete(self, path: str) -> None:
        try:
            await self._within(obstore.delete_async(self._bucket, path), "delete", path)
        except FileNotFoundError:
            return

    async def _put_parts(self, path: str, head: bytes, chunks: AsyncIterator[bytes]) -> None:
        """Store a long file in parts; it has its name only when all of them are stored."""
        writer = obstore.open_writer_async(self._bucket, path, buffer_size=_PART_BYTES, max_concurrency=_PARTS_AT_ONCE)
        await self._within(writer.write(head), "store", path)
        async for chunk in chunks:
            await self._within(writer.write(chunk), "store", path)
        await self._within(writer.close(), "store", path)

    async def _within(self, answer: Awaitable[_Returned], action: str, path: str) -> _Returned:
        """Wait for an answer, and convert its errors but FileNotFoundError and AlreadyExistsError."""
        try:
            async with asyncio.timeout(OPERATION_SECONDS):
                return await answer
        except TimeoutError:
            problem = f"no answer in {OPERATION_SECONDS:g} s"
            raise TryLaterError(f"{self._what(action, path)}: {problem}", outage=problem) from None
        except AlreadyExistsError:
            raise
        except FileNotFoundError as error:
            if is_absent(error, action):
                raise
            raise self._error(error, action, path) from None
        except BUCKET_ERRORS as error:
            raise self._error(error, action, path) from None

    def _error(self, error: Exception, action: str, path: str) -> Exception:
        return convert_bucket_error(error, self._what(action, path), self._destination)

    def _what(self, action: str, path: str) -> str:
        return f"archive {self._name}: cannot {action} {self.location(path)}"

    def _check_length(self, path: str) -> None:
        length = len(f"{self._destination.path}/{path}".encode())
        if length > _PATH_BYTES_MAX:
            what = f"archive {self._name}: cannot store {self.location(path)}"
            raise PermanentError(f"{what}: its key has {length} bytes, expected at most {_PATH_BYTES_MAX}")


async def _next(found: AsyncIterator[_Returned]) -> _Returned | None:
    """The next value; None at the end. The built-in `anext` with a default fails for the iterators of obstore."""
    try:
        return await anext(found)
    except StopAsyncIteration:
        return None


def _file(meta: ObjectMeta) -> StoredFile:
    return StoredFile(meta["path"], whole_second_after(meta["last_modified"]), meta["size"])


QUIET_SECONDS = 0.1
"""How long the end of a process waits for these threads; they need the interpreter for microseconds."""


@cache
def wait_at_exit() -> None:
    """Wait at the end of this process, while other threads may still use the interpreter."""
    atexit.register(time.sleep, QUIET_SECONDS)
