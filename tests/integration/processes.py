"""The functions as processes of their own, as in their containers, on a real API server; each serves its metrics."""

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from shared.devserver.ports import free_port
from tests.builders import FRONT, ROOT
from tests.functions.wire import binary
from tests.integration.conftest import Api

START_SECONDS = 60


class FunctionProcess:
    """A function as the image runs it.

    Args:
        api: The API server.
        name: The function.
        folder: Where its timers and its log are.
        settings: Its environment; each replaces a default of the test.
    """

    def __init__(self, api: Api, name: str, folder: Path, **settings: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.name, self.log = name, folder / f"{name}.log"
        self._port, self._metrics_port = free_port(), free_port()
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(("TTL_", "K_", "KUBE"))}
        environment = {
            "FUNCTION_TARGET": name,
            "FUNCTION_SOURCE": f"functions/{name}.py",
            "TTL_API_SERVER": api.server.url,
            "TTL_API_TOKEN": api.server.token,
            "TTL_API_CA": str(api.server.ca),
            "TTL_METRICS_PORT": str(self._metrics_port),
            "TTL_TIMERS": f"sqlite:{folder}/timers.db",
            "K_SINK": f"http://127.0.0.1:{free_port()}",  # no Broker listens there
            **settings,
        }
        program = [sys.executable, "-m", "uvicorn", "functions_framework.aio:app", "--http", FRONT, "--lifespan", "on"]
        program += ["--port", str(self._port), "--log-config", "shared/logging.json"]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(program, cwd=ROOT, env=inherited | environment, stderr=log)
        self._wait_until_ready()

    @property
    def url(self) -> str:
        """Where it accepts events."""
        return f"http://127.0.0.1:{self._port}"

    def post(self, type_: str, data: Any = None, **attributes: str | None) -> int:
        """Send an event; return the status of the answer."""
        headers, body = binary(type_, data, **attributes)
        request = urllib.request.Request(f"{self.url}/", data=body, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return int(response.status)
        except urllib.error.HTTPError as error:
            return error.code

    def scrape(self) -> dict[str, float]:
        """The value of each series, by its name and labels."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._metrics_port}/metrics", timeout=30) as response:
            lines = response.read().decode().splitlines()
        samples = (line.rpartition(" ") for line in lines if not line.startswith("#"))
        return {series: float(value) for series, _, value in samples}

    def end(self) -> None:
        """Kill the process."""
        self.process.kill()
        self.process.wait()

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while True:
            assert self.process.poll() is None, self.log.read_text()
            try:
                self.scrape()
                socket.create_connection(("127.0.0.1", self._port), timeout=1).close()
            except OSError:
                assert time.monotonic() < deadline, self.log.read_text()
                time.sleep(0.1)
            else:
                return
