"""The files that one event passes in `run`: from the line of the watch to the answer of the DELETE.

    python -m tests.benchmarks.event_path

`run` works in this process, without a policy, on the embedded API server. A first Job warms caches and connections up.
Then a second Job with a TTL of one second finishes, and every function of this project that is called until its DELETE
is answered is recorded. Not recorded: the API server itself, and the periodic tasks of `BACKGROUND`, which also run
when nothing happens.

A function is a step if it decides or does something about the event. Not a step: properties, methods with a special
name such as `__init__`, and all functions of `DATA`, which only define data and interfaces.
"""

import asyncio
import inspect
import json
import sys
import tempfile
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import aiohttp

from shared.adapters.config.kind_files import read_catalogue
from shared.adapters.config.settings import read_settings
from shared.adapters.kubernetes.cluster import Memory
from shared.adapters.kubernetes.connect import connect
from shared.bootstrap.build import build
from shared.bootstrap.config import ProcessConfig
from shared.core.values.objects import format_instant
from shared.devserver.apiserver.app import EmbeddedApiServer, serve, write_kubeconfig
from shared.devserver.apiserver.store import Store
from shared.standalone.runner import Runner

ROOT = Path(__file__).parents[2]
RECORDED = ("functions/", "shared/")
LEFT_OUT = ("shared/devserver/", "shared/doctor/", "shared/cli/")
DATA = ("shared/ports/", "shared/messages/", "shared/errors.py")
BACKGROUND = ("Runner._sweep_on_reload", "Runner._sweep_on_release", "Runner._tick")
JOBS = "/apis/batch/v1/namespaces/default/jobs"
SECONDS_MAX = 20


class Recorder:
    """Records each function of the project that is called while it is switched on, in the order of the first calls."""

    def __init__(self) -> None:
        self.calls: dict[CodeType, str] = {}
        self.is_on = False
        self._paths: dict[CodeType, str] = {}

    def install(self) -> None:
        """Record in this thread and in each thread that starts from now on."""
        threading.setprofile(self._record)
        sys.setprofile(self._record)

    def remove(self) -> None:
        threading.setprofile(None)
        sys.setprofile(None)

    def _record(self, frame: FrameType, event: str, _: Any) -> None:
        if not self.is_on or event != "call" or frame.f_code in self.calls:
            return
        path = self._path(frame.f_code)
        if path and not self._is_background(frame):
            self.calls[frame.f_code] = path

    def _path(self, code: CodeType) -> str:
        """The path of a recorded file below the root of the project; empty for any other file."""
        if code not in self._paths:
            path = Path(code.co_filename)
            name = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else ""
            self._paths[code] = name if name.startswith(RECORDED) and not name.startswith(LEFT_OUT) else ""
        return self._paths[code]

    def _is_background(self, frame: FrameType | None) -> bool:
        root = ""
        while frame is not None:
            if self._path(frame.f_code):
                root = frame.f_code.co_qualname
            frame = frame.f_back
        return root in BACKGROUND


def is_step(code: CodeType, path: str) -> bool:
    """Whether a function decides or does something about the event."""
    names = [name for name in code.co_qualname.split(".") if not name.startswith("<")]
    return not (path.startswith(DATA) or names[-1].startswith("__") or _is_property(names, path))


def _is_property(names: list[str], path: str) -> bool:
    module = sys.modules.get(path.removesuffix(".py").replace("/", "."))
    found: Any = module
    for name in names:
        found = inspect.getattr_static(found, name, None)
    return isinstance(found, property)


@asynccontextmanager
async def _running(folder: Path, recorder: Recorder) -> AsyncIterator[str]:
    """Run the runner on an embedded API server; the recorder is switched off when a DELETE is answered.

    Yields:
        The address of the API server.
    """
    async with serve(EmbeddedApiServer(Store(lambda: datetime.now(UTC)))) as url:
        kinds = read_catalogue().parse_names(("jobs.batch",))
        settings = read_settings({"TTL_TIMERS": f"sqlite:{folder}/timers.db"}, environment={})
        cluster = await connect(kubeconfig=str(write_kubeconfig(folder / "kubeconfig", url)), memory=Memory())
        send_delete = cluster.delete

        async def delete(*args: Any, **options: Any) -> Any:
            answer = await send_delete(*args, **options)
            recorder.is_on = False
            return answer

        cluster.delete = delete  # type: ignore[method-assign]
        process = build(ProcessConfig(settings=settings, kinds=kinds, catalogue=kinds, cluster=cluster))
        runner = asyncio.create_task(Runner(process, cluster).run())
        try:
            yield url
        finally:
            runner.cancel()
            with suppress(asyncio.CancelledError):
                await runner
            await cluster.close()


async def _create(session: aiohttp.ClientSession, name: str) -> None:
    """Create an unfinished Job with a TTL of one second, and wait until its own event has passed."""
    metadata = {"name": name, "namespace": "default", "annotations": {"ttlafterfinished.dev/ttl": "1s"}}
    containers = [{"name": "main", "image": "busybox"}]
    spec = {"template": {"spec": {"restartPolicy": "Never", "containers": containers}}}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}
    async with session.post(JOBS, json=job) as answer:
        answer.raise_for_status()
    await asyncio.sleep(0.5)


async def _finish(session: aiohttp.ClientSession, name: str) -> None:
    """Finish a Job, and wait until it is gone."""
    at = format_instant(datetime.now(UTC).replace(microsecond=0))
    condition = {"type": "Complete", "status": "True", "lastTransitionTime": at}
    patch = json.dumps({"status": {"conditions": [condition], "completionTime": at}})
    headers = {"Content-Type": "application/merge-patch+json"}
    async with session.patch(f"{JOBS}/{name}/status", data=patch, headers=headers) as answer:
        answer.raise_for_status()
    async with asyncio.timeout(SECONDS_MAX):
        while True:
            async with session.get(f"{JOBS}/{name}") as answer:
                if answer.status == 404:
                    return
            await asyncio.sleep(0.05)


async def record() -> Recorder:
    """Record the path of one event."""
    recorder = Recorder()
    recorder.install()
    try:
        with tempfile.TemporaryDirectory(prefix="ttl-path-") as folder:
            async with _running(Path(folder), recorder) as url, aiohttp.ClientSession(url) as session:
                await asyncio.sleep(1)  # the watch has started
                await _create(session, "warm-up")
                await _finish(session, "warm-up")
                await _create(session, "measured")
                recorder.is_on = True
                await _finish(session, "measured")
    finally:
        recorder.remove()
    return recorder


def main() -> None:
    """Print the files in the order of their first call, each with its functions, and how many there are."""
    recorder = asyncio.run(record())
    files: dict[str, list[CodeType]] = {}
    for code, path in recorder.calls.items():
        files.setdefault(path, []).append(code)
    steps = 0
    for path, codes in files.items():
        names = [code.co_qualname for code in codes if is_step(code, path)]
        steps += bool(names)
        print(f"{'step' if names else 'data'}  {path}: {', '.join(names or (code.co_qualname for code in codes))}")
    print(f"files: {len(files)}; files with steps: {steps}")


if __name__ == "__main__":
    main()
