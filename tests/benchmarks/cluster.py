"""The cluster that is measured on, and the two judges that all contenders have in common.

Objects are made through the API: a Job is created, and finished by a patch of its status as the Job controller writes
it. An independent watch reports when it is deleted (metadata only, in the benchmark's own process). The API server's
own `apiserver_request_total` counts the calls that took.
"""

import asyncio
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

import aiohttp

from shared.adapters.clock import SystemClock
from shared.core.values.objects import format_instant
from shared.devserver.real_servers import RealServer

NAMESPACE = "bench"
JOBS = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
WRITERS = 48
SECONDS_A_WRITE = 0.005
"""Until it is known better."""

_METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
MERGE_PATCH = {"Content-Type": "application/merge-patch+json"}
_REQUESTS = re.compile(r'apiserver_request_total\{.*?resource="(\w*)".*?subresource="(\w*)".*?verb="(\w+)".*\} (\S+)')
_VERSION = re.compile(rb'"resourceVersion":"(\d+)"')
_ABOUT_OBJECTS = {"jobs", "pods", "events", "namespaces"}


class BenchmarkError(Exception):
    """A measurement that does not count: an object was deleted that must stay, or too early, or never."""


def now() -> datetime:
    """This machine's clock, which is the API server's too."""
    return SystemClock().now()


class Gone:
    """What the watch has seen since it began.

    Attributes:
        count: Objects that are gone.
        first: When the first sign of a deletion was seen, on the monotonic clock; a Foreground one begins with a mark.
        last: When the last object that is awaited was gone.
    """

    def __init__(self) -> None:
        self.count = 0
        self.first = self.last = 0.0
        self._wanted = 0
        self._reached = asyncio.Event()

    def expect(self, count: int) -> None:
        self.count, self._wanted = 0, count
        self.first = self.last = 0.0
        self._reached.clear()

    async def wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._reached.wait()
        except TimeoutError:
            raise BenchmarkError(f"after {seconds:.0f} s {self.count} of {self._wanted} are gone") from None

    def take(self, line: bytes) -> None:
        if line.startswith(b'{"type":"MODIFIED"') and b'"deletionTimestamp"' in line:
            self.first = self.first or time.monotonic()
        elif line.startswith(b'{"type":"DELETED"'):
            self.last = time.monotonic()
            self.first = self.first or self.last
            self.count += 1
            if self.count == self._wanted:
                self._reached.set()
        elif line.startswith(b'{"type":"ERROR"'):
            raise BenchmarkError(f"the watch ended: {line[:300].decode()}")


