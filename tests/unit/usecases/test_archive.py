"""`archive` stores a finished object with its children and logs, and sets the timer of its deletion."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from shared.core.archive.document import Document, Record
from shared.core.archive.layout import parse_key
from shared.core.archive.signature import UNSIGNED, SigningKeys
from shared.core.kinds.rule import Catalogue
from shared.core.policy.policy import Policy
from shared.core.values.objects import ref_of
from shared.devserver.apiserver.pod_logs import LOG_ANNOTATION
from shared.errors import ForbiddenError, PermanentError, TryLaterError, UnreachableLogError, UnsignedDocumentError
from shared.evaluation.children import Children
from shared.evaluation.evaluator import Evaluator
from shared.evaluation.pod_logs import PodLogs
from shared.messages import ObjectArchived, ObjectDeleted, Purpose, SweepStep, Timer, TimersSet
from shared.usecases.archive import OBJECT_BYTES, archival
from shared.usecases.archives import logs as archive_logs
from shared.usecases.archives.byte_gate import ArchiveGates, ByteGate
from shared.usecases.archives.pauses import VersionPauses
from shared.usecases.archives.writer import ArchiveWriter
from shared.usecases.expire import DELETION
from shared.usecases.handler import Handler
from shared.usecases.timers import schedule
from tests.archives import CLUSTER, FakeArchive, FakeArchives, archiving, copied_of
from tests.builders import (
    JOB,
    NOW,
    POD,
    ago,
    annotated,
    ended,
    having,
    job,
    later,
    namespace,
    not_none,
    pod,
    shipped_kinds,
)
from tests.fakes import FakeClock, FakeCluster, FakePublisher, FakeTelemetry
from tests.sweeps import sweep_with

pytestmark = pytest.mark.anyio

KINDS = Catalogue((JOB, POD))
DONE = job(complete=ago(60), ttl=30)
FRESH = job(complete=ago(0), ttl=30)
UID = DONE["metadata"]["uid"]


class Bench:
    """The functions of one installation over fakes."""

    def __init__(self, policy=None, **settings):
        self.clock, self.telemetry, self.publisher = FakeClock(), FakeTelemetry(), FakePublisher()
        self.cluster = FakeCluster(self.clock)
        self.archive = FakeArchive(now=self.clock.now)
        self.archives = FakeArchives({"main": self.archive}, clock=self.clock.now)
        self.policy = policy or archiving()
        self.evaluator = Evaluator(self.cluster, KINDS, lambda: self.policy, archives=self.archives)
        self.expiry = Handler(
            DELETION, self.cluster, KINDS, self.evaluator, self.clock, self.telemetry, **{"dry_run": False} | settings
        )
        writer = ArchiveWriter(self.archives, Children(self.cluster, shipped_kinds()), PodLogs(self.cluster))
        self.archival = replace(self.expiry, by="archive")
        self.write_with(writer)

    def write(self, obj, number):
        """Another client writes a finished object."""
        self.cluster.write(obj["metadata"]["name"], value=f"{number}")

    def write_with(self, writer):
        """Store the objects by another writer."""
        self.writer, self.archival = writer, replace(self.archival, procedure=archival(writer))

    def limit(self, gate):
        """Bound the bytes of the objects by another gate."""
        self.write_with(replace(self.writer, gates=ArchiveGates(objects=gate)))

    def put(self, obj=DONE):
        return self.cluster.put(obj)

    def timer(self, obj, purpose=Purpose.ARCHIVE, **parts):
        metadata = obj["metadata"]
        ref = {"apiVersion": obj["apiVersion"], "kind": obj["kind"]}
        ref |= {name: metadata[name] for name in ("namespace", "name", "uid")}
        return Timer.model_validate({"ref": ref, "purpose": purpose, "dueAt": self.clock.now()} | parts)

    async def store(self, obj, **parts):
        return await self.archival.handle(self.timer(obj, **parts))

    async def expire(self, obj, **parts):
        return await self.expiry.handle(self.timer(obj, Purpose.EXPIRE, **parts))

    async def schedule(self, obj, **options):
        return await schedule(
            obj, catalogue=KINDS, clock=self.clock, telemetry=self.telemetry, policy=self.policy, **options
        )

    async def sweep(self):
        sweep = sweep_with(self.expiry, self.publisher, timedelta(minutes=10), concurrency=4)
        step: SweepStep | None = SweepStep()
        while step is not None:
            step = await sweep.sweep(step)
        return [timer for message in self.publisher.published for timer in getattr(message, "timers", ())]


@pytest.fixture
def bench():
    return Bench()


class TestArchive:
    async def test_finished_object_is_stored_and_its_deletion_waits_for_the_grace(self, bench):
        stored = bench.put()

        answer = await bench.store(stored)

        assert isinstance(answer, ObjectArchived)
        assert (answer.archive, answer.resource_version) == ("main", stored["metadata"]["resourceVersion"])
        assert (not_none(answer.timer).purpose, not_none(answer.timer).due_at) == (Purpose.EXPIRE, later(3600))
        assert bench.archive.objects() == [(await bench.cluster.get(JOB, answer.ref)).obj]
        assert bench.telemetry.archives == [answer]
        assert bench.archive.calls == {"find": 1, "folders": 1, "put": 1}

    async def test_record_says_when_and_why_the_object_is_due(self, bench):
        await bench.store(bench.put(annotated(DONE, ttl="2h")))

        ((data, _),) = bench.archive.documents.values()
        record = Document.parse(data).record
        assert (record.archived_at, record.finished_at, record.due_at) == (NOW, ago(60), ago(60) + timedelta(hours=2))
        assert (record.outcome, record.ttl_from, record.rule) == ("succeeded", "ttlafterfinished.dev/ttl", "one")

    async def test_timer_is_due_at_the_ttl_if_that_ends_after_the_grace(self, bench):
        assert not_none((await bench.store(bench.put(annotated(DONE, ttl="2h")))).timer).due_at == later(7140)

    async def test_object_without_a_ttl_is_archived_and_gets_no_timer(self, bench):
        assert (await bench.store(bench.put(job(complete=ago(60))))).timer is None

    async def test_object_is_stored_once_and_the_answer_is_repeated(self, bench):
        stored = bench.put()
        first = await bench.store(stored)
        before = dict(bench.archive.documents)
        bench.clock.advance(600)

        answer = await bench.store(stored)

        assert bench.archive.documents == before
        assert (answer.id, answer.digest, answer.archived_at) == (first.id, first.digest, first.archived_at)
        assert answer.timer == first.timer
        assert len(bench.telemetry.archives) == 1

    async def test_other_archiver_that_stored_it_first_sets_the_grace(self, bench):
        stored = bench.put()
        bench.archive.store((await bench.cluster.get(JOB, bench.timer(stored).ref)).obj, at=ago(600))

        assert not_none((await bench.store(stored)).timer).due_at == later(3000)

    async def test_damaged_document_is_stored_again(self, bench):
        stored = bench.put()
        await bench.store(stored)
        (path,) = bench.archive.documents
        bench.archive.documents[path] = (b"cut", NOW)
        bench.clock.advance(7200)

        (timer,) = (await bench.expire(stored)).timers
        assert timer.purpose == "archive"
        assert isinstance(await bench.archival.handle(timer), ObjectArchived)
        assert bench.archive.holds((await bench.cluster.get(JOB, bench.timer(stored).ref)).obj)

    async def test_damaged_document_is_replaced_and_never_removed(self, bench):
        """Another archiver may have replaced it since it was read."""
        stored = bench.put()
        await bench.store(stored)
        (path,) = bench.archive.documents
        bench.archive.documents[path] = (b"cut", NOW)

        assert isinstance(await bench.store(stored, attempts=1), ObjectArchived)

        assert bench.archive.calls["delete"] == 0
        assert bench.archive.holds((await bench.cluster.get(JOB, bench.timer(stored).ref)).obj)

    async def test_document_that_was_stored_without_its_children_is_stored_again_with_them(self):
        bench = Bench(archiving(archive={"to": "main", "children": False, "logs": True}))
        stored = bench.put()
        await bench.store(stored)
        pod_of = {"apiVersion": "batch/v1", "kind": "Job", "name": DONE["metadata"]["name"], "uid": UID}
        bench.put(having(pod(), "metadata.ownerReferences", [pod_of | {"controller": True}]))
        bench.policy = archiving()
        bench.clock.advance(3600)

        (timer,) = (await bench.expire(stored)).timers
        assert timer.purpose == "archive"
        answer = await bench.archival.handle(timer)

        assert isinstance(answer, ObjectArchived)
        assert (answer.children, answer.archived_at) == (1, bench.clock.now())
        again = not_none(await bench.cluster.get(JOB, answer.ref)).obj
        record = (await bench.archive.read(copied_of(again).key)).record
        assert (record.with_children, record.with_logs, len(record.children)) == (True, True, 1)

    async def test_object_whose_document_is_stored_in_the_future_is_kept_with_a_warning(self, bench):
        """Otherwise it would be due in the future, and nothing would say so."""
        stored = bench.put()
        bench.archive.now = lambda: later(10**9)

        with pytest.raises(PermanentError, match=r"archive main: .*correct the clock"):
            await bench.store(stored)
        (timer,) = (await bench.expire(stored)).timers

        assert timer.purpose == "archive"
        ((_, reason, message),) = bench.telemetry.events
        assert reason == "NotArchived"
        assert "until archive main has acknowledged this version of it: archive main: " in message
        assert bench.cluster.deleted == []

    @pytest.mark.parametrize("before", [UNSIGNED, SigningKeys.parse("b" * 32)], ids=["first key", "another key"])
    async def test_first_signed_document_names_the_children_and_logs_that_are_gone(self, before):
        """The Pod of the Job is gone, but its files are still in the archive."""
        bench = Bench(archiving(archive={"to": "main", "logs": True, "grace": "1h"}))
        bench.archive.keys = before
        bench.put(logging("a", UID, "the log\n"))
        stored = bench.put()
        await bench.store(stored)
        key = copied_of(stored).key
        unsigned = (await bench.archive.read(key)).record
        bench.cluster.remove("a")
        bench.archive.keys = SigningKeys.parse("a" * 32)
        bench.clock.advance(7200)

        (timer,) = (await bench.expire(stored)).timers
        answer = await bench.archival.handle(timer)

        assert isinstance(answer, ObjectArchived)
        assert not_none(answer.timer).due_at == later(7200 + 3600)  # the grace counts from the signed document
        record = (await bench.archive.read(key)).record
        assert (len(record.children), len(record.logs)) == (1, 1)
        assert (record.children, record.logs) == (unsigned.children, unsigned.logs)
        with pytest.raises(UnsignedDocumentError):  # to read the child, a command needs no key, or the old one
            await bench.archive.read(parse_key(record.children[0]))
        bench.clock.at = not_none(answer.timer).due_at
        assert isinstance(await bench.expire(stored), ObjectDeleted)

    async def test_document_of_another_writer_acknowledges_nothing_when_it_is_replaced(self, bench):
        """It claims an early time, a child of another namespace, and that all children were stored."""
        bench.policy = archiving(archive={"to": "main", "grace": "1h", "children": False})
        bench.archive.keys = SigningKeys.parse("a" * 32)
        stored, copied = bench.put(), copied_of(DONE)
        foreign = copied_of(having(child("a", UID), "metadata.namespace", "other"), POD).key.path
        claims = {"with_children": True, "with_logs": True, "cluster_id": CLUSTER.id}
        forged = Record(archived_at=ago(7200), children=("nonsense", foreign), logs=("../x",), **claims)
        copied = copied_of(stored)
        bench.archive.documents[copied.key.path] = Document(forged, copied.text).to_bytes(), ago(7200)

        answer = await bench.store(stored, attempts=1)

        assert (answer.archived_at, not_none(answer.timer).due_at) == (NOW, later(3600))
        record = (await bench.archive.read(copied.key)).record
        assert (record.children, record.logs) == ((), ())
        assert (record.with_children, record.with_logs) == (False, False)

    async def test_grace_counts_from_our_clock_if_those_of_the_server_and_of_the_archive_are_behind(self, bench):
        stored, present = bench.put(), later(7200)
        bench.archives.clock = lambda: present

        answer = await bench.store(stored)

        assert (answer.archived_at, not_none(answer.timer).due_at) == (present, later(7200 + 3600))
        bench.clock.at = later(7200 + 300)  # the clocks were corrected
        assert isinstance(await bench.expire(stored), TimersSet)
        assert bench.cluster.deleted == []

    async def test_clock_of_an_archive_that_is_ahead_is_waited_for_without_a_new_document(self, bench):
        bench.put(child("a", UID))
        stored = bench.put()
        bench.archive.now = lambda: bench.clock.now() + timedelta(minutes=20)

        for _ in range(4):  # the first attempt stores the child, the second one the object
            with pytest.raises(PermanentError, match="correct the clock"):
                await bench.store(stored, attempts=1)
            bench.clock.advance(300)

        answer = await bench.store(stored, attempts=1)
        assert (answer.archived_at, bench.archive.calls["put"]) == (later(1500), 2)

    async def test_document_that_was_stored_in_the_future_is_stored_again_with_its_children(self, bench):
        """The clock of the archive was corrected since: the grace counts from now."""
        stored = bench.put()
        bench.put(child("a", UID))
        await bench.store(stored)
        bench.archive.documents = {path: (one, later(10**9)) for path, (one, _) in bench.archive.documents.items()}
        bench.clock.advance(7200)

        (timer,) = (await bench.expire(stored)).timers
        answer = await bench.archival.handle(timer)

        assert (answer.children, answer.archived_at) == (1, bench.clock.now())
        assert not_none(answer.timer).due_at == later(7200 + 3600)
        assert {at for _, at in bench.archive.documents.values()} == {bench.clock.now()}

    @pytest.mark.parametrize(
        ("obj", "reason"),
        [
            (job(), "unfinished"),
            (annotated(DONE, hold="why"), "held"),
            (annotated(DONE, archive="false"), "no-archive"),
        ],
    )
    async def test_object_that_has_not_to_be_archived_is_left_alone(self, bench, obj, reason):
        answer = await bench.store(bench.put(obj))

        assert bench.archive.documents == {}
        assert bench.telemetry.verdicts() == [("kept", reason)]
        assert [one.purpose for one in answer.timers] == ["expire"] if reason == "no-archive" else answer is None

    async def test_annotation_that_cannot_be_read_is_left_to_expire_which_reports_it(self, bench):
        stored = bench.put(annotated(DONE, archive="nowhere"))

        (timer,) = (await bench.store(stored)).timers
        assert await bench.expiry.handle(timer) is None

        assert bench.archive.documents == {}
        ((_, reason, message),) = bench.telemetry.events
        assert (reason, message.partition(":")[0]) == ("InvalidArchive", "kept")

    async def test_object_that_is_gone_needs_nothing(self, bench):
        assert await bench.store(DONE) is None
        assert bench.telemetry.verdicts() == [("already-gone", "")]

    async def test_dry_run_repairs_nothing_and_has_nothing_archived(self, bench):
        stored = bench.put()
        await bench.store(stored)
        calls = dict(bench.archive.calls)
        bench.archival = replace(bench.archival, dry_run=True)

        await bench.store(stored, attempts=2)
        assert bench.archive.calls == calls

        bench.expiry = replace(bench.expiry, dry_run=True)
        bench.write(stored, 1)
        bench.clock.advance(86_400)
        assert await bench.expire(stored) is None

    async def test_wait_for_memory_is_not_part_of_the_attempt(self, bench):
        gate = ByteGate(OBJECT_BYTES)
        bench.limit(gate)
        bench.archival = replace(bench.archival, procedure=replace(bench.archival.procedure, attempt_seconds=0.05))
        async with gate.hold(OBJECT_BYTES, "other"):
            storing = asyncio.create_task(bench.store(bench.put()))
            await asyncio.sleep(0.1)
            assert bench.archive.calls == {}

        assert isinstance(await storing, ObjectArchived)

    async def test_dry_run_stores_nothing(self):
        bench = Bench(dry_run=True)

        assert await bench.store(bench.put()) is None
        assert bench.archive.documents == {}
        assert bench.telemetry.verdicts() == [("would-archive", "not-archived")]

    async def test_archive_that_is_away_is_tried_again_with_a_growing_pause(self, bench):
        stored, pauses = bench.put(), []
        bench.archive.failures["put"] = TryLaterError("disk is full")
        attempts = 0
        for _ in range(6):
            (timer,) = (await bench.store(stored, attempts=attempts)).timers
            assert timer.purpose == "archive"
            pauses.append(timer.due_at - bench.clock.now())
            attempts = timer.attempts

        assert pauses == sorted(pauses)
        assert pauses[-1] > pauses[0]
        assert bench.telemetry.unarchived[-1] == (DONE["metadata"]["name"], "main", True)

    async def test_archive_that_is_away_is_asked_once_for_many_objects(self, bench):
        bench.archive.failure = TryLaterError("down", outage="down")
        objects = [bench.put(job(complete=ago(60), ttl=30, name=f"n{n}", uid=f"u{n}")) for n in range(30)]

        answers = [await bench.store(one) for one in objects]

        assert {timer.purpose for answer in answers for timer in answer.timers} == {"archive"}
        assert bench.archive.calls == {"find": 1}

    async def test_archive_that_hangs_is_tried_again(self, bench):
        bench.archival = replace(bench.archival, procedure=replace(bench.archival.procedure, attempt_seconds=0.05))

        async def hang(name):
            await asyncio.sleep(60 if name == "put" else 0)

        bench.archive.before = hang

        assert [one.purpose for one in (await bench.store(bench.put())).timers] == ["archive"]

    @pytest.mark.parametrize("error", [ForbiddenError("no right"), PermanentError("no such bucket")])
    async def test_archive_that_refuses_is_a_dead_letter_and_a_failure(self, bench, error):
        bench.archive.failures["put"] = error

        with pytest.raises(type(error)):
            await bench.store(bench.put())

        assert bench.telemetry.verdicts() == [("failed", type(error).__name__)]
        assert bench.telemetry.events == []

    async def test_object_that_a_client_keeps_writing_is_stored_a_few_times(self, bench):
        """A hundred writes in twenty seconds: each has an event, and each event a timer."""
        stored = bench.put(FRESH)
        for number in range(100):
            await bench.store(stored)
            bench.clock.advance(0.2)
            bench.write(stored, number)

        assert len(bench.archive.documents) == 4  # after 0, 2, 6 and 14 seconds
        assert bench.telemetry.verdicts()[-1] == ("timer-set", "archived-often")

    async def test_version_in_its_pause_has_a_timer_that_stores_the_version_of_that_time(self, bench):
        stored = bench.put(FRESH)
        await bench.store(stored)
        bench.write(stored, 1)

        (timer,) = (await bench.store(stored)).timers
        assert (timer.purpose, timer.due_at) == (Purpose.ARCHIVE, later(2))

        bench.write(stored, 2)
        bench.clock.advance(2)
        answer = await bench.archival.handle(timer)
        assert answer.resource_version == (await bench.cluster.get(JOB, timer.ref)).obj["metadata"]["resourceVersion"]
        assert len(bench.archive.documents) == 2

    async def test_event_says_that_an_object_is_written_often(self, bench):
        stored = bench.put(FRESH)
        for number in range(9):
            await bench.store(stored)
            bench.write(stored, number)
            await bench.store(stored)
            bench.clock.advance(3600)

        messages = {message for _, reason, message in bench.telemetry.events if reason == "ArchivedOften"}
        assert len(messages) == 2
        assert all("versions of the object" in one for one in messages)

    async def test_attempt_while_the_archive_is_known_to_be_away_is_not_counted(self, bench):
        bench.archive.failures["find"] = TryLaterError("away", outage="away")
        stored = bench.put(FRESH)
        for number in range(20):
            await bench.store(stored)
            bench.write(stored, number)
        del bench.archive.failures["find"]
        bench.evaluator.archive_check._away.clear()

        assert isinstance(await bench.store(stored), ObjectArchived)

    async def test_timer_engine_that_is_ahead_fires_a_paused_version_twice_and_not_in_a_loop(self, bench):
        stored = bench.put(FRESH)
        await bench.store(stored)
        bench.write(stored, 1)
        ahead = timedelta(seconds=100)

        (timer,) = (await bench.store(stored)).timers
        bench.clock.advance(0.01)
        (timer,) = (await bench.archival.handle(timer)).timers  # the engine's clock has reached it at once

        assert timer.due_at >= later(2)
        (timer,) = (await bench.store(stored, dueAt=bench.clock.now() + ahead)).timers
        assert timer.due_at == later(2) + ahead

    async def test_version_that_another_process_has_stored_is_not_paused(self, bench):
        stored = bench.put(FRESH)
        await bench.store(stored)
        bench.write(stored, 1)
        elsewhere = replace(bench.archival, procedure=archival(replace(bench.writer, pauses=VersionPauses())))
        await elsewhere.handle(bench.timer(stored))

        assert isinstance(await bench.store(stored, attempts=1), ObjectArchived)

    async def test_attempts_that_fail_count_since_they_may_have_stored_children_and_logs(self, bench):
        bench.archive.failures["put"] = TryLaterError("full")
        stored = bench.put(FRESH)
        await bench.store(stored)
        bench.write(stored, 1)
        del bench.archive.failures["put"]

        assert [one.due_at for one in (await bench.store(stored)).timers] == [later(2)]

    async def test_bytes_in_flight_are_bounded(self, bench):
        gate = ByteGate(3 * OBJECT_BYTES)
        bench.limit(gate)
        large, storing, most = "x" * (OBJECT_BYTES // 3), 0, 0

        async def count(name):
            nonlocal storing, most
            assert gate.in_flight <= gate.bytes_max
            storing += name == "put"
            most = max(most, storing)
            await asyncio.sleep(0.001)
            storing -= name == "put"

        bench.archive.before = count
        objects = [job(complete=ago(60), ttl=30, name=f"n{n}", uid=f"u{n}", namespace=f"ns{n}") for n in range(20)]
        objects = [bench.put(having(one, "metadata.annotations.large", large)) for one in objects]

        await asyncio.gather(*map(bench.store, objects))

        assert len(bench.archive.documents) == 20
        assert most > 1
        assert gate.in_flight == 0

    async def test_objects_of_one_namespace_leave_room_for_those_of_others(self, bench):
        """Also if each of them is as large as an object can be, and its attempt takes as long as it may."""
        bench.limit(ByteGate(4 * OBJECT_BYTES))
        may_end, put = asyncio.Event(), bench.archive.put

        async def hang(key, *args, **options):
            await (may_end.wait() if key.namespace == "red" else asyncio.sleep(0))
            return await put(key, *args, **options)

        bench.archive.put = hang
        done = [job(complete=ago(60), ttl=30, name=f"n{n}", uid=f"u{n}", namespace="red") for n in range(20)]
        red = [bench.put(having(one, "metadata.annotations.large", "x" * OBJECT_BYTES)) for one in done]
        greedy = [asyncio.ensure_future(bench.store(one)) for one in red]
        await asyncio.sleep(0)

        blue = await bench.store(bench.put(job(complete=ago(60), ttl=30, name="n", uid="u", namespace="blue")))

        assert isinstance(blue, ObjectArchived)
        may_end.set()
        assert all(isinstance(one, ObjectArchived) for one in await asyncio.gather(*greedy))


def child(name, owner, obj=None):
    obj = obj or pod(containers=(ended(at=ago(61)),), name=name, uid=name)
    owners = [{"apiVersion": "v1", "kind": "X", "name": "x", "uid": owner, "controller": True}]
    return having(obj, "metadata.ownerReferences", owners)


class TestChildren:
    async def test_children_are_stored_before_the_object_with_its_uid(self, bench):
        bench.put(child("a", UID))
        bench.put(child("b", "another"))
        bench.put(pod(name="c", uid="c"))

        answer = await bench.store(bench.put())

        assert answer.children == 1
        documents = [Document.parse(data) for data, _ in bench.archive.documents.values()]
        assert [one.obj["metadata"]["name"] for one in documents] == ["a", DONE["metadata"]["name"]]
        assert documents[0].record.parent == UID
        assert documents[1].record.children == tuple(bench.archive.documents)[:1]

    async def test_many_children_are_listed_by_pages(self, bench):
        bench.cluster.page_size = 7
        for number in range(40):
            bench.put(child(f"pod-{number:02}", UID))

        answer = await bench.store(bench.put())

        assert answer.children == 40
        assert len(bench.archive.documents) == 41
        assert bench.cluster.counted()["get"] == 1

    async def test_child_of_a_child_is_stored(self):
        bench = Bench(archiving(match={"kinds": ["trainjobs.trainer.kubeflow.org"]}))
        finder, kinds = Children(bench.cluster, shipped_kinds()), shipped_kinds()
        rule = kinds.get("trainer.kubeflow.org/v1alpha1", "TrainJob")
        root: dict[str, Any] = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob"}
        root["metadata"] = {"name": "t", "namespace": "ci", "uid": "root"}
        jobset: dict[str, Any] = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet"}
        jobset["metadata"] = {"name": "s", "namespace": "ci", "uid": "set", "resourceVersion": "1"}
        bench.put(child("s", "root", jobset))
        bench.put(child("j", "set", job(name="j", uid="j")))
        bench.put(child("p", "j"))
        bench.put(child("q", "elsewhere"))

        pages = [page async for page in finder.find(ref_of(root), not_none(rule))]
        names = [one.obj["metadata"]["name"] for page in pages for one in page.children]

        assert names == ["s", "j", "p"]

    async def test_rule_without_children_stores_the_object_alone(self):
        bench = Bench(archiving(archive={"to": "main", "children": False}))
        bench.put(child("a", UID))

        assert (await bench.store(bench.put())).children == 0
        assert bench.cluster.counted()["list-metadata"] == 0

    async def test_child_that_cannot_be_stored_keeps_the_object_from_being_stored(self, bench):
        bench.put(child("a", UID))
        bench.archive.failures["put"] = TryLaterError("full")

        assert isinstance(await bench.store(bench.put()), TimersSet)
        assert bench.archive.documents == {}

    async def test_kind_of_children_that_may_not_be_listed_is_reported(self, bench):
        bench.cluster.fail("list-metadata", ForbiddenError("pods is forbidden"))

        with pytest.raises(ForbiddenError):
            await bench.store(bench.put())

        assert bench.archive.documents == {}

    async def test_too_many_children_are_an_error_that_says_what_to_do(self, bench):
        bench.writer.children.children_max = 2
        for name in "abc":
            bench.put(child(name, UID))

        with pytest.raises(PermanentError, match=r"has more than 2 children: .* set `children: false`"):
            await bench.store(bench.put())

    async def test_callers_at_the_same_time_share_one_list(self, bench, monkeypatch):
        list_page = bench.cluster.list_page

        async def slow(*args, **options):
            await asyncio.sleep(0.01)
            return await list_page(*args, **options)

        monkeypatch.setattr(bench.cluster, "list_page", slow)
        objects = [bench.put(job(complete=ago(60), ttl=30, name=f"n{n}", uid=f"u{n}")) for n in range(10)]
        for number in range(10):
            bench.put(child(f"p{number}", f"u{number}"))

        answers = await asyncio.gather(*map(bench.store, objects))

        assert [one.children for one in answers] == [1] * 10
        assert bench.cluster.counted()["list-metadata"] <= 3


def logging(name, owner, log):
    """A Pod whose container has a log."""
    obj = child(name, owner)
    return having(obj, "metadata.annotations", {f"{LOG_ANNOTATION}main": log})


class TestLogs:
    POLICY = archiving(archive={"to": "main", "logs": True})

    async def test_logs_of_the_containers_of_children_are_stored(self):
        bench = Bench(self.POLICY)
        bench.put(logging("a", UID, "line\n" * 1000))

        answer = await bench.store(bench.put())

        assert answer.logs == 1
        assert list(bench.archive.logs.values()) == [b"line\n" * 1000]
        records = [Document.parse(data).record for data, _ in bench.archive.documents.values()]
        assert [one.logs for one in records] == [tuple(bench.archive.logs)] * 2

    async def test_long_log_is_cut_and_the_record_says_so(self):
        bench = Bench(self.POLICY)
        bench.write_with(replace(bench.writer, pod_logs=PodLogs(bench.cluster, bytes_max=100)))
        bench.put(logging("a", UID, "x" * 101))

        await bench.store(bench.put())

        assert list(bench.archive.logs.values()) == [b"x" * 100]
        (data, _) = list(bench.archive.documents.values())[-1]
        assert Document.parse(data).record.log_problems["a/main"].startswith("cut: ")

    async def test_log_of_a_node_that_is_away_delays_the_object_and_then_is_missing(self):
        bench = Bench(self.POLICY)
        bench.put(child("a", UID))
        bench.cluster.fail("log", UnreachableLogError("node is gone"))
        stored = bench.put()

        for late, attempts in ((0, 4), (0, 5), (0, 1_000), (600, 4)):  # the number of attempts may be forged
            bench.clock.at = NOW + timedelta(seconds=late)
            assert isinstance(await bench.store(stored, attempts=attempts), TimersSet)
        answer = await bench.store(stored, attempts=5)

        assert isinstance(answer, ObjectArchived)
        (data, _) = list(bench.archive.documents.values())[-1]
        assert Document.parse(data).record.log_problems == {"a/main": "unreachable: node is gone"}

    async def test_last_attempt_asks_several_times_for_a_log(self, monkeypatch):
        """The attempts before may have failed by an outage of the archive, or be forged."""
        bench, pauses = Bench(self.POLICY), list[float]()
        bench.put(logging("a", UID, "line"))
        bench.cluster.fail("log", UnreachableLogError("starting"))
        bench.clock.advance(600)

        async def sleep(seconds):
            pauses.append(seconds)
            if len(pauses) == len(archive_logs.LAST_PAUSES):
                bench.cluster._failures.clear()

        monkeypatch.setattr("shared.usecases.archives.logs.sleep", sleep)

        answer = await bench.store(bench.put(), attempts=30)

        assert isinstance(answer, ObjectArchived)
        assert list(bench.archive.logs.values()) == [b"line"]
        assert pauses == list(archive_logs.LAST_PAUSES)

    async def test_object_that_was_stored_as_a_child_without_its_logs_is_stored_with_them(self):
        rules = [
            {"name": "jobs", "match": {"kinds": ["jobs"]}, "archive": {"to": "main"}},
            {"name": "pods", "match": {"kinds": ["pods"]}, "ttl": "1d", "archive": {"to": "main", "logs": True}},
        ]
        archives = {"main": {"url": "file:///archive"}}
        bench = Bench(Policy.model_validate({"archives": archives, "rules": rules}).of_kinds(shipped_kinds()))
        one = bench.put(logging("a", UID, "line"))
        await bench.store(bench.put())
        assert bench.archive.logs == {}

        assert isinstance(await bench.store(one), ObjectArchived)

        assert list(bench.archive.logs.values()) == [b"line"]

    async def test_logs_are_not_read_without_being_asked_for(self, bench):
        bench.put(logging("a", UID, "line"))

        await bench.store(bench.put())

        assert bench.archive.logs == {}


class TestExpire:
    async def test_read_back_for_another_wish_lets_nothing_be_deleted(self, bench):
        """The namespace is opted in to another archive while the document is read."""
        bench.policy = archiving(archives={"main": {"url": "file:///a"}, "second": {"url": "file:///b"}})
        bench.archives.by_name["second"] = second = FakeArchive("second", now=bench.clock.now)
        stored = bench.put()
        await bench.store(stored)
        second.store(not_none(await bench.cluster.get(JOB, bench.timer(stored).ref)).obj)
        second.documents = dict.fromkeys(second.documents, (b"cut", NOW))
        bench.clock.advance(7200)

        async def opt_in(name):
            if name == "read":
                bench.cluster.put(namespace(archive="second"))
                bench.evaluator.namespaces._known.clear()

        bench.archive.before = opt_in
        await bench.expire(stored)

        assert bench.cluster.deleted == []

    async def test_object_that_is_not_archived_is_kept_and_archived_first(self, bench):
        stored = bench.put()

        answer = await bench.expire(stored)

        assert [(one.purpose, one.due_at) for one in answer.timers] == [("archive", NOW)]
        assert bench.telemetry.verdicts() == [("kept", "not-archived")]
        assert bench.cluster.deleted == []

    async def test_archived_object_is_deleted_after_the_grace(self, bench):
        stored = bench.put()
        archived = await bench.store(stored)
        assert isinstance(await bench.expire(stored), TimersSet)
        bench.clock.at = archived.timer.due_at

        deleted = await bench.expire(stored)

        assert isinstance(deleted, ObjectDeleted)
        assert deleted.due_at == later(3600)

    async def test_object_that_changed_since_is_archived_again(self, bench):
        stored = bench.put()
        await bench.store(stored)
        bench.cluster.write(DONE["metadata"]["name"])
        bench.clock.advance(7200)

        answer = await bench.expire(stored)
        assert [one.purpose for one in answer.timers] == ["archive"]
        again = await bench.store(stored)

        assert again.timer.due_at == later(7200 + 3600)
        assert len(bench.archive.documents) == 2

    async def test_timers_of_expire_and_archive_slow_down(self, bench):
        stored = bench.put()
        (first,) = (await bench.expire(stored)).timers
        (second,) = (await bench.expire(stored, attempts=first.attempts)).timers

        assert (first.due_at, first.attempts, second.attempts) == (NOW, 1, 2)
        assert second.due_at > NOW

    @pytest.mark.parametrize("due_for", [10, 70])
    async def test_event_is_written_once_the_object_is_overdue(self, bench, due_for):
        stored = bench.put(job(complete=ago(due_for), ttl=0))

        await bench.expire(stored)

        assert [reason for _, reason, _ in bench.telemetry.events] == (["NotArchived"] if due_for > 60 else [])
        assert "Warning" not in bench.telemetry.levels.values()  # no operator has to act on it

    async def test_event_names_the_problem_of_the_archive(self, bench):
        bench.archive.failure = TryLaterError("no route to host")

        await bench.expire(bench.put())

        ((_, reason, message),) = bench.telemetry.events
        assert reason == "NotArchived"
        assert message.endswith("acknowledged this version of it: archive main: no route to host")
        assert list(bench.telemetry.levels.values()) == ["Warning"]

    async def test_deletion_of_an_unarchived_object_counts_for_no_safeguard(self, bench):
        await bench.expire(bench.put())

        assert bench.cluster.counted()["delete"] == 0


class TestSchedule:
    async def test_finished_object_gets_a_timer_of_the_archive(self, bench):
        (timer,) = (await bench.schedule(DONE)).timers

        assert (timer.purpose, timer.due_at) == ("archive", NOW)

    async def test_object_without_a_ttl_is_archived_too(self, bench):
        assert [one.purpose for one in (await bench.schedule(job(complete=ago(60)))).timers] == ["archive"]

    async def test_object_that_opts_out_gets_the_timer_of_its_deletion(self, bench):
        answer = await bench.schedule(annotated(DONE, archive="false"))

        assert [one.purpose for one in answer.timers] == ["expire"]

    async def test_running_object_gets_none(self, bench):
        assert await bench.schedule(job(ttl=30)) is None

    async def test_object_of_another_kind_is_read_if_its_namespace_may_want_an_archive(self, bench):
        obj = pod(containers=(ended(at=ago(60)),))

        assert [one.purpose for one in (await bench.schedule(obj)).timers] == ["archive"]


class TestSweep:
    async def test_sweep_sets_timers_for_what_is_not_archived(self, bench):
        bench.put()
        bench.put(job(complete=ago(60), name="no-ttl", uid="no-ttl"))
        bench.put(job(complete=ago(60), ttl=10**6, name="not-due", uid="not-due"))
        bench.put(job(ttl=30, name="running", uid="running"))

        timers = await bench.sweep()

        assert {(one.purpose, one.ref.name) for one in timers} == {
            ("archive", name) for name in (DONE["metadata"]["name"], "no-ttl", "not-due")
        }

    async def test_sweep_deletes_what_is_archived_and_due(self, bench):
        stored = bench.put()
        await bench.store(stored)
        bench.clock.advance(7200)

        await bench.sweep()

        assert bench.cluster.names == set()

    async def test_sweep_asks_the_archive_for_each_object_once(self, bench):
        objects = [bench.put(job(complete=ago(60), ttl=10**6, name=f"n{n}", uid=f"u{n}")) for n in range(20)]
        for one in objects:
            await bench.store(one)
        bench.archive.calls.clear()

        await bench.sweep()
        await bench.sweep()

        assert bench.archive.calls == {}

    async def test_sweep_does_not_hang_on_an_archive_that_is_away(self, bench):
        for number in range(100):
            bench.put(job(complete=ago(60), ttl=30, name=f"n{number}", uid=f"u{number}"))
        bench.archive.failure = TryLaterError("down", outage="down")

        timers = await bench.sweep()

        assert len(timers) == 100
        assert bench.cluster.deleted == []
        assert bench.archive.calls["find"] <= 4


async def test_namespace_opts_out(bench):
    bench.cluster.put(namespace(archive="false"))

    answer = await bench.store(bench.put())

    assert [(one.purpose, one.due_at) for one in answer.timers] == [("expire", ago(30))]


async def test_cluster_name_is_a_part_of_the_key(bench):
    await bench.store(bench.put())

    assert [path.split("/")[1] for path in bench.archive.documents] == [CLUSTER.part]
    assert copied_of(DONE).key.cluster == CLUSTER.part
