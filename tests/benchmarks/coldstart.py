"""Cold start: from the start of a function's process to its first answered event, launched as the image does.

The command is the Dockerfile's, with the image's environment, and all modules are compiled as they are there; only the
files are in the page cache, and no container is made. Beside the functions, in turns with them, two limits: a bare
Starlette endpoint under the same uvicorn, and functions-framework with a function that does nothing.

The events are ones that do each function's first work: `schedule` answers with a timer, `timers` writes one to its
file, `expire` reads a Job that is not due yet, and `sweep` lists the Jobs there are. The API server is real.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import aiohttp
from aiohttp import web

from shared.adapters.events.cloudevents import TICK, Event, event_of, to_http
from shared.core.values.objects import ObjectRef
from shared.devserver.ports import free_port
from shared.messages import Purpose, Timer, TimersSet
from tests.benchmarks.bench_timers import FAR_AWAY
from tests.benchmarks.cluster import JOBS, BenchmarkError, Cluster
from tests.benchmarks.load import finished_job
from tests.benchmarks.processes import cpu_seconds
from tests.loopback import answering_with

ROOT = Path(__file__).parents[2]
STARTS = 11
SECONDS_MAX = 30
LIMITS = {"bare": "bare Starlette and uvicorn", "empty": "functions-framework, an empty function"}
KUBECONFIG = "expire, by a kubeconfig"
WITH_OTLP = {f"{name}, with OTLP": name for name in ("schedule", "expire")}
"""With an endpoint, a function imports OpenTelemetry; compare with the function's other line."""
FUNCTIONS = tuple(sorted(path.stem for path in (ROOT / "functions").glob("[!_]*.py")))


@dataclass(frozen=True)
class ColdStart:
    """Medians, in milliseconds.

    Attributes:
        ms: From the start of the process to the answer.
        least_ms: The quickest.
        cpu_ms: Processor time of the process until then, to 10 ms.
    """

    ms: float
    least_ms: float
    cpu_ms: float

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


async def measure(cluster: Cluster, folder: Path, write_event: Callable[[str], None]) -> dict[str, list[ColdStart]]:
    """Of each function and each limit."""
    compile_all()
    witness = await cluster.call("GET", f"{JOBS}/witness-later")
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in (*LIMITS, *FUNCTIONS, KUBECONFIG, *WITH_OTLP)}
    async with _sink() as sink:
        for number in range(STARTS + 1):
            write_event(f"cold start {number} of {STARTS}")
            for name, times in taken.items():
                function = {KUBECONFIG: "expire", **WITH_OTLP}.get(name, name)
                timers = folder / f"{function}-{number}.db"
                environment = _environment(function, sink, timers) | _access(cluster, folder, is_pod=name != KUBECONFIG)
                environment |= {"OTEL_EXPORTER_OTLP_ENDPOINT": sink.rstrip("/")} if name in WITH_OTLP else {}
                event = to_http(event_for(function, witness))
                took = await _start(image_command(function), environment, event, folder / "coldstart.log")
                if number:  # the first one warms the page cache
                    times.append(took)
    return {name: [_summary(times)] for name, times in taken.items()}


def _summary(times: Sequence[tuple[float, float]]) -> ColdStart:
    took = [1000 * one for one, _ in times]
    return ColdStart(median(took), min(took), 1000 * median(cpu for _, cpu in times))


def compile_all() -> None:
    """As the image's last build step does."""
    packages = next(path for path in map(Path, sys.path) if path.name == "site-packages")
    folders = [str(packages), *(str(ROOT / name) for name in ("functions", "shared", "tests/benchmarks"))]
    subprocess.run(
        [sys.executable, "-m", "compileall", "-q", *folders], check=False
    )  # some ship files for other Pythons


