"""Measure the memory of sweeps whose objects other clients fill: `python -m tests.benchmarks.memory`.

Each case is a process of its own that sweeps Jobs, Pods and TrainJobs side by side, as `run` does when it starts, on a
loopback server that answers LISTs as an API server does, with `limit` and `continue`. It reports the peak of resident
memory, and how many objects were deleted. Beside it, in one process: what measuring JSON costs, in times of parsing it.
"""

import argparse
import asyncio
import json
import logging
import re
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from email.utils import formatdate
from pathlib import Path
from typing import Any

from aiohttp import web

from shared.adapters.clock import SystemClock
from shared.adapters.kubernetes.connect import connect
from shared.adapters.telemetry.logs import LogTelemetry
from shared.core.kinds.rule import Catalogue
from shared.evaluation.evaluator import Evaluator
from shared.messages import SweepStep
from shared.usecases.expire import DELETION
from shared.usecases.handler import Handler
from tests.builders import JOB, POD, TRAINJOB, ago, annotated, ended, having, job, namespace, pod, trainjob
from tests.fakes import FakePublisher
from tests.loopback import answering_with
from tests.sweeps import sweep_with

DENSE = '{"x":[' + "{}," * 500_000 + "1]}"
"""1.5 MiB: as much as etcd takes."""

HALF = '{"x":[' + '{"y":{}},' * 126_000 + "1]}"
"""Just within the limit of values."""

KINDS = ("jobs", "pods", "trainjobs")
NOTES = "x" * 255_000
FIELDS: dict[str, Any] = {"f:spec": {f"f:field-{n}": {".": {}, "f:name": {}} for n in range(40)}}
ROUNDS = 5


def _objects(plural: str) -> dict[str, Any]:
    done = {
        "jobs": job(complete=ago(60), ttl=0),
        "pods": pod(containers=(ended(at=ago(60)),)),
        "trainjobs": trainjob(complete=ago(60)),
    }[plural]
    done = having(having(done, "metadata.name", "build-42"), "metadata.uid", f"{plural}-build-42")
    return annotated(having(done, "metadata.managedFields", [{"manager": "m", "fieldsV1": FIELDS}]), ttl="0")


CASES: dict[str, tuple[int, Callable[[str], str], int, str]] = {
    # objects of each kind, one of them as JSON; namespaces, and what is written on each
    "nothing": (0, lambda _: "", 1, ""),
    "1,000 usual objects of each kind": (1_000, lambda plural: json.dumps(_objects(plural)), 1, ""),
    "11 objects of 1,000,000 values, of each kind": (
        11,
        lambda plural: json.dumps(having(_objects(plural), "spec.filler", "FILLER")).replace('"FILLER"', DENSE),
        1,
        "",
    ),
    "11 objects of 380,000 values, of each kind": (
        11,
        lambda plural: json.dumps(having(_objects(plural), "spec.filler", "FILLER")).replace('"FILLER"', HALF),
        1,
        "",
    ),
    "300 namespaces of 255 KB": (0, lambda _: "", 300, NOTES),
}


