"""How late a DELETE is through a real Broker, and how many API calls it takes: `python -m tests.benchmarks.broker`.

    python -m tests.benchmarks.broker --audit-log /var/log/kubernetes/audit.log --rates 10:60,50:30

The cluster is that of $KUBECONFIG: with Knative, with Kubernetes' own TTL controller (the peer), and with an API server
that writes an audit log by `audit-policy.yaml`, which is the judge for both. `overlays/knative` is applied as it is.

Finished Jobs without Pods: `managedBy` keeps the Job controller away, and their status is written as it would. Ours
have their TTL by annotation; the peer's by their own field, and an annotation by which ours leave them alone. Finish
times are whole seconds, so those of one second are due at the same instant. Lateness is when the API server had
answered the first DELETE that it accepted, less the instant the Job was due; a read's, when the object was asked for.
"""

import argparse
import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import uvloop
from rich.console import Console
from rich.table import Table

from tests.benchmarks.audit import Late, evaluator, log_size, read_log
from tests.benchmarks.cluster import JOBS, NAMESPACE, BenchmarkError, complete, for_each, job, now, sleep_until
from tests.benchmarks.tables import calls, new_table
from tests.e2e.installation import prepare

OVERLAY = Path(__file__).parents[2] / "knative" / "overlays" / "knative"
INSTALLED = "ttl-after-finished"
KNATIVE_KINDS = "services.serving.knative.dev,triggers,apiserversources,pingsources,sinkbindings"
SECONDS_A_JOB = 0.04
"""Given to each, from its status being written to its timer being set, before the first is due."""
SECONDS_LEAST = 10
SECONDS_MAX = 90


class Cluster:
    """The API server, by way of `kubectl proxy`: whatever credentials the kubeconfig has.

    Args:
        session: To the proxy.
    """

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def call(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Any:
        async with self._session.request(method, path, json=body, headers={"Content-Type": kind}) as response:
            if response.status >= 300:
                raise BenchmarkError(f"{method} {path}: {response.status} {(await response.text())[:300]}")
            return await response.json()

    async def make(self, who: str, names: Sequence[str], per_second: int) -> dict[str, datetime]:
        """Finished Jobs, so many due at each whole second; returns when each is due."""
        ready = round(SECONDS_LEAST + SECONDS_A_JOB * len(names))
        ttls = {name: timedelta(seconds=ready + number // per_second) for number, name in enumerate(names)}
        await for_each(names, lambda name: self.call("POST", JOBS, _job(who, name, ttls[name])))
        finished_at = now().replace(microsecond=0)
        status = {"status": complete(finished_at)}
        kind = "application/merge-patch+json"
        await for_each(names, lambda name: self.call("PATCH", f"{JOBS}/{name}/status", status, kind))
        if now() > finished_at + timedelta(seconds=ready):
            raise BenchmarkError("due before all had finished: the machine is too busy to measure on")
        return {name: finished_at + ttl for name, ttl in ttls.items()}

    async def until_gone(self) -> None:
        for _ in range(SECONDS_MAX):
            left = (await self.call("GET", f"{JOBS}?limit=1"))["items"]
            if not left:
                return
            await asyncio.sleep(1)
        raise BenchmarkError(f"{left[0]['metadata']['name']} is still there, {SECONDS_MAX} s after all were due")


def _job(who: str, name: str, ttl: timedelta) -> dict[str, Any]:
    made = job(name, ttl if who == "peer" else None)
    said = "never" if who == "peer" else f"{ttl.total_seconds():.0f}s"
    made["metadata"]["annotations"] = {"ttlafterfinished.dev/ttl": said}
    made["spec"]["managedBy"] = "ttlafterfinished.dev/benchmark"
    return made


async def measure(cluster: Cluster, audit_log: Path, who: str, per_second: int, seconds: int) -> Late:
    names = [f"{who}-{per_second}-{number:05}" for number in range(per_second * seconds)]
    due = await cluster.make(who, names, per_second)
    await sleep_until(min(due.values()) - timedelta(seconds=0.5))
    offset = log_size(audit_log)
    await sleep_until(max(due.values()))
    await cluster.until_gone()
    return evaluator(who, per_second, due, read_log(audit_log, offset))


def install() -> None:
    """Apply the overlay, into a cluster that has the benchmark's namespace already: a new one restarts the sources."""
    prepare()
    subprocess.run(["kubectl", "create", "namespace", NAMESPACE], check=False, capture_output=True)
    subprocess.run(["kubectl", "apply", "-k", str(OVERLAY)], check=True, stdout=subprocess.DEVNULL)
    ready = ["kubectl", "-n", INSTALLED, "wait", "--for=condition=Ready", "--timeout=2m", KNATIVE_KINDS, "--all"]
    subprocess.run(ready, check=True, stdout=subprocess.DEVNULL)


@asynccontextmanager
async def connected() -> AsyncIterator[Cluster]:
    command = ("kubectl", "proxy", "--port=0")
    proxy = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    try:
        assert proxy.stdout
        address = (await proxy.stdout.readline()).decode().rpartition(" ")[2].strip()
        async with aiohttp.ClientSession(f"http://{address}") as session:
            yield Cluster(session)
    finally:
        proxy.terminate()
        await proxy.wait()


def broker_table(results: Mapping[str, Sequence[Late]]) -> Table:
    table = new_table(
        "Lateness through the Broker: DELETE accepted - due",
        "",
        "due a second",
        "Jobs",
        "p50 ms",
        "p99 ms",
        "max ms",
        "of it until it is read: p50",
        "p99",
        "deleted by",
        "calls a deletion",
    )
    for who, title in {"ours": "overlays/knative", "peer": "the TTL controller"}.items():
        for one in results.get(who, ()):
            times = (one.p50, one.p99, one.most, one.read_p50, one.read_p99)
            by = ", ".join(f"{name} {count:,}" for name, count in sorted(one.deleted_by.items()))
            counts = (f"{one.per_second}", f"{one.jobs:,}")
            table.add_row(title, *counts, *(f"{ms:,.0f}" for ms in times), by, calls(one.calls))
    return table


async def main(options: argparse.Namespace) -> None:
    console = Console(stderr=True)
    if not options.installed:
        install()
    results: dict[str, list[Late]] = {who: [] for who in options.who}
    async with connected() as cluster:
        console.print("warming up")
        await measure(cluster, options.audit_log, "ours", 2, 5)
        for per_second, seconds in options.rates:
            for who in options.who:
                console.print(f"{who}, {per_second} due a second for {seconds} s")
                results[who].append(await measure(cluster, options.audit_log, who, per_second, seconds))
    Console(width=None if sys.stdout.isatty() else 160).print(broker_table(results))
    if options.json:
        plain = {who: [one.as_json() for one in late] for who, late in results.items()}
        options.json.write_text(json.dumps(plain, indent=2) + "\n")


def _rates(text: str) -> list[tuple[int, int]]:
    return [(int(rate), int(seconds)) for rate, seconds in (one.split(":") for one in text.split(","))]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--audit-log", type=Path, required=True, help="of the API server, by audit-policy.yaml")
    parser.add_argument("--rates", type=_rates, default="10:60,50:30", help="RATE:SECONDS,... (%(default)s)")
    parser.add_argument("--who", type=lambda text: text.split(","), default="ours,peer", help="(%(default)s)")
    parser.add_argument("--installed", action="store_true", help="apply nothing: the overlay is there")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results here as well")
    try:
        uvloop.run(main(parser.parse_args()))
    except BenchmarkError as error:
        sys.exit(str(error))
