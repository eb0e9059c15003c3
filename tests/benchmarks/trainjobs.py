"""What KEP-2899 asks of the TTL of TrainJobs, and by how much `run` does better, on a real API server.

The first version of kubeflow/trainer proposals/2899-resource-timeouts names the load: 1,000 TrainJobs in one namespace,
5,000 in the cluster, 100 deletions a minute, p99 of the lateness below 30 s. Here are more TrainJobs, all of them
finished and waiting at once: half of them in one namespace, by their own field, and half in nine others, by that of
their runtimes. An eighth falls due second by second, at twelve times the document's rate: they show the lateness. Then
all others fall due at one instant: they show the rate. Lateness is what the API server's audit log says, as in
`lateness`. Three witnesses must stay.
"""

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from shared.core.values.objects import format_instant
from shared.devserver.real_servers import find_assets, real_server
from tests.benchmarks.cluster import (
    MERGE_PATCH,
    NAMESPACE,
    BenchmarkError,
    Cluster,
    connected,
    for_each,
    now,
    sleep_until,
)
from tests.benchmarks.drain import run_command
from tests.benchmarks.lateness import audit_arguments, percentile, read_accepted
from tests.benchmarks.processes import running
from tests.crds import trainer_crds

TRAINJOBS = 10_000
DUE_PER_SECOND = 20
OTHERS = tuple(f"team-{number}" for number in range(1, 10))
DRAIN_SECONDS_MAX = 240
KEP = {"namespace": 1_000, "cluster": 5_000, "per_minute": 100, "p99_seconds": 30}
"""The limits of the document."""

TRAINJOBS_AUDITED = [{"group": "trainer.kubeflow.org", "resources": ["trainjobs"]}]
_GROUP = "/apis/trainer.kubeflow.org/v1alpha1"
_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_CRD_SECONDS_MAX = 30
_BEFORE_THE_BURST = 5


@dataclass(frozen=True)
class Slo:
    """One limit of the document, and what was measured.

    Attributes:
        limit: What the document asks for.
        measured: What came out, in the same unit.
        is_most: Whether less is better.
    """

    name: str
    unit: str
    limit: float
    measured: float
    is_most: bool = False

    @property
    def better(self) -> float:
        """How many times better than the limit."""
        return self.limit / self.measured if self.is_most else self.measured / self.limit

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "better": round(self.better, 2)}


@dataclass(frozen=True)
class TrainJob:
    """One of those that are made.

    Attributes:
        second: After how many seconds it falls due, counted from the first.
        inherits: Whether its runtime sets its TTL.
    """

    name: str
    namespace: str
    second: int
    inherits: bool

    @property
    def path(self) -> str:
        return f"{_GROUP}/namespaces/{self.namespace}/trainjobs"

    @property
    def runtime(self) -> str:
        return f"due-{self.second:03}" if self.inherits else "unset"