class Cluster:
    """One API server, with the benchmark's own connection to it.

    Args:
        server: Running.
        session: Trusts it, and is an administrator there.
    """

    def __init__(self, server: RealServer, session: aiohttp.ClientSession) -> None:
        self.server = server
        self.gone = Gone()
        self._session = session
        self._witnesses: set[str] = set()
        self._sets = 0
        self._pace = SECONDS_A_WRITE

    async def call(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        async with self._session.request(method, f"{self.server.url}{path}", json=body, headers=headers) as response:
            if response.status >= 300:
                raise BenchmarkError(f"{method} {path}: {response.status} {(await response.text())[:300]}")
            return await response.json()

    def new_names(self, count: int) -> list[str]:
        """Names of a fresh set."""
        self._sets += 1
        return [f"set-{self._sets:02}-{number:05}" for number in range(count)]

    async def create_expired(self, count: int) -> None:
        """A fresh set that was due as soon as it finished."""

        async def make(name: str) -> None:
            await self._create(name, timedelta())
            await self._finish(name, now())

        names = self.new_names(count)
        await for_each(names, make)
        await sleep_until(now().replace(microsecond=0) + timedelta(seconds=1))

    async def create_due(self, names: Sequence[str], *, per_second: int) -> dict[str, datetime]:
        """Make Jobs of which so many fall due at each whole second, in the order of their names.

        All have finished, and who runs meanwhile has seen each of them do so, before the first is due. A Job is not
        believed to have finished before it was created, so its TTL says when it is due: chosen by how long it took
        lately to write so many.

        Returns:
            When each is due.
        """
        ready = round(6 + 4 * len(names) * self._pace)
        ttls = {name: timedelta(seconds=ready + number // per_second) for number, name in enumerate(names)}
        await for_each(names, lambda name: self._create(name, ttls[name]))
        finished_at = now().replace(microsecond=0)
        started = time.monotonic()
        await for_each(names, lambda name: self._finish(name, finished_at))
        self._pace = (time.monotonic() - started) / len(names)
        if now() > finished_at + timedelta(seconds=ready - 1):
            raise BenchmarkError("due before all had finished: the machine is too busy to measure on")
        return {name: finished_at + ttl for name, ttl in ttls.items()}

    async def create_finished(self, name: str, ttl: timedelta, status: dict[str, Any]) -> None:
        """A finished Job with a TTL, and this status."""
        await self._create(name, ttl)
        await self.call("PATCH", f"{JOBS}/{name}/status", status, **MERGE_PATCH)

    async def _create(self, name: str, ttl: timedelta | None) -> None:
        await self.call("POST", JOBS, job(name, ttl))

    async def _finish(self, name: str, at: datetime) -> None:
        await self.call("PATCH", f"{JOBS}/{name}/status", {"status": complete(at)}, **MERGE_PATCH)

    async def add_witnesses(self) -> None:
        """Jobs that no contender may delete: not due for years, not finished, without a TTL."""
        kept = {"witness-later": timedelta(days=10_000), "witness-unfinished": timedelta(), "witness-no-ttl": None}
        for name, ttl in kept.items():
            await self._create(name, ttl)
            if name != "witness-unfinished":
                await self._finish(name, now())
        self._witnesses = {f"{one['metadata']['name']}/{one['metadata']['uid']}" for one in await self._list()}

    async def check_the_rest(self) -> None:
        """All are gone but those that must stay."""
        left = {f"{one['metadata']['name']}/{one['metadata']['uid']}" for one in await self._list()}
        if left != self._witnesses:
            raise BenchmarkError(f"expected to be left {sorted(self._witnesses)}, got {sorted(left)[:10]}")

    async def _list(self) -> list[dict[str, Any]]:
        return (await self.call("GET", JOBS))["items"]

    async def warm_up(self, count: int = 1, seconds: float = 60) -> None:
        """Wait until the contender has deleted a first set: its watch has begun, so it sees every later object."""
        self.gone.expect(count)
        await self.create_expired(count)
        await self.gone.wait(seconds)

    async def calls(self) -> Counter[str]:
        """Requests about objects that were answered so far, by verb, resource and subresource."""
        async with self._session.get(f"{self.server.url}/metrics") as response:
            text = await response.text()
        counts: Counter[str] = Counter()
        for resource, subresource, verb, count in _REQUESTS.findall(text):
            if resource in _ABOUT_OBJECTS and verb != "WATCH":
                counts[f"{verb} {resource}{'/' if subresource else ''}{subresource}"] += int(float(count))
        return counts

    async def watch(self) -> None:
        """Tell `gone` of every change, from now until cancelled."""
        listed = await self.call("GET", f"{JOBS}?limit=1")
        version = listed["metadata"]["resourceVersion"]
        while True:  # a young API server ends a watch now and then
            url = f"{self.server.url}{JOBS}?watch=true&timeoutSeconds=7200&resourceVersion={version}"
            accept = {"Accept": _METADATA_ONLY}
            async with self._session.get(url, headers=accept, timeout=aiohttp.ClientTimeout()) as response:
                async for line in response.content:
                    self.gone.take(line)
                    version = _VERSION.findall(line)[-1].decode()


@asynccontextmanager
async def connected(server: RealServer) -> AsyncIterator[Cluster]:
    """The cluster, with its namespace, its witnesses and the watch, until the block ends."""
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, ssl=server.ssl),
        headers={"Authorization": f"Bearer {server.token}"},
    )
    async with session, asyncio.TaskGroup() as group:
        cluster = Cluster(server, session)
        manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        await cluster.call("POST", "/api/v1/namespaces", manifest)
        await cluster.add_witnesses()
        watching = group.create_task(cluster.watch())
        try:
            yield cluster
        finally:
            watching.cancel()


async def sleep_until(instant: datetime) -> None:
    await asyncio.sleep(max(0.0, (instant - now()).total_seconds()))


def job(name: str, ttl: timedelta | None) -> dict[str, Any]:
    container = {
        "name": "main",
        "image": "registry.example.com/team-a/nightly:2026.11.21",
        "command": ["python", "-m", "nightly.build", "--verbose"],
        "env": [{"name": f"OPTION_{number}", "value": f"value of option {number}"} for number in range(10)],
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}},
    }
    labels = {"app.kubernetes.io/name": "nightly", "team": "a"}
    spec: dict[str, Any] = {
        "backoffLimit": 3,
        "template": {"metadata": {"labels": labels}, "spec": {"restartPolicy": "Never", "containers": [container]}},
    }
    if ttl is not None:
        spec["ttlSecondsAfterFinished"] = round(ttl.total_seconds())
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "labels": labels}, "spec": spec}


def complete(at: datetime) -> dict[str, Any]:
    """What the Job controller writes: the interim condition beside the terminal one."""
    text = format_instant(at.replace(microsecond=0))
    conditions = [
        {"type": one, "status": "True", "lastProbeTime": text, "lastTransitionTime": text}
        for one in ("SuccessCriteriaMet", "Complete")
    ]
    return {"startTime": text, "completionTime": text, "succeeded": 1, "ready": 0, "conditions": conditions}


async def for_each(names: Iterable[str], do: Callable[[str], Awaitable[object]]) -> None:
    rest = iter(names)

    async def writer() -> None:
        for name in rest:
            await do(name)

    await asyncio.gather(*(writer() for _ in range(WRITERS)))
