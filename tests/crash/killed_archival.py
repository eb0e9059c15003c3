"""Archive one Job in process after process, and kill -9 each at its next await: `python -m … URL PAUSE`.

A process is killed after PAUSE seconds in an await. There is a fork for each await, since the imports take longer than
the test. What the killed process did is then looked at, completed, and looked at again, each by another process.
"""

import asyncio
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Coroutine
from dataclasses import replace
from datetime import timedelta
from typing import Any

from shared.adapters.clock import SystemClock
from shared.core.archive.document import canonical
from shared.core.archive.layout import is_log
from shared.core.kinds.rule import Catalogue
from shared.core.policy.policy import Policy
from shared.core.values.objects import ObjectRef, format_instant
from shared.devserver.apiserver.pod_logs import LOG_ANNOTATION
from shared.devserver.apiserver.resources import JOBS, PODS
from shared.devserver.apiserver.store import Store
from shared.devserver.apiserver.writes import WriteOptions
from shared.evaluation.children import Children
from shared.evaluation.evaluator import Evaluator
from shared.evaluation.pod_logs import PodLogs
from shared.messages import ObjectArchived, ObjectDeleted, Purpose, Timer, TimersSet
from shared.usecases.archive import archival
from shared.usecases.archives.writer import ArchiveWriter
from shared.usecases.expire import DELETION
from shared.usecases.handler import Handler
from tests.archives import opened_archives
from tests.builders import JOB, shipped_kinds
from tests.fakes import FakeTelemetry
from tests.store_cluster import StoreCluster

AWAITS_MAX = 2_000
PODS_OF_THE_JOB = 2
ATTEMPTS = 20
"""Attempts of an archiving that is not killed, and of the deletion after it."""

FILES = 1 + 2 * PODS_OF_THE_JOB
"""What an archived Job has: its document, and for each of its Pods a document and a log."""

now = SystemClock().now


class AwaitingCluster(StoreCluster):
    """An API server over a network: each request awaits."""

    async def send(self, *about: Any) -> Any:
        await asyncio.sleep(0)
        return await super().send(*about)


class Counted:
    """Awaits a coroutine, and kills the process at one of its awaits."""

    def __init__(self, work: Coroutine[Any, Any, Any], passed: Callable[[], None]) -> None:
        self._work, self._passed = work, passed

    def __await__(self) -> Any:
        steps, error = self._work.__await__(), None
        while True:
            try:
                waited_for = steps.throw(error) if error else steps.send(None)
            except StopIteration as end:
                return end.value
            self._passed()
            try:
                yield waited_for
                error = None
            except BaseException as raised:  # noqa: BLE001 - it belongs to the coroutine
                error = raised


