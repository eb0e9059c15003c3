"""How late a running Job is stopped: 50 Jobs reach their deadline at every whole second, ours and the Job controller's.

The real Job controller starts all Jobs in both turns; they have a parallelism of 0, so no Pod takes part. Then each Job
gets the deadline that makes it due at the chosen second: ours by the annotation, which `run` enforces by a patch of
`activeDeadlineSeconds` to 1; the peer's by `activeDeadlineSeconds` from the start, which the Job controller enforces
itself. A start time is a whole second in Kubernetes, so those 50 are due at the same instant.

Both are read from the API server's audit log: the first accepted request about the Job whose body says that its
deadline is exceeded. Lateness is its ResponseComplete less the instant at which the Job was due; it counts as early if
the request was received before that instant.
"""

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from shared.core.values.objects import get_in, parse_instant
from tests.benchmarks import peer
from tests.benchmarks.cluster import JOBS, BenchmarkError, Cluster, for_each, job, now, sleep_until
from tests.benchmarks.drain import run_command
from tests.benchmarks.lateness import percentile
from tests.benchmarks.processes import cpu_seconds, running

PER_SECOND = 50
START_SECONDS_MAX = 120
STOP_SECONDS_MAX = 60
READY_SECONDS_MIN = 8
LABEL = "bench-deadlines"

SAYS = {"ours": "ttlafterfinished.dev/deadline-exceeded", "peer": '"reason":"DeadlineExceeded"'}
"""What the body of the request contains that stops a Job."""

AUDIT_POLICY = """\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
  - level: Request
    verbs: [patch, update]
    resources: [{group: batch, resources: [jobs, jobs/status]}]
  - level: None
"""


@dataclass(frozen=True)
class Stopped:
    """How late the Jobs of one turn were stopped, in milliseconds.

    Attributes:
        jobs: How many.
        earliest: From the instant at which a Job was due until the API server received the request, at the least.
        p50: Median lateness.
        p99: 99 of 100 were at most so late.
        most: The latest.
        cpu_ms: Processor time of the contender's process for each stop.
    """

    jobs: int
    earliest: float
    p50: float
    p99: float
    most: float
    cpu_ms: float

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Accepted:
    """The first accepted request that stops a Job."""

    received_at: datetime
    answered_at: datetime


def audit_arguments(folder: Path) -> list[str]:
    """The flags of the API server for the log that `read_accepted` reads."""
    policy = folder / "deadlines-audit-policy.yaml"
    policy.write_text(AUDIT_POLICY)
    return [f"--audit-policy-file={policy}", f"--audit-log-path={_log_in(folder)}"]


def _log_in(folder: Path) -> Path:
    return folder / "deadlines-audit.log"


def read_accepted(lines: list[str], who: str) -> dict[str, Accepted]:
    """When the first request that stops each Job was accepted, by the name of the Job."""
    accepted: dict[str, Accepted] = {}
    for line in lines:
        if '"DeadlineExceeded"' not in line and SAYS["ours"] not in line:
            continue
        entry = json.loads(line)
        body = json.dumps(entry.get("requestObject"), separators=(",", ":"))
        if SAYS[who] in body and entry["responseStatus"]["code"] == 200:
            times = Accepted(parse_instant(entry["requestReceivedTimestamp"]), parse_instant(entry["stageTimestamp"]))
            accepted.setdefault(entry["objectRef"]["name"], times)
    return accepted


def deadline_patch(who: str, seconds: int) -> dict[str, Any]:
    """The patch that sets a Job's deadline."""
    if who == "peer":
        return {"spec": {"activeDeadlineSeconds": seconds}}
    return {"metadata": {"annotations": {"ttlafterfinished.dev/active-deadline": str(seconds)}}}


async def measure(cluster: Cluster, folder: Path, who: str, seconds: int, pid: int) -> Stopped:
    """Measure the contender that works now in a process; at the end its Jobs are gone."""
    names, began = cluster.new_names(PER_SECOND * seconds), time.monotonic()
    started = await _start(cluster, names)
    log_before = _log_in(folder).stat().st_size
    ready = timedelta(seconds=round(READY_SECONDS_MIN + 2 * (time.monotonic() - began)))
    due = await _set_deadlines(cluster, who, started, ready)
    await sleep_until(min(due.values()))
    cpu = cpu_seconds(pid)
    await sleep_until(max(due.values()))
    accepted = await _await_stops(folder, log_before, who, len(names))
    cpu = cpu_seconds(pid) - cpu
    await cluster.call("DELETE", f"{JOBS}?labelSelector={LABEL}", {"propagationPolicy": "Background"})
    if missing := due.keys() - accepted.keys():
        raise BenchmarkError(f"{len(missing)} of {len(names)} were not stopped within {STOP_SECONDS_MAX} s")
    return _stopped_of(due, accepted, cpu)


