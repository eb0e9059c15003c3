"""How many children and logs an archiving has in memory, and what its next attempt keeps of them."""

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from shared.core.archive.archiving import Archiving
from shared.core.archive.document import Document, Record
from shared.core.policy.archives import ArchiveDestination
from shared.devserver.apiserver.pod_logs import LOG_ANNOTATION
from shared.errors import TryLaterError
from shared.evaluation.children import Children
from shared.evaluation.pod_logs import PodLogs
from shared.ports import Snapshot
from shared.usecases.archives.byte_gate import ArchiveGates, ByteGate
from shared.usecases.archives.logs import LOG_HELD_BYTES
from shared.usecases.archives.writer import CHILDREN_AT_ONCE, ArchiveOrder, ArchiveWriter
from tests.archives import FakeArchive, FakeArchives
from tests.builders import JOB, NOW, ago, having, job, shipped_kinds, stamp
from tests.fakes import FakeCluster

pytestmark = pytest.mark.anyio

CHILD_BYTES = 10_000


@dataclass
class SlowArchive(FakeArchive):
    """Counts what is stored at the same time."""

    running: dict[str, int] = field(default_factory=dict)
    most: dict[str, int] = field(default_factory=dict)

    async def _call(self, name):
        self.running[name] = self.running.get(name, 0) + 1
        self.most[name] = max(self.most.get(name, 0), self.running[name])
        try:
            await asyncio.sleep(0.001)
            await super()._call(name)
        finally:
            self.running[name] -= 1


class Bench:
    def __init__(self, *, children_bytes, logs_bytes=LOG_HELD_BYTES):
        self.cluster, self.archive = FakeCluster(), SlowArchive()
        self.gates = ArchiveGates(children=ByteGate(children_bytes), logs=ByteGate(logs_bytes))
        self.writer = ArchiveWriter(
            FakeArchives({"main": self.archive}),
            Children(self.cluster, shipped_kinds()),
            PodLogs(self.cluster),
            self.gates,
        )

    def job(self, name, pods, namespace="team-a"):
        """A finished Job with Pods of CHILD_BYTES or a little more."""
        done = self.cluster.put(job(name=name, uid=f"uid-{name}", complete=ago(60), namespace=namespace))
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": done["metadata"]["uid"]}
        for number in range(pods):
            metadata = {
                "name": f"{name}-{number:02}",
                "namespace": done["metadata"]["namespace"],
                "uid": f"uid-{name}-{number}",
                "resourceVersion": "1",
                "creationTimestamp": stamp(ago(90)),
                "ownerReferences": [owner],
                "annotations": {f"{LOG_ANNOTATION}main": "x" * CHILD_BYTES},
            }
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "status": {"phase": "Succeeded"}}
            self.cluster.put(pod | {"spec": {"containers": [{"name": "main"}]}})
        return done

    async def write(self, done, *, logs=False, may_be_stored=False, keep=None):
        archiving = Archiving(to="main", source="rule", logs=logs, children=True)
        destination = DESTINATION if keep is None else ArchiveDestination(url="file:///archive", keep=keep)
        order = ArchiveOrder(archiving, destination, Record(archived_at=NOW), may_be_stored=may_be_stored)
        return await self.writer.write(Snapshot(done, NOW), JOB, order)


DESTINATION = ArchiveDestination.model_validate({"url": "file:///archive"})


async def test_children_of_several_objects_share_the_bytes():
    bench = Bench(children_bytes=3 * CHILD_BYTES)
    jobs = [bench.job(f"job-{number}", pods=12) for number in range(4)]

    written = await asyncio.gather(*(bench.write(one) for one in jobs))

    assert [one.children for one in written] == [12] * 4
    assert bench.archive.most["put"] <= 2 + len(jobs)  # two children, and the Jobs
    assert bench.gates.children.in_flight == 0


