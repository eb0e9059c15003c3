"""Requests to the API server: with `connect`, the only `import kubernetes`.

Plain dicts through the client's low-level call: its models would validate what others wrote, and refuse some of it.
Errors become those of `shared.errors`; nothing is retried here, except a request whose token was refused, and by the
transport one repeat of a request whose connection was dropped. A request with a time by which it must leave is not
repeated so: the repeat would leave later, after a stop or an exemption.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Any

import aiohttp
from aiohttp.http_exceptions import LineTooLong
from kubernetes.aio.client import ApiClient

from shared.adapters.auth.identity import Identity
from shared.adapters.clock import SystemClock
from shared.adapters.kubernetes.bodies import read_json
from shared.adapters.kubernetes.refusals import raise_for, untrusted
from shared.adapters.kubernetes.repeats import once
from shared.adapters.kubernetes.server_clock import ServerClock
from shared.core.objects import get_text
from shared.core.objects import quote as excerpt
from shared.errors import AbsentKindError, PermanentError, TryLaterError

REQUEST_SECONDS_MAX = 30.0
"""Just under the API server's own limit of 34 s: an answer that comes later says nothing we could rely on."""

LEAVE_SECONDS_MAX = 1.5
"""In which a DELETE leaves this process, or never does: with the time that a look at the brake counts below 5 s."""

LINE_BYTES_MAX = 16 * 1024 * 1024
"""Of a watch's line: an object of the 1.5 MiB that etcd takes has six times as much JSON where it is full of `<`."""

ReadBody = Callable[[aiohttp.ClientResponse], Awaitable[Any]]
"""Reads and parses the body of an answer."""

_MERGE_PATCH = "application/merge-patch+json"


@dataclass(frozen=True, slots=True)
class Answer:
    """A successful HTTP answer: its JSON, and an instant that the API server's clock has reached.

    Attributes:
        ahead: By how much its Date is ahead of that instant; see `ServerClock`.
    """

    body: Any
    read_at: datetime
    ahead: timedelta = timedelta(0)


