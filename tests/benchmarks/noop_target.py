"""An HTTP server that accepts every event and does nothing else: `python -m tests.benchmarks.noop_target`.

It answers a POST with 202 at once, and keeps when which body arrived. A GET returns what arrived since the last GET:
how many, when the last one, and how late each was. It prints its port, and ends with its standard input.
"""

import asyncio
import json
import re
import sys
import time
from datetime import datetime
from typing import Any, cast

import uvloop

_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_DUE = re.compile(rb'"dueAt": *"([^"]+)"')
_ACCEPTED = b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n"
_HEAD_END = b"\r\n\r\n"

arrived: list[tuple[float, bytes]] = []


class Accepting(asyncio.Protocol):
    """As little as an HTTP server can do."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport, self._received = cast(asyncio.Transport, transport), b""

    def data_received(self, data: bytes) -> None:
        self._received += data
        while (end := self._received.find(_HEAD_END)) >= 0:
            head = self._received[:end]
            length = _LENGTH.search(head)
            total = end + len(_HEAD_END) + (int(length[1]) if length else 0)
            if len(self._received) < total:
                return
            body, self._received = self._received[end + len(_HEAD_END) : total], self._received[total:]
            if head.startswith(b"GET"):
                self._report()
            else:
                arrived.append((time.time(), body))
                self._transport.write(_ACCEPTED)

    def _report(self) -> None:
        late = []
        for at, body in arrived:
            due = _DUE.search(body)
            assert due, body
            late.append(1000 * (at - datetime.fromisoformat(due[1].decode()).timestamp()))
        report: dict[str, Any] = {"count": len(arrived), "late_ms": sorted(late)}
        report["last_at"] = arrived[-1][0] if arrived else 0.0
        arrived.clear()
        body = json.dumps(report).encode()
        self._transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body)


async def _serve() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Accepting, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    uvloop.run(_serve())
