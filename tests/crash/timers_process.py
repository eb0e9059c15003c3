"""The function `timers` in a process of its own, to be killed."""

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from shared.devserver.ports import free_port
from tests.builders import FRONT, ROOT, not_none


@dataclass
class TimersProcess:
    """A process of `timers`; the next one takes over its port.

    Attributes:
        address: The value of TTL_TIMERS.
        sink_url: Where due timers go.
        log: What the process writes.
        source: The file of the function.
        environment: More environment variables.
        runner: The module that takes the arguments of uvicorn, and its own first ones.
    """

    address: str
    sink_url: str
    log: Path
    source: str = "functions/timers.py"
    environment: dict[str, str] = field(default_factory=dict)
    runner: Sequence[str] = ("uvicorn",)
    port: int = field(default_factory=free_port)
    process: asyncio.subprocess.Process | None = None

    @property
    def url(self) -> str:
        """Where it takes events."""
        return f"http://127.0.0.1:{self.port}/"

    async def start(self) -> None:
        """Start a process; it is not ready yet."""
        app = "functions_framework.aio:app"
        options = ["--http", FRONT, "--lifespan", "on", "--no-access-log", "--port", str(self.port)]
        target = {"FUNCTION_TARGET": "timers", "FUNCTION_SOURCE": self.source}
        environment = {"PATH": os.defpath, "TTL_TIMERS": self.address, "K_SINK": self.sink_url}
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", *self.runner, app, *options),
                cwd=ROOT,
                env=environment | target | self.environment,
                stdout=log,
                stderr=log,
            )

    async def end(self, by: signal.Signals) -> int:
        """Send a signal, and wait for the end; returns the exit code."""
        with suppress(ProcessLookupError):
            not_none(self.process).send_signal(by)
        return await not_none(self.process).wait()

    async def until_ready(self, seconds: float = 30.0) -> None:
        """Wait until the process accepts connections."""
        async with asyncio.timeout(seconds):
            while True:
                assert not_none(self.process).returncode is None, self.log.read_text()[-2000:]
                with suppress(OSError):
                    _, writer = await asyncio.open_connection("127.0.0.1", self.port)
                    writer.close()
                    return
                await asyncio.sleep(0.01)
