"""Limits of HTTP requests: attacks over loopback, with valid events in between."""

import asyncio
import contextlib
import json
import socket
from io import BytesIO
from pathlib import Path

import pytest

from shared.adapters.events import http_limits as front
from shared.adapters.events.cloudevents import EVENT_BYTES_MAX
from shared.adapters.events.http_limits import HEADER_BYTES_MAX, HEADERS_MAX, READING_BYTES_MAX, REQUEST_BYTES_MAX
from shared.bootstrap.build import build
from tests.builders import ROOT, ago, job
from tests.functions.test_processes import running
from tests.functions.wire import DUE, REPORTED, binary, load_applications, serve_functions

pytestmark = pytest.mark.anyio

MIB = 1024 * 1024
GROWTH_BYTES_MAX = 4 * READING_BYTES_MAX
"""How much larger a process may become by any attack: what is read is there three times at most."""

HEAD = b"POST /schedule HTTP/1.1\r\nhost: functions\r\n"
BINARY = b"".join(f"{name}: {value}\r\n".encode() for name, value in binary(REPORTED)[0].items())


def rss(process):
    """The peak of the memory in use so far, in bytes."""
    status = Path(f"/proc/{process.process.pid}/status").read_text()
    return 1024 * int(status.partition("VmHWM:")[2].split()[0])


class Sender:
    """A connection that sends any bytes.

    A plain socket, because a stream of asyncio that cannot send any more forgets the answer that it has not read.

    Attributes:
        received: All bytes received so far.
        ending: Done once the connection has ended.
    """

    def __init__(self, connection):
        self.received = b""
        self._socket, self._has_more = connection, asyncio.Event()
        self.ending = asyncio.create_task(self._read())

    async def _read(self):
        with contextlib.suppress(ConnectionError):
            while chunk := await asyncio.get_running_loop().sock_recv(self._socket, MIB):
                self.received += chunk
                self._has_more.set()

    async def send(self, *chunks):
        """Send bytes; return whether the server accepted all of them."""
        with contextlib.suppress(ConnectionError):
            for chunk in chunks:
                await asyncio.get_running_loop().sock_sendall(self._socket, chunk)
            return True
        return False

    async def answered(self, times):
        """Until so many answers have begun."""
        while self.received.count(b"HTTP/1.1 200 ") < times:
            self._has_more.clear()
            await self._has_more.wait()

    async def status(self):
        """Of the first answer, once the connection has ended; None where there was none."""
        await self.ending
        return int(self.received.split()[1]) if self.received else None

    def has_ended(self):
        return self.ending.done()

    async def close(self):
        with contextlib.suppress(OSError):  # the server has ended it
            self._socket.shutdown(socket.SHUT_RDWR)
        await self.ending
        self._socket.close()


async def ended(senders, at_least):
    """Those that were ended, as soon as there are so many; the test's own time limit ends the wait."""
    while len(found := [sender for sender in senders if sender.has_ended()]) < at_least:
        waiting = [sender.ending for sender in senders if not sender.has_ended()]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    return found


@contextlib.asynccontextmanager
async def sending(family, address):
    """Opens connections, and closes them with the block."""
    opened = []

    async def connect():
        connection = socket.socket(family)
        connection.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connection, address)
        sender = Sender(connection)
        opened.append(sender)
        return sender

    try:
        yield connect
    finally:
        for sender in opened:
            await sender.close()


@pytest.fixture
async def attacked(tmp_path):
    """The process of `schedule`, and a function that opens connections to it."""
    async with running("schedule", tmp_path, front="tests.functions.patient:LimitedHttp") as process:
        assert await process.is_ready(), process.lines()
        assert (await process.post(*binary(REPORTED, DUE))).status == 200
        async with sending(socket.AF_INET, ("127.0.0.1", process.port)) as connect:
            yield process, connect


@pytest.mark.verify
async def test_endless_headers_use_no_memory(attacked):
    process, connect = attacked
    before = rss(process)
    senders = [await connect() for _ in range(4)]
    bomb = [HEAD, b"x: ", *[b"a" * 256 * 1024] * 64]
    taken = await asyncio.gather(*(sender.send(*bomb) for sender in senders))

    assert taken == [False] * 4
    assert (await process.post(*binary(REPORTED, DUE))).status == 200
    assert rss(process) - before < GROWTH_BYTES_MAX


