"""The ASGI app of the embedded API server: it serves a store over HTTP, on a port of this machine."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import uvicorn
import yaml
from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from shared.adapters.events.http_limits import InProcessServer
from shared.devserver.apiserver.discovery import AGGREGATED, discover
from shared.devserver.apiserver.errors import StatusError, bad_request, method_not_allowed
from shared.devserver.apiserver.pod_logs import read_log
from shared.devserver.apiserver.requests import (
    RequestTarget,
    is_true,
    parse_body,
    parse_delete_options,
    parse_int,
    parse_patch_body,
    parse_query,
    parse_target,
    parse_write_options,
)
from shared.devserver.apiserver.resources import ACCESS_REVIEWS, Object
from shared.devserver.apiserver.store import Store
from shared.devserver.apiserver.views import View, parse_accept, render_object, render_page
from shared.devserver.apiserver.watching import Watches, WatchOptions
from shared.devserver.apiserver.writes import parse_patch

Intercept = Callable[[Request], Awaitable[Response | None]]

_HEALTH = ("/healthz", "/readyz", "/livez")
_WATCH_SECONDS = 1_800


class EmbeddedApiServer:
    """Serves a store over HTTP. All requests and all other users of the store must run in one event loop.

    Attributes:
        store: The store.
        intercept: Called before every request, so that tests can inject faults. Its response or StatusError is the
            answer; if it returns None, the request is handled as usual.
    """

    def __init__(self, store: Store, *, intercept: Intercept | None = None, bookmark_seconds: float = 60) -> None:
        self.store = store
        self.intercept = intercept
        self._bookmark_seconds = bookmark_seconds
        self._watches = Watches(store)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle an HTTP request."""
        response = await self._respond(Request(scope, receive))
        # The store's clock, not the machine's: clients read the cluster's time from this header.
        response.headers["date"] = format_datetime(self.store.clock().replace(microsecond=0), usegmt=True)
        await response(scope, receive, send)

    def close(self) -> None:
        """End all watches."""
        self._watches.close()

    async def _respond(self, request: Request) -> Response:
        try:
            intercepted = await self.intercept(request) if self.intercept else None
            return intercepted or await self._answer(request)
        except StatusError as error:
            return _json(error.as_status(), error.code)

    async def _answer(self, request: Request) -> Response:
        path = request.url.path
        if path in _HEALTH:
            return PlainTextResponse("ok")
        accept = request.headers.get("accept", "")
        document = discover(self.store.resources, path, accept)
        if document is not None:
            aggregated = document["kind"] == "APIGroupDiscoveryList" if "kind" in document else False
            return _json(document, media_type=AGGREGATED if aggregated else "application/json")
        target = parse_target(self.store.resources, path)
        if target is None:
            return PlainTextResponse("404 page not found\n", 404)
        handle = _handlers(target).get(request.method)
        if handle is None:
            raise method_not_allowed()
        return await handle(self, request, target)

    async def _get(self, request: Request, target: RequestTarget) -> Response:
        return self._object(request, target, self.store.get(target.resource, target.namespace, target.name))

    async def _log(self, request: Request, target: RequestTarget) -> Response:
        container, limit = (request.query_params.get(name, "") for name in ("container", "limitBytes"))
        bytes_max = parse_int(limit) if limit else None
        log = read_log(self.store, target.namespace, target.name, container, bytes_max=bytes_max)
        return Response(log, media_type="text/plain")

    async def _list(self, request: Request, target: RequestTarget) -> Response:
        view = parse_accept(request.headers.get("accept", ""))
        if is_true(request.query_params.get("watch", "")):
            return self._watch(request, target, view)
        page = self.store.list(target.resource, parse_query(request.query_params, target))
        return _json(render_page(view, target.resource, page, self.store.clock()))

    def _watch(self, request: Request, target: RequestTarget, view: View) -> Response:
        parameters = request.query_params
        query = parse_query(parameters, target)
        options = WatchOptions(
            parse_int(parameters.get("timeoutSeconds", "0")) or _WATCH_SECONDS,
            is_true(parameters.get("allowWatchBookmarks", "")),
            is_true(parameters.get("sendInitialEvents", "")),
            self._bookmark_seconds,
        )
        options.check(query)

        def render(obj: Object) -> Object:
            return render_object(view, target.resource, obj, self.store.clock())

        stream = self._watches.stream(target.resource, query, options, render)
        return StreamingResponse(stream, media_type="application/json")

    async def _create(self, request: Request, target: RequestTarget) -> Response:
        obj = await parse_body(request)
        if target.resource is ACCESS_REVIEWS:  # nothing is stored; every user has every right here
            return _json(obj | {"status": {"allowed": True}}, 201)
        created = self.store.create(target.resource, target.namespace, obj, parse_write_options(request))
        return self._object(request, target, created, 201)

    async def _update(self, request: Request, target: RequestTarget) -> Response:
        obj = await parse_body(request)
        name = obj.get("metadata", {}).get("name")
        if name != target.name:
            raise bad_request(f"the name of the object ({name}) does not match the name on the URL ({target.name})")
        options = parse_write_options(request, target.subresource)
        return self._object(request, target, self.store.update(target.resource, target.namespace, obj, options))

    async def _patch(self, request: Request, target: RequestTarget) -> Response:
        patch = parse_patch(*await parse_patch_body(request), target.resource)
        options = parse_write_options(request, target.subresource)
        patched = self.store.patch(target.resource, target.namespace, target.name, patch, options)
        return self._object(request, target, patched)

    async def _delete(self, request: Request, target: RequestTarget) -> Response:
        options = await parse_delete_options(request)
        deleted = self.store.delete(target.resource, target.namespace, target.name, options)
        return self._object(request, target, deleted)

    async def _delete_collection(self, request: Request, target: RequestTarget) -> Response:
        options = await parse_delete_options(request)
        query = parse_query(request.query_params, target)
        page = self.store.delete_collection(target.resource, query, options)
        return _json(render_page(View.FULL, target.resource, page, self.store.clock()))

    def _object(self, request: Request, target: RequestTarget, obj: Object, code: int = 200) -> Response:
        view = parse_accept(request.headers.get("accept", ""))
        return _json(render_object(view, target.resource, obj, self.store.clock()), code)


