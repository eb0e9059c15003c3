"""What kor and this project call unused on one cluster, and how long each takes.

    python -m tests.benchmarks.compare_kor --kor PATH_OF_KOR

kor is a program of others (https://github.com/yonahd/kor): install a release of it first. The API server is real, and
has no other clients. One namespace has one Secret or ConfigMap for each way to be used (`kor_cases`); the others are
filled as in `bench_usage`, and both agree on them. Each program runs in a process of its own, in turns. kor sends at
most five requests a second, as its client library has by default, and has no flag for it.

The run fails if the two differ on an object without an explanation, or agree where a difference is explained.
"""

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import uvloop

from shared.devserver.real_servers import find_assets, real_server
from tests.benchmarks.cluster import BenchmarkError, Cluster, connected
from tests.benchmarks.kor_cases import CUSTOM, NAMESPACE, Case, Request, cases
from tests.benchmarks.processes import PROGRAM
from tests.benchmarks.usage_cluster import Sizes, fill
from tests.benchmarks.usage_floor import peak_mb

Name = tuple[str, str, str]
"""Namespace, kind and name."""

_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_SERVED_SECONDS = 30
_ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


@dataclass(frozen=True)
class Listed:
    """One run of a program.

    Attributes:
        seconds: From its start to its end.
        peak_mb: The most resident memory, to the last hundredth of a second.
        unused: What it calls unused.
    """

    seconds: float
    peak_mb: float
    unused: frozenset[Name]


async def make(cluster: Cluster) -> None:
    """Create the objects of all cases."""
    await cluster.call("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    for plural, (group, version, kind) in CUSTOM.items():
        await cluster.call("POST", _CRDS, _crd(plural, group, version, kind))
    for case in cases():
        await _send(cluster, case.creation)
        for request in case.requests:
            await _send(cluster, request)


async def _send(cluster: Cluster, request: Request) -> None:
    """Send a request; a custom resource waits until its kind is served."""
    deadline = time.monotonic() + _SERVED_SECONDS
    while True:
        try:
            await cluster.call(request.method, request.path, request.body, **{"Content-Type": request.content})
        except BenchmarkError as error:
            if ": 404 " not in str(error) or time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.2)
        else:
            return


def _crd(plural: str, group: str, version: str, kind: str) -> dict[str, Any]:
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": _ANYTHING}}}
    annotations = {"api-approved.kubernetes.io": "unapproved, a minimal schema for a benchmark"}
    return {
        "metadata": {"name": f"{plural}.{group}", "annotations": annotations},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "versions": [{"name": version, "served": True, "storage": True, "schema": schema}],
        },
    }


async def run_kor(program: str, kubeconfig: str) -> Listed:
    """Run kor, which deletes nothing without a flag."""
    command = [program, "configmap,secret", "--kubeconfig", kubeconfig, "--output", "json"]
    seconds, peak, text = await _run(command)
    found = json.loads(text[text.index("{") :])
    names = (
        (place, kind, name) for place, kinds in found.items() for kind, some in kinds.items() for name in some or ()
    )
    return Listed(seconds, peak, frozenset((place, kind, _name(name)) for place, kind, name in names))


def _name(found: Any) -> str:
    """kor lists names, or names with reasons."""
    return str(found["name"] if isinstance(found, dict) else found)


async def run_ours(kubeconfig: str) -> Listed:
    """Run the command `unused`, which writes nothing."""
    seconds, peak, text = await _run([PROGRAM, "unused", "--kubeconfig", kubeconfig, "--output", "json"])
    names = ((one["namespace"], one["kind"], one["name"]) for one in json.loads(text))
    return Listed(seconds, peak, frozenset(names))


async def _run(command: Sequence[str]) -> tuple[float, float, str]:
    """Seconds, the peak of memory in MB, and what is printed."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SLACK_", "TTL_"))}
    started = time.monotonic()
    process = await asyncio.create_subprocess_exec(
        *command, env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    watching = asyncio.create_task(_watch(process.pid))
    printed, errors = await process.communicate()
    seconds = time.monotonic() - started
    if process.returncode != 0:
        raise BenchmarkError(f"{command[0]}: exit code {process.returncode}: {errors.decode()[-800:]}")
    return seconds, await watching, printed.decode()


async def _watch(pid: int) -> float:
    """The peak of a process's memory, until it ends."""
    peak = 0.0
    with suppress(OSError, AssertionError):
        while True:
            peak = max(peak, peak_mb(pid))
            await asyncio.sleep(0.01)
    return peak


