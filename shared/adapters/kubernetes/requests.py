"""Requests to the API server.

Objects are plain dicts: the models of the Kubernetes client would validate objects of users, and reject some.
Errors become those of `shared.errors`. A request is not retried, except once after its token was refused, and once by
the HTTP transport after a dropped connection. The transport does not repeat a request with a send deadline: the repeat
would be sent later, after a stop or an exemption.

kube-apiserver reads the log of a container from the kubelet of the Pod's node. It passes the kubelet's refusals on, and
reports a kubelet that does not answer as its own error 500. If the kubelet ends within a log, kube-apiserver ends its
answer as usual: then a shortened log looks like a whole one.
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
from urllib.parse import quote, urlencode

import aiohttp
from aiohttp.http_exceptions import LineTooLong

from shared.adapters.auth.identity import Identity
from shared.adapters.clock import ServerClock, SystemClock
from shared.adapters.kubernetes.bodies import METADATA_LIST, PathKind, raise_for, read_json, untrusted
from shared.adapters.kubernetes.transport import Transport
from shared.core.kinds.rule import KindRule
from shared.core.values.objects import ObjectRef, get_in, get_text, list_mappings
from shared.core.values.objects import quote as excerpt
from shared.errors import AbsentKindError, MissingLogError, PermanentError, TryLaterError, UnreachableLogError

LATE_SECONDS = 1.5
"""After this time without an answer, a command says that it waits."""

REQUEST_SECONDS_MAX = 30.0
"""Timeout of a request: just under the API server's own limit of 34 s; a later answer is not reliable."""

LEAVE_SECONDS_MAX = 1.5
"""How long a DELETE may take to leave the process; after that it is not sent. With `CACHED_SECONDS` (stop) this is
4.5 s, with `NAMESPACE_AGE_SECONDS_MAX` (exemption) 5 s."""

LINE_BYTES_MAX = 16 * 1024 * 1024
"""Maximum length of a watch's line: an object of 1.5 MiB in etcd is six times as large in JSON if it is full of `<`."""

LOG_IDLE_SECONDS_MAX = 20.0
"""Timeout for the next bytes of a log."""

LOG_SECONDS_MAX = 120.0
"""Timeout of a whole log: the time that is spent on waiting for its bytes."""

LOG_CHUNK_BYTES = 64 * 1024
"""Maximum size of a chunk of a log."""

_MISSING = (HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND, HTTPStatus.GONE)
_POD = KindRule(api_versions=("v1",), kind="Pod", plural="pods", never_finishes="only its logs are read")

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

    async def logs(self, pod: ObjectRef, container: str, *, bytes_max: int) -> AsyncGenerator[bytes]:
        """See `shared.ports.Cluster`."""
        query = urlencode({"container": container, "limitBytes": str(bytes_max)})
        path = f"{object_path(_POD, pod.namespace, pod.name)}/log?{query}"
        about = f"the log of container {container} of {pod}"
        response = await self._open(path, about)
        try:
            if response.status != HTTPStatus.OK:
                _raise_for_log(response, await read_json(response), path, about)
            async for chunk in _chunks(response, bytes_max):
                yield chunk
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise UnreachableLogError(f"{about} broke off: {str(error) or type(error).__name__}") from None
        finally:
            response.close()

    async def _open(self, path: str, about: str) -> aiohttp.ClientResponse:
        timeout = aiohttp.ClientTimeout(total=None, connect=10, sock_read=LOG_IDLE_SECONDS_MAX)
        try:
            return await self._send("GET", path, timeout=timeout, accept="*/*")
        except aiohttp.ClientConnectorCertificateError as error:
            raise untrusted(self.server, error) from None
        except aiohttp.SocketTimeoutError:
            raise UnreachableLogError(f"{about} cannot be read: no answer from its node in time") from None
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            reason = str(error) or type(error).__name__
            raise TryLaterError(f"cannot reach the API server at {self.server}: {reason}") from None

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


def resource_path(rule: PathKind, namespace: str = "", query: Mapping[str, str] | None = None) -> str:
    """Return the path of a kind's objects in one namespace, or in all if it is empty: `/apis/batch/v1/jobs`."""
    root = f"/{'apis' if rule.group else 'api'}/{rule.api_version}"
    place = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
    return f"{root}{place}/{rule.plural}{'?' if query else ''}{urlencode(query or {})}"


def object_path(rule: PathKind, namespace: str, name: str, query: Mapping[str, str] | None = None) -> str:
    """Return the path of an object, quoted so that a name cannot reach another path.

    `.` and `..` cannot be quoted, and no object has such a name.

    Raises:
        PermanentError: The name is `.`, `..` or empty, or the namespace is `.` or `..`.
    """
    if {namespace, name} & {".", ".."} or not name:
        expected = "expected a namespace and a name that an object can have"
        raise PermanentError(f"{expected}, got {excerpt(namespace)} and {excerpt(name)}")
    path = f"{resource_path(rule, namespace)}/{quote(name, safe='')}"
    return f"{path}{'?' if query else ''}{urlencode(query or {})}"


async def count_objects(server: ApiServer, rule: KindRule, namespace: str = "") -> int:
    """Count the objects of a kind without listing them.

    Args:
        server: The API server.
        rule: The kind.
        namespace: The only namespace to count in; empty for all.

    Raises:
        TryLaterError: The API server is overloaded or unreachable.
        PermanentError: This process may not list the objects, or the API server does not return their number.
    """
    path = resource_path(rule, namespace, {"limit": "1"})
    answer = await server.request("GET", path, accept=f"{METADATA_LIST},application/json")
    body = answer.body if answer else {}
    remaining = get_in(body, "metadata.remainingItemCount")
    if remaining is None and get_text(body, "metadata.continue"):
        raise PermanentError(f"cannot count {rule.plural}: the API server returned no remainingItemCount")
    return len(list(list_mappings(body, "items"))) + (remaining if isinstance(remaining, int) else 0)


async def _chunks(response: aiohttp.ClientResponse, bytes_max: int) -> AsyncGenerator[bytes]:
    """Yield at most `bytes_max` bytes; the time that the caller takes between two chunks does not count."""
    left, seconds = bytes_max, LOG_SECONDS_MAX
    while left > 0:
        asked_at = time.monotonic()
        async with asyncio.timeout(min(seconds, LOG_IDLE_SECONDS_MAX)):
            chunk = await response.content.read(min(left, LOG_CHUNK_BYTES))
        if not chunk:
            return
        seconds -= time.monotonic() - asked_at
        left -= len(chunk)
        yield chunk


def _raise_for_log(response: aiohttp.ClientResponse, payload: Any, path: str, about: str) -> None:
    """Raise the error for a refusal of kube-apiserver, or of the kubelet."""
    reason = get_text(payload, "message") or (payload if isinstance(payload, str) else "") or f"HTTP {response.status}"
    if response.status in _MISSING:
        raise MissingLogError(f"{about} does not exist: {reason}")
    try:
        raise_for(response.status, payload, headers=response.headers, path=path)
    except TryLaterError as error:
        if response.status < HTTPStatus.INTERNAL_SERVER_ERROR:
            raise
        seconds = error.retry_after_seconds
        raise UnreachableLogError(f"{about} cannot be read: {reason}", retry_after_seconds=seconds) from None
    except PermanentError as error:
        raise type(error)(f"{about} cannot be read: {error}") from None
