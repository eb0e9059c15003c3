"""A store in a bucket of S3, Google Cloud Storage or Azure, and its errors.

The text of an error has the request and the answer, which may hold credentials: a signed URL, an access key, the text
that was signed. Only the status, the error code and, unless the answer is about credentials, its message are used. A
bucket that does not answer, has no credentials, is busy or full is an outage of the archive. A conflict, a 408 and a
500 may be about one key.

obstore answers a coroutine from a thread of its own, which then still has Python objects to drop. If the interpreter is
finalizing by then, the thread ends the process with SIGABRT: one command in five, after all its work was done. See
PyO3/pyo3-async-runtimes#40.
"""

from __future__ import annotations  # obstore has the types of its dictionaries for type checkers only

import asyncio
import atexit
import re
import time
from collections.abc import AsyncIterator, Awaitable, Sequence
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Literal, TypeVar

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import AzureStore, GCSStore, MemoryStore, S3Store

from shared.adapters.archive.archive import PAGE_MAX, whole_second_after
from shared.core.archive.destination import AZ, GS, Destination
from shared.errors import ForbiddenError, PermanentError, TryLaterError, TtlError
from shared.ports.archive import StoredFile

if TYPE_CHECKING:
    from obstore import GetResult, ObjectMeta

ERROR_CHARACTERS_MAX = 16 * 1024
"""Maximum number of characters of an error that are looked at: the client puts the whole answer of a server into it."""

BUCKET_ERRORS = (BaseError, OSError, ValueError)
"""What obstore raises."""

_ANSWER = "non-2xx status code: "
_STATUS = re.compile(_ANSWER + r"(\d{3})")
_CODE = re.compile(r"<Code>([\w.-]{1,80})</Code>")
_DELETE_CODE = re.compile(r"DeleteObjects request failed for key .*\(code: ([\w.-]{1,80})\)\s*$", re.DOTALL)
_MESSAGE = re.compile(r"<Message>([^<\n\\]{1,300})")
_AT_IDENTITY = re.compile(  # a URL of a document has these words at most behind its bucket
    r"Error performing token request|://169\.254\.|://metadata\.google|://login\.|://[^/\s]+/latest/(api/token|meta-data/)"
    r"|://[^\s?]*\?\S*Action=AssumeRole"
)
_PRIVATE_CODE = re.compile(r"Access|Auth|Credential|Signature|Token")
_SETTINGS = "region, endpoint and addressing in the URL"
_CREDENTIALS = {
    GS: "GOOGLE_SERVICE_ACCOUNT_KEY or GOOGLE_APPLICATION_CREDENTIALS, or the identity of the workload",
    AZ: "AZURE_STORAGE_ACCOUNT_KEY, the other AZURE_STORAGE_ variables, or the identity of the workload",
}
_S3_CREDENTIALS = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or the identity of the workload"
_REFUSED_CODES = frozenset(
    {
        "AccessDenied",
        "InvalidAccessKeyId",
        "ExpiredToken",
        "InvalidToken",
        "TokenRefreshRequired",
        "XAdminUserNotFound",
    }
)
_FULL_CODES = frozenset({"XMinioStorageFull", "QuotaExceeded", "StorageFull", "InsufficientCapacity"})
_BUSY_CODES = frozenset({"InternalError", "SlowDown", "ServiceUnavailable"})
_CONFLICT_CODES = frozenset({"ConditionalRequestConflict", "OperationAborted"})
_ABSENT_CODES = frozenset({"", "NoSuchKey", "BlobNotFound", "NotFound"})
_CONNECTION = {
    "dns error": "the host name was not found",
    "ConnectionRefused": "the connection was refused",
    "InvalidCertificate": "the certificate of the server is not trusted; SSL_CERT_FILE names the trusted CAs",
    "InvalidContentType": "the server does not answer in TLS; expected http:// in endpoint",
    "kind: Timeout": "no answer in time",
    "TimedOut": "no answer in time",
}
_RETRY_SECONDS = 30.0  # until a store that was full is tried again, at the least


@dataclass(frozen=True, slots=True)
class _Answer:
    """What a server answered; the status is 0 if none did."""

    status: int
    code: str
    message: str

    def __str__(self) -> str:
        return self.codes + (f": {self.message}" if self.message else "")

    @property
    def codes(self) -> str:
        """The status and the error code, without the message, which may name a key."""
        return " ".join(part for part in (str(self.status), self.code) if part)


def is_absent(error: Exception, action: str) -> bool:
    """Whether a 404 says that the file is absent, and not its bucket or the account."""
    return action not in {"store", "list"} and _answer(error).code in _ABSENT_CODES