class ApiServer:
    """An API server, through `kubernetes.aio`.

    Args:
        client: Configured; this object closes it.
        identity: Who asks; None where the client knows by its kubeconfig.
        refresher: The task that renews the credentials of a kubeconfig; it ends with the client.
    """

    def __init__(
        self,
        client: ApiClient,
        *,
        identity: Identity | None = None,
        refresher: asyncio.Task[None] | None = None,
    ) -> None:
        self._client = client
        self._identity = identity
        self._refresher = refresher
        self._clock = ServerClock(time.monotonic, SystemClock().now)

    @property
    def server(self) -> str:
        """The API server's URL."""
        return str(self._client.configuration.host)

    async def close(self) -> None:
        """Close the connections."""
        if self._refresher:
            self._refresher.cancel()
        if self._identity:
            self._identity.close()
        await self._client.close()

    async def check(self) -> None:
        """Ask for the version: whether there is an API server that knows us.

        Raises:
            TryLaterError: Nobody answers.
            PermanentError: We are not known there.
        """
        await self.request("GET", "/version")

    async def request(  # noqa: PLR0913 - each argument is a part of a request
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        accept: str = "application/json",
        missing_ok: bool = False,
        as_user: str = "",
        read: ReadBody = read_json,
        leave_by: float | None = None,
    ) -> Answer | None:
        """One call, as another user if one is named; None for a 404 where that is an answer.

        `read` parses the answer's body. A request that no connection has taken by `leave_by`, on the monotonic clock,
        is not sent, and one whose connection was dropped is not repeated; None for no such limit.

        Raises:
            ConflictError: 409.
            GoneError: 410.
            ForbiddenError: 403.
            PermanentError: Another 4xx.
            TooLargeError: The answer is larger than this process may hold.
            UnreadableError: The answer is beyond the limits of `shared.core.jsontext`.
            TryLaterError: 429, 5xx, or no answer in time.
        """
        try:
            timeout = REQUEST_SECONDS_MAX  # reading the body included
            response = await self._send(method, path, body, accept, timeout, as_user=as_user, leave_by=leave_by)
            payload = await read(response)
        except aiohttp.ClientConnectorCertificateError as error:
            raise untrusted(self.server, error) from None
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            reason = str(error) or f"no answer within {REQUEST_SECONDS_MAX:.0f} s"
            raise TryLaterError(f"cannot reach the API server at {self.server}: {reason}") from None
        read_at = self._clock.observe(response.headers.get("date"))
        if response.status == HTTPStatus.NOT_FOUND and missing_ok:
            if not get_text(payload, "details.name"):  # it is not the object that is not found
                raise _absent(path)
            return None
        if response.status >= HTTPStatus.MULTIPLE_CHOICES:
            raise_for(response.status, payload, response.headers, path)
        if not isinstance(payload, dict):
            raise TryLaterError(f"expected JSON of the API server at {self.server}, got {excerpt(payload)}")
        if read_at is None:
            raise PermanentError(
                f"expected a Date header of the API server at {self.server}, got none that can be read"
            )
        return Answer(payload, read_at, self._clock.ahead)

    async def stream(self, path: str, *, idle_seconds: float) -> AsyncGenerator[bytes]:
        """GET what comes line by line, until the server ends it.

        Args:
            path: With its query.
            idle_seconds: How long to wait for the next bytes.

        Raises:
            AbsentKindError: 404.
            GoneError: 410.
            PermanentError: Another 4xx.
            TryLaterError: 429, 5xx, or the connection broke.
        """
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=idle_seconds)
        try:
            response = await self._send("GET", path, None, "application/json", timeout)
            try:
                if response.status == HTTPStatus.NOT_FOUND:
                    raise _absent(path)
                if response.status != HTTPStatus.OK:
                    raise_for(response.status, await read_json(response), response.headers, path)
                response.content.set_read_chunk_size(LINE_BYTES_MAX // 2)  # whose double a line may have
                async for line in response.content:
                    yield line
            finally:
                response.close()
        except aiohttp.ClientConnectorCertificateError as error:
            raise untrusted(self.server, error) from None
        except (aiohttp.ClientError, LineTooLong, TimeoutError, OSError, ValueError) as error:
            raise TryLaterError(f"{path} broke off: {error or type(error).__name__}") from None

    async def probe(self, path: str) -> tuple[int, Any]:
        """GET what lies behind a proxy path: the status and the body, whoever they are from, and neither judged.

        Raises:
            TryLaterError: No answer in time.
        """
        try:
            response = await self._send("GET", path, None, "application/json", REQUEST_SECONDS_MAX)
            return response.status, await read_json(response)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise TryLaterError(f"cannot reach the API server at {self.server}: {error}") from None

    async def _send(  # noqa: PLR0913 - as above
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
        accept: str,
        timeout: Any,  # noqa: ASYNC109 - the client's own parameter
        *,
        as_user: str = "",
        leave_by: float | None = None,
    ) -> aiohttp.ClientResponse:
        """One request; one more where its token was refused and there is another: a 401 has done nothing."""
        headers = {"Accept": accept, "Content-Type": _MERGE_PATCH if method == "PATCH" else "application/json"}
        if as_user:
            headers["Impersonate-User"] = as_user

        async def call() -> aiohttp.ClientResponse:
            patience = timeout if leave_by is None else _until(leave_by, total=timeout)
            options = {"_request_timeout": patience, "_preload_content": False}
            with once() if leave_by is not None else nullcontext():
                answer = await self._client.call_api(method, f"{self.server}{path}", headers, body=body, **options)
            response: aiohttp.ClientResponse = answer.response
            return response

        if self._identity is None:
            await self._client.update_params_for_auth(headers, [], ["BearerToken"], path, method, body)
            return await call()
        token = await self._identity.token()
        headers["Authorization"] = f"Bearer {token}"
        response = await call()
        if response.status == HTTPStatus.UNAUTHORIZED and (other := await self._identity.token(refused=token)) != token:
            response.release()
            headers["Authorization"] = f"Bearer {other}"
            response = await call()
        return response


def _until(leave_by: float, *, total: float) -> aiohttp.ClientTimeout:
    """A connection must take the request by then; the answer may come within `total` seconds."""
    left = leave_by - time.monotonic()
    if left <= 0:
        raise TryLaterError(f"a request could not be sent within {LEAVE_SECONDS_MAX} s")
    return aiohttp.ClientTimeout(total=total, connect=left)


def _absent(path: str) -> AbsentKindError:
    return AbsentKindError(f"this cluster does not serve {path.partition('?')[0]}")
