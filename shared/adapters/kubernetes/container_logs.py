"""The logs of containers, which kube-apiserver reads from the kubelet of the Pod's node.

kube-apiserver passes the refusals of the kubelet on, and reports a kubelet that does not answer as its own error 500.
If the kubelet ends within a log, kube-apiserver ends its answer as usual: then a shortened log looks like a whole one.
"""

import asyncio
import time
from collections.abc import AsyncGenerator
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

import aiohttp

from shared.adapters.kubernetes.bodies import read_json
from shared.adapters.kubernetes.discovery import VersionedApiServer, object_path
from shared.adapters.kubernetes.refusals import raise_for, untrusted
from shared.core.kinds.rule import KindRule
from shared.core.values.objects import ObjectRef, get_text
from shared.errors import MissingLogError, PermanentError, TryLaterError, UnreachableLogError

LOG_IDLE_SECONDS_MAX = 20.0
"""Timeout for the next bytes of a log."""

LOG_SECONDS_MAX = 120.0
"""Timeout of a whole log: the time that is spent on waiting for its bytes."""

LOG_CHUNK_BYTES = 64 * 1024
"""Maximum size of a chunk of a log."""

_MISSING = (HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND, HTTPStatus.GONE)
_POD = KindRule(api_versions=("v1",), kind="Pod", plural="pods", never_finishes="only its logs are read")


class LoggingApiServer(VersionedApiServer):
    """An API server from which the logs of containers can be read."""

    async def logs(self, pod: ObjectRef, container: str, *, bytes_max: int) -> AsyncGenerator[bytes]:
        """See `shared.ports.Cluster`."""
        query = urlencode({"container": container, "limitBytes": str(bytes_max)})
        path = f"{object_path(_POD, pod.namespace, pod.name)}/log?{query}"
        about = f"the log of container {container} of {pod}"
        response = await self._open(path, about)
        try:
            if response.status != HTTPStatus.OK:
                _raise_for(response, await read_json(response), path, about)
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


def _raise_for(response: aiohttp.ClientResponse, payload: Any, path: str, about: str) -> None:
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
