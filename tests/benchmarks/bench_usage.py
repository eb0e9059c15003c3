"""What a tick of `usage` costs on a large cluster: `nice python -m tests.benchmarks.bench_usage --help`.

    python -m tests.benchmarks.bench_usage --objects 1000 --pods 5000 --replicasets 200 --namespaces 20

The function runs in a process of its own, started as the image starts it, on a real API server, and takes ticks as
CloudEvents. The first tick marks what is unused; the next ones find nothing changed. Then the TTL becomes a second: one
tick announces the deletions, and the next one deletes. API calls are those of the server's audit log; bytes are those
that the server sends over TLS, as the function accepts them, compressed.

The window of a DELETE is the time from the start of the second pass until the API server has accepted it.

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
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import aiohttp
import uvloop
from aiohttp import web

from shared.adapters.config.policy_file import POLICY_POLL_SECONDS
from shared.adapters.events.cloudevents import TICK, Event, to_http
from shared.devserver.ports import free_port
from shared.devserver.real_servers import find_assets, real_server
from tests.benchmarks.cluster import BenchmarkError, Cluster, connected
from tests.benchmarks.coldstart import image_command
from tests.benchmarks.processes import cpu_seconds, running
from tests.benchmarks.usage_calls import Windows, lists_of, read_calls, windows_of
from tests.benchmarks.usage_cluster import Relay, Sizes, audit_arguments, fill, make_account, relayed
from tests.benchmarks.usage_floor import peak_mb
from tests.loopback import answering_with

ROOT = Path(__file__).parents[2]
RSS_AIM_MB = 300
READY_SECONDS = 60
TICKS_MAX = 3
_NOTICE_SECONDS = 1
_MEDIANS = ("seconds", "cpu_seconds", "megabytes")
_LONG, _SHORT = "7d", "1s"
_KINDS = ["configmaps", "secrets"]


def _policy(ttl: str, sizes: Sizes) -> str:
    match = {"kinds": _KINDS, "namespaces": {"names": sizes.places}}
    rule = {"name": "rotated", "match": match, "unused": {"ttl": ttl, "neverUsed": True}}
    return json.dumps({"apiVersion": "ttlafterfinished.dev/v1", "kind": "Policy", "rules": [rule]})


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


async def measure(cluster: Cluster, folder: Path, sizes: Sizes, rounds: int) -> tuple[dict[str, list[Pass]], Windows]:
    """Fill the cluster, tick and list in turns, and have the unused objects deleted."""
    started = time.monotonic()
    await fill(cluster, sizes)
    say(f"{sizes.objects:,} objects, {sizes.pods:,} Pods: created in {time.monotonic() - started:.0f} s")
    kubeconfig, log, port = folder / "kubeconfig", folder / "audit.log", free_port()
    (folder / "policy.yaml").write_text(_policy(_LONG, sizes))
    token = await make_account(cluster)
    async with relayed(cluster, token, kubeconfig) as relay, answering_with(_accept) as sink:
        environment = {**_environment(folder, kubeconfig), "PORT": str(port), "K_SINK": sink}
        command = ["env", *(f"{name}={value}" for name, value in environment.items()), *image_command("usage")]
        async with running(command, folder / "usage.log") as process:
            function = Function(process.pid, port, relay, log)
            await function.ready()
            # One write for each object: the use of one is recorded, and the other one is marked.
            results = {"first": await _repeat(function, folder, "patch", sizes.objects)}
            (folder / "lists.json").write_text(json.dumps(lists_of(read_calls(log))))
            results |= {"unchanged": [], "floor": []}
            for _ in range(rounds):
                results["floor"].append(floor := await _floor(folder, relay))
                results["unchanged"].append(unchanged := await function.tick())
                say(f"floor: {floor}\nunchanged: {unchanged}")
            (folder / "policy.yaml").write_text(_policy(_SHORT, sizes))
            await asyncio.sleep(POLICY_POLL_SECONDS)
            results["announcing"] = await _repeat(function, folder, "patch", sizes.unused)
            await asyncio.sleep(_NOTICE_SECONDS)
            results["deleting"] = await _repeat(function, folder, "delete", sizes.unused)
    say(next(line for line in reversed((folder / "usage.log").read_text().splitlines()) if "usage ended" in line))
    return results, windows_of(read_calls(log))


async def _repeat(function: Function, folder: Path, verb: str, count: int) -> list[Pass]:
    """Tick until so many requests of a verb were sent: on a busy machine, an object may be left to the next tick."""
    found: list[Pass] = []
    while (sent := sum(one.calls.get(verb, 0) for one in found)) < count and len(found) < TICKS_MAX:
        found.append(await function.tick())
        say(f"tick with {verb}: {found[-1]}")
    if sent != count:
        tail = (folder / "usage.log").read_text()[-1500:]
        raise BenchmarkError(f"expected {count} requests with {verb}, got {sent}: {tail}")
    return found


async def _accept(_: web.Request) -> web.StreamResponse:
    return web.Response(status=202)


def _environment(folder: Path, kubeconfig: Path) -> dict[str, str]:
    return {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "FUNCTION_TARGET": "usage",
        "FUNCTION_SOURCE": str(ROOT / "functions" / "usage.py"),
        "KUBECONFIG": str(kubeconfig),
        "TTL_USAGE_INTERVAL": f"{_NOTICE_SECONDS}s",  # else a deletion is announced five minutes before
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


def show(results: dict[str, list[Pass]], windows: Windows, sizes: Sizes) -> None:
    """Print a table with ratios of the floor, and the windows."""
    floor, floor_cpu = (median(getattr(one, name) for one in results["floor"]) for name in ("seconds", "cpu_seconds"))
    heads = ("seconds", "x floor", "CPU s", "x floor", "MB", "calls", "peak MB")
    print(f"{sizes}\n{'':12}{''.join(f'{head:>9}' for head in heads)}")
    for name, found in results.items():
        seconds, cpu, megabytes = (median(getattr(one, name) for one in found) for name in _MEDIANS)
        calls, peak = median(sum(one.calls.values()) for one in found), max(one.peak_mb for one in found)
        cost = f"{seconds:9.1f}{seconds / floor:9.2f}{cpu:9.1f}{cpu / floor_cpu:9.2f}"
        print(f"{name:12}{cost}{megabytes:9.1f}{calls:9.0f}{peak:9.0f}")
    peak = max(one.peak_mb for name in results.keys() - {"floor"} for one in results[name])
    print(f"memory of usage: {peak:.0f} MB of at most {RSS_AIM_MB}: {'met' if peak <= RSS_AIM_MB else 'NOT MET'}")
    for what, times in (("the start of the last pass", windows.from_start), ("the LIST of Pods", windows.from_pods)):
        p50, p99 = median(times), quantiles(times, n=100)[-1]
        print(f"from {what} to the DELETE: p50 {p50:.2f} s, p99 {p99:.2f} s, most {max(times):.2f} s, of {len(times)}")


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


async def run(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    sizes = Sizes(options.objects, options.pods, options.replicasets, options.namespaces)
    assets = find_assets()
    if assets is None:
        raise BenchmarkError("no kube-apiserver and etcd in $KUBEBUILDER_ASSETS")
    with real_server(assets, fsync=False, apiserver_args=audit_arguments(folder)) as server:
        async with connected(server) as cluster:
            results, windows = await measure(cluster, folder, sizes, options.rounds)
    show(results, windows, sizes)
    passes = {name: [asdict(one) for one in found] for name, found in results.items()}
    return {"sizes": sizes.as_json(), **passes, "windows": asdict(windows)}


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
