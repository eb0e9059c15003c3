"""Events a second of the function `schedule` on one core, as its image serves it, beside a bare endpoint.

The function runs under `uvicorn functions_framework.aio:app` on one core, the load on another (see `load`). The limit
is a Starlette endpoint under the same uvicorn that reads the body and answers 204. They take turns in short slices,
and the median slice counts.
"""

import asyncio
import json
import os
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from shared.devserver.ports import free_port
from tests.benchmarks.processes import cpu_seconds, running
from tests.builders import FRONT

SERVED_ON, LOADED_FROM = 0, 1
SLICES = 3
SLICE_SECONDS = 4
START_SECONDS = 20
FUNCTION = Path(__file__).parents[2] / "functions" / "schedule.py"


async def _take(request: Request) -> Response:
    await request.body()
    return Response(status_code=204)


bare = Starlette(routes=[Route("/", _take, methods=["POST"])])
"""The limit: as little as an HTTP endpoint can do."""


@dataclass(frozen=True)
class Slice:
    """What was answered in a few seconds."""

    per_second: float
    per_cpu_second: float

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


async def measure(folder: Path, write_event: Callable[[str], None]) -> dict[str, list[Slice]]:
    """The slices of each."""
    slices: dict[str, list[Slice]] = {"schedule": [], "bare": []}
    target = ("env", "FUNCTION_TARGET=schedule", f"FUNCTION_SOURCE={FUNCTION}")
    async with (
        served(folder, "functions_framework.aio:app", *target) as schedule,
        served(folder, "tests.benchmarks.schedule:bare") as bare_endpoint,
    ):
        for number in range(SLICES):
            write_event(f"schedule, slice {number + 1} of {SLICES}")
            slices["schedule"].append(await load(schedule, "--replies"))
            slices["bare"].append(await load(bare_endpoint))
    return slices


@dataclass(frozen=True)
class Server:
    """A process that listens."""

    port: int
    pid: int


@asynccontextmanager
async def served(folder: Path, app: str, *before: str, http: str = FRONT) -> AsyncIterator[Server]:
    """An app under uvicorn with a protocol for HTTP, by default ours, until the block ends."""
    port = free_port()
    uvicorn = (
        sys.executable,
        "-m",
        "uvicorn",
        app,
        f"--port={port}",
        f"--http={http}",
        "--lifespan=on",
        "--no-access-log",
    )
    async with running([*before, *uvicorn], folder / "uvicorn.log") as server:
        if can_pin():
            os.sched_setaffinity(server.pid, {SERVED_ON})
        await _until_it_listens(port)
        yield Server(port, server.pid)


async def load(server: Server, *arguments: str) -> Slice:
    """What a server answers in a slice of time."""
    options = [f"--seconds={SLICE_SECONDS}", *([f"--core={LOADED_FROM}"] if can_pin() else []), *arguments]
    command = [sys.executable, "-m", "tests.benchmarks.load", str(server.port), *options]
    cpu = cpu_seconds(server.pid)
    load = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    output, _ = await load.communicate()
    cpu = cpu_seconds(server.pid) - cpu
    if load.returncode:
        raise RuntimeError("the load did not get the answers it expects")
    result = json.loads(output)
    return Slice(result["answered"] / result["seconds"], result["answered_in_all"] / cpu)


def can_pin() -> bool:
    """Whether a process can be kept on a core of its own here."""
    return hasattr(os, "sched_setaffinity") and {SERVED_ON, LOADED_FROM} <= os.sched_getaffinity(0)


async def _until_it_listens(port: int) -> None:
    for _ in range(START_SECONDS * 20):
        with socket.socket() as client:
            if client.connect_ex(("127.0.0.1", port)) == 0:
                return
        await asyncio.sleep(0.05)
    raise RuntimeError(f"no answer on port {port}")
