"""A foreign archiver: it receives `archive.request` over HTTP, and answers with `archive.done`.

It answers 200 with `archive.done` once it holds the version durably, also if it was asked before. It answers 202 or 204
if it stores the object later: then `archive` asks again, with a growing pause, or when `archive.done` comes through the
Broker. It answers 404 to a question without an object if it does not hold the version. A 2xx that is cut off, is no
`archive.done`, or is about another version, is no word of the archiver, such as the page of a proxy: it is asked again.

The path and the query of its URL may hold a secret. So errors and locations have only the scheme, host and port. An
answer may echo a part of the URL in any form. So if the URL has a path or a query, no text of an answer is in an error.
"""

from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, time
from functools import cached_property
from http import HTTPStatus
from urllib.parse import urlsplit

import aiohttp

from shared.adapters.events.cloudevents import EVENT_BYTES_MAX, event_of, parse_event, parse_message, to_http
from shared.adapters.http_client import UNCOMPRESSED, read_up_to, refuse_redirects
from shared.core.archive.copies import CLOCK_DIFFERENCE_MAX
from shared.core.archive.document import Document
from shared.core.archive.layout import ArchiveKey
from shared.core.values.objects import ObjectRef, format_instant, printable
from shared.errors import EventError, ForbiddenError, PermanentError, TryLaterError
from shared.messages import ArchiveDone, ArchiveRequest
from shared.ports.archive import Stored, StoredFile

WEBHOOK_SECONDS_MAX = 20.0
"""How long the archiver may take to answer."""

_SHOWN_MAX = 200  # of an answer, in a message
_RETRYABLE = (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.CONFLICT)
_AWAY = (
    HTTPStatus.TOO_MANY_REQUESTS,
    HTTPStatus.BAD_GATEWAY,
    HTTPStatus.SERVICE_UNAVAILABLE,
    HTTPStatus.GATEWAY_TIMEOUT,
)
_REFUSED = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)


