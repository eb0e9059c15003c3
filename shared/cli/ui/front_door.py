"""Check each request of the page, and add headers to each answer."""

import ipaddress
import json
from http import HTTPStatus

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_FIXED = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class FrontDoor:
    """Allows only GET and HEAD, and adds security headers to every answer.

    Args:
        app: The application behind.
        policy: The Content-Security-Policy.
        loopback_only: Whether the Host header must name this machine.
    """

    def __init__(self, app: ASGIApp, *, policy: str, loopback_only: bool) -> None:
        self._app, self._loopback_only = app, loopback_only
        fixed = {**_FIXED, "Content-Security-Policy": policy}
        self._headers = [(name.lower().encode(), value.encode()) for name, value in fixed.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), *self._headers]}
            await send(message)

        if scope["method"] not in ("GET", "HEAD"):
            what = "this server is read-only: expected GET"
            await _answer(send_with_headers, HTTPStatus.METHOD_NOT_ALLOWED, what, (b"allow", b"GET, HEAD"))
        elif self._loopback_only and not _names_loopback(scope):
            what = "the Host header does not name this machine: open the page as localhost or 127.0.0.1"
            await _answer(send_with_headers, HTTPStatus.MISDIRECTED_REQUEST, what)
        else:
            await self._app(scope, receive, send_with_headers)


def _names_loopback(scope: Scope) -> bool:
    hosts = [value.decode("latin-1").lower() for name, value in scope["headers"] if name == b"host"]
    if len(hosts) != 1:
        return False
    host = hosts[0]
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    return is_loopback(name)


def is_loopback(host: str) -> bool:
    """Return whether a name or an address leads to this machine, whatever any DNS server answers."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


async def _answer(send: Send, status: int, message: str, *headers: tuple[bytes, bytes]) -> None:
    body = json.dumps({"error": message}).encode()
    about = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *headers]
    await send({"type": "http.response.start", "status": status, "headers": about})
    await send({"type": "http.response.body", "body": body})