async def test_children_of_one_object_are_stored_some_at_a_time():
    bench = Bench(children_bytes=1_000 * CHILD_BYTES)

    await bench.write(bench.job("build", pods=40))

    assert 1 < bench.archive.most["put"] <= CHILDREN_AT_ONCE


async def test_child_that_is_larger_than_the_gate_is_stored_alone():
    bench = Bench(children_bytes=10)

    assert (await bench.write(bench.job("build", pods=5))).children == 5
    assert bench.archive.most["put"] == 1


async def test_logs_of_several_objects_share_the_bytes():
    bench = Bench(children_bytes=1_000 * CHILD_BYTES, logs_bytes=4 * LOG_HELD_BYTES)
    jobs = [bench.job(f"job-{number}", pods=6) for number in range(4)]

    written = await asyncio.gather(*(bench.write(one, logs=True) for one in jobs))

    assert [one.logs for one in written] == [6] * 4
    assert bench.archive.most["put_log"] == 2  # a namespace gets half
    assert bench.gates.logs.in_flight == 0


@pytest.mark.parametrize("call", ["put", "put_log"])
async def test_owners_in_one_namespace_leave_bytes_to_those_in_others(call):
    bench = Bench(children_bytes=16 * CHILD_BYTES, logs_bytes=4 * LOG_HELD_BYTES)
    may_end = asyncio.Event()
    put, put_log = bench.archive.put, bench.archive.put_log

    async def hang(path, *args, **options):
        if "/red/" in getattr(path, "path", path):
            await may_end.wait()
        return await (put if call == "put" else put_log)(path, *args, **options)

    setattr(bench.archive, call, hang)
    greedy = [asyncio.ensure_future(bench.write(bench.job(f"red-{n}", 9, "red"), logs=True)) for n in range(9)]
    gate = bench.gates.children if call == "put" else bench.gates.logs
    await asyncio.sleep(1)
    assert gate.in_flight

    written = await bench.write(bench.job("one", 3, "blue"), logs=True)

    assert (written.children, written.logs) == (3, 3)
    may_end.set()
    assert sum(one.children for one in await asyncio.gather(*greedy)) == 81
    assert gate.in_flight == 0


@pytest.mark.parametrize("call", ["put", "put_log"])
async def test_failure_and_cancellation_give_the_bytes_back(call):
    bench = Bench(children_bytes=2 * CHILD_BYTES)
    jobs = [bench.job(f"job-{number}", pods=6) for number in range(3)]
    bench.archive.failures[call] = TryLaterError("full")
    with pytest.raises(TryLaterError):
        await bench.write(jobs[0], logs=True)
    del bench.archive.failures[call]

    cut_off = asyncio.ensure_future(bench.write(jobs[1], logs=True))
    await asyncio.sleep(0.005)
    cut_off.cancel()
    await asyncio.gather(cut_off, return_exceptions=True)
    await asyncio.sleep(0)

    assert (bench.gates.children.in_flight, bench.gates.logs.in_flight) == (0, 0)
    assert (await bench.write(jobs[2], logs=True)).children == 6


# An attempt after one that failed


async def failed_at_the_object(bench, done, *, logs):
    """An attempt that stored the children, and not the object; its calls are forgotten."""
    put = bench.archive.put

    async def refuse(key, document, **options):
        if key.kind == "Job":
            raise TryLaterError("full")
        return await put(key, document, **options)

    bench.archive.put = refuse
    with pytest.raises(TryLaterError):
        await bench.write(done, logs=logs)
    bench.archive.put = put
    bench.archive.calls.clear()


async def test_next_attempt_keeps_the_children_and_logs_that_are_stored():
    """So an object with more children than one attempt can store is archived by several."""
    bench = Bench(children_bytes=1_000 * CHILD_BYTES)
    done = bench.job("build", pods=6)
    await failed_at_the_object(bench, done, logs=True)

    written = await bench.write(done, logs=True, may_be_stored=True)

    assert (written.children, written.logs) == (6, 6)
    assert (bench.archive.calls["put"], bench.archive.calls["put_log"]) == (1, 0)
    assert len(bench.archive.documents) == 7