class WebhookArchive:
    """An archive behind a webhook; it confirms what it holds, and cannot be listed or read.

    Attributes:
        location: Scheme, host and port of its URL, for people.
    """

    def __init__(self, name: str, url: str) -> None:
        self._name, self._url = name, url
        parts = urlsplit(url)
        self.location = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        self._has_secret = bool(parts.path.strip("/") or parts.query or parts.username)

    @property
    def name(self) -> str:
        """Its name in the policy."""
        return self._name

    @cached_property
    def _session(self) -> aiohttp.ClientSession:
        timeout = aiohttp.ClientTimeout(total=WEBHOOK_SECONDS_MAX, sock_connect=5)
        return aiohttp.ClientSession(
            timeout=timeout, middlewares=(refuse_redirects,), headers=UNCOMPRESSED, auto_decompress=False
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()

    async def put(self, key: ArchiveKey, document: Document, *, replaces: bool = False) -> Stored:  # noqa: ARG002
        """Send an object; return once the archiver holds it; see the port."""
        done = await self._ask(key, document)
        if done is None:
            raise TryLaterError(f"archive {self._name}: {self.location} has not stored {key.path} yet")
        return self._stored(key, done, len(document.text), finished_at=document.record.finished_at)

    async def confirm(self, key: ArchiveKey) -> Stored | None:
        """Ask whether the archiver holds exactly this version; see the port."""
        done = await self._ask(key, None)
        return None if done is None else self._stored(key, done, 0)

    async def find(self, key: ArchiveKey) -> Stored | None:
        """See `confirm`."""
        return await self.confirm(key)

    async def _ask(self, key: ArchiveKey, document: Document | None) -> ArchiveDone | None:
        """Send a request; None if the archiver does not hold the version yet."""
        ref = ObjectRef(key.api_version, key.kind, key.namespace, key.name, key.uid)
        request = ArchiveRequest(
            ref=ref,
            archive=self._name,
            cluster=key.cluster,
            resource_version=key.resource_version,
            digest=key.digest,
            object=document.obj if document else None,
            parent=document.record.parent if document else "",
        )
        headers, body = to_http(event_of(request, source=f"ttl-after-finished/{key.cluster}"))
        try:
            async with self._session.post(self._url, data=body, headers=headers) as response:
                answer, _ = await read_up_to(EVENT_BYTES_MAX + 1, response)  # one byte more is no event
                status = response.status
                given = {name.lower(): value for name, value in response.headers.items()}
        except (aiohttp.ClientError, TimeoutError) as error:
            # This error names the host and the port; others may have the URL, or a part of the answer.
            is_shown = isinstance(error, aiohttp.ClientConnectorError) or not self._has_secret
            problem = f"{self.location}: {(is_shown and str(error)) or type(error).__name__}"
            raise TryLaterError(f"archive {self._name}: {problem}", outage=problem) from None
        if status == HTTPStatus.NOT_FOUND and document is None:
            return None
        self._raise_for(status, answer)
        is_later = status in (HTTPStatus.ACCEPTED, HTTPStatus.NO_CONTENT) and "ce-type" not in given
        return None if is_later else self._parse(given, answer, request)

    def _raise_for(self, status: int, answer: bytes) -> None:
        if status < HTTPStatus.MULTIPLE_CHOICES:
            return
        answered = f"{self.location} answered {status}"
        problem = f"archive {self._name}: {answered}{self._shown(answer.decode(errors='replace'))}"
        if status in _AWAY:
            raise TryLaterError(problem, outage=answered)
        if status in _RETRYABLE or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            raise TryLaterError(problem)
        raise ForbiddenError(problem) if status in _REFUSED else PermanentError(problem)

    def _shown(self, text: str) -> str:
        """A text about an answer as the end of an error; empty if it may have a part of the URL."""
        return "" if self._has_secret or not text else f": {printable(text[:_SHOWN_MAX])}"

    def _parse(self, headers: dict[str, str], body: bytes, request: ArchiveRequest) -> ArchiveDone | None:
        if not body and "ce-type" not in headers:
            return None
        try:
            done = parse_message(parse_event(headers, body), ArchiveDone)
        except EventError as error:
            problem = f"{self.location}: expected archive.done{self._shown(str(error))}"
            raise TryLaterError(f"archive {self._name}: {problem}") from None
        expected = request.ref.uid, request.resource_version, request.digest
        if (done.ref.uid, done.resource_version, done.digest) != expected:
            problem = f"{self.location} answered about another version than {expected}"  # such as a cache
            raise TryLaterError(f"archive {self._name}: {problem}")
        return done

    def _stored(self, key: ArchiveKey, done: ArchiveDone, size: int, *, finished_at: datetime | None = None) -> Stored:
        """What the archiver holds, unless `archivedAt` is before the finish.

        A question has no finish time. Then the day of the key counts: that of the finish, or else of the creation.
        """
        at = done.archived_at
        earliest = finished_at or datetime.combine(key.day, time(), UTC)
        if earliest - at > CLOCK_DIFFERENCE_MAX:
            raise PermanentError(
                f"archive {self._name}: {self.location}: archivedAt: expected an instant from the finish "
                f"({format_instant(earliest)}) or later, got {format_instant(at)}; correct the archiver or its clock"
            )
        return Stored(key, at, size, done.location or self.location)

    # What a foreign archiver does not offer

    async def read(self, key: ArchiveKey) -> Document:
        """Raise an error: only the archiver itself can read its documents."""
        raise self._refused(f"read {key.path}")

    async def put_log(self, path: str, chunks: AsyncIterator[bytes]) -> int:  # noqa: ARG002 - the port's
        """Raise an error: a foreign archiver gets no logs."""
        raise self._refused(f"store the log {path}")

    def read_log(self, path: str) -> AsyncIterator[bytes]:
        """Raise an error."""
        raise self._refused(f"read the log {path}")

    def ls(self, prefix: str = "") -> AsyncIterator[Sequence[Stored]]:
        """Raise an error."""
        raise self._refused(f"list {prefix or 'its documents'}")

    def folders(self, prefix: str) -> AsyncIterator[str]:
        """Raise an error."""
        raise self._refused(f"list {prefix}")

    async def delete(self, keys: Sequence[ArchiveKey]) -> None:
        """Raise an error."""
        raise self._refused(f"delete {len(keys)} documents")

    def files(self, prefix: str = "") -> AsyncIterator[Sequence[StoredFile]]:
        """Raise an error."""
        raise self._refused(f"list {prefix or 'its files'}")

    async def delete_files(self, paths: Sequence[str]) -> None:
        """Raise an error."""
        raise self._refused(f"delete {len(paths)} files")

    def _refused(self, action: str) -> PermanentError:
        return PermanentError(f"archive {self._name}: cannot {action}: a webhook only stores; ask the archiver itself")
