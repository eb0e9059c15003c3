"""The HTTP session of an API server."""

import ssl
from typing import Any

import pytest
from aiohttp import ClientTimeout, TCPConnector

from shared.adapters.kubernetes import transport
from shared.adapters.kubernetes.transport import Transport

pytestmark = pytest.mark.anyio

AIOHTTP_SECONDS = 15
APISERVER_SECONDS = 90


async def test_idle_connection_stays_open_longer_than_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """So a burst needs no TLS handshakes; but not until kube-apiserver closes it."""
    seconds: list[float] = []

    def connector(**options: Any) -> TCPConnector:
        seconds.append(options.get("keepalive_timeout", AIOHTTP_SECONDS))
        return TCPConnector(**options)

    monkeypatch.setattr(transport, "TCPConnector", connector)
    api = Transport("https://127.0.0.1:1", ssl.create_default_context())
    with pytest.raises(OSError, match=r"127\.0\.0\.1"):
        await api.send("GET", "/version", {}, None, ClientTimeout, is_repeatable=True)
    await api.close()
    assert AIOHTTP_SECONDS < seconds[0] < APISERVER_SECONDS
