"""How late a DELETE is accepted: 50 Jobs fall due at every whole second, for our `run` and for the tuned peer.

Finish times are whole seconds in Kubernetes, so those 50 are due at the same instant. Lateness is what the API
server's own audit log says, for both alike: the stageTimestamp (ResponseComplete) of the first DELETE of the Job that
was answered with 200, less the instant the Job was due. For the peer, whose deletes are Foreground, that is when the
deletionTimestamp was set; its Jobs are gone only after the garbage collector's turn.
"""

import asyncio
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from shared.core.objects import parse_instant
from tests.benchmarks import peer
from tests.benchmarks.cluster import BenchmarkError, Cluster, sleep_until
from tests.benchmarks.drain import run_command
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


async def measure(cluster: Cluster, folder: Path, seconds: int) -> Lateness:
    """Of who works now."""
    await cluster.warm_up()
    names = cluster.new_names(PER_SECOND * seconds)
    cluster.gone.expect(len(names))
    due = await cluster.create_due(names, per_second=PER_SECOND)
    await sleep_until(max(due.values()))
    await cluster.gone.wait(SECONDS_MAX)
    await asyncio.sleep(0.5)
    await cluster.check_the_rest()
    accepted = read_accepted(folder)
    late = sorted((accepted[name] - due[name]) / timedelta(milliseconds=1) for name in names)
    if late[0] < 0:
        raise BenchmarkError(f"deleted {-late[0]:.1f} ms before it was due")
    return Lateness(len(late), percentile(late, 50), percentile(late, 99), late[-1])


async def measure_all(
    cluster: Cluster, folder: Path, *, seconds: int, rounds: int, write_event: Callable[[str], None]
) -> dict[str, list[Lateness]]:
    """Ours and the peer's, in turns: ours, the peer's, the peer's, ours."""
    results: dict[str, list[Lateness]] = {"events": [], "peer": []}
    for number in range(rounds):
        for name in ("events", "peer") if number % 2 == 0 else ("peer", "events"):
            write_event(f"lateness, round {number + 1} of {rounds}: {name}")
            if name == "peer":
                with peer.running(cluster.server, peer.TUNED):
                    results[name].append(await measure(cluster, folder, seconds))
            else:
                async with running(run_command(cluster), cluster.server.home / "run.log"):
                    results[name].append(await measure(cluster, folder, seconds))
    return results


def percentile(ordered: Sequence[float], percent: float) -> float:
    return ordered[min(len(ordered) - 1, math.ceil(len(ordered) * percent / 100) - 1)]
