"""CloudEvents as bytes, valid and malformed, and the functions behind real HTTP."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import aiohttp
import uvicorn
from functions_framework.aio import create_asgi_app
from multidict import CIMultiDictProxy

from shared.adapters.events.cloudevents import TICK, Event, parse_event
from shared.adapters.events.http_limits import InProcessServer, LimitedHttp
from shared.bootstrap.build import build
from shared.bootstrap.config import ProcessConfig
from shared.bootstrap.process import Process
from shared.bootstrap.start import loading_for
from shared.standalone.runner import FUNCTION_NAMES
from tests.builders import ROOT, ago, job, stamp

Application = Callable[[Any, Any, Any], Awaitable[None]]
"""An ASGI application."""

REPORTED = "dev.knative.apiserver.resource.update"
SET = "dev.ttlafterfinished.timer.set"
FIRED = "dev.ttlafterfinished.timer.fired"
CONTINUE = "dev.ttlafterfinished.sweep.continue"
STRUCTURED = "application/cloudevents+json"

DUE = job(complete=ago(60), ttl=30)


def timer(*, due_at: object = None, purpose: str = "expire", **ref: Any) -> dict[str, Any]:
    """The data of a timer for DUE; keywords replace parts of its ref."""
    metadata = DUE["metadata"]
    identity = {name: metadata[name] for name in ("namespace", "name", "uid")}
    return {
        "ref": {"apiVersion": "batch/v1", "kind": "Job", **identity, **ref},
        "purpose": purpose,
        "dueAt": due_at or stamp(ago(30)),
    }


# What each function takes, as its well-formed event.
TAKEN: dict[str, tuple[str, Any]] = {
    "schedule": (REPORTED, DUE),
    "timers": (SET, {"timers": [timer()]}),
    "expire": (FIRED, timer()),
    "enforce": (FIRED, timer(purpose="enforce")),
    "archive": (FIRED, timer(purpose="archive")),
    "sweep": (TICK, None),
}


def as_json(data: Any) -> bytes:
    return data if isinstance(data, bytes) else b"" if data is None else json.dumps(data).encode()


def binary(type_: str, data: Any = None, **attributes: str | None) -> tuple[dict[str, str], bytes]:
    """Headers and body; an attribute that is None is left out."""
    given = {"specversion": "1.0", "id": "1", "source": "/test", "type": type_, **attributes}
    headers = {f"ce-{name}": value for name, value in given.items() if value is not None}
    return {"content-type": "application/json", **headers}, as_json(data)


def structured(type_: str, data: Any = None, **attributes: Any) -> tuple[dict[str, str], bytes]:
    """Headers and body; an attribute that is `...` is left out, and so is data that is None."""
    envelope = {"specversion": "1.0", "id": "1", "source": "/test", "type": type_, "data": data, **attributes}
    given = {name: value for name, value in envelope.items() if value is not ... and (name, value) != ("data", None)}
    return {"content-type": STRUCTURED}, json.dumps(given).encode()


@dataclass(frozen=True, slots=True)
class Answer:
    """What a function answered."""

    status: int
    headers: CIMultiDictProxy[str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    def event(self) -> Event:
        """The reply, read as a Broker would."""
        return parse_event({name.lower(): value for name, value in self.headers.items()}, self.body)


def load_applications(process: Process) -> Application:
    """Load the functions for a process, each as an app of functions-framework; each path is a function's name."""
    with loading_for(process):
        apps = {
            f"/{one}": create_asgi_app(one, str(ROOT / "functions" / f"{one}.py"), "http") for one in FUNCTION_NAMES
        }

    async def route(scope: Any, receive: Any, send: Any) -> None:
        await apps[scope["path"]](scope, receive, send)

    return route


class _Server(InProcessServer):
    """A server that tells when it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listens = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listens.set()


@asynccontextmanager
async def serve_functions(path: Path, application: Application) -> AsyncIterator[None]:
    """Serve the functions on a unix socket until the block ends, as the image does."""
    config = uvicorn.Config(
        application,
        uds=str(path),
        http=LimitedHttp,
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=20,
    )
    server = _Server(config)
    serving = asyncio.create_task(server.serve(), name="functions")
    listening = asyncio.create_task(server.listens.wait())
    try:
        await asyncio.wait({serving, listening}, return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            serving.result()
        yield
    finally:
        listening.cancel()
        server.should_exit = True
        await serving


class Functions:
    """The functions, each an app of functions-framework, served by uvicorn on a unix socket.

    Attributes:
        process: Their process.
    """

    process: Process

    def __init__(self, path: Path, session: aiohttp.ClientSession) -> None:
        self._path = path
        self._session = session
        self._application: Application | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request, as an ASGI application."""
        assert self._application, "no test has called `use`"
        await self._application(scope, receive, send)

    def use(self, config: ProcessConfig) -> "Functions":
        """Load the functions for a process of this configuration; they answer all requests from now on."""
        self.process = build(config)
        self._application = load_applications(self.process)
        return self

    async def post(self, name: str, headers: dict[str, str], body: Any = b"", *, method: str = "POST") -> Answer:
        url = f"http://functions/{name}"
        body = BytesIO(body) if isinstance(body, bytes) else body
        async with self._session.request(method, url, headers=headers, data=body) as response:
            return Answer(response.status, response.headers, await response.read())

    async def post_raw(self, request: bytes) -> str:
        """Send bytes that are not valid HTTP; return the head of the answer."""
        reader, writer = await asyncio.open_unix_connection(str(self._path))
        try:
            writer.write(request)
            await writer.drain()
            return (await reader.read(2_000)).decode()
        finally:
            writer.close()
            await writer.wait_closed()


@asynccontextmanager
async def serving() -> AsyncIterator[Functions]:
    """The functions of the process that a test gives to `use`."""
    with TemporaryDirectory(prefix="ttl-") as folder:
        path = Path(folder) / "functions.sock"
        connector = aiohttp.UnixConnector(str(path))
        async with aiohttp.ClientSession(connector=connector) as session:
            functions = Functions(path, session)
            async with serve_functions(path, functions):
                yield functions