def explain(kor: frozenset[Name], ours: frozenset[Name]) -> list[tuple[Case, bool, bool]]:
    """Each case on which the two differ, and whether kor and this project call it unused.

    Raises:
        BenchmarkError: A difference has no explanation, or an explained one does not show.
    """
    known = {(NAMESPACE, case.kind, case.name): case for case in cases()}
    problems = [
        f"{'/'.join(one)}: only {'kor' if one in kor else 'this project'} calls it unused, without an explanation"
        for one in sorted(kor ^ ours)
        if one not in known or not known[one].why
    ]
    problems += [
        f"{case.name}: expected to be unused for {sorted(case.unused)}, got kor: {one in kor}, ours: {one in ours}"
        for one, case in known.items()
        if (one in kor, one in ours) != ("kor" in case.unused, "ours" in case.unused)
    ]
    if problems:
        raise BenchmarkError("\n".join(problems))
    return [(case, one in kor, one in ours) for one, case in known.items() if (one in kor) != (one in ours)]


def show(runs: dict[str, list[Listed]], differences: Sequence[tuple[Case, bool, bool]], sizes: Sizes) -> None:
    """Print Markdown: the times, and a row for each difference."""
    print(f"{sizes}\n\n| | seconds | peak MB | unused |\n| --- | --- | --- | --- |")
    for name, found in runs.items():
        seconds, peak = median(one.seconds for one in found), max(one.peak_mb for one in found)
        print(f"| {name} | {seconds:.1f} | {peak:.0f} | {len(found[-1].unused)} |")
    print("\n| referred to by | kor | this project | why |\n| --- | --- | --- | --- |")
    for case, is_kor, is_ours in differences:
        kor, ours = ("unused" if one else "not unused" for one in (is_kor, is_ours))
        print(f"| {case.kind}: {case.what} | {kor} | {ours} | {case.why} |")
    agreed = [case for case in cases() if not case.why]
    print(f"\nBoth agree on {len(agreed)} other cases: {'; '.join(case.what for case in agreed)}.")


async def compare(options: argparse.Namespace) -> dict[str, Any]:
    """Make the cluster, run both in turns, and explain."""
    sizes = Sizes(options.objects, options.pods, options.replicasets, options.namespaces)
    if sizes.pods < sizes.named * sizes.namespaces:
        raise BenchmarkError("expected as many Pods as Secrets: kor does not see those that only ReplicaSets name")
    assets = find_assets()
    if assets is None:
        raise BenchmarkError("no kube-apiserver and etcd in $KUBEBUILDER_ASSETS")
    runs: dict[str, list[Listed]] = {"kor": [], "ours": []}
    with real_server(assets, fsync=False) as server:
        async with connected(server) as cluster:
            await fill(cluster, sizes)
            await make(cluster)
            for _ in range(options.rounds):
                runs["kor"].append(await run_kor(options.kor, str(server.kubeconfig)))
                runs["ours"].append(await run_ours(str(server.kubeconfig)))
    kor, ours = (frozenset[Name]().union(*(one.unused for one in found)) for found in runs.values())
    differences = explain(kor, ours)
    show(runs, differences, sizes)
    times = {name: [{"seconds": one.seconds, "peak_mb": one.peak_mb} for one in found] for name, found in runs.items()}
    return {"sizes": asdict(sizes), **times}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kor", default="kor", metavar="PATH", help="the program; default: kor on the PATH")
    parser.add_argument("--objects", type=int, default=1_000, help="more Secrets and ConfigMaps (%(default)s)")
    parser.add_argument("--pods", type=int, default=5_000, help="more Pods (%(default)s)")
    parser.add_argument("--replicasets", type=int, default=200, help="more ReplicaSets (%(default)s)")
    parser.add_argument("--namespaces", type=int, default=20, help="of these (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="(%(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the times here")
    options = parser.parse_args()
    try:
        results = uvloop.run(compare(options))
    except BenchmarkError as error:
        print(error, file=sys.stderr)
        return 1
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
