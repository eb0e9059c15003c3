"""The S3 server is killed, stopped and full while objects are archived and deleted: nothing is lost on the way."""

import asyncio
import os
import random
import signal
import time
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

import pytest

from shared.adapters.archive import bucket, open_archive
from shared.adapters.clock import SystemClock
from shared.core.archive.document import canonical
from shared.core.kinds.rule import Catalogue
from shared.core.policy.policy import Policy
from shared.core.values.objects import format_instant, ref_of
from shared.devserver.apiserver.resources import JOBS
from shared.devserver.apiserver.store import Store
from shared.devserver.apiserver.writes import WriteOptions, copied, merge_patch
from shared.errors import PermanentError
from shared.evaluation import archive_check
from shared.evaluation.children import Children
from shared.evaluation.evaluator import Evaluator
from shared.evaluation.pod_logs import PodLogs
from shared.messages import ObjectArchived, Purpose, Timer, TimersSet
from shared.usecases.archive import archival
from shared.usecases.archives.writer import ArchiveWriter
from shared.usecases.expire import DELETION
from shared.usecases.handler import Handler
from tests.archives import opened_archives
from tests.builders import JOB, not_none, shipped_kinds
from tests.fakes import FakeTelemetry
from tests.proc import send
from tests.s3_servers import required_s3_program, s3_server
from tests.store_cluster import StoreCluster
from tests.volumes import mounted

pytestmark = [pytest.mark.anyio, pytest.mark.realtime]

OBJECTS = 250
PAUSE_MAX = 0.3
"""The longest back-off, in seconds: a test does not wait as long as the timers do."""

now = SystemClock().now


class WitnessCluster(StoreCluster):
    """Notes what each deleted object was when it was deleted."""

    deleted: dict[str, bytes]

    def delete_object(self, rule, ref, options):
        live = copied(self.read_object(rule, ref))
        result = super().delete_object(rule, ref, options)
        self.deleted[ref.uid] = canonical({**live, "apiVersion": rule.api_version, "kind": rule.kind})
        return result


class Load:
    """Jobs that finish on and on, the timers about them, and the functions that the timers call."""

    def __init__(self, url, environment):
        self.store = Store(now)
        self.archives = opened_archives("prod")
        self.deleted: dict[str, bytes] = {}
        self.errors: list[str] = []
        rule = {"name": "all", "match": {"kinds": ["jobs"]}, "archive": {"to": "main"}}
        document = {"archives": {"main": {"url": url}}, "rules": [rule]}
        self.policy = Policy.model_validate(document).of_kinds(shipped_kinds())
        self.expiry, other = self._expiry("expire"), self._expiry("archive")
        writer = ArchiveWriter(self.archives, Children(other.cluster, shipped_kinds()), PodLogs(other.cluster))
        self.archival = replace(other, procedure=archival(writer))

    def _expiry(self, by):
        kinds, cluster = Catalogue((JOB,)), WitnessCluster(self.store, time.monotonic)
        cluster.deleted = self.deleted
        evaluator = Evaluator(cluster, kinds, lambda: self.policy, archives=self.archives)
        return Handler(DELETION, cluster, kinds, evaluator, SystemClock(), FakeTelemetry(), dry_run=False, by=by)

    def finish_one(self, number):
        """A Job that finished; its first timers are `archive` and, too early, `expire`."""
        annotations = {"ttlafterfinished.dev/ttl": "0s"}
        spec = {"text": os.urandom(12_000).hex()}
        obj = {"metadata": {"name": f"job-{number}", "annotations": annotations}, "spec": spec}
        self.store.create(JOBS, "default", obj)
        at = format_instant((now() - timedelta(seconds=2)).replace(microsecond=0))
        conditions = [{"type": "Complete", "status": "True", "lastTransitionTime": at}]
        change = merge_patch({"status": {"conditions": conditions}})
        stored = self.store.patch(JOBS, "default", f"job-{number}", change, WriteOptions(subresource="status"))
        return ref_of({**stored, "apiVersion": "batch/v1", "kind": "Job"})

    def touch(self, ref):
        """The object changes, and needs another document."""
        change = merge_patch({"metadata": {"labels": {"touched": str(time.monotonic_ns())}}})
        self.store.patch(JOBS, ref.namespace, ref.name, change, WriteOptions())

    async def live(self, number, pace):
        """The timers of one object, until it is gone."""
        await asyncio.sleep(number * pace)
        ref = self.finish_one(number)
        timers = [Timer(ref=ref, purpose=purpose, due_at=now()) for purpose in (Purpose.ARCHIVE, Purpose.EXPIRE)]
        async with asyncio.TaskGroup() as group:
            for timer in timers:
                group.create_task(self._follow(timer))
            if number % 5 == 0:
                await asyncio.sleep(0.05)
                with suppress(Exception):  # it may be gone
                    self.touch(ref)

    async def _follow(self, timer):
        while timer is not None and timer.ref.uid not in self.deleted:
            handle = self.archival.handle if timer.purpose is Purpose.ARCHIVE else self.expiry.handle
            try:
                answer = await handle(timer)
            except PermanentError as error:
                self.errors.append(str(error))
                answer = TimersSet(timers=(timer,))
            if isinstance(answer, ObjectArchived):
                timer = answer.timer
            else:
                timer = answer.timers[0] if isinstance(answer, TimersSet) else None
            if timer is not None:
                pause = (timer.due_at - now()).total_seconds()
                await asyncio.sleep(max(0.01, min(pause, PAUSE_MAX)))

    async def check(self):
        """Each object that was deleted is in the archive, byte for byte as it was then; the archive has only wholes."""
        archive = await self.archives.open("main", self.policy.archives["main"])
        keys = [stored.key async for page in archive.ls() for stored in page]
        texts: dict[str, list[bytes]] = {}
        for key in keys:
            texts.setdefault(key.uid, []).append((await archive.read(key)).text)
        assert [uid for uid, text in self.deleted.items() if text not in texts.get(uid, ())] == []
        versions = [(key.uid, key.resource_version) for key in keys]
        assert len(versions) == len(set(versions))


