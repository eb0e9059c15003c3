"""What a tick of `usage` costs on a large cluster: `nice python -m tests.benchmarks.bench_usage --help`.

    python -m tests.benchmarks.bench_usage --objects 1000 --pods 5000 --replicasets 200 --namespaces 20

The function runs in a process of its own, started as the image starts it, on a real API server, and takes ticks as
CloudEvents. The first tick marks what is unused; the next ones find nothing changed. API calls are those of the
server's audit log; bytes are those that the server sends over TLS, as the function accepts them, compressed.

The floor, in turns with the ticks: a process that sends the LISTs of the first tick, follows their pages, four kinds
at once as the function does, and throws the bodies away without decompressing them.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import aiohttp
import uvloop

from shared.adapters.events.cloudevents import TICK, Event, to_http
from shared.devserver.real_servers import find_assets, real_server
from tests.benchmarks.cluster import BenchmarkError, Cluster, connected
from tests.benchmarks.coldstart import image_command
from tests.benchmarks.processes import cpu_seconds, running
from tests.benchmarks.usage_cluster import Relay, Sizes, audit_arguments, fill, make_account, relayed
from tests.benchmarks.usage_floor import peak_mb
from tests.loopback import free_port

ROOT = Path(__file__).parents[2]
RSS_AIM_MB = 300
READY_SECONDS = 60
TICKS_MAX = 3
_MEDIANS = ("seconds", "cpu_seconds", "megabytes")
POLICY = {
    "apiVersion": "ttlafterfinished.dev/v1",
    "kind": "Policy",
    "rules": [
        {
            "name": "rotated",
            "match": {"kinds": ["configmaps", "secrets"], "namespaces": {"names": ["team-*"]}},
            "unused": {"ttl": "7d"},
        }
    ],
}


@dataclass(frozen=True)
class Pass:
    """What one client did.

    Attributes:
        seconds: From the request to the answer; of the floor, the life of the process without its start.
        cpu_seconds: Processor time of the client: on a busy machine, it varies less.
        megabytes: Received from the API server, over TLS.
        calls: API calls, by verb.
        peak_mb: The most resident memory of the process so far.
    """

    seconds: float
    cpu_seconds: float
    megabytes: float
    calls: dict[str, int]
    peak_mb: float

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


class Function:
    """`usage` in its own process.

    Args:
        pid: Its process.
        port: Where it takes events.
        relay: Between it and the API server.
        log: The API server's audit log.
    """

    def __init__(self, pid: int, port: int, relay: Relay, log: Path) -> None:
        self._pid, self._url, self._relay, self._log = pid, f"http://127.0.0.1:{port}/", relay, log

    async def tick(self) -> Pass:
        """One tick, from the event to the answer."""
        headers, body = to_http(Event(id="1", source="benchmark", type=TICK))
        lines, bytes_before = len(read_calls(self._log)), self._relay.received
        started, cpu = time.monotonic(), cpu_seconds(self._pid)
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout()) as session:
            response = await session.post(self._url, headers=headers, data=body)
            text = await response.text()
        seconds, cpu = time.monotonic() - started, cpu_seconds(self._pid) - cpu
        if not 200 <= response.status < 300:
            raise BenchmarkError(f"usage answered {response.status}: {text[:500]}")
        calls = Counter(one["verb"] for one in read_calls(self._log)[lines:])
        return Pass(seconds, cpu, (self._relay.received - bytes_before) / 1e6, dict(calls), peak_mb(self._pid))

    async def ready(self) -> None:
        """Wait until it takes connections."""
        deadline = time.monotonic() + READY_SECONDS
        async with aiohttp.ClientSession() as session:
            while True:
                try:
                    async with session.get(self._url):
                        return
                except aiohttp.ClientConnectorError:
                    if time.monotonic() > deadline:
                        raise BenchmarkError("usage did not start") from None
                    await asyncio.sleep(0.1)


def read_calls(log: Path) -> list[dict[str, Any]]:
    """What the account asked the API server for, so far."""
    return [json.loads(line) for line in log.read_text().splitlines()]


def lists_of(calls: Sequence[dict[str, Any]]) -> list[str]:
    """The first pages of all LISTs, each once; and the GETs of discovery."""
    found = []
    for one in calls:
        place = urlsplit(one["requestURI"])
        query = dict(parse_qsl(place.query))
        is_read = one["verb"] == "list" or place.path in ("/api", "/apis")
        if is_read and "continue" not in query:
            found.append(f"{place.path}?{urlencode(query)}".rstrip("?"))
    return list(dict.fromkeys(found))


async def measure(cluster: Cluster, folder: Path, sizes: Sizes, rounds: int) -> dict[str, Any]:
    """Fill the cluster, then tick and list in turns."""
    started = time.monotonic()
    await fill(cluster, sizes)
    say(f"{sizes.objects:,} objects, {sizes.pods:,} Pods: created in {time.monotonic() - started:.0f} s")
    kubeconfig, log, port = folder / "kubeconfig", folder / "audit.log", free_port()
    (folder / "policy.yaml").write_text(json.dumps(POLICY))
    environment = {**_environment(folder, kubeconfig), "PORT": str(port)}
    command = ["env", *(f"{name}={value}" for name, value in environment.items()), *image_command("usage")]
    results: dict[str, list[Pass]] = {"first": [], "unchanged": [], "floor": []}
    token = await make_account(cluster)
    async with relayed(cluster, token, kubeconfig) as relay, running(command, folder / "usage.log") as process:
        function = Function(process.pid, port, relay, log)
        await function.ready()
        before = len(read_calls(log))
        results["first"].append(first := await function.tick())
        say(f"first tick: {first}")
        paths = lists_of(read_calls(log)[before:])
        marks = first.calls.get("patch", 0)
        for _ in range(TICKS_MAX):  # on a busy machine, an object may be left to the next tick
            marks += (await function.tick()).calls.get("patch", 0) if marks < sizes.unused else 0
        if marks != sizes.unused:
            tail = (folder / "usage.log").read_text()[-1500:]
            raise BenchmarkError(f"expected {sizes.unused} marks, got {marks}: {tail}")
        (folder / "lists.json").write_text(json.dumps(paths))
        for _ in range(rounds):
            results["floor"].append(floor := await _floor(folder, relay))
            results["unchanged"].append(unchanged := await function.tick())
            say(f"floor: {floor}\nunchanged: {unchanged}")
    return {name: [one.as_json() for one in found] for name, found in results.items()}


def _environment(folder: Path, kubeconfig: Path) -> dict[str, str]:
    return {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "FUNCTION_TARGET": "usage",
        "FUNCTION_SOURCE": str(ROOT / "functions" / "usage.py"),
        "KUBECONFIG": str(kubeconfig),
        "K_SINK": "http://127.0.0.1:9/",  # nothing is due, so nothing is published
        "TTL_POLICY": str(folder / "policy.yaml"),
        "TTL_NAMESPACE": "bench",
    }


async def _floor(folder: Path, relay: Relay) -> Pass:
    before = relay.received
    command = [sys.executable, "-m", "tests.benchmarks.usage_floor", str(folder)]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    reported, _ = await process.communicate()
    found = json.loads(reported)
    megabytes = (relay.received - before) / 1e6
    return Pass(found["seconds"], found["cpu"], megabytes, {"list": found["calls"]}, found["peak"])


def show(results: dict[str, list[dict[str, Any]]], sizes: Sizes) -> None:
    """Print a table with ratios of the floor."""
    floor, floor_cpu = (median(one[field] for one in results["floor"]) for field in ("seconds", "cpu_seconds"))
    heads = ("seconds", "x floor", "CPU s", "x floor", "MB", "calls", "peak MB")
    print(f"{sizes}\n{'':12}{''.join(f'{head:>9}' for head in heads)}")
    for name, found in results.items():
        seconds, cpu, megabytes = (median(one[field] for one in found) for field in _MEDIANS)
        calls, peak = median(sum(one["calls"].values()) for one in found), max(one["peak_mb"] for one in found)
        times = f"{seconds:9.1f}{seconds / floor:9.2f}{cpu:9.1f}{cpu / floor_cpu:9.2f}"
        print(f"{name:12}{times}{megabytes:9.1f}{calls:9.0f}{peak:9.0f}")
    peak = max(one["peak_mb"] for name in ("first", "unchanged") for one in results[name])
    print(f"memory of usage: {peak:.0f} MB of at most {RSS_AIM_MB}: {'met' if peak <= RSS_AIM_MB else 'NOT MET'}")


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


async def run(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    sizes = Sizes(options.objects, options.pods, options.replicasets, options.namespaces)
    assets = find_assets()
    if assets is None:
        raise BenchmarkError("no kube-apiserver and etcd in $KUBEBUILDER_ASSETS")
    with real_server(assets, fsync=False, apiserver_args=audit_arguments(folder)) as server:
        async with connected(server) as cluster:
            results = await measure(cluster, folder, sizes, options.rounds)
    show(results, sizes)
    return {"sizes": sizes.as_json(), **results}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--objects", type=int, default=10_000, help="Secrets and ConfigMaps (%(default)s)")
    parser.add_argument("--pods", type=int, default=50_000, help="(%(default)s)")
    parser.add_argument("--replicasets", type=int, default=2_000, help="(%(default)s)")
    parser.add_argument("--namespaces", type=int, default=100, help="(%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="of the floor and of unchanged ticks (%(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results here")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ttl-bench-") as folder:
        results = uvloop.run(run(options, Path(folder)))
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
