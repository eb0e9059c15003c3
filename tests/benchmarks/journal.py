"""How many Events the journal writes about how many deletions, and what it costs the deletions.

    python -m tests.benchmarks.journal --jobs 10000

Two sweeps of as many Jobs that are long due, on one real API server: the first without the journal, the second with it.
The API server counts the writes, and the Events are listed. Each deletion has to be recorded, counted or dropped.
"""

import argparse
import asyncio
import re
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass

from shared.adapters.config.settings import read_settings
from shared.adapters.events.cloudevents import event_of
from shared.adapters.kubernetes.cluster import Memory
from shared.adapters.kubernetes.connect import connect
from shared.adapters.kubernetes.journal_reading import JournalEvent, parse_event
from shared.adapters.telemetry.logs import LogTelemetry
from shared.bootstrap.build import build
from shared.bootstrap.config import read_config
from shared.devserver.real_servers import find_assets, real_server
from shared.messages import SweepStep
from shared.ports import JournalResult
from shared.standalone.runner import SOURCE, local_broker
from tests.benchmarks.cluster import Cluster, connected

_EVENT_WRITES = re.compile(
    r'^apiserver_request_total\{[^}]*resource="events"[^}]*verb="(?:POST|PATCH|PUT)"[^}]*\} (\S+)', re.MULTILINE
)
EVENTS = "/apis/events.k8s.io/v1/events?fieldSelector=reportingController=ttl-after-finished"


class Counting(LogTelemetry):
    """Counts what became of the entries of the journal."""

    def __init__(self) -> None:
        super().__init__()
        self.journal = dict.fromkeys(JournalResult, 0)

    def journaled(self, result: JournalResult, count: int = 1) -> None:
        self.journal[result] += count


@dataclass(frozen=True)
class Swept:
    """One sweep.

    Attributes:
        seconds: The time to the last DELETE.
        flush_seconds: The time that the end of the process took after that.
        writes: The writes of Events that the API server counted.
    """

    deleted: int
    seconds: float
    flush_seconds: float
    writes: int
    journal: dict[JournalResult, int]


async def sweep(cluster: Cluster, jobs: int, *, journal: bool) -> Swept:
    """Delete all that is due by one sweep of a process like that of `run`."""
    telemetry = Counting()
    with tempfile.TemporaryDirectory(prefix="ttl-bench-") as folder:
        given = {"TTL_TIMERS": f"sqlite:{folder}/timers.db", "TTL_JOURNAL": str(journal).lower()}
        ours = await connect(kubeconfig=str(cluster.server.kubeconfig), memory=Memory())
        config = read_config(read_settings(given, environment={}), telemetry=telemetry, cluster=ours, home_namespace="")
        before, started = await event_writes(cluster), time.monotonic()
        async with local_broker(build(config)) as broker:
            await broker.send(event_of(SweepStep(kinds=("batch/v1/Job",), sweep_id="bench"), source=SOURCE))
            while telemetry.counts["deleted"] < jobs:
                await asyncio.sleep(0.01)
            seconds, ended = time.monotonic() - started, time.monotonic()
        flush_seconds = time.monotonic() - ended
        await ours.close()
    return Swept(
        telemetry.counts["deleted"], seconds, flush_seconds, await event_writes(cluster) - before, telemetry.journal
    )


async def event_writes(cluster: Cluster) -> int:
    """The writes of Events so far."""
    async with cluster._session.get(f"{cluster.server.url}/metrics") as response:
        return sum(int(float(count)) for count in _EVENT_WRITES.findall(await response.text()))


async def measure(jobs: int, sweeps: Sequence[bool]) -> None:
    assets = find_assets()
    assert assets, "no real API server: see CONTRIBUTING.md"
    with real_server(assets) as server:
        async with connected(server) as cluster:
            for journal in sweeps:
                await cluster.create_expired(jobs)
                result = await sweep(cluster, jobs, journal=journal)
                events = (await cluster.call("GET", EVENTS))["items"]
                print_result(result, [one for one in map(parse_event, events) if one], is_on=journal)


def print_result(result: Swept, events: list[JournalEvent], *, is_on: bool) -> None:
    deleted, results = result.deleted, {str(name): count for name, count in result.journal.items()}
    print(f"journal {'on' if is_on else 'off'}: {deleted} deletions, {deleted / result.seconds:.0f} a second")
    print(f"  {len(events)} Events about {sum(one.count for one in events)} deletions: {results}")
    print(f"  {result.writes} writes, one for {deleted / max(result.writes, 1):.0f} deletions")
    print(f"  end of the process: {result.flush_seconds:.2f} s", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--only-on", action="store_true", help="leave out the sweep without the journal")
    given = parser.parse_args()
    asyncio.run(measure(given.jobs, (True,) if given.only_on else (False, True)))
