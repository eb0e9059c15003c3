"""`plan --policy` on 20,000 finished objects, each run a process as a user starts it, with what it cannot do without.

Jobs and their Pods in 40 namespaces of a real API server, under a policy of a dozen rules, one of them with CEL and
one that keeps the last, compared with none. Beside it, in turns, the limit: a bare paged LIST of the same objects and
their JSON decoded, `python -m tests.benchmarks.plan KUBECONFIG`, nothing else.
"""

import argparse
import asyncio
import json
import ssl
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import quote

import aiohttp
import uvloop
import yaml

from tests.benchmarks.cluster import BenchmarkError, Cluster, complete, for_each, job, now
from tests.benchmarks.processes import PROGRAM

OBJECTS = 20_000
NAMESPACES = 40
ROUNDS = 3
AIM_SECONDS = 10.0
PAGE = 500
COLLECTIONS = ("/apis/batch/v1/jobs", "/api/v1/pods")

_PATCH = {"Content-Type": "application/merge-patch+json"}
_RULES = [
    *(
        {"name": f"team-{n}", "match": {"kinds": ["jobs", "pods"], "namespaces": {"names": [f"team-{n}"]}}, "ttl": "1h"}
        for n in range(8)
    ),
    {"name": "labelled", "match": {"kinds": ["*"], "labels": {"matchLabels": {"team": "b"}}}, "ttl": "1h"},
    {"name": "patient", "match": {"kinds": ["jobs"]}, "when": "object.spec.backoffLimit > 100", "ttl": "1w"},
    {"name": "newest", "match": {"kinds": ["jobs"], "namespaces": {"names": ["team-1*"]}}, "ttl": "0s", "keepLast": 5},
    {"name": "rest", "match": {"kinds": ["*"], "namespaces": {"except": ["kube-*"]}}, "ttl": {"succeeded": "1d"}},
]
POLICY = {"apiVersion": "ttlafterfinished.dev/v1", "kind": "Policy", "rules": _RULES}


@dataclass(frozen=True)
class Timed:
    """One run of a process.

    Attributes:
        seconds: From its start to its end.
        objects: How many it says it has seen.
    """

    seconds: float
    objects: int

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


async def measure(
    cluster: Cluster, folder: Path, write_event: Callable[[str], None], *, objects: int = OBJECTS
) -> Mapping[str, Sequence[Timed]]:
    """In turns: `plan`, and the bare LIST."""
    policy = folder / "policy.yaml"
    policy.write_text(yaml.safe_dump(POLICY))
    write_event(f"plan: {objects:,} objects")
    await create(cluster, objects)
    kubeconfig = str(cluster.server.kubeconfig)
    words = [PROGRAM, "plan", "--kubeconfig", kubeconfig, "--policy", str(policy), "--yes", "-o", "json"]
    commands = {"plan": words, "list": [sys.executable, "-m", "tests.benchmarks.plan", kubeconfig]}
    found: dict[str, list[Timed]] = {name: [] for name in commands}
    for number in range(ROUNDS):
        for name, command in commands.items():
            write_event(f"plan: round {number + 1}, {name}")
            found[name].append(timed := await _time(command))
            if timed.objects < objects:
                raise BenchmarkError(f"{name}: expected {objects} objects at the least, got {timed.objects}")
    return found


async def _time(command: Sequence[str]) -> Timed:
    started = time.monotonic()
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    reported, errors = await process.communicate()
    seconds = time.monotonic() - started
    if process.returncode != 0:
        raise BenchmarkError(f"{command[1]}: exit code {process.returncode}: {errors.decode()[-500:]}")
    return Timed(seconds, json.loads(reported)["objects"])


async def create(cluster: Cluster, objects: int) -> None:
    """Finished Jobs, each with its finished Pod."""
    places = [f"team-{number}" for number in range(NAMESPACES)]
    for place in places:
        await cluster.call("POST", "/api/v1/namespaces", {"metadata": {"name": place}})

    async def make(name: str) -> None:
        place = places[int(name.rpartition("-")[2]) % NAMESPACES]
        jobs, pods = f"/apis/batch/v1/namespaces/{place}/jobs", f"/api/v1/namespaces/{place}/pods"
        made = await cluster.call("POST", jobs, job(name, None))
        await cluster.call("PATCH", f"{jobs}/{name}/status", {"status": complete(now())}, **_PATCH)
        await cluster.call("POST", pods, _pod(made))
        await cluster.call("PATCH", f"{pods}/{name}/status", {"status": _ended(made)}, **_PATCH)

    await for_each([f"build-{number:05}" for number in range(objects // 2)], make)


def _pod(owner: Mapping[str, Any]) -> dict[str, Any]:
    metadata, template = owner["metadata"], owner["spec"]["template"]
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": metadata["name"], "uid": metadata["uid"]}
    own = {
        "name": metadata["name"],
        "labels": metadata["labels"],
        "ownerReferences": [{**reference, "controller": True}],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": own, "spec": template["spec"]}


def _ended(owner: Mapping[str, Any]) -> dict[str, Any]:
    at = owner["metadata"]["creationTimestamp"]
    state = {"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": at, "finishedAt": at}}
    image = owner["spec"]["template"]["spec"]["containers"][0]["image"]
    container = {"name": "main", "image": image, "imageID": image, "ready": False, "restartCount": 0, "state": state}
    return {"phase": "Succeeded", "startTime": at, "containerStatuses": [container]}


def ratio(timed: Mapping[str, Sequence[Timed]]) -> float:
    """What `plan` takes, in bare LISTs: the median of the rounds, each with its own."""
    pairs = zip(timed["plan"], timed["list"], strict=True)
    return median(plan.seconds / limit.seconds for plan, limit in pairs)


async def _list_bare(config: Mapping[str, Any]) -> int:
    """All pages of all collections, one after the other."""
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    connector = aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=cluster["certificate-authority"]))
    headers = {"Authorization": f"Bearer {user['token']}"}
    count = 0
    async with aiohttp.ClientSession(cluster["server"], connector=connector, headers=headers) as session:
        for path in COLLECTIONS:
            token = ""
            while True:
                query = f"?limit={PAGE}" + (f"&continue={quote(token)}" if token else "")
                async with session.get(f"{path}{query}") as response:
                    page = json.loads(await response.read())
                count += len(page["items"])
                token = page["metadata"].get("continue", "")
                if not token:
                    break
    return count


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kubeconfig", type=Path, help="as the real server's: JSON, with a token")
    options = parser.parse_args()
    print(json.dumps({"objects": uvloop.run(_list_bare(json.loads(options.kubeconfig.read_text())))}))