def convert_bucket_error(error: Exception, what: str, destination: Destination) -> TtlError:  # noqa: C901, PLR0912 - one table
    """Return the error for a failed request.

    Args:
        error: What obstore raised.
        what: The beginning of the message: the archive, and what was tried.
        destination: The destination of the archive.
    """
    answer = _answer(error)
    credentials = _CREDENTIALS.get(destination.scheme, _S3_CREDENTIALS)
    if _AT_IDENTITY.search(_request(error)):
        said = f" (it answered {answer.status})" if answer.status else ""
        problem = f"no credentials: none are set, and the identity service gave none{said}; expected {credentials}"
        return TryLaterError(f"{what}: {problem}", outage=problem)
    if answer.code in _FULL_CODES or answer.status == HTTPStatus.INSUFFICIENT_STORAGE:
        return _outage(what, "the store is full ({}); free space or raise the quota", answer, _RETRY_SECONDS)
    if answer.code == "RequestTimeTooSkewed":
        return _outage(what, "the clocks of this machine and of the store differ ({}); set the clocks", answer)
    if answer.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN) or answer.code in _REFUSED_CODES:
        return ForbiddenError(
            f"{what}: the store refused ({answer}); expected credentials with the rights to put, get, list and delete "
            f"below this URL; check {credentials}"
        )
    match answer.status:
        case 0:
            return _unanswered(error, what, destination)
        case HTTPStatus.NOT_FOUND:
            return PermanentError(
                f"{what}: the bucket does not exist ({answer}); expected a bucket {destination.bucket}; make it, or "
                "correct the URL of the archive"
            )
        case HTTPStatus.CONFLICT | HTTPStatus.PRECONDITION_FAILED if answer.code in (*_CONFLICT_CODES, ""):
            return TryLaterError(f"{what}: another request for it is in progress ({answer})")
        case HTTPStatus.PRECONDITION_FAILED:  # the file was deleted between the put and the question for it
            return TryLaterError(f"{what}: it existed and was deleted a moment ago ({answer})")
        case HTTPStatus.TOO_MANY_REQUESTS:
            return _outage(what, "the store is busy ({})", answer)
        case HTTPStatus.REQUEST_TIMEOUT:
            return TryLaterError(f"{what}: the store is busy ({answer})")
        case HTTPStatus.BAD_GATEWAY | HTTPStatus.SERVICE_UNAVAILABLE | HTTPStatus.GATEWAY_TIMEOUT:
            return _outage(what, "the store answered {}", answer)
        case status if status >= HTTPStatus.INTERNAL_SERVER_ERROR and status != HTTPStatus.NOT_IMPLEMENTED:
            return TryLaterError(f"{what}: the store answered {answer}")
        case _:
            return PermanentError(f"{what}: the store answered {answer}; check {_SETTINGS}")


def _unanswered(error: Exception, what: str, destination: Destination) -> TtlError:
    text, code = _text(error), _answer(error).code
    if code:  # of one file of a request that deletes several; such as InternalError, or a lock of the bucket
        kind = TryLaterError if code in _BUSY_CODES else PermanentError
        return kind(f"{what}: the store answered {code}")
    if "HTTP error" not in text and "error sending" not in text and "kind: " not in text:
        return PermanentError(f"{what}: {type(error).__name__}; check {_SETTINGS}")
    reason = next((words for sign, words in _CONNECTION.items() if sign in text), "the connection failed")
    server = destination.options.get("endpoint", f"the {destination.scheme} service")
    problem = f"no answer of {server}: {reason}"
    return TryLaterError(f"{what}: {problem}", outage=problem)


def _outage(what: str, problem: str, answer: _Answer, retry_after_seconds: float = 1.0) -> TryLaterError:
    """The error of an archive as a whole; its `outage` is without the message of the store, which may name a key."""
    return TryLaterError(
        f"{what}: {problem.format(answer)}",
        retry_after_seconds=retry_after_seconds,
        outage=problem.format(answer.codes),
    )


def _answer(error: Exception) -> _Answer:
    text = _head(error)
    status = _STATUS.search(text)
    code = _CODE.search(text) or _DELETE_CODE.search(text)
    number = int(status[1]) if status else 0
    is_private = number in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN) or (code and _PRIVATE_CODE.search(code[1]))
    message = None if is_private else _MESSAGE.search(text)
    return _Answer(number, code[1] if code else "", message[1].strip() if message else "")


def _head(error: Exception) -> str:
    """The text before the debugging output, which repeats it."""
    return _text(error).partition("\n\nDebug source")[0]


def _request(error: Exception) -> str:
    """The text before the answer, which a server writes: the URL of the request, and why it failed."""
    return _head(error).partition(_ANSWER)[0]


def _text(error: Exception) -> str:
    return str(error)[:ERROR_CHARACTERS_MAX]


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