def plan(count: int) -> list[TrainJob]:
    """Half in one namespace; an eighth of both halves falls due second by second, the rest at one instant."""
    steady = count // 8
    last = math.ceil(steady / DUE_PER_SECOND) + _BEFORE_THE_BURST
    made = []
    for number in range(count):
        inherits = number % 2 == 1
        namespace = OTHERS[number // 2 % len(OTHERS)] if inherits else NAMESPACE
        second = number // DUE_PER_SECOND if number < steady else last
        made.append(TrainJob(f"train-{number:05}", namespace, second, inherits))
    return made


async def measure_all(folder: Path, count: int, write_event: Callable[[str], None]) -> dict[str, list[Slo]]:
    """Measure on a server of its own, which writes an audit log of TrainJobs."""
    assets = find_assets()
    assert assets is not None
    with real_server(assets, apiserver_args=audit_arguments(folder, TRAINJOBS_AUDITED)) as server:
        async with connected(server) as cluster:
            return await measure(cluster, folder, count, write_event)


async def measure(
    cluster: Cluster, folder: Path, count: int, write_event: Callable[[str], None]
) -> dict[str, list[Slo]]:
    """Make the TrainJobs, let `run` delete them, and read the audit log."""
    write_event("trainjobs: the CRDs")
    await _install(cluster)
    async with running(run_command(cluster), cluster.server.home / "run.log"):
        await cluster.warm_up()
        jobs = plan(count)
        due = await _make(cluster, jobs, write_event)
        write_event(f"trainjobs: {count:,} wait; the last is due at {max(due.values()):%H:%M:%S}")
        await sleep_until(max(due.values()))
        await _wait_until_gone(cluster)
    return {"slos": _judge(jobs, due, read_accepted(folder))}


def _judge(jobs: Sequence[TrainJob], due: dict[str, datetime], accepted: dict[str, datetime]) -> list[Slo]:
    if missing := [one.name for one in jobs if one.name not in accepted]:
        raise BenchmarkError(f"{len(missing)} DELETEs are not in the audit log: {missing[:5]}")
    if early := [one.name for one in jobs if accepted[one.name] < due[one.name]]:
        raise BenchmarkError(f"{len(early)} were deleted before they were due: {early[:5]}")
    last = max(one.second for one in jobs)
    steady, burst = ([one.name for one in jobs if (one.second == last) is is_last] for is_last in (False, True))
    late = sorted((accepted[one] - due[one]).total_seconds() for one in steady)
    in_one = sum(one.namespace == NAMESPACE for one in jobs)
    at_once = f"{len(burst):,} due at once"
    steadily = f"{DUE_PER_SECOND} due a second"
    return [
        Slo("TrainJobs in one namespace", "", KEP["namespace"], in_one),
        Slo("TrainJobs in the cluster", "", KEP["cluster"], len(jobs)),
        Slo(f"deletions a minute, {steadily}", "", KEP["per_minute"], _per_minute(steady, due, accepted)),
        Slo(f"deletions a minute, {at_once}", "", KEP["per_minute"], _per_minute(burst, due, accepted)),
        Slo(f"p99 lateness, {steadily}", "s", KEP["p99_seconds"], percentile(late, 99), is_most=True),
    ]


def _per_minute(names: Sequence[str], due: dict[str, datetime], accepted: dict[str, datetime]) -> float:
    """From the first due instant to the last accepted DELETE; a second more, since all of a second are due at once."""
    seconds = (max(accepted[one] for one in names) - min(due[one] for one in names)).total_seconds()
    return 60 * len(names) / seconds


async def _install(cluster: Cluster) -> None:
    for namespace in OTHERS:
        manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
        await cluster.call("POST", "/api/v1/namespaces", manifest)
    for crd in trainer_crds(with_ttl=True):
        await cluster.call("POST", _CRDS, crd)
    deadline = time.monotonic() + _CRD_SECONDS_MAX
    for number, plural in enumerate(("trainjobs", "trainingruntimes", "clustertrainingruntimes")):
        while True:
            try:
                await cluster.call("GET", f"{_GROUP}/{plural}")
                if number == 2:  # the last: reads are served before writes
                    await cluster.call("POST", f"{_GROUP}/{plural}", _runtime("unset"))
                break
            except BenchmarkError:
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(0.2)


async def _make(cluster: Cluster, jobs: Sequence[TrainJob], write_event: Callable[[str], None]) -> dict[str, datetime]:
    """Create all TrainJobs, then finish all of them before the first is due.

    The TTLs leave time for that. How long it takes is known once those that inherit exist: their runtimes set the TTL.

    Returns:
        When each is due.
    """
    by_name = {one.name: one for one in jobs}
    inheriting = [one.name for one in jobs if one.inherits]
    own = [one.name for one in jobs if not one.inherits]
    await for_each(sorted({one.runtime for one in jobs if one.inherits}), lambda name: _create_runtime(cluster, name))
    write_event(f"trainjobs: create {len(jobs):,}")
    started = time.monotonic()
    await for_each(inheriting, lambda name: _create(cluster, by_name[name], None))
    ready = round(10 + 4 * (time.monotonic() - started) * len(jobs) / len(inheriting))
    await for_each(sorted({one.runtime for one in jobs if one.inherits}), lambda name: _set_ttl(cluster, name, ready))
    await for_each(own, lambda name: _create(cluster, by_name[name], ready + by_name[name].second))
    await _add_witnesses(cluster)
    write_event(f"trainjobs: finish {len(jobs):,}")
    finished_at = now().replace(microsecond=0) + timedelta(seconds=1)
    await for_each(by_name, lambda name: _finish(cluster, by_name[name], finished_at))
    if now() > finished_at + timedelta(seconds=ready - 1):
        raise BenchmarkError("due before all had finished: the machine is too busy to measure on")
    return {one.name: finished_at + timedelta(seconds=ready + one.second) for one in jobs}


async def _create_runtime(cluster: Cluster, name: str) -> None:
    await cluster.call("POST", f"{_GROUP}/clustertrainingruntimes", _runtime(name))


async def _set_ttl(cluster: Cluster, name: str, ready: int) -> None:
    ttl = {"spec": {"runPolicy": {"ttlSecondsAfterFinished": ready + int(name.removeprefix("due-"))}}}
    await cluster.call("PATCH", f"{_GROUP}/clustertrainingruntimes/{name}", ttl, **MERGE_PATCH)


def _runtime(name: str) -> dict[str, Any]:
    replicated = {"name": "node", "template": {"spec": {"template": {"spec": {"containers": [{"name": "node"}]}}}}}
    spec = {"template": {"spec": {"replicatedJobs": [replicated]}}}
    kind = "ClusterTrainingRuntime"
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    }


