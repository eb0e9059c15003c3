"""What the delete guard costs: DELETE as `expire`, without the guard, with it, and with the guard of all kinds.

Each DELETE is one that our code sends, of a finished object, with both preconditions. All three ways are measured on
one API server in every round, one after the other: machines have moods, ratios stay.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import quantiles
from typing import Any

from shared.adapters.config.kind_files import read_catalogue
from shared.core.kinds.rule import KindRule
from shared.installation.guards import guards, usernames
from tests.benchmarks.cluster import MERGE_PATCH, NAMESPACE, BenchmarkError, Cluster, complete, for_each, job, now
from tests.benchmarks.processes import cpu_seconds

OBJECTS = 400
"""In each measurement."""

ROUNDS = 3
CONNECTIONS = 8
WAIT_SECONDS = 60
HOME = "ttl-after-finished"
EXPIRE = usernames(HOME)[0]
WAYS = {"none": "without the guard", "enabled": "with the guard of Jobs and Pods", "all": "with the guard of all kinds"}
_RBAC = "rbac.authorization.k8s.io"
_PLURALS = {
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
}
_ADMISSION = "/apis/admissionregistration.k8s.io/v1"
FOLDERS = {"Job": f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs", "Pod": f"/api/v1/namespaces/{NAMESPACE}/pods"}


@dataclass(frozen=True)
class Cost:
    """One measurement.

    Attributes:
        kind: What was deleted.
        cpu_ms: Processor time of the API server for each DELETE.
        p50: Milliseconds until the answer.
        p99: Likewise.
    """

    kind: str
    objects: int
    cpu_ms: float
    p50: float
    p99: float

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


async def measure(cluster: Cluster, _folder: Path, write_event: Callable[[str], None]) -> dict[str, list[Cost]]:
    """By the way, in the order of the rounds."""
    await _let_expire_delete(cluster)
    kinds = read_catalogue()
    enabled = tuple(rule for rule in kinds.rules if rule.name in ("jobs.batch", "pods"))
    everything = tuple(rule for rule in kinds.rules if not rule.never_finishes)
    results: dict[str, list[Cost]] = defaultdict(list)
    for number in range(ROUNDS):
        for way, rules in (("none", ()), ("enabled", enabled), ("all", everything)):
            write_event(f"delete guard, round {number + 1} of {ROUNDS}: {WAYS[way]}")
            await _install(cluster, rules)
            results[way] += [await _delete_all(cluster, kind) for kind in FOLDERS]
            await _uninstall(cluster, rules)
    return results


async def _let_expire_delete(cluster: Cluster) -> None:
    role = {"apiGroup": _RBAC, "kind": "ClusterRole", "name": "cluster-admin"}
    subjects = [{"kind": "User", "name": EXPIRE, "apiGroup": _RBAC}]
    body = {"metadata": {"name": "expire"}, "roleRef": role, "subjects": subjects}
    await cluster.call("POST", f"/apis/{_RBAC}/v1/clusterrolebindings", body)


async def _install(cluster: Cluster, rules: Iterable[KindRule]) -> None:
    made = [one.body for one in guards(rules, HOME)]
    for body in made:
        await cluster.call("POST", f"{_ADMISSION}/{_PLURALS[body['kind']]}", body)
    await _until_unfinished_is(cluster, refused=bool(made))


async def _uninstall(cluster: Cluster, rules: Iterable[KindRule]) -> None:
    for one in guards(rules, HOME):
        await cluster.call("DELETE", f"{_ADMISSION}/{_PLURALS[one.body['kind']]}/{one.body['metadata']['name']}")


async def _until_unfinished_is(cluster: Cluster, *, refused: bool) -> None:
    """Nothing tells when a policy counts; a dry run on the witnesses does."""
    deadline = time.monotonic() + WAIT_SECONDS
    for witness in ("witness-unfinished", "witness-pod"):
        path = f"{FOLDERS['Pod' if witness == 'witness-pod' else 'Job']}/{witness}"
        if witness == "witness-pod":
            await _ensure_pod(cluster, witness)
        while await _is_refused(cluster, path) is not refused:
            if time.monotonic() > deadline:
                raise BenchmarkError(
                    f"after {WAIT_SECONDS} s the delete guard is not {'in force' if refused else 'gone'}"
                )
            await asyncio.sleep(0.1)


async def _ensure_pod(cluster: Cluster, name: str) -> None:
    listed = await cluster.call("GET", FOLDERS["Pod"])
    if not any(one["metadata"]["name"] == name for one in listed["items"]):
        await cluster.call("POST", FOLDERS["Pod"], _pod(name))


async def _is_refused(cluster: Cluster, path: str) -> bool:
    try:
        await cluster.call("DELETE", f"{path}?dryRun=All", **{"Impersonate-User": EXPIRE})
    except BenchmarkError as error:
        if "delete-guard" in str(error):
            return True
        raise
    return False


async def _delete_all(cluster: Cluster, kind: str) -> Cost:
    """A fresh set of finished objects, and nothing else that the API server has to do."""
    names, folder = cluster.new_names(OBJECTS), FOLDERS[kind]
    made: dict[str, Any] = {}

    async def make(name: str) -> None:
        await cluster.call("POST", folder, job(name, None) if kind == "Job" else _pod(name))
        status = complete(now()) if kind == "Job" else {"phase": "Succeeded"}
        made[name] = await cluster.call("PATCH", f"{folder}/{name}/status", {"status": status}, **MERGE_PATCH)

    await for_each(names, make)
    await asyncio.sleep(1)  # until the watch cache and others are done with them
    milliseconds: list[float] = []
    rest = iter(names)

    async def worker() -> None:
        for name in rest:
            meta = made[name]["metadata"]
            preconditions = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
            body = {"preconditions": preconditions, "propagationPolicy": "Background"}
            started = time.monotonic()
            await cluster.call("DELETE", f"{folder}/{name}", body, **{"Impersonate-User": EXPIRE})
            milliseconds.append(1_000 * (time.monotonic() - started))

    pid = cluster.server.pid("kube-apiserver")
    before = cpu_seconds(pid)
    await asyncio.gather(*(worker() for _ in range(CONNECTIONS)))
    cpu = cpu_seconds(pid) - before
    cuts = quantiles(milliseconds, n=100)
    return Cost(kind, OBJECTS, 1_000 * cpu / OBJECTS, cuts[49], cuts[98])


def _pod(name: str) -> dict[str, Any]:
    spec = job(name, None)["spec"]["template"]["spec"]
    labels = {"app.kubernetes.io/name": "nightly", "team": "a"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec}