Handler = Callable[[EmbeddedApiServer, Request, RequestTarget], Awaitable[Response]]

_ON_OBJECT: dict[str, Handler] = {
    "GET": EmbeddedApiServer._get,  # noqa: SLF001 - the class's own table of verbs
    "PUT": EmbeddedApiServer._update,  # noqa: SLF001
    "PATCH": EmbeddedApiServer._patch,  # noqa: SLF001
    "DELETE": EmbeddedApiServer._delete,  # noqa: SLF001
}
_ON_COLLECTION: dict[str, Handler] = {
    "GET": EmbeddedApiServer._list,  # noqa: SLF001
    "POST": EmbeddedApiServer._create,  # noqa: SLF001
    "DELETE": EmbeddedApiServer._delete_collection,  # noqa: SLF001
}
_ON_LOG: dict[str, Handler] = {"GET": EmbeddedApiServer._log}  # noqa: SLF001


def _handlers(target: RequestTarget) -> dict[str, Handler]:
    if target.subresource == "log":
        return _ON_LOG
    return _ON_OBJECT if target.name else _ON_COLLECTION


def _json(content: Any, code: int = 200, *, media_type: str = "application/json") -> Response:
    return Response(to_json(content), code, media_type=media_type)


_HOST = "127.0.0.1"
_NAME = "embedded"
_CLOSING_SECONDS = 5


@asynccontextmanager
async def serve(app: EmbeddedApiServer, port: int = 0) -> AsyncIterator[str]:
    """Serve an app in the running event loop.

    Args:
        app: The app; it is closed at the end.
        port: The port on loopback; 0 for a free port.

    Yields:
        The base URL.
    """
    listener = socket.create_server((_HOST, port), backlog=1024)
    # asyncio sets TCP_NODELAY only if the protocol is explicit. Without it, an answer in two writes takes 40 ms.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    config = uvicorn.Config(
        app, lifespan="off", date_header=False, server_header=False, access_log=False, log_level="warning",
        timeout_graceful_shutdown=_CLOSING_SECONDS,
    )  # fmt: skip
    server = InProcessServer(config)
    task = asyncio.create_task(server.serve([listener]))  # the socket listens already, so connections are accepted
    try:
        yield f"http://{_HOST}:{listener.getsockname()[1]}"
    finally:
        app.close()
        server.should_exit = True
        await task
        listener.close()


def write_kubeconfig(path: Path, url: str) -> Path:
    """Write a kubeconfig for kubectl and other clients.

    Returns:
        The path.
    """
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": _NAME,
        "clusters": [{"name": _NAME, "cluster": {"server": url}}],
        "users": [{"name": _NAME, "user": {}}],
        "contexts": [{"name": _NAME, "context": {"cluster": _NAME, "user": _NAME, "namespace": "default"}}],
    }
    path.write_text(yaml.safe_dump(config, sort_keys=False))
    return path
