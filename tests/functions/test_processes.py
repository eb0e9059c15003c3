"""Each function in its own process, as in a container: uvicorn, functions-framework, environment, signals."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from dataclasses import dataclass, field
from datetime import timedelta

import aiohttp
import pytest
from aiohttp import web

from shared.adapters.clock import SystemClock
from shared.adapters.events.cloudevents import Event, parse_event
from shared.adapters.timers.sqlite.engine import SqliteTimers
from shared.devserver.ports import free_port
from shared.messages import ObjectDeleted, Timer, TimersSet
from tests.builders import FRONT, ROOT, ago, not_none
from tests.fakes import FakePublisher
from tests.functions.wire import DUE, FIRED, REPORTED, SET, TAKEN, Answer, binary, timer
from tests.loopback import answering_with

pytestmark = [pytest.mark.anyio, pytest.mark.verify]  # each test starts the process of a function

SECONDS_MAX = 100
"""Only a process that hangs takes so long; it is ended before the time limit of pytest."""

DISCOVERY = {
    "/apis/batch": {"name": "batch", "versions": [{"groupVersion": "batch/v1"}]},
    "/apis/batch/v1": {"resources": [{"name": "jobs", "kind": "Job", "namespaced": True}]},
}
"""What the test's API server serves."""


@dataclass
class Process:
    """A function's process.

    Attributes:
        log: Where its standard error goes.
    """

    process: asyncio.subprocess.Process
    port: int
    log: str

    async def is_ready(self):
        """Whether it listens, or has ended."""
        while self.process.returncode is None:
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", self.port)
                writer.close()
                return True
            await asyncio.sleep(0.02)
        return False

    async def stops_listening(self):
        """Until it accepts no connection any more."""
        with contextlib.suppress(ConnectionError):
            while True:
                _, writer = await asyncio.open_connection("127.0.0.1", self.port)
                writer.close()
                await asyncio.sleep(0.02)

    async def post(self, headers, body):
        url = f"http://127.0.0.1:{self.port}/"
        async with aiohttp.ClientSession() as session, session.post(url, headers=headers, data=body) as response:
            return Answer(response.status, response.headers, await response.read())

    def lines(self):
        with open(self.log) as log:  # noqa: PTH123 - a few lines, in a test
            return log.read().splitlines()

    def messages(self):
        """The messages of the log; each line is JSON, also those of uvicorn."""
        return [json.loads(line)["message"] for line in self.lines()]


@contextlib.asynccontextmanager
async def running(name, tmp_path, front=FRONT, **settings):
    """The function's process; it is ended with the block if it has not ended by then."""
    port = free_port()
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("TTL_", "K_", "KUBE"))}
    environment = {
        **inherited,
        "FUNCTION_TARGET": name,
        "FUNCTION_SOURCE": f"functions/{name}.py",
        "TTL_TIMERS": f"sqlite:{tmp_path}/timers.db",
        "KUBECONFIG": str(tmp_path / "kubeconfig"),
        **settings,
    }
    arguments = ["functions_framework.aio:app", "--http", front, "--lifespan", "on"]
    arguments += ["--host", "127.0.0.1", "--port", str(port)]
    arguments += ["--log-config", "shared/logging.json"]
    with (tmp_path / "log").open("w") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "uvicorn", *arguments, cwd=ROOT, env=environment, stderr=log
        )
    try:
        async with asyncio.timeout(SECONDS_MAX):
            yield Process(process, port, str(tmp_path / "log"))
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@dataclass
class Server:
    """An HTTP server of the test: a Broker, or an API server that has DUE and a shared state, and nothing else.

    Attributes:
        open: While it is not set, a request waits.
        answered: What it answered completely.
        state: The data of the ConfigMap; None while there is none.
    """

    open: asyncio.Event = field(default_factory=asyncio.Event)
    url: str = ""
    asked: asyncio.Queue[str] = field(default_factory=asyncio.Queue)
    events: list[Event] = field(default_factory=list)
    answered: list[str] = field(default_factory=list)
    state: dict | None = None

    async def handle(self, request):
        if request.path in DISCOVERY:
            return web.json_response(DISCOVERY[request.path])
        if "/configmaps" in request.path:
            return await self.handle_state(request)
        body = await request.read()
        self.asked.put_nowait(request.method)
        await self.open.wait()
        if request.method == "POST":
            headers = {name.lower(): value for name, value in request.headers.items()}
            self.events.append(parse_event(headers, body))
            response = web.Response(status=202)
        elif request.method == "DELETE" or request.path.endswith(DUE["metadata"]["name"]):
            response = web.json_response(DUE)
        else:
            response = web.json_response({"metadata": {"resourceVersion": "1"}, "items": []})
        await response.prepare(request)
        await response.write_eof()
        self.answered.append(request.method)
        return response

    async def handle_state(self, request):
        if request.method != "GET":
            self.state = (await request.json())["data"]
        elif self.state is None:
            missing = {"kind": "Status", "details": {"name": "ttl-after-finished-state"}, "code": 404}
            return web.json_response(missing, status=404)
        return web.json_response({"metadata": {"name": "ttl-after-finished-state"}, "data": self.state})