@pytest.fixture
def impatient(monkeypatch):
    """A stopped server is given up on after a second."""
    monkeypatch.setattr(open_archive, "REQUEST_SECONDS", 1.0)
    monkeypatch.setattr(open_archive, "CONNECT_SECONDS", 0.5)
    monkeypatch.setattr(open_archive, "_RETRIES_SECONDS", 1.0)
    monkeypatch.setattr(bucket, "OPERATION_SECONDS", 3.0)
    monkeypatch.setattr(archive_check, "ARCHIVE_SECONDS_MAX", 1.5)
    monkeypatch.setattr(archive_check, "AWAY_SECONDS", 0.2)


async def run_under(trouble, server, monkeypatch):
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    load = Load(server.url("bucket", "load"), server.environment)
    troubles = asyncio.ensure_future(trouble())
    async with asyncio.timeout(240), asyncio.TaskGroup() as group:
        for number in range(OBJECTS):
            group.create_task(load.live(number, 0.02))
        await troubles
    await load.check()
    assert len(load.deleted) == OBJECTS
    return load


@pytest.mark.timeout(300)
async def test_server_killed_under_load_loses_nothing(monkeypatch, impatient):
    source = random.Random(3)
    with s3_server(required_s3_program()) as server:

        async def kill_now_and_then():
            for _ in range(5):
                await asyncio.sleep(source.uniform(0.3, 1.0))
                server.kill()
                await asyncio.sleep(source.uniform(0.05, 0.6))
                await asyncio.to_thread(server.start)

        load = await run_under(kill_now_and_then, server, monkeypatch)

    assert any(failed for _, _, failed in load.archival.telemetry.unarchived)


@pytest.mark.timeout(300)
async def test_server_stopped_under_load_loses_nothing(monkeypatch, impatient):
    source = random.Random(4)
    with s3_server(required_s3_program()) as server:

        async def stop_now_and_then():
            for _ in range(3):
                await asyncio.sleep(source.uniform(0.3, 1.0))
                send(not_none(server.process), signal.SIGSTOP)
                await asyncio.sleep(source.uniform(1.0, 4.0))
                send(not_none(server.process), signal.SIGCONT)

        load = await run_under(stop_now_and_then, server, monkeypatch)

    assert any(failed for _, _, failed in load.archival.telemetry.unarchived)


@pytest.mark.timeout(300)
async def test_full_server_under_load_keeps_what_it_cannot_store(tmp_path, monkeypatch, impatient):
    with mounted(tmp_path / "volume", mebibytes=16) as folder, s3_server(required_s3_program(), folder) as server:
        filler = folder / "filler"

        async def fill_and_make_room():
            await asyncio.sleep(0.5)
            with suppress(OSError), filler.open("wb", buffering=0) as file:
                while True:
                    file.write(bytes(16 * 1024))
            await asyncio.sleep(4.0)
            filler.unlink()

        load = await run_under(fill_and_make_room, server, monkeypatch)

    assert any(failed for _, _, failed in load.archival.telemetry.unarchived)
