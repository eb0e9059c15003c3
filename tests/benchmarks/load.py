"""A lean HTTP load: `python -m tests.benchmarks.load`, keep-alive connections that each send as soon as answered.

The requests are finished Jobs of 6 KB with their managedFields, as an ApiServerSource sends them in binary mode; the
same ones again and again, each of another object. Every answer's status and headers are looked at, and of each
distinct request one whole reply is read as the product's own reader would.
"""

import argparse
import asyncio
import copy
import json
import os
import time
import uuid
from pathlib import Path
from typing import Any, cast

import uvloop
import yaml

from shared.adapters.events.cloudevents import parse_event, parse_message
from shared.messages import TimersSet

CONNECTIONS = 16
OBJECTS = 64
BODY_BYTES = 5_900
FIXTURE = Path(__file__).parents[1] / "fixtures" / "job-complete.yaml"


def finished_job() -> dict[str, Any]:
    """A dump of a real one, made longer by what pads most: environment variables."""
    obj: dict[str, Any] = yaml.safe_load(FIXTURE.read_text())
    env = obj["spec"]["template"]["spec"]["containers"][0].setdefault("env", [])
    while len(json.dumps(obj, separators=(",", ":"))) < BODY_BYTES:
        env.append({"name": f"OPTION_{len(env)}", "value": f"the value of option {len(env)}"})
    assert obj["metadata"]["managedFields"]
    return obj


def running_job() -> dict[str, Any]:
    """The same while it still runs, without a TTL."""
    obj = finished_job()
    obj["status"] = {name: obj["status"][name] for name in ("startTime",)} | {"active": 1, "ready": 1}
    obj["metadata"].pop("annotations", None)
    obj["spec"].pop("ttlSecondsAfterFinished", None)
    return obj


def request_of(obj: dict[str, Any]) -> bytes:
    metadata = obj["metadata"]
    body = json.dumps(obj, separators=(",", ":")).encode()
    headers = {
        "host": "schedule.example.com",
        "content-type": "application/json",
        "content-length": len(body),
        "ce-specversion": "1.0",
        "ce-id": str(uuid.uuid4()),
        "ce-source": "https://10.0.0.1:443",
        "ce-type": "dev.knative.apiserver.resource.update",
        "ce-subject": f"/apis/batch/v1/namespaces/{metadata['namespace']}/jobs/{metadata['name']}",
        "ce-time": "2026-11-21T04:00:00.000000001Z",
        "ce-kind": "Job",
        "ce-name": metadata["name"],
        "ce-namespace": metadata["namespace"],
        "ce-apiversion": "batch/v1",
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"POST / HTTP/1.1\r\n{lines}\r\n".encode() + body


def requests(model: dict[str, Any]) -> tuple[list[str], list[bytes]]:
    """The uids, and what is sent for each."""
    uids = [str(uuid.uuid4()) for _ in range(OBJECTS)]
    made = []
    for number, uid in enumerate(uids):
        obj = copy.deepcopy(model)
        obj["metadata"] |= {"uid": uid, "name": f"nightly-build-{number:04}"}
        made.append(request_of(obj))
    return uids, made


class Load:
    """What all connections share.

    Args:
        model: What each object is like.
        replies: Whether `timer.set` is expected, else an empty 204.
    """

    def __init__(self, model: dict[str, Any], *, replies: bool) -> None:
        self.uids, self.requests = requests(model)
        self.replies = replies
        self.counting = False
        self.stopping = False
        self.answered = self.answered_in_all = 0
        self._sent = 0
        self._verified: set[int] = set()

    def next(self) -> int:
        self._sent = (self._sent + 1) % OBJECTS
        return self._sent

    def take(self, number: int, head: bytes, body: bytes) -> None:
        if self.replies:
            assert head.startswith(b"HTTP/1.1 200 "), (head, body)
            assert b"dev.ttlafterfinished.timer.set" in head, (head, body)
            if number not in self._verified:
                self._verify(number, head, body)
        else:
            assert head.startswith(b"HTTP/1.1 204 "), (head, body)
        self.answered += self.counting
        self.answered_in_all += 1

    def _verify(self, number: int, head: bytes, body: bytes) -> None:
        """The reply sets a timer for the object that was sent."""
        fields = (line.split(": ", 1) for line in head.decode().split("\r\n")[1:])
        headers = {name.lower(): value for name, value in fields}
        wanted = parse_message(parse_event(headers, body), TimersSet)
        assert [timer.ref.uid for timer in wanted.timers] == [self.uids[number]]
        self._verified.add(number)


class Connection(asyncio.Protocol):
    """Sends, waits for the whole answer, and sends again."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._buffer = b""
        self._number = 0
        self.ended = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._send()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, found, rest = self._buffer.partition(b"\r\n\r\n")
        if not found or len(rest) < _length(head):
            return
        self._buffer = b""
        try:
            self._load.take(self._number, head, rest)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with an answer ends the measurement
            self.ended.set_exception(error)
            self._transport.close()
            return
        self._send()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_exception(exc or ConnectionError("the server closed the connection"))

    def _send(self) -> None:
        if self._load.stopping:
            self.ended.set_result(None)
            self._transport.close()
            return
        self._number = self._load.next()
        self._transport.write(self._load.requests[self._number])


def _length(head: bytes) -> int:
    lower = head.lower()
    start = lower.find(b"content-length: ")
    return 0 if start < 0 else int(lower[start + 16 :].partition(b"\r\n")[0])


async def main(port: int, seconds: float, *, running: bool, replies: bool) -> dict[str, float]:
    load = Load(running_job() if running else finished_job(), replies=replies)
    loop = asyncio.get_running_loop()
    pairs = [await loop.create_connection(lambda: Connection(load), "127.0.0.1", port) for _ in range(CONNECTIONS)]
    ended = asyncio.gather(*(connection.ended for _, connection in pairs))
    await asyncio.wait({ended}, timeout=1)  # warm
    load.counting, started = True, time.perf_counter()
    await asyncio.wait({ended}, timeout=seconds)
    load.counting, elapsed = False, time.perf_counter() - started
    load.stopping = True
    await ended
    return {"answered": load.answered, "seconds": elapsed, "answered_in_all": load.answered_in_all}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("port", type=int)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--core", type=int, help="the core to stay on")
    parser.add_argument("--running", action="store_true", help="send Jobs that run, without a TTL")
    parser.add_argument("--replies", action="store_true", help="expect a timer.set each, else an empty 204")
    options = parser.parse_args()
    if options.core is not None:
        os.sched_setaffinity(0, {options.core})
    print(json.dumps(uvloop.run(main(options.port, options.seconds, running=options.running, replies=options.replies))))