@pytest.mark.verify
async def test_incomplete_bodies_use_no_more_memory_than_the_limit(attacked):
    process, connect = attacked
    before = rss(process)
    body = b"x" * (EVENT_BYTES_MAX - 1)
    head = HEAD + BINARY + b"content-length: %d\r\n\r\n" % EVENT_BYTES_MAX
    senders = []
    for _ in range(60):
        senders.append(await connect())
        await senders[-1].send(head, body)
        assert (await process.post(*binary(REPORTED, DUE))).status == 200

    refused = await ended(senders, 60 - READING_BYTES_MAX // len(body))
    assert {await sender.status() for sender in refused} <= {503, None}
    assert rss(process) - before < GROWTH_BYTES_MAX


@pytest.mark.verify
@pytest.mark.parametrize("chunked", [False, True], ids=["whole", "chunked"])
async def test_concurrent_events_of_maximum_size_are_answered(attacked, chunked):
    process, _ = attacked
    obj = job(complete=ago(60), ttl=30)
    obj["metadata"]["annotations"] = {"notes": "x" * (EVENT_BYTES_MAX - len(json.dumps(obj)) - 40)}
    headers, body = binary(REPORTED, obj)
    assert EVENT_BYTES_MAX - 100 < len(body) <= EVENT_BYTES_MAX
    headers["authorization"] = f"Bearer {'x' * 16_000}"

    async def chunks():
        for start in range(0, len(body), 1_024):
            yield body[start : start + 1_024]

    asking = (process.post(headers, chunks() if chunked else BytesIO(body)) for _ in range(6))
    assert [answer.status for answer in await asyncio.gather(*asking)] == [200] * 6


# Each limit, in a process of the test's


@pytest.fixture
async def served(config, tmp_path, monkeypatch):
    """A function that opens connections to the functions; no request is too slow, unless the test says so."""
    monkeypatch.setattr(front, "REQUEST_READ_SECONDS_MAX", 3_600.0)
    path = tmp_path / "functions.sock"
    functions = load_applications(build(config))
    async with serve_functions(path, functions), sending(socket.AF_UNIX, str(path)) as connect:
        yield connect


async def honest(connect):
    """The status of an event that is sent at once, on its own connection."""
    headers, body = binary(REPORTED, DUE)
    lines = b"".join(f"{name}: {value}\r\n".encode() for name, value in headers.items())
    sender = await connect()
    await sender.send(HEAD + lines + b"connection: close\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
    return await sender.status()


def padded(size):
    """A head of so many bytes that is not complete."""
    return HEAD + b"x: " + b"a" * (size - len(HEAD) - 3)


@pytest.mark.parametrize(
    ("sent", "status"),
    {
        "a head too large": ((padded(HEADER_BYTES_MAX + 1),), 431),
        "a whole head too large": ((padded(HEADER_BYTES_MAX + 40) + b"\r\n\r\n",), 431),
        "a URL too large": ((b"POST /" + b"a" * HEADER_BYTES_MAX,), 431),
        "too many headers": ((HEAD + b"a: b\r\n" * HEADERS_MAX + b"\r\n",), 431),
        "trailers too large": (
            (
                HEAD + BINARY + b"transfer-encoding: chunked\r\n\r\n1\r\n{\r\n0\r\nx: ",
                *[b"a" * 65_536] * (REQUEST_BYTES_MAX // 65_536),
            ),
            413,
        ),
        "too many trailers": (
            (HEAD + BINARY + b"transfer-encoding: chunked\r\n\r\n1\r\n{\r\n0\r\n" + b"a: b\r\n" * HEADERS_MAX,),
            431,
        ),
        "chunk extensions": (
            (HEAD + BINARY + b"transfer-encoding: chunked\r\n\r\n1;", *[b"a" * 65_536] * (REQUEST_BYTES_MAX // 65_536)),
            413,
        ),
        "pipelined": ((b"POST /schedule HTTP/1.1\r\n\r\n" * 50,), 503),
    }.values(),
    ids=lambda value: str(value) if isinstance(value, int) else "",
)
async def test_too_large_request_is_refused_before_the_function(served, config, sent, status):
    sender = await served()
    await sender.send(*sent)

    assert await sender.status() == status
    assert config.telemetry.records == []
    assert await honest(served) == 200


async def test_head_within_the_limits_is_accepted(served):
    headers, body = binary(REPORTED, DUE)
    lines = b"".join(f"{name}: {value}\r\n".encode() for name, value in headers.items())
    fill = b"".join(b"x-%d: b\r\n" % number for number in range(HEADERS_MAX - len(headers) - 4))
    head = HEAD + lines + fill + b"connection: close\r\ncontent-length: %d\r\n" % len(body)
    large = b"x: " + b"a" * (HEADER_BYTES_MAX - len(head) - 10) + b"\r\n\r\n"
    sender = await served()
    await sender.send(head + large + body)

    assert await sender.status() == 200


@pytest.mark.parametrize(
    "begun",
    [HEAD, HEAD + BINARY + b"content-length: 9\r\n\r\n", HEAD + BINARY + b"content-length: 9\r\n\r\n{"],
    ids=["head", "no body", "body"],
)
async def test_incomplete_request_times_out(served, monkeypatch, begun):
    with monkeypatch.context() as short:
        short.setattr(front, "REQUEST_READ_SECONDS_MAX", 0.1)
        short.setattr(front, "REQUEST_LATE_SECONDS", 0.1)
        sender = await served()
        await sender.send(begun)
        assert await sender.status() == 408

    assert await honest(served) == 200


async def test_slow_request_times_out(served, monkeypatch):
    """The time counts from its first byte, so bytes that go on arriving do not extend it."""
    monkeypatch.setattr(front, "REQUEST_READ_SECONDS_MAX", 0.2)
    monkeypatch.setattr(front, "REQUEST_LATE_SECONDS", 0.1)
    sender = await served()
    await sender.send(HEAD + BINARY + b"content-length: 1000000\r\n\r\n")
    while await sender.send(b"x"):
        await asyncio.sleep(0)  # a turn of the server
    assert await sender.status() in (408, None)


async def test_idle_connections_are_closed_for_active_ones(served, monkeypatch):
    monkeypatch.setattr(front, "CLIENT_CONNECTIONS_MAX", 8)
    silent = [await served() for _ in range(30)]

    assert [await honest(served) for _ in range(5)] == [200] * 5
    assert [await sender.status() for sender in silent[:20]] == [None] * 20
    assert not all(sender.has_ended() for sender in silent[23:])


async def test_complete_event_is_accepted_while_others_are_slow(served, monkeypatch):
    monkeypatch.setattr(front, "READING_BYTES_MAX", 4 * MIB)
    head = HEAD + BINARY + b"content-length: %d\r\n\r\n" % EVENT_BYTES_MAX
    senders = [await served() for _ in range(6)]
    for sender in senders:
        await sender.send(head, b"x" * MIB)
    assert await honest(served) == 200

    refused = await ended(senders, 2)
    assert len(refused) < 6
    assert {await sender.status() for sender in refused} <= {503, None}


async def test_answered_request_releases_its_bytes(served, monkeypatch):
    """A connection that is kept alive uses no memory after its requests, however many it carried."""
    monkeypatch.setattr(front, "READING_BYTES_MAX", MIB)
    headers, body = binary(REPORTED, DUE)
    lines = b"".join(f"{name}: {value}\r\n".encode() for name, value in headers.items())
    notes = b"x: " + b"a" * 60_000 + b"\r\n"
    request = HEAD + lines + notes + b"content-length: %d\r\n\r\n" % len(body) + body
    senders = [await served() for _ in range(3)]
    for number in range(20):
        for sender in senders:
            await sender.send(request)
            await sender.answered(number + 1)
    assert await honest(served) == 200


async def test_flood_of_refused_requests_is_one_log_line(served, caplog, monkeypatch):
    monkeypatch.setattr(front, "REPORT_SECONDS", 3_600.0)
    for _ in range(5):
        sender = await served()
        await sender.send(padded(HEADER_BYTES_MAX + 1))
        assert await sender.status() == 431

    lines = [record for record in caplog.records if record.message == "request refused before it was read"]
    assert [line.fields["status"] for line in lines] == [431]


CI = [f".ci/{one.name}" for one in sorted((ROOT / ".ci").iterdir()) if "functions_framework.aio" in one.read_text()]
STARTED_IN = ["Dockerfile", "CONTRIBUTING.md", *CI]


@pytest.mark.parametrize("name", STARTED_IN)
def test_each_uvicorn_command_has_the_limits(name):
    text = (ROOT / name).read_text()
    starts = text.count("functions_framework.aio:app")
    assert starts == text.count("--http shared.adapters.events.http_limits:LimitedHttp") > 0
