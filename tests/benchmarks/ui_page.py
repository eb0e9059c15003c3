"""What the page of `ui` costs on many objects, beside the bare LIST of the same objects in the same run.

    python -m tests.benchmarks.ui_page --jobs 100000 --namespaces 200

All Jobs are on a real API server. A quarter is due, a quarter has no TTL, and the others are due within a day. An
operator reads without tokens, and a user who may list Jobs in five namespaces reads with one. If Chromium is on the
PATH, it opens the page too.
"""

import argparse
import asyncio
import re
import shutil
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta

import aiohttp
import msgspec

from shared.devserver.real_servers import RealServer, find_assets, real_server
from tests.benchmarks.cluster import MERGE_PATCH, BenchmarkError, Cluster, complete, for_each, job, now
from tests.benchmarks.processes import PROGRAM, Contender, cpu_seconds, running
from tests.browsers import BROWSER, started_chromium
from tests.proc import memory_kb

REFRESH_SECONDS = 5
GRANTED = 5
"""Namespaces in which the user may list Jobs."""

READERS = 5
PROBES = 20
"""Probes in two seconds."""

RESTING_SECONDS = 0.2
"""Processor seconds in two seconds, with the probes, below which nothing else is done."""

_RBAC = "/apis/rbac.authorization.k8s.io/v1"
_LISTS = re.compile(r'^apiserver_request_total\{.*verb="LIST".*\} (\d+)$', re.MULTILINE)
_TTLS = (timedelta(), None, timedelta(hours=6), timedelta(hours=18))


@dataclass(frozen=True)
class Read:
    """One answer of the page's data.

    Attributes:
        seconds: Until it was there.
        cpu_seconds: What the process used meanwhile.
        size: Its bytes.
        total: The objects that it counts.
    """

    seconds: float
    cpu_seconds: float
    size: int
    total: int


async def create(cluster: Cluster, jobs: int, namespaces: int) -> None:
    """Create finished Jobs, evenly over the namespaces."""
    names = [f"team-{number:03}" for number in range(namespaces)]
    await for_each(names, lambda name: cluster.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}}))

    async def make(name: str) -> None:
        number = int(name.rpartition("-")[2])
        path = f"/apis/batch/v1/namespaces/{names[number % namespaces]}/jobs"
        await cluster.call("POST", path, job(name, _TTLS[number % len(_TTLS)]))
        await cluster.call("PATCH", f"{path}/{name}/status", {"status": complete(now())}, **MERGE_PATCH)

    await for_each((f"job-{number}" for number in range(jobs)), make)


async def list_all(server: RealServer, session: aiohttp.ClientSession) -> tuple[float, float]:
    """The seconds and the processor seconds of a LIST of all Jobs in pages, parsed as fast as we can, and dropped."""
    started, cpu, token = time.monotonic(), time.process_time(), ""
    while True:
        async with session.get(f"{server.url}/apis/batch/v1/jobs?limit=500&continue={token}") as answer:
            answer.raise_for_status()
            page = msgspec.json.decode(await answer.read())
        token = page["metadata"].get("continue", "")
        if not token:
            return time.monotonic() - started, time.process_time() - cpu


async def count_lists(server: RealServer, session: aiohttp.ClientSession) -> int:
    """All LISTs that the API server has answered."""
    async with session.get(f"{server.url}/metrics") as answer:
        return sum(int(count) for count in _LISTS.findall(await answer.text()))


