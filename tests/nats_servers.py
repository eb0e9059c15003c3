"""Real nats-servers on loopback, for the tests that need one."""

import json
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import nats
from nats.js.errors import APIError

from shared.devserver.ports import free_port
from shared.devserver.real_servers import find_program
from tests.builders import not_none
from tests.proc import memory_kb, send
from tests.required import PLACES, required

NATS_PROGRAM = "nats-server"

STORE_BYTES = 2_000_000


def required_nats_program() -> Path:
    """The binary; without it the test is skipped, and in CI it fails."""
    return required(find_program(NATS_PROGRAM), f"no {NATS_PROGRAM} in {PLACES}")


class NatsServer:
    """A nats-server that can be killed, stopped and started again with its data.

    Attributes:
        url: Where clients connect.
    """

    def __init__(self, folder: Path, config: Mapping[str, object] | None = None, *, port: int = 0) -> None:
        self.folder = folder
        self.port, self._monitor = port or free_port(), free_port()
        self.url = f"nats://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        self._config = {
            "listen": f"127.0.0.1:{self.port}",
            "http": f"127.0.0.1:{self._monitor}",
            "jetstream": {"store_dir": str(folder / "data")},
            **(config or {}),
        }

    def start(self, *, wait: bool = True) -> None:
        config = self.folder / "nats.conf"
        config.write_text(json.dumps(self._config))
        with (self.folder / "nats.log").open("ab") as log:
            command = [str(required_nats_program()), "-c", str(config)]
            self._process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        if wait:
            self.wait()

    def wait(self, seconds: float = 60) -> None:
        """Wait until the server is ready."""
        deadline = time.monotonic() + seconds
        while not self.healthy():
            process = not_none(self._process)
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"nats-server did not start:\n{(self.folder / 'nats.log').read_text()[-2000:]}")
            time.sleep(0.05)

    def healthy(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._monitor}/healthz", timeout=2) as answer:
                return answer.status == 200
        except OSError:
            return False

    def monitor(self, page: str) -> dict:
        with urllib.request.urlopen(f"http://127.0.0.1:{self._monitor}/{page}", timeout=5) as answer:
            return json.load(answer)

    def signal(self, number: int) -> None:
        send(not_none(self._process), number)

    def kill(self) -> None:
        """kill -9, and wait for the end."""
        self.signal(signal.SIGKILL)
        not_none(self._process).wait()

    def rss_bytes(self) -> int:
        return memory_kb(not_none(self._process).pid, "VmRSS") * 1024

    def stop(self) -> None:
        if self._process and self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)
            self._process.terminate()
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self.kill()


@contextmanager
def nats_server(folder: Path, config: Mapping[str, object] | None = None) -> Iterator[NatsServer]:
    """A running server."""
    server = NatsServer(folder, config)
    try:
        server.start()
        yield server
    finally:
        server.stop()


@contextmanager
def small_nats_server(folder: Path) -> Iterator[NatsServer]:
    """A running server that stores only `STORE_BYTES`."""
    with nats_server(folder, {"jetstream": {"store_dir": str(folder / "data"), "max_file_store": STORE_BYTES}}) as node:
        yield node


async def fill_store(node: NatsServer) -> None:
    """Store other messages in a small server until it refuses them."""
    client = await nats.connect(node.url)
    stream = client.jetstream()
    await stream.add_stream(name="other", subjects=["other"])
    for size in (STORE_BYTES // 40, 1_000, 1):
        with suppress(APIError):
            while True:
                await stream.publish("other", b"x" * size)
    await client.close()


@contextmanager
def nats_cluster(folder: Path, nodes: int = 3) -> Iterator[list[NatsServer]]:
    """Running servers that form a cluster."""
    routes = [free_port() for _ in range(nodes)]
    servers = [
        NatsServer(
            folder / f"n{n}",
            {
                "server_name": f"n{n}",
                "cluster": {
                    "name": "timers",
                    "listen": f"127.0.0.1:{routes[n]}",
                    "routes": [f"nats://127.0.0.1:{port}" for port in routes],
                },
            },
        )
        for n in range(nodes)
    ]
    try:
        for server in servers:
            server.start(wait=False)
        for server in servers:
            server.wait()
        yield servers
    finally:
        for server in servers:
            server.stop()
