"""Requests to the API server.

Objects are plain dicts: the models of the Kubernetes client would validate objects of users, and reject some.
Errors become those of `shared.errors`. A request is not retried, except once after its token was refused, and once by
the HTTP transport after a dropped connection. The transport does not repeat a request with a send deadline: the repeat
would be sent later, after a stop or an exemption.
"""

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Any

import aiohttp
from aiohttp.http_exceptions import LineTooLong

from shared.adapters.auth.identity import Identity
from shared.adapters.clock import ServerClock, SystemClock
from shared.adapters.kubernetes.bodies import read_json
from shared.adapters.kubernetes.refusals import raise_for, untrusted
from shared.adapters.kubernetes.transport import Transport
from shared.core.values.objects import get_text
from shared.core.values.objects import quote as excerpt
from shared.errors import AbsentKindError, PermanentError, TryLaterError

LATE_SECONDS = 1.5
"""After this time without an answer, a command says that it waits."""

REQUEST_SECONDS_MAX = 30.0
"""Timeout of a request: just under the API server's own limit of 34 s; a later answer is not reliable."""

LEAVE_SECONDS_MAX = 1.5
"""How long a DELETE may take to leave the process; after that it is not sent. With `CACHED_SECONDS` (stop) this is
4.5 s, with `NAMESPACE_AGE_SECONDS_MAX` (exemption) 5 s."""

LINE_BYTES_MAX = 16 * 1024 * 1024
"""Maximum length of a watch's line: an object of 1.5 MiB in etcd is six times as large in JSON if it is full of `<`."""

ReadBody = Callable[[aiohttp.ClientResponse], Awaitable[Any]]
"""Reads and parses the body of an answer."""

_REVIEWS = ("/apis/authentication.k8s.io/", "/apis/authorization.k8s.io/")
_JSON, _MERGE_PATCH = "application/json", "application/merge-patch+json"


@dataclass(frozen=True, slots=True)
class Answer:
    """A successful answer: its JSON, and a time that the API server's clock has reached.

    Attributes:
        ahead: How far the Date header is ahead of `read_at`; see `ServerClock`.
    """

    body: Any
    read_at: datetime
    ahead: timedelta = timedelta(0)