async def user_token(cluster: Cluster) -> str:
    """The token of an account that may list Jobs in a few namespaces."""
    home = "/api/v1/namespaces/team-000/serviceaccounts"
    await cluster.call("POST", home, {"metadata": {"name": "reader"}})
    for number in range(GRANTED):
        place = f"{_RBAC}/namespaces/team-{number:03}"
        rules = [{"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["list"]}]
        await cluster.call("POST", f"{place}/roles", {"metadata": {"name": "reader"}, "rules": rules})
        binding = {
            "metadata": {"name": "reader"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
            "subjects": [{"kind": "ServiceAccount", "name": "reader", "namespace": "team-000"}],
        }
        await cluster.call("POST", f"{place}/rolebindings", binding)
    granted = await cluster.call("POST", f"{home}/reader/token", {"spec": {}})
    return str(granted["status"]["token"])


@asynccontextmanager
async def serving(server: RealServer, *options: str) -> AsyncIterator[tuple[Contender, str]]:
    """Run `ui`; yields its process and the URL of its data."""
    log = server.home / f"ui-{time.monotonic_ns()}.log"
    command = [PROGRAM, "ui", f"--kubeconfig={server.kubeconfig}", "--port=0", f"--refresh={REFRESH_SECONDS}s"]
    async with running([*command, *options], log) as process:
        async with asyncio.timeout(60):
            while not (found := re.search(r"serving (http://\S+)/,", log.read_text())):
                await asyncio.sleep(0.05)
        yield process, f"{found[1]}/api/v1/overview"


async def read(process: Contender, url: str, token: str = "") -> Read:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    started, cpu = time.monotonic(), cpu_seconds(process.pid)
    timeout = aiohttp.ClientTimeout(600)
    async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url, headers=headers) as answer:
        body = await answer.read()
        if answer.status != 200:
            raise BenchmarkError(f"{url}: {answer.status} {body[:300]!r}")
    totals = msgspec.json.decode(body)["totals"]
    used = cpu_seconds(process.pid) - cpu
    return Read(time.monotonic() - started, used, len(body), totals["objects"])


async def rest(process: Contender, url: str) -> tuple[float, float]:
    """Wait until a process has nothing to do.

    Returns:
        The processor seconds that it used until then, and the seconds of its slowest answer to a probe meanwhile.
    """
    begin = last = cpu_seconds(process.pid)
    slowest = 0.0
    async with aiohttp.ClientSession() as session:
        while True:
            for _ in range(PROBES):
                asked = time.monotonic()
                async with session.get(url.replace("api/v1/overview", "healthz")) as answer:
                    await answer.read()
                slowest = max(slowest, time.monotonic() - asked)
                await asyncio.sleep(2 / PROBES)
            if cpu_seconds(process.pid) - last < RESTING_SECONDS:
                return cpu_seconds(process.pid) - begin, slowest
            last = cpu_seconds(process.pid)


async def open_pages(url: str, pages: int) -> float:
    """The seconds until pages that Chromium opens at once show the data."""
    async with started_chromium() as browser:
        opened = [await (await browser.new_context()).new_page() for _ in range(pages)]
        started = time.monotonic()
        await asyncio.gather(*(one.goto(url) for one in opened))
        await asyncio.gather(*(one.wait_for_selector("#data:not([hidden])", timeout=600_000) for one in opened))
        return time.monotonic() - started


def memory_of(process: Contender) -> str:
    return f"{memory_kb(process.pid, 'VmRSS') / 1024:.0f} MB, at most {memory_kb(process.pid, 'VmHWM') / 1024:.0f} MB"


async def measure(server: RealServer, jobs: int, namespaces: int) -> None:
    authorization = {"Authorization": f"Bearer {server.token}"}
    connector = aiohttp.TCPConnector(limit=0, ssl=server.ssl)
    async with aiohttp.ClientSession(connector=connector, headers=authorization) as session:
        cluster = Cluster(server, session)
        started = time.monotonic()
        await create(cluster, jobs, namespaces)
        show("created", f"{jobs:,} Jobs in {namespaces} namespaces in {time.monotonic() - started:.0f} s")
        list_seconds, list_cpu = await list_all(server, session)
        show("bare LIST in pages", f"{list_seconds:.1f} s, {list_cpu:.1f} s of processor time")
        token = await user_token(cluster)
        async with serving(server) as (process, url):
            first = await read(process, url)
            show("operator, first answer", described(first, list_cpu))
            show("operator, same view", described(await read(process, url), list_cpu))
            await asyncio.sleep(REFRESH_SECONDS + 1)
            lists = await count_lists(server, session)
            show("operator, old view", described(await read(process, url), list_cpu))  # the next one is read meanwhile
            refreshed, slowest = await rest(process, url)
            lists = await count_lists(server, session) - lists
            show("the next view", f"{refreshed:.1f} s of processor time ({refreshed / list_cpu:.1f} times the LIST's)")
            show("LISTs meanwhile", str(lists))
            show("slowest probe meanwhile", f"{slowest:.2f} s")
            cpu, begin = cpu_seconds(process.pid), time.monotonic()
            await asyncio.gather(*(read(process, url) for _ in range(READERS)))
            show(
                f"{READERS} readers at once",
                f"{time.monotonic() - begin:.2f} s, {cpu_seconds(process.pid) - cpu:.2f} s of processor time",
            )
            if shutil.which(BROWSER):
                await show_pages(process, url)
            show("memory", memory_of(process))
        async with serving(server, "--auth=kubernetes") as (process, url):
            show("user, first answer", described(await read(process, url, token), list_cpu))
            show("user, same view", described(await read(process, url, token), list_cpu))
            show("memory", memory_of(process))


async def show_pages(process: Contender, url: str) -> None:
    for pages in (1, READERS):
        await rest(process, url)
        await read(process, url)  # so that they do not wait for a new view
        seconds = await open_pages(url.replace("api/v1/overview", ""), pages)
        show(f"{pages} in Chromium", f"{seconds:.2f} s until the data is shown")


def described(one: Read, list_cpu: float) -> str:
    ratio = f"{one.cpu_seconds / list_cpu:.1f} times the LIST's"
    return (
        f"{one.seconds:.2f} s, {one.cpu_seconds:.2f} s of processor time ({ratio}), "
        f"{one.size / 1000:.0f} kB about {one.total:,} objects"
    )


def show(name: str, text: str) -> None:
    sys.stdout.write(f"{name:<24} {text}\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.ui_page", description=__doc__)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--namespaces", type=int, default=200)
    options = parser.parse_args()
    assets = find_assets()
    if assets is None:
        sys.stderr.write("no kube-apiserver and etcd: see CONTRIBUTING.md\n")
        return 1
    with real_server(assets, fsync=False) as server:
        asyncio.run(measure(server, options.jobs, options.namespaces))
    return 0


if __name__ == "__main__":
    sys.exit(main())