async def _create(cluster: Cluster, job: TrainJob, ttl: int | None) -> None:
    spec = {"runtimeRef": {"name": job.runtime}, "activeDeadlineSeconds": 28_800}
    body = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": job.name, "namespace": job.namespace, "labels": {"team": job.namespace}},
        "spec": spec if ttl is None else {**spec, "ttlSecondsAfterFinished": ttl},
    }
    await cluster.call("POST", job.path, body)


async def _finish(cluster: Cluster, job: TrainJob, at: datetime) -> None:
    """Write the status as Trainer's controller does."""
    complete = {
        "type": "Complete",
        "status": "True",
        "reason": "AllJobsCompleted",
        "message": "jobset completed successfully",
        "lastTransitionTime": format_instant(at),
    }
    counts = {"name": "node", "succeeded": 1, "failed": 0, "active": 0, "ready": 0, "suspended": 0}
    status = {"conditions": [complete], "jobsStatus": [counts]}
    await cluster.call("PATCH", f"{job.path}/{job.name}/status", {"status": status}, **MERGE_PATCH)


async def _add_witnesses(cluster: Cluster) -> None:
    """TrainJobs that must stay: not finished, not due for years, and without a TTL."""
    for name, ttl in (("unfinished", 0), ("later", 10**9), ("no-ttl", None)):
        job = TrainJob(f"witness-{name}", NAMESPACE, second=0, inherits=False)
        await _create(cluster, job, ttl)
        if name != "unfinished":
            await _finish(cluster, job, now().replace(microsecond=0))


async def _wait_until_gone(cluster: Cluster) -> None:
    """Until only the witnesses are left."""
    deadline = time.monotonic() + DRAIN_SECONDS_MAX
    while True:
        page = await cluster.call("GET", f"{_GROUP}/trainjobs?limit=4")
        left = sorted(one["metadata"]["name"] for one in page["items"])
        if left == ["witness-later", "witness-no-ttl", "witness-unfinished"]:
            return
        if len(left) < 3 or time.monotonic() > deadline:
            raise BenchmarkError(f"expected to be left the witnesses, got {left}")
        await asyncio.sleep(0.25)
