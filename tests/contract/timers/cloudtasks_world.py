"""Timers as tasks of Cloud Tasks: our server of its calls, and the function `timers` behind real HTTP."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import aiohttp
from functions_framework.aio import create_asgi_app
from starlette.responses import PlainTextResponse

from shared.adapters.config.settings import Settings
from shared.adapters.timers.cloudtasks.engine import CloudTasksTimers
from shared.adapters.timers.cloudtasks.tasks import TaskForm
from shared.adapters.timers.delivery import EngineLimits
from shared.bootstrap.build import build
from shared.bootstrap.config import ProcessConfig
from shared.bootstrap.start import loading_for
from shared.ports import Clock, DurableTimers, Publisher
from tests.builders import ROOT, shipped_kinds
from tests.contract.timers.worlds import ShiftedClock, World
from tests.functions.wire import Application, serve_functions
from tests.tasks_server import QUEUE, TasksServer, serving_tasks

TARGET = "http://functions/timers"
ACCOUNT = "ttl-tasks@p.iam.gserviceaccount.com"
FORM = TaskForm(QUEUE, TARGET, ACCOUNT, TARGET)


class TimersFunction:
    """The function `timers` of the newest process; 503 without one, as Cloud Run answers without an instance."""

    def __init__(self, socket: Path) -> None:
        self.socket = socket
        self._application: Application = PlainTextResponse("no instance", 503)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self._application(scope, receive, send)

    def use(self, engine: DurableTimers, clock: Clock, publisher: Publisher, **config: Any) -> None:
        """Load the function for a process with this engine."""
        kinds = shipped_kinds()
        process = build(
            ProcessConfig(
                settings=Settings(),
                kinds=kinds,
                catalogue=kinds,
                clock=clock,
                timers=engine,
                publisher=publisher,
                **config,
            )
        )
        with loading_for(process):
            self._application = create_asgi_app("timers", str(ROOT / "functions" / "timers.py"), "http")


@asynccontextmanager
async def tasks_and_function(**server: Any) -> AsyncIterator[tuple[TasksServer, TimersFunction]]:
    """The server, and the function that it sends tasks to."""
    with TemporaryDirectory(prefix="ttl-") as folder:
        function = TimersFunction(Path(folder) / "timers.sock")
        connector = aiohttp.UnixConnector(str(function.socket), limit=1_000)
        async with (
            serve_functions(function.socket, function),
            aiohttp.ClientSession(connector=connector) as session,
            serving_tasks(TasksServer(**server), session) as tasks,
        ):
            yield tasks, function


@asynccontextmanager
async def cloudtasks(folder: Path) -> AsyncIterator[World]:
    """Timers as tasks."""
    async with tasks_and_function() as (server, function):

        def build_engine(clock: ShiftedClock, publisher: Publisher, limits: EngineLimits) -> DurableTimers:
            engine = CloudTasksTimers(FORM, clock, publisher, connect=server.connect, limits=limits, jitter=lambda: 0.0)
            function.use(engine, clock, publisher)
            return engine

        yield World(build_engine, knows_next_due=False, keeps_order=False)