def _stopped_of(due: Mapping[str, datetime], accepted: Mapping[str, Accepted], cpu: float) -> Stopped:
    received = min((accepted[name].received_at - due[name]) / timedelta(milliseconds=1) for name in due)
    late = sorted((accepted[name].answered_at - due[name]) / timedelta(milliseconds=1) for name in due)
    if received < 0:
        raise BenchmarkError(f"stopped {-received:.1f} ms before its deadline")
    p50, p99 = (percentile(late, percent) for percent in (50, 99))
    return Stopped(len(late), received, p50, p99, late[-1], 1000 * cpu / len(late))


async def _start(cluster: Cluster, names: list[str]) -> dict[str, datetime]:
    """Create the Jobs, and wait until the Job controller has started them; when it did, by name."""

    async def create(name: str) -> None:
        body = job(name, None)
        body["metadata"]["labels"] = {**body["metadata"]["labels"], LABEL: "yes"}
        body["spec"]["parallelism"] = 0
        await cluster.call("POST", JOBS, body)

    await for_each(names, create)
    async with asyncio.timeout(START_SECONDS_MAX):
        while True:
            jobs = (await cluster.call("GET", f"{JOBS}?labelSelector={LABEL}"))["items"]
            started = {one["metadata"]["name"]: get_in(one, "status.startTime") for one in jobs}
            if all(started.values()) and len(started) == len(names):
                return {name: parse_instant(at) for name, at in started.items()}
            await asyncio.sleep(1)


async def _set_deadlines(
    cluster: Cluster, who: str, started: Mapping[str, datetime], ready: timedelta
) -> dict[str, datetime]:
    """Set the deadlines so that so many Jobs are due at each whole second, the first when all deadlines are set.

    Returns:
        When each is due, by name.
    """
    first = now().replace(microsecond=0) + ready
    due = {name: first + timedelta(seconds=number // PER_SECOND) for number, name in enumerate(started)}

    async def write(name: str) -> None:
        patch = deadline_patch(who, round((due[name] - started[name]).total_seconds()))
        await cluster.call("PATCH", f"{JOBS}/{name}", patch, **{"Content-Type": "application/merge-patch+json"})

    await for_each(due, write)
    if now() > first - timedelta(seconds=1):
        raise BenchmarkError("due before all deadlines were set: the machine is too busy to measure on")
    return due


async def _await_stops(folder: Path, offset: int, who: str, count: int) -> dict[str, Accepted]:
    """The accepted stops, once there are so many, or as many as there are within `STOP_SECONDS_MAX`."""
    accepted: dict[str, Accepted] = {}
    for _ in range(STOP_SECONDS_MAX // 2):
        await asyncio.sleep(2)
        with _log_in(folder).open() as log:
            log.seek(offset)
            accepted = read_accepted(log.read().splitlines(), who)
        if len(accepted) == count:
            break
    return accepted


async def measure_all(
    cluster: Cluster, folder: Path, *, seconds: int, rounds: int, write_event: Callable[[str], None]
) -> dict[str, list[Stopped]]:
    """Ours and the Job controller's, in turns: ours, the peer's, the peer's, ours."""
    results: dict[str, list[Stopped]] = {"ours": [], "peer": []}
    with peer.running(cluster.server, peer.JOBS) as controller:
        for number in range(rounds):
            for who in ("ours", "peer") if number % 2 == 0 else ("peer", "ours"):
                write_event(f"deadlines, round {number + 1} of {rounds}: {who}")
                async with AsyncExitStack() as stack:
                    pid = controller
                    if who == "ours":
                        log = cluster.server.home / "run.log"
                        pid = (await stack.enter_async_context(running(run_command(cluster), log))).pid
                    results[who].append(await measure(cluster, folder, who, seconds, pid))
    return results
