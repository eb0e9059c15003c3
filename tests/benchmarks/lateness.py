"""How late a DELETE is accepted: 50 Jobs fall due at every whole second, for our `run`, the tuned peer and the floor.

The floor is a client that knows each Job and its due time beforehand, and only sends DELETEs: `limit.py --at-due`. All
delete `WARM_UP` Jobs before the measured ones.

Finish times are whole seconds in Kubernetes, so those 50 are due at the same instant. Lateness is what the API
server's own audit log says, for both alike: the stageTimestamp (ResponseComplete) of the first DELETE of the Job that
was answered with 200, less the instant the Job was due. For the peer, whose deletes are Foreground, that is when the
deletionTimestamp was set; its Jobs are gone only after the garbage collector's turn.
"""

import asyncio
import json
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from shared.core.values.objects import parse_instant
from tests.benchmarks import peer
from tests.benchmarks.cluster import BenchmarkError, Cluster, sleep_until
from tests.benchmarks.drain import WARM_UP, bare_command, in_turn, run_command
from tests.benchmarks.processes import running

PER_SECOND = 50
SECONDS_MAX = 60

AUDIT_POLICY = """\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
  - level: Metadata
    verbs: [delete]
    resources: RESOURCES
  - level: None
"""


@dataclass(frozen=True)
class Lateness:
    """In milliseconds."""

    jobs: int
    p50: float
    p99: float
    most: float

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


AUDITED = [{"group": "batch", "resources": ["jobs"]}]


def audit_arguments(folder: Path, resources: Sequence[Any] = AUDITED) -> list[str]:
    """What makes the API server write the log that `read_accepted` reads."""
    folder.mkdir(exist_ok=True)
    policy = folder / "audit-policy.yaml"
    policy.write_text(AUDIT_POLICY.replace("RESOURCES", json.dumps(resources)))
    return [f"--audit-policy-file={policy}", f"--audit-log-path={_log_in(folder)}"]


def _log_in(folder: Path) -> Path:
    return folder / "audit.log"


def read_accepted(folder: Path) -> dict[str, datetime]:
    """When the first DELETE of each Job was accepted."""
    accepted: dict[str, datetime] = {}
    for line in _log_in(folder).read_text().splitlines():
        entry = json.loads(line)
        if entry["responseStatus"]["code"] == 200:
            accepted.setdefault(entry["objectRef"]["name"], parse_instant(entry["stageTimestamp"]))
    return accepted


Prepare = Callable[[], Awaitable[None]]


async def measure(cluster: Cluster, folder: Path, seconds: int, prepare: Prepare) -> Lateness:
    """Of who works now.

    Args:
        cluster: Where the Jobs are made.
        folder: That of the audit log.
        seconds: In how many seconds they fall due.
        prepare: Called when all have finished, at least a second before the first is due.
    """
    names = cluster.new_names(PER_SECOND * seconds)
    cluster.gone.expect(len(names))
    due = await cluster.create_due(names, per_second=PER_SECOND)
    await prepare()
    await sleep_until(max(due.values()))
    await cluster.gone.wait(SECONDS_MAX)
    await asyncio.sleep(0.5)
    await cluster.check_the_rest()
    accepted = read_accepted(folder)
    late = sorted((accepted[name] - due[name]) / timedelta(milliseconds=1) for name in names)
    if late[0] < 0:
        raise BenchmarkError(f"deleted {-late[0]:.1f} ms before it was due")
    return Lateness(len(late), percentile(late, 50), percentile(late, 99), late[-1])


@asynccontextmanager
async def _working(name: str, cluster: Cluster) -> AsyncIterator[Prepare]:
    """A contender that has warmed up, until the block ends."""
    if name == "floor":
        async with running(bare_command("--at-due")(cluster), cluster.server.home / "driver.log") as driver:
            await driver.ready()

            async def find() -> None:
                driver.send("prepare")
                await driver.done(SECONDS_MAX)
                driver.send("go")

            await cluster.create_expired(WARM_UP)
            await find()
            await driver.done(SECONDS_MAX)
            yield find
            await driver.done(SECONDS_MAX)
    elif name == "peer":
        with peer.running(cluster.server, peer.TUNED):
            await cluster.warm_up(WARM_UP)
            yield _nothing
    else:
        async with running(run_command(cluster), cluster.server.home / "run.log"):
            await cluster.warm_up(WARM_UP)
            yield _nothing


async def _nothing() -> None:
    """Who works by events prepares itself."""


async def measure_all(
    cluster: Cluster, folder: Path, *, seconds: int, rounds: int, write_event: Callable[[str], None]
) -> dict[str, list[Lateness]]:
    """All contenders in each round, in counterbalanced order."""
    results: dict[str, list[Lateness]] = {"events": [], "floor": [], "peer": []}
    for number in range(rounds):
        for name in in_turn(list(results), number):
            write_event(f"lateness, round {number + 1} of {rounds}: {name}")
            async with _working(name, cluster) as prepare:
                results[name].append(await measure(cluster, folder, seconds, prepare))
    return results


def percentile(ordered: Sequence[float], percent: float) -> float:
    return ordered[min(len(ordered) - 1, math.ceil(len(ordered) * percent / 100) - 1)]