def image_command(name: str) -> list[str]:
    """The Dockerfile's CMD, but on loopback; the bare endpoint has another application in it."""
    app = "tests.benchmarks.schedule:bare" if name == "bare" else "functions_framework.aio:app"
    (line,) = [line for line in (ROOT / "Dockerfile").read_text().splitlines() if line.startswith("CMD ")]
    command: list[str] = json.loads(line.removeprefix("CMD "))
    outside = {"0.0.0.0": "127.0.0.1", "functions_framework.aio:app": app, "/app/": f"{ROOT}/"}
    for inside, here in outside.items():
        command = [part.replace(inside, here) for part in command]
    return command


def _access(cluster: Cluster, folder: Path, *, is_pod: bool) -> dict[str, str]:
    """A Pod has a token and a CA in files; only outside a cluster is there a kubeconfig."""
    server, token = cluster.server, folder / "token"
    if not is_pod:
        return {"KUBECONFIG": str(server.kubeconfig)}
    token.write_text(server.token)
    return {"TTL_API_SERVER": server.url, "TTL_API_CA": str(server.ca), "TTL_API_TOKEN_FILE": str(token)}


def _environment(name: str, sink: str, timers: Path) -> dict[str, str]:
    source = Path(__file__).with_name("empty.py") if name in LIMITS else ROOT / "functions" / f"{name}.py"
    return {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        "PORT": str(free_port()),
        "FUNCTION_TARGET": "empty" if name in LIMITS else name,
        "FUNCTION_SOURCE": str(source),
        "K_SINK": sink,
        "TTL_KINDS": "jobs",
        "TTL_TIMERS": f"sqlite:{timers}",
    }


def event_for(name: str, job: Mapping[str, Any]) -> Event:
    """What a function takes; one that is not known here takes what `schedule` does."""
    purpose = Purpose(name) if name in tuple(Purpose) else Purpose.EXPIRE
    timer = Timer(ref=_ref(job), purpose=purpose, due_at=FAR_AWAY)
    reported = json.dumps(finished_job()).encode()
    events = {
        "timers": event_of(TimersSet(timers=(timer,)), source="benchmark"),
        **dict.fromkeys(("archive", "enforce", "expire"), event_of(timer, source="benchmark")),
        **dict.fromkeys(("sweep", "usage"), Event(id="1", source="benchmark", type=TICK)),
    }
    return events.get(name, Event("1", "benchmark", "dev.knative.apiserver.resource.update", data=reported))


def _ref(obj: Mapping[str, Any]) -> ObjectRef:
    metadata = obj["metadata"]
    return ObjectRef("batch/v1", "Job", metadata["namespace"], metadata["name"], metadata["uid"])


async def _start(
    command: Sequence[str], environment: Mapping[str, str], event: tuple[Mapping[str, str], bytes], log: Path
) -> tuple[float, float]:
    """Seconds to the answer, and of processor time."""
    started = time.perf_counter()
    with log.open("wb") as stream:
        process = await asyncio.create_subprocess_exec(*command, env=environment, stdout=stream, stderr=stream)
    try:
        async with asyncio.timeout(SECONDS_MAX):
            status = await _first_answer(int(environment["PORT"]), event, process)
        took, cpu = time.perf_counter() - started, cpu_seconds(process.pid)
    except TimeoutError:
        status = 0
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGKILL)
        await process.wait()
    if not 200 <= status < 300:
        raise BenchmarkError(f"{environment['FUNCTION_TARGET']} answered {status}: {_tail(log)}")
    return took, cpu


def _tail(log: Path) -> str:
    return log.read_text()[-2000:]


async def _first_answer(port: int, event: tuple[Mapping[str, str], bytes], process: asyncio.subprocess.Process) -> int:
    headers, body = event
    async with aiohttp.ClientSession() as session:
        while process.returncode is None:
            try:
                async with session.post(f"http://127.0.0.1:{port}/", headers=headers, data=body) as response:
                    await response.read()
                    return response.status
            except aiohttp.ClientConnectorError:
                await asyncio.sleep(0.002)
    return 0


@asynccontextmanager
async def _sink() -> AsyncIterator[str]:
    """A Broker that takes everything."""

    async def take(request: web.Request) -> web.Response:
        await request.read()
        return web.Response(status=202)

    async with answering_with(take) as url:
        yield f"{url}/"