@dataclass(frozen=True, slots=True)
class Patience:
    """How long requests wait for an API server.

    Attributes:
        read_seconds: Timeout for a connection, and for the next bytes of the answer to a read or to a review. A write
            waits `REQUEST_SECONDS_MAX`: the API server may have to wait for admission webhooks, up to 30 s, and a write
            that was cut off may have happened.
        report_late: Called each time a request has no whole answer after `LATE_SECONDS`; None for no call.
    """

    read_seconds: float | None = None
    report_late: Callable[[], None] | None = None

    def limits(self, method: str, path: str, *, connect: float | None = None) -> aiohttp.ClientTimeout:
        """The timeouts of a request; reading the body of its answer included.

        Args:
            method: The method.
            path: The path. Reviews are written, but the API server answers them itself.
            connect: Timeout for a connection for the request, in seconds.
        """
        waits = method != "GET" and not path.startswith(_REVIEWS)
        read = None if waits else self.read_seconds
        return aiohttp.ClientTimeout(REQUEST_SECONDS_MAX, connect, sock_connect=self.read_seconds, sock_read=read)

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Report a request that lasts longer than `LATE_SECONDS`."""
        if self.report_late is None:
            yield
            return
        timer = asyncio.get_running_loop().call_later(LATE_SECONDS, self.report_late)
        try:
            yield
        finally:
            timer.cancel()


class ApiServer:
    """An API server.

    Args:
        transport: Its HTTP session; this object closes it.
        identity: The source of bearer tokens; None if the transport has credentials of a kubeconfig.
        refresher: The task that renews the credentials of a kubeconfig; `close` cancels it.

    Attributes:
        patience: How long a request waits for an answer.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        identity: Identity | None = None,
        refresher: asyncio.Task[None] | None = None,
    ) -> None:
        self._transport = transport
        self._identity = identity
        self._refresher = refresher
        self._clock = ServerClock(time.monotonic, SystemClock().now)
        self.patience = Patience()

    @property
    def server(self) -> str:
        """The API server's URL."""
        return self._transport.server

    async def close(self) -> None:
        """Close the connections."""
        if self._refresher:
            self._refresher.cancel()
        if self._identity:
            self._identity.close()
        await self._transport.close()

    async def check(self) -> None:
        """GET the version, to check the connection and the credentials.

        Raises:
            TryLaterError: The API server does not answer.
            PermanentError: The API server rejects the credentials.
        """
        await self.request("GET", "/version")

    async def request(  # noqa: PLR0913 - each argument is a part of a request
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        accept: str = _JSON,
        missing_ok: bool = False,
        as_user: str = "",
        read: ReadBody = read_json,
        leave_by: float | None = None,
    ) -> Answer | None:
        """Make one request, impersonating a user if one is given; return None for a 404 if `missing_ok`.

        `read` parses the answer's body. `leave_by`, on the monotonic clock, is the send deadline: a request that has no
        connection by then is not sent, and one whose connection was dropped is not repeated. None sets no deadline.

        Raises:
            ConflictError: 409.
            GoneError: 410.
            ForbiddenError: 403.
            PermanentError: Another 4xx.
            TooLargeError: The answer is larger than this process accepts.
            UnreadableError: The answer exceeds the limits of `shared.core.values.jsontext`.
            TryLaterError: 429, 5xx, or no answer in time.
        """
        try:
            with self.patience.watch():
                response = await self._send(method, path, body=body, accept=accept, as_user=as_user, leave_by=leave_by)
                payload = await _closing(response, read)
        except aiohttp.ClientConnectorCertificateError as error:
            raise untrusted(self.server, error) from None
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            reason = _describe(error, self.patience.limits(method, path))
            raise TryLaterError(f"cannot reach the API server at {self.server}: {reason}") from None
        read_at = self._clock.observe(response.headers.get("date"))
        if response.status == HTTPStatus.NOT_FOUND and missing_ok:
            if not get_text(payload, "details.name"):  # the path is not found, not the object
                raise _absent(path)
            return None
        if response.status >= HTTPStatus.MULTIPLE_CHOICES:
            raise_for(response.status, payload, headers=response.headers, path=path)
        if not isinstance(payload, dict):
            raise TryLaterError(f"expected JSON from the API server at {self.server}, got {excerpt(payload)}")
        if read_at is None:
            raise PermanentError(f"expected a valid Date header from the API server at {self.server}, got none")
        return Answer(payload, read_at, self._clock.ahead)

    async def stream(self, path: str, *, idle_seconds: float) -> AsyncGenerator[bytes]:
        """GET a path and yield the lines of its answer, until the server ends it.

        Args:
            path: The path with its query.
            idle_seconds: Timeout for the next bytes.

        Raises:
            AbsentKindError: 404.
            GoneError: 410.
            PermanentError: Another 4xx.
            TryLaterError: 429, 5xx, or the connection broke.
        """
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=idle_seconds)
        try:
            response = await self._send("GET", path, timeout=timeout)
            try:
                if response.status == HTTPStatus.NOT_FOUND:
                    raise _absent(path)
                if response.status != HTTPStatus.OK:
                    raise_for(response.status, await read_json(response), headers=response.headers, path=path)
                response.content.set_read_chunk_size(LINE_BYTES_MAX // 2)  # a line may be twice as long
                async for line in response.content:
                    yield line
            finally:
                response.close()
        except aiohttp.ClientConnectorCertificateError as error:
            raise untrusted(self.server, error) from None
        except (aiohttp.ClientError, LineTooLong, TimeoutError, OSError, ValueError) as error:
            raise TryLaterError(f"the connection of {path} broke off: {error or type(error).__name__}") from None

    async def probe(self, path: str) -> tuple[int, Any]:
        """GET a proxy path; return status and body as they are, from the API server or from the proxied server.

        Raises:
            TryLaterError: No answer in time.
        """
        try:
            response = await self._send("GET", path)
            return response.status, await _closing(response, read_json)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            reason = _describe(error, self.patience.limits("GET", path))
            raise TryLaterError(f"cannot reach the API server at {self.server}: {reason}") from None

    async def _send(  # noqa: PLR0913 - as above
        self,
        method: str,
        path: str,
        *,
        timeout: aiohttp.ClientTimeout | None = None,  # noqa: ASYNC109 - the parameter of the client
        body: Mapping[str, Any] | None = None,
        accept: str = _JSON,
        as_user: str = "",
        leave_by: float | None = None,
    ) -> aiohttp.ClientResponse:
        """Send a request; if its token was refused and there is a new one, send it again: a 401 has no effect."""
        headers = {"Accept": accept, "Content-Type": _MERGE_PATCH if method == "PATCH" else _JSON}
        if as_user:
            headers["Impersonate-User"] = as_user
        data = None if body is None else json.dumps(body).encode()

        async def call() -> aiohttp.ClientResponse:
            return await self._transport.send(
                method,
                path,
                headers,
                data,
                lambda: timeout or self._until(leave_by, method, path),
                is_repeatable=leave_by is None,
            )

        if (identity := self._identity) is None:
            if (authorization := self._transport.authorization) and (given := await authorization()):
                headers["Authorization"] = given
            return await call()
        token = await identity.token()
        headers["Authorization"] = f"Bearer {token}"
        response = await call()
        if response.status == HTTPStatus.UNAUTHORIZED:
            newer = await _closing(response, lambda _: identity.token(refused=token))
            if newer != token:
                response.release()
                headers["Authorization"] = f"Bearer {newer}"
                response = await call()
        return response

    def _until(self, leave_by: float | None, method: str, path: str) -> aiohttp.ClientTimeout:
        """Return timeouts: a connection for the request by the deadline, and an answer."""
        left = None if leave_by is None else leave_by - time.monotonic()
        if left is not None and left <= 0:
            raise TryLaterError(f"the request could not be sent within {LEAVE_SECONDS_MAX} s")
        return self.patience.limits(method, path, connect=left)


def _describe(error: Exception, limits: aiohttp.ClientTimeout) -> str:
    """Describe why there is no answer; an answer that arrives in small parts may exceed only the limit of the whole."""
    match error:
        case aiohttp.SocketTimeoutError():
            return f"it sent nothing for {limits.sock_read:g} s"
        case aiohttp.ConnectionTimeoutError():
            return "no connection" + (f" within {limits.sock_connect:g} s" if limits.sock_connect else " in time")
        case TimeoutError():
            return f"no complete answer within {limits.total:g} s"
    return str(error)


async def _closing(response: aiohttp.ClientResponse, read: ReadBody) -> Any:
    """Read a body, or what is needed for it; if that fails, close the connection: the rest may never come."""
    try:
        return await read(response)
    except BaseException:  # also when the time limit cuts it off
        response.close()
        raise


def _absent(path: str) -> AbsentKindError:
    return AbsentKindError(f"this cluster does not serve {path.partition('?')[0]}")
