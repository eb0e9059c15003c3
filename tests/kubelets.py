"""A kubelet that only answers with logs, over TLS on loopback: kube-apiserver reads the logs of its Pods from it."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from aiohttp import web

from tests.certificates import write_certificate
from tests.loopback import answering_with

LINE = b"2026-03-14T15:09:26.000Z one line of a log, and no more than that\n"
BLOCK = LINE * 1_000


@dataclass
class Kubelet:
    """The logs of one node.

    Attributes:
        texts: The log of each container, by `POD/CONTAINER`: bytes, or the size of a log that is made while it is sent.
        refusals: Status and text instead of a log, by `POD/CONTAINER`.
        honours_limit: Whether it ends a log at `limitBytes`, as kubelets do.
        hangs_after: Bytes after which it sends nothing more, not even a status if it is 0; None for no hang.
        breaks_after: Bytes after which it closes the connection; None for no break.
        sent: The bytes that were sent so far.
        queries: The query of each request.
    """

    texts: dict[str, bytes | int] = field(default_factory=dict)
    refusals: dict[str, tuple[int, str]] = field(default_factory=dict)
    honours_limit: bool = True
    hangs_after: int | None = None
    breaks_after: int | None = None
    sent: int = 0
    queries: list[dict[str, str]] = field(default_factory=list)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        _, pod, container = request.path.removeprefix("/containerLogs/").split("/")
        self.queries.append(dict(request.query))
        if refusal := self.refusals.get(f"{pod}/{container}"):
            return _last(web.Response(status=refusal[0], text=refusal[1]))
        if self.hangs_after == 0:
            await asyncio.sleep(3_600)
        text = self.texts.get(f"{pod}/{container}", b"")
        size = text if isinstance(text, int) else len(text)
        size = min(size, int(request.query["limitBytes"])) if self.honours_limit else size
        response = _last(web.StreamResponse())
        response.enable_chunked_encoding()
        await response.prepare(request)
        for start in range(0, size, len(BLOCK)):
            block = BLOCK if isinstance(text, int) else text[start : start + len(BLOCK)]
            await response.write(block[: size - start])
            self.sent += min(len(block), size - start)
            await asyncio.sleep(0)  # so that a connection that the API server has closed is noticed
            if self.hangs_after is not None and self.sent >= self.hangs_after:
                await asyncio.sleep(3_600)
            if self.breaks_after is not None and self.sent >= self.breaks_after:
                assert request.transport is not None
                request.transport.abort()
                return response
        return response


_Response = TypeVar("_Response", bound=web.StreamResponse)


def _last(response: _Response) -> _Response:
    """The last response of its connection, so that none is open when the test ends."""
    response.force_close()
    return response


@asynccontextmanager
async def serving(kubelet: Kubelet, folder: Path, *, port: int = 0) -> AsyncIterator[int]:
    """Serve the logs until the block ends, at a free port if none is given; gives the port."""
    async with answering_with(kubelet.answer, tls=_tls(folder), port=port, shutdown_timeout=0.1) as url:
        yield int(url.rpartition(":")[2])


def node(name: str, port: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """A node of this kubelet: what is created, and its status."""
    status = {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}, {"type": "Hostname", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
    }
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}, {"status": status}


def _tls(folder: Path) -> ssl.SSLContext:
    """A certificate that signs itself: kube-apiserver checks none unless it has --kubelet-certificate-authority."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*write_certificate(folder, "node"))
    return context