async def test_next_attempt_stores_the_logs_that_were_not_wanted_before():
    bench = Bench(children_bytes=1_000 * CHILD_BYTES)
    done = bench.job("build", pods=3)
    await failed_at_the_object(bench, done, logs=False)

    assert (await bench.write(done, logs=True, may_be_stored=True)).logs == 3
    assert bench.archive.calls["put_log"] == 3


async def test_child_that_was_archived_for_itself_keeps_its_own_record():
    """Its children may be gone, and its rule is known only there."""
    bench = Bench(children_bytes=1_000 * CHILD_BYTES)
    done = bench.job("build", pods=1)
    await bench.write(done)
    (pod_path,) = [path for path in bench.archive.documents if "/Pod.v1/" in path]
    document = Document.parse(bench.archive.documents[pod_path][0])
    children = (f"{pod_path.rpartition('/')[0].replace('Pod.v1', 'Event.v1')}/u.1.{'a' * 64}.json.zst",)
    own = Record(archived_at=NOW, rule="pods", due_at=NOW, ttl_from="pods", with_children=True, children=children)
    bench.archive.documents[pod_path] = Document(own, document.text).to_bytes(), NOW

    await bench.write(having(done, "metadata.resourceVersion", "2"), logs=True)

    record = Document.parse(bench.archive.documents[pod_path][0]).record
    assert (record.rule, record.due_at, record.children, record.with_children) == ("pods", NOW, children, True)
    assert (record.with_logs, len(record.logs), record.parent) == (True, 1, "")


async def test_damaged_child_is_stored_again_with_a_new_version_of_its_owner():
    bench = Bench(children_bytes=1_000 * CHILD_BYTES)
    done = bench.job("build", pods=2)
    await bench.write(done)
    (path, _) = [path for path in bench.archive.documents if "/Pod.v1/" in path]
    bench.archive.documents[path] = b"cut", NOW

    await bench.write(having(done, "metadata.resourceVersion", "2"))

    assert Document.parse(bench.archive.documents[path][0]).text


@pytest.mark.parametrize(("age", "puts"), [(timedelta(days=8), 0), (timedelta(days=10), 2)])
async def test_child_that_expires_long_before_its_owner_is_stored_again(age, puts):
    """`keep` counts from the storage of each document."""
    bench = Bench(children_bytes=1_000 * CHILD_BYTES)
    done = bench.job("build", pods=2)
    await bench.write(done)
    for path, (data, _) in list(bench.archive.documents.items()):
        bench.archive.documents[path] = data, NOW - age
    bench.archive.calls.clear()

    await bench.write(having(done, "metadata.resourceVersion", "2"), keep="90d")

    assert bench.archive.calls["put"] == 1 + puts


async def test_next_attempt_stores_a_damaged_child_again():
    bench = Bench(children_bytes=1_000 * CHILD_BYTES)
    done = bench.job("build", pods=3)
    await failed_at_the_object(bench, done, logs=True)
    path = min(bench.archive.documents)
    whole, at = bench.archive.documents[path]
    bench.archive.documents[path] = whole[:-5], at

    assert (await bench.write(done, logs=True, may_be_stored=True)).children == 3
    assert bench.archive.documents[path][0] == whole
    assert bench.archive.calls["put_log"] == 1


@pytest.mark.parametrize("bytes_max", [1, 1024 * 1024, 64 * 1024 * 1024])
def test_gates_of_a_process_share_its_bytes(bytes_max):
    gates = ArchiveGates.of(bytes_max)

    parts = [gate.bytes_max for gate in (gates.objects, gates.children, gates.logs)]
    assert all(parts)
    assert sum(parts) <= max(bytes_max, 8)