@pytest.fixture
async def server(tmp_path):
    server = Server()
    server.open.set()
    async with answering_with(server.handle, handler_cancellation=True) as server.url:
        (tmp_path / "kubeconfig").write_text(
            f"""
            current-context: test
            contexts: [{{name: test, context: {{cluster: test, user: test}}}}]
            clusters: [{{name: test, cluster: {{server: "{server.url}"}}}}]
            users: [{{name: test, user: {{token: test}}}}]
            """
        )
        yield server


@pytest.mark.parametrize("name", TAKEN)
async def test_each_function_answers_in_its_own_process(name, server, tmp_path):
    async with running(name, tmp_path, K_SINK=server.url) as process:
        assert await process.is_ready(), process.lines()
        answer = await process.post(*binary(*TAKEN[name]))
        malformed = await process.post(*binary(TAKEN[name][0], b"{", id=None))

    if name == "schedule":
        assert TimersSet.model_validate_json(answer.event().data).timers[0].due_at == ago(30)
    elif name == "expire":
        assert ObjectDeleted.model_validate_json(answer.event().data).ref.name == DUE["metadata"]["name"]
        assert server.answered == ["GET", "GET", "DELETE"]  # the object, its namespace
    elif name == "archive":  # no policy: the timer of the deletion
        assert TimersSet.model_validate_json(answer.event().data).timers[0].purpose == "expire"
    else:
        assert (answer.status, answer.body) == (204, b"")
    assert (malformed.status, malformed.text[:3]) == (400, "id:")


async def test_function_with_callers_rejects_a_request_without_a_token(tmp_path):
    async with running("schedule", tmp_path, TTL_CALLERS="caller", TTL_CALLERS_AUDIENCE="us") as process:
        assert await process.is_ready(), process.lines()
        assert (await process.post(*binary(REPORTED, DUE))).status == 401


async def stored(path):
    """A timer file with an overdue timer, as an earlier process left it."""
    engine = SqliteTimers(path, SystemClock(), FakePublisher())
    await engine.set([Timer.model_validate(timer())])
    await engine.close()


async def pending(path):
    engine = SqliteTimers(path, SystemClock(), FakePublisher())
    try:
        return await engine.pending()
    finally:
        await engine.close()


async def test_timers_fires_overdue_timers_without_a_request(server, tmp_path):
    await stored(tmp_path / "timers.db")

    async with running("timers", tmp_path, K_SINK=server.url):
        assert await server.asked.get() == "POST"

    (event,) = server.events
    assert event.type == FIRED
    assert Timer.model_validate_json(event.data) == Timer.model_validate(timer())


@pytest.mark.parametrize(
    ("name", "settings", "words"),
    [
        ("timers", {}, "K_SINK: "),
        ("sweep", {}, "K_SINK: "),
        ("timers", {"K_SINK": "sink"}, "K_SINK: "),
        ("timers", {"K_SINK": "http://sink", "TTL_TIMERS": "sqlite:/proc/none/timers.db"}, "/proc/none/timers.db: "),
        ("schedule", {"TTL_KINDS": "jobs,gizmos"}, "TTL_KINDS: "),
        ("expire", {"TTL_CONCURRENCY": "many"}, "TTL_CONCURRENCY: "),
        ("expire", {"TTL_METRICS_PORT": "metrics"}, "TTL_METRICS_PORT: "),
        ("expire", {"TTL_API_TOKEN": "x"}, "TTL_API_TOKEN: "),
        ("archive", {"TTL_ARCHIVE_KEYS": "short"}, "TTL_ARCHIVE_KEYS: expected keys of at least 32 random characters"),
        ("sweep", {"K_SINK": "http://sink", "TTL_API_SERVER": "https://x"}, "TTL_API_SERVER: "),
        ("expire", {"TTL_CALLERS": "caller"}, "TTL_CALLERS_AUDIENCE: "),
        ("sweep", {"K_SINK": "http://sink", "TTL_SWEEP_INTERVALL": "5m"}, "TTL_SWEEP_INTERVALL: "),
    ],
    ids=lambda value: value if isinstance(value, str) else ",".join(value),
)
async def test_invalid_setting_ends_the_process_with_one_sentence(name, settings, words, tmp_path):
    async with running(name, tmp_path, **settings) as process:
        assert not await process.is_ready()

    assert process.process.returncode == 3
    assert process.messages()[-1].startswith(words)
    assert "Traceback" not in "".join(process.lines())