class Scene:
    """One finished Job with its Pods, and the functions about it."""

    def __init__(self, url: str) -> None:
        self.url, self.store = url, Store(now)
        finished_at = format_instant((now() - timedelta(seconds=1)).replace(microsecond=0))
        annotations = {"ttlafterfinished.dev/ttl": "0s"}
        job = self.store.create(JOBS, "default", {"metadata": {"name": "one", "annotations": annotations}, "spec": {}})
        self.uid = job["metadata"]["uid"]
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "one", "uid": self.uid, "controller": True}
        for number in range(PODS_OF_THE_JOB):
            log = {f"{LOG_ANNOTATION}main": f"the log of one-{number}\n" * 1_000}
            metadata = {"name": f"one-{number}", "ownerReferences": [owner], "annotations": log}
            self.store.create(PODS, "default", {"metadata": metadata, "spec": {"containers": [{"name": "main"}]}})
            self._write_status(PODS, f"one-{number}", {"phase": "Succeeded"})
        condition = {"type": "Complete", "status": "True", "lastTransitionTime": finished_at}
        self._write_status(JOBS, "one", {"conditions": [condition]})

    def _write_status(self, resource: Any, name: str, status: dict[str, Any]) -> None:
        def change(obj: dict[str, Any]) -> dict[str, Any]:
            return {**obj, "status": {**obj.get("status", {}), **status}}

        self.store.patch(resource, "default", name, change, WriteOptions(subresource="status"))

    def expiry(self, place: str) -> Handler:
        archives = opened_archives("prod")
        head, _, query = self.url.partition("?")
        destination = {"url": f"{head}/{place}" + (f"?{query}" if query else "")}
        rule = {"name": "all", "match": {"kinds": ["jobs"]}, "archive": {"to": "main", "logs": True}}
        policy = Policy.model_validate({"archives": {"main": destination}, "rules": [rule]}).of_kinds(shipped_kinds())
        kinds, cluster = Catalogue((JOB,)), AwaitingCluster(self.store, asyncio.get_running_loop().time)
        evaluator = Evaluator(cluster, kinds, lambda: policy, archives=archives)
        return Handler(DELETION, cluster, kinds, evaluator, SystemClock(), FakeTelemetry(), dry_run=False)

    def timer(self, purpose: Purpose, attempts: int = 0) -> Timer:
        ref = ObjectRef("batch/v1", "Job", "default", "one", self.uid)
        return Timer(ref=ref, purpose=purpose, due_at=now(), attempts=attempts)

    async def archive(self, place: str) -> Any:
        expiry = self.expiry(place)
        archives: Any = expiry.evaluator.archives
        writer = ArchiveWriter(archives, Children(expiry.cluster, shipped_kinds()), PodLogs(expiry.cluster))
        handler = replace(expiry, procedure=archival(writer))
        for attempt in range(ATTEMPTS):
            answer = await handler.handle(self.timer(Purpose.ARCHIVE, attempt))
            if isinstance(answer, ObjectArchived):
                return answer
            await asyncio.sleep(0.2)
        return None

    async def archive_killed(self, place: str, at: int, pause: float) -> None:
        """Archive, and die at an await; counted are those of all tasks."""
        passed = 0

        def count() -> None:
            nonlocal passed
            passed += 1
            if passed == at:
                time.sleep(pause)  # what other threads do goes on
                os.kill(os.getpid(), signal.SIGKILL)

        async def counted(work: Any) -> Any:
            return await Counted(work, count)

        loop = asyncio.get_running_loop()
        loop.set_task_factory(lambda loop, work, **options: asyncio.Task(counted(work), loop=loop, **options))
        await asyncio.create_task(self.archive(place))

    async def look(self, place: str) -> dict[str, Any]:
        """What the archive has, and what `expire` does with the Job by that."""
        expiry = self.expiry(place)
        evaluator = expiry.evaluator
        archive = await opened_archives("prod").open("main", evaluator.policy().archives["main"])
        listed = [file.path async for page in archive.files() for file in page]
        stored = {one.key.name: one.key async for page in archive.ls() for one in page}
        broken = []
        for name, key in stored.items():
            rule = "Job" if key.kind == "Job" else "Pod"
            live = self.store.get(JOBS if rule == "Job" else PODS, "default", name)
            typed = {**live, "apiVersion": key.api_version, "kind": key.kind}
            if (await archive.read(key)).text != canonical(typed):
                broken.append(name)
        for path in filter(is_log, listed):
            text = b"".join([chunk async for chunk in archive.read_log(path)])
            if text not in {f"the log of one-{number}\n".encode() * 1_000 for number in range(PODS_OF_THE_JOB)}:
                broken.append(path)
        is_deleted = False
        for attempt in range(ATTEMPTS):
            answer = await expiry.handle(self.timer(Purpose.EXPIRE, attempt))
            is_deleted = isinstance(answer, ObjectDeleted)
            if is_deleted or not isinstance(answer, TimersSet) or answer.timers[0].purpose is Purpose.ARCHIVE:
                break
            await asyncio.sleep(0.3)
        return {"files": len(listed), "job": "one" in stored, "broken": broken, "deleted": is_deleted}


def forked(work: Callable[[], Coroutine[Any, Any, Any]]) -> tuple[bool, Any]:
    """Run it in a process of its own; returns whether that was killed, and otherwise the result."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            result = asyncio.run(work())
            os.write(writing, json.dumps(result, default=str).encode())
            code = 0
        except BaseException:  # noqa: BLE001 - of another process, whose error has no other way out
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        text = answer.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return True, None
    assert os.waitstatus_to_exitcode(status) == 0
    return False, json.loads(text)


def main() -> None:
    scene, pause = Scene(sys.argv[1]), float(sys.argv[2])
    lines: list[dict[str, Any]] = []
    for at in range(1, AWAITS_MAX):
        place = f"at-{at}"
        is_killed, _ = forked(lambda place=place, at=at: scene.archive_killed(place, at, pause))  # type: ignore[misc]
        _, found = forked(lambda place=place: scene.look(place))  # type: ignore[misc]
        forked(lambda place=place: scene.archive(place))  # type: ignore[misc]
        lines.append({"place": place, "killed": is_killed, "found": found})
        if not is_killed:
            break
    time.sleep(1.1)  # stores tell whole seconds, rounded up
    for line in lines:
        _, completed = forked(lambda line=line: scene.look(line["place"]))  # type: ignore[misc]
        print(json.dumps({**line, "completed": completed}))


if __name__ == "__main__":
    main()