class Server:
    """Answers LISTs page by page; every object is there until it is deleted."""

    def __init__(self, case: str) -> None:
        self._count, text_of, self._namespaces, self._notes = CASES[case]
        self._texts = {plural: text_of(plural) for plural in KINDS}
        self.deleted = 0

    async def handle(self, request: web.Request) -> web.Response:
        plural = request.path.rstrip("/").rpartition("/")[2]
        if request.method == "DELETE":
            await asyncio.sleep(0.01)
            self.deleted += 1
            return self._answer('{"kind":"Status","status":"Success"}')
        if request.method != "GET":
            return self._answer("{}")
        if plural == "namespaces":
            one = having(namespace("NAME"), "metadata.annotations", {"notes": self._notes})
            return self._page(
                request, [json.dumps(one).replace("NAME", f"ns-{n}" if n else "ci") for n in range(self._namespaces)]
            )
        if plural in KINDS:
            text = self._texts[plural]
            return self._page(request, [text.replace("build-42", f"build-{n}") for n in range(self._count)])
        *_, collection, name = request.path.split("/")
        if collection == "namespaces":
            return self._answer(json.dumps(namespace(name)))
        if collection in KINDS:
            return self._answer(self._texts[collection].replace("build-42", name))
        return web.json_response({"kind": "Status", "code": 403, "message": "no discovery here"}, status=403)

    def _page(self, request: web.Request, items: list[str]) -> web.Response:
        start, limit = int(request.query.get("continue", 0)), int(request.query.get("limit", 500))
        following = str(start + limit) if start + limit < len(items) else ""
        head = json.dumps({"kind": "List", "metadata": {"resourceVersion": "7", "continue": following}})
        return self._answer(head[:-1] + ',"items":[' + ",".join(items[start : start + limit]) + "]}")

    def _answer(self, text: str) -> web.Response:
        return web.Response(text=text, content_type="application/json", headers={"Date": formatdate(usegmt=True)})


async def sweep_all(url: str) -> None:
    """Sweep the three kinds at once; what a process of `run` does first."""
    kinds = Catalogue((JOB, POD, TRAINJOB))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kubeconfig"
        context = {"name": "x", "context": {"cluster": "x", "user": "x"}}
        config = {"clusters": [{"name": "x", "cluster": {"server": url}}], "users": [{"name": "x", "user": {}}]}
        path.write_text(json.dumps({**config, "contexts": [context], "current-context": "x"}))
        cluster = await connect(kubeconfig=str(path))
        evaluator = Evaluator(cluster, kinds, telemetry=LogTelemetry())
        expiry = Handler(DELETION, cluster, kinds, evaluator, SystemClock(), LogTelemetry(), dry_run=False, by="sweep")
        sweep = sweep_with(expiry, FakePublisher(), timedelta(minutes=5), concurrency=16)

        async def whole(step: SweepStep | None) -> None:
            while step is not None:
                step = await sweep.sweep(step)

        await asyncio.gather(*(whole(SweepStep(kinds=(f"{rule.api_version}/{rule.kind}",))) for rule in kinds.rules))
        await cluster.close()


async def _measure(case: str) -> dict[str, Any]:
    server = Server(case)
    async with answering_with(server.handle) as url:
        command = [sys.executable, "-m", "tests.benchmarks.memory", "--sweep", url]
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        reported, _ = await process.communicate()
    return {"case": case, "peakMiB": json.loads(reported), "deleted": server.deleted}


def _scan() -> dict[str, float]:
    """Megabytes a second of parsing a page of Jobs, and measuring it in times of that."""
    from shared.core.values.jsontext import check_json  # noqa: PLC0415 - so that this runs on versions without it

    body = json.dumps({"items": [_objects("jobs")] * 500}).encode()
    parse, check = (min(_time(one, body) for _ in range(ROUNDS)) for one in (json.loads, check_json))
    return {"parsedMBPerSecond": round(len(body) / parse / 1e6, 1), "measuredInParses": round(check / parse, 2)}


def _time(call: Callable[[bytes], Any], body: bytes) -> float:
    started = time.perf_counter()
    call(body)
    return time.perf_counter() - started


def _peak_mib() -> int:
    """Of this process since it began its program; what getrusage tells includes the process that started it."""
    found = re.search(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())
    assert found, "expected VmHWM in /proc/self/status"
    return int(found[1]) // 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sweep", metavar="URL", help="the process that is measured")
    options = parser.parse_args()
    if options.sweep:
        logging.disable()
        asyncio.run(sweep_all(options.sweep))
        print(_peak_mib())
        return
    for case in CASES:
        print(json.dumps(asyncio.run(_measure(case))))
    print(json.dumps(_scan()))


if __name__ == "__main__":
    main()