async def test_metrics_port_in_use_ends_the_process_with_one_sentence(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        async with running("schedule", tmp_path, TTL_METRICS_PORT=str(port)) as process:
            assert not await process.is_ready()

    assert process.messages()[-1].startswith("TTL_METRICS_PORT: ")


async def scraped(port):
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/metrics") as response:
        return (await response.text()).splitlines()


async def test_deletion_is_measured_if_a_metrics_port_is_set(server, tmp_path):
    port = free_port()
    async with running("expire", tmp_path, TTL_METRICS_PORT=str(port)) as process:
        assert await process.is_ready(), process.lines()
        assert (await process.post(*binary(FIRED, timer()))).status == 200
        assert (await process.post(*binary(REPORTED, DUE))).status == 422
        lines = await scraped(port)

    kind = DUE["kind"]
    assert f'ttl_objects_total{{by="expire",kind="{kind}",reason="expired",verdict="deleted"}} 1.0' in lines
    assert f'ttl_deletion_lateness_seconds_count{{by="expire",kind="{kind}"}} 1.0' in lines
    assert 'ttl_events_total{function="expire",status="200"} 1.0' in lines
    assert 'ttl_events_total{function="expire",status="422"} 1.0' in lines


def in_minutes(minutes: float) -> str:
    """A time by the real clock, which the process uses: later than any test, but within the horizon of the timers."""
    return (SystemClock().now() + timedelta(minutes=minutes)).isoformat()


async def test_pending_timers_and_published_events_are_measured(server, tmp_path):
    await stored(tmp_path / "timers.db")
    port = free_port()
    far = timer(due_at=in_minutes(10), ref={**timer()["ref"], "uid": "far"})
    async with running("timers", tmp_path, K_SINK=server.url, TTL_METRICS_PORT=str(port)) as process:
        assert await server.asked.get() == "POST"
        assert await process.is_ready(), process.lines()
        assert (await process.post(*binary(SET, {"timers": [far]}))).status == 204
        while "ttl_timers_pending 1.0" not in (lines := await scraped(port)):
            await asyncio.sleep(0.02)

    assert f'ttl_published_total{{result="accepted",type="{FIRED}"}} 1.0' in lines


async def test_sigterm_lets_a_request_in_flight_finish(server, tmp_path):
    server.open.clear()
    async with running("expire", tmp_path) as process:
        assert await process.is_ready(), process.lines()
        asking = asyncio.create_task(process.post(*binary(FIRED, timer())))
        assert await server.asked.get() == "GET"
        process.process.send_signal(signal.SIGTERM)
        await process.stops_listening()
        server.open.set()
        answer = await asking
        await process.process.wait()

    assert answer.event().type == ObjectDeleted.type
    assert process.process.returncode in (0, -signal.SIGTERM)


async def test_sigterm_writes_the_deletion_counts(server, tmp_path):
    async with running("expire", tmp_path, TTL_NAMESPACE="here") as process:
        assert await process.is_ready(), process.lines()
        assert (await process.post(*binary(FIRED, timer()))).event().type == ObjectDeleted.type
        assert server.state is None  # no request has come since
        process.process.send_signal(signal.SIGTERM)
        await process.process.wait()

    (name,) = json.loads(not_none(server.state)["names"])
    assert name.endswith(DUE["metadata"]["name"])
    assert process.process.returncode in (0, -signal.SIGTERM)


async def test_sigterm_lets_a_delivery_in_flight_finish(server, tmp_path):
    await stored(tmp_path / "timers.db")
    server.open.clear()

    async with running("timers", tmp_path, K_SINK=server.url) as process:
        await server.asked.get()
        assert await process.is_ready(), process.lines()
        process.process.send_signal(signal.SIGTERM)
        await asyncio.sleep(0.5)  # nothing shows from outside that it waits for the delivery
        server.open.set()
        await process.process.wait()

    assert server.answered == ["POST"]
    assert process.process.returncode in (0, -signal.SIGTERM)
    assert await pending(tmp_path / "timers.db") == 0


async def test_timer_set_over_http_survives_sigterm_and_kill(server, tmp_path):
    far = timer(due_at=in_minutes(10))
    for number, ending in enumerate([signal.SIGTERM, signal.SIGKILL]):
        async with running("timers", tmp_path, K_SINK=server.url) as process:
            assert await process.is_ready(), process.lines()
            data = {"timers": [{**far, "ref": {**far["ref"], "uid": f"uid-{number}"}}]}
            assert (await process.post(*binary(SET, data))).status == 204
            process.process.send_signal(ending)
            await process.process.wait()

    assert await pending(tmp_path / "timers.db") == 2


async def test_new_client_is_answered_while_others_work(server, tmp_path):
    """If the API server is slow, requests that do not need it are still answered."""
    server.open.clear()
    async with running("expire", tmp_path) as process:
        assert await process.is_ready(), process.lines()
        slow = asyncio.create_task(process.post(*binary(FIRED, timer())))
        await server.asked.get()
        assert (await process.post(*binary(REPORTED, DUE))).status == 422
        assert not slow.done()
        server.open.set()
        assert (await slow).status == 200
