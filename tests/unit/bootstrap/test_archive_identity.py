"""An archive is used only while its destination has the marker that the installation remembers."""

import asyncio
import json
import os
import shutil
from datetime import UTC, datetime
from typing import Any

import pytest

from shared.adapters.config.settings import ARCHIVE_KEYS
from shared.core.archive.archiving import Archiving
from shared.core.archive.document import Document, Record
from shared.core.archive.identity import MARKER, KnownArchive, Marker
from shared.core.decision.decide import Expire, Ignore, Reason
from shared.core.kinds.rule import Catalogue
from shared.core.policy.archives import ArchiveDestination
from shared.errors import ForbiddenError, PermanentError, TryLaterError
from shared.evaluation.archive_identity import IdentifiedArchives
from shared.evaluation.children import Children
from shared.evaluation.evaluator import Evaluator
from shared.evaluation.pod_logs import PodLogs
from shared.ports import Snapshot
from shared.safeguards.archive_ids import SharedArchiveIds
from shared.safeguards.state_schema import ARCHIVES, parse_state, with_archive
from shared.usecases.archives.writer import ArchiveOrder, ArchiveWriter
from tests.archives import CLUSTER, archiving, copied_of, opened_archives
from tests.builders import JOB, LONG_AGO, NOW, ago, job, shipped_kinds
from tests.fakes import FakeCluster
from tests.installation import Installation

pytestmark = pytest.mark.anyio

DUE = job(complete=ago(60), ttl=30)
AFTERWARDS = datetime(2200, 1, 1, tzinfo=UTC)
"""Later than the folder stores a file, by the clock of this machine."""

COPIED = copied_of(DUE)
DOCUMENT = Document(Record(archived_at=LONG_AGO, with_children=True), COPIED.text)


class Process:
    """One process of an installation; it remembers nothing of a process before it."""

    def __init__(self, installation, folder, *, name="main", may_write=True, cluster=None):
        one = installation.process()
        self.telemetry = one.telemetry

        async def made():
            return one.safeguards

        ids = SharedArchiveIds(made, self.telemetry, may_write=may_write)
        self.archives = IdentifiedArchives(opened_archives(cluster=cluster), ids, lambda: AFTERWARDS)
        self.name, self.destination = name, ArchiveDestination(url=f"file://{folder}")
        policy = archiving(archives={"main": {"url": f"file://{folder}"}}, archive={"to": "main"})
        self.evaluator = Evaluator(FakeCluster(), Catalogue((JOB,)), lambda: policy, archives=self.archives)

    async def put(self):
        archive = await self.archives.open(self.name, self.destination)
        return await archive.put(COPIED.key, DOCUMENT)

    async def adopt(self):
        """Write a marker, as `archive adopt` does; the next read of it is remembered."""
        archive: Any = await opened_archives().open("main", self.destination)
        await archive.write_marker(Marker("adopted", NOW, CLUSTER.part))

    async def decide(self):
        return await self.evaluator.decide(Snapshot(DUE, AFTERWARDS), JOB)

    async def write(self):
        """Store the object as `archive` does."""
        writer = ArchiveWriter(self.archives, Children(FakeCluster(), shipped_kinds()), PodLogs(FakeCluster()))
        order = ArchiveOrder(Archiving("main", "policy rule one", children=True), self.destination, DOCUMENT.record)
        return await writer.write(Snapshot(DUE, NOW), JOB, order)


class Bench:
    """An installation with a folder that a volume is mounted at."""

    def __init__(self, tmp_path):
        self.installation, self.folder, self.elsewhere = Installation(), tmp_path / "archive", tmp_path / "elsewhere"

    def process(self, folder=None, **given):
        return Process(self.installation, folder or self.folder, **given)

    @property
    def remembered(self):
        return json.loads(self.installation.state.data.get(ARCHIVES, "{}"))

    def unmount(self):
        self.folder.rename(self.elsewhere)

    def mount(self):
        shutil.rmtree(self.folder, ignore_errors=True)
        self.elsewhere.rename(self.folder)

    def is_stored(self):
        return (self.folder / COPIED.key.path).exists()


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


async def test_file_whose_time_is_in_the_future_keeps_the_object_until_it_is_stored_again(bench):
    await bench.process().put()  # long ago, by its record
    path, far = bench.folder / COPIED.key.path, AFTERWARDS.timestamp() + 10**9
    os.utime(path, (far, far))

    decision = await bench.process().decide()
    assert decision.reason is Reason.NOT_ARCHIVED
    assert f"archive main: file://{path}: the time in the archive: expected an instant until now" in (
        decision.facts.problem
    )
    assert isinstance(decision, Ignore)

    await bench.process().write()
    assert isinstance(await bench.process().decide(), Expire)


async def test_document_of_a_writer_without_the_key_acknowledges_nothing(bench, monkeypatch):
    """It says that the children are stored, and that the grace began long ago."""
    await bench.process().put()  # as another writer, who has read the marker and computed the key
    assert isinstance(await bench.process().decide(), Expire)
    monkeypatch.setenv(ARCHIVE_KEYS, "k" * 32)

    decision = await bench.process().decide()
    assert decision.reason is Reason.ARCHIVE_UNREAD
    assert "it has no signature: another writer may have stored it" in decision.facts.problem

    written = await bench.process().write()
    assert written.at > DOCUMENT.record.archived_at
    assert isinstance(await bench.process().decide(), Expire)


async def test_two_clusters_of_one_name_store_under_keys_of_their_own(bench):
    """A key has the id of the cluster, because the name of a cluster has a default."""
    clusters = [FakeCluster() for _ in range(2)]
    processes = [bench.process(cluster=one) for one in clusters]
    here, there = [await one.archives.find_cluster() for one in processes]

    written = await processes[0].write()

    assert (here.name, here.id == there.id) == (there.name, False)
    assert written.copied.key.cluster == here.part
    archive = await opened_archives().open("main", processes[0].destination)
    assert (await archive.read(written.copied.key)).record.cluster_id == here.id
    assert [type(await one.decide()) for one in processes] == [Expire, Ignore]

    assert (await processes[1].write()).copied.key.cluster == there.part
    assert sorted(one.name for one in (bench.folder / "v1").iterdir()) == sorted([here.part, there.part])


@pytest.mark.parametrize(
    ("failure", "raised"), [(TryLaterError("429"), TryLaterError), (ForbiddenError("403"), PermanentError)]
)
async def test_nothing_is_stored_or_counted_while_the_id_of_the_cluster_cannot_be_read(bench, failure, raised):
    await bench.process().write()
    cluster = FakeCluster()
    cluster.fail("get-namespace", failure, on="kube-system")
    process = bench.process(cluster=cluster)

    with pytest.raises(raised, match="the id of this cluster cannot be read"):
        await process.write()
    decision = await process.decide()

    assert decision.reason is Reason.ARCHIVE_UNREAD
    assert "the id of this cluster cannot be read" in decision.facts.problem
    assert ("grant get on namespace kube-system" in decision.facts.problem) == (raised is PermanentError)
    assert [one.name for one in (bench.folder / "v1").iterdir()] == [CLUSTER.part]


async def test_first_put_into_an_empty_destination_gives_the_archive_an_id(bench):
    bench.folder.mkdir()
    (bench.folder / "lost+found").mkdir()

    stored = await bench.process().put()

    marker = json.loads((bench.folder / MARKER).read_text())
    assert bench.remembered == {"main": {"id": stored.archive_id, "location": f"file://{bench.folder}"}}
    assert (marker["id"], marker["cluster"]) == (stored.archive_id, CLUSTER.part)
    document = await (await opened_archives().open("main", bench.process().destination)).read(COPIED.key)
    assert document.record.archive_id == stored.archive_id
    assert isinstance(await bench.process().decide(), Expire)


@pytest.mark.parametrize("is_replaced", [False, True], ids=["absent", "another volume"])
async def test_nothing_is_stored_or_counted_while_the_volume_is_not_mounted(bench, is_replaced):
    before = bench.process()
    expected = (await before.put()).archive_id
    bench.unmount()
    if is_replaced:  # it is an archive of its own, and has the document
        found = (await Process(Installation(), bench.folder).put()).archive_id

    for process in (before, bench.process()):
        with pytest.raises(TryLaterError, match=expected) as raised:
            await process.put()
        decision = await process.decide()
        assert decision.reason is Reason.ARCHIVE_UNREAD
        assert expected in decision.facts.problem
        assert "archive adopt --archive main" in decision.facts.problem
        if is_replaced:
            assert found in decision.facts.problem
        assert raised.value.outage
        assert len(process.telemetry.problems) == 1  # it is reported once
    assert bench.folder.exists() == is_replaced

    bench.mount()
    assert isinstance(await bench.process().decide(), Expire)


async def test_documents_without_a_marker_are_not_counted(bench):
    """An archive of a version without ids, or a marker that was lost."""
    await (await opened_archives().open("main", bench.process().destination)).put(COPIED.key, DOCUMENT)

    decision = await bench.process().decide()

    assert decision.reason is Reason.ARCHIVE_UNREAD
    assert "archive adopt --archive main" in decision.facts.problem
    with pytest.raises(TryLaterError, match="has no marker"):
        await bench.process().put()
    assert bench.remembered == {}


async def test_destination_that_a_prune_has_emptied_is_empty(bench):
    """A prune leaves the folders of clusters, namespaces and kinds."""
    (bench.folder / COPIED.key.path).parent.parent.parent.mkdir(parents=True)

    stored = await bench.process().put()

    assert bench.remembered["main"]["id"] == stored.archive_id


async def test_explanation_names_the_archive_that_has_stored_a_document(bench):
    await (await opened_archives().open("main", bench.process().destination)).put(COPIED.key, DOCUMENT)
    await bench.process().adopt()
    assert (await bench.process().decide()).facts.archived.archive_id == ""

    other = await Process(Installation(), bench.elsewhere).put()
    (bench.folder / COPIED.key.path).write_bytes((bench.elsewhere / COPIED.key.path).read_bytes())
    decision = await bench.process().decide()

    assert (decision.reason, decision.facts.archived.archive_id) == (Reason.NOT_ARCHIVED, other.archive_id)


async def test_document_that_another_archive_acknowledged_is_stored_again(bench):
    await Process(Installation(), bench.folder).put()
    document = (bench.folder / COPIED.key.path).read_bytes()
    shutil.rmtree(bench.folder)
    bench.folder.mkdir()
    process = bench.process()
    archive = await process.archives.open("main", process.destination)
    await archive.put_log("v1/a/b/Pod.v1/2026-01-01/p/u.1." + "0" * 64 + ".main.log.zst", _nothing())
    (bench.folder / COPIED.key.path).parent.mkdir(parents=True)
    (bench.folder / COPIED.key.path).write_bytes(document)

    assert (await process.decide()).reason is Reason.NOT_ARCHIVED


async def _nothing():
    yield b""


async def test_empty_destination_of_a_read_gets_no_marker(bench):
    decision = await bench.process().decide()

    assert (decision.reason, decision.facts.problem) == (Reason.NOT_ARCHIVED, "")
    assert not bench.folder.exists()


async def test_processes_that_store_first_at_the_same_time_agree(bench):
    stored = await asyncio.gather(*(bench.process().put() for _ in range(8)))

    assert {one.archive_id for one in stored} == {bench.remembered["main"]["id"]}


async def test_second_volume_of_the_same_path_is_refused(bench, tmp_path):
    """Two processes with a folder of their own each, such as an emptyDir."""
    stored = await bench.process().put()

    with pytest.raises(TryLaterError, match=f"expected archive {stored.archive_id}"):
        await bench.process(tmp_path / "another").put()
    assert not (tmp_path / "another").exists()


async def test_archive_with_another_name_is_still_the_same(bench):
    await bench.process().put()
    bench.unmount()

    with pytest.raises(TryLaterError, match="has no marker"):
        await bench.process(name="renamed").put()


async def test_archive_with_another_name_keeps_its_id_when_its_url_changes_later(bench, tmp_path):
    stored = await bench.process().put()
    await bench.process(name="renamed").put()

    with pytest.raises(TryLaterError, match=f"expected archive {stored.archive_id}"):
        await bench.process(tmp_path / "another", name="renamed").put()


def test_adopted_archive_counts_for_each_name_of_its_destination():
    old, new, far = (KnownArchive(one, "file:///a" if one != "far" else "file:///b") for one in ("old", "new", "far"))
    data = with_archive(with_archive(with_archive({}, "main", old), "other", far), "prod", new, replaces=True)
    assert parse_state(data).archives == {"main": new, "other": far, "prod": new}


async def test_marker_that_is_a_folder_is_an_outage(bench):
    (bench.folder / MARKER).mkdir(parents=True)

    with pytest.raises(TryLaterError, match="expected a file or nothing there"):
        await bench.process().put()


async def test_marked_archive_is_used_by_an_installation_that_remembers_none(bench):
    stored = await Process(Installation(), bench.folder).put()

    assert isinstance(await bench.process().decide(), Expire)
    assert bench.remembered["main"]["id"] == stored.archive_id


async def test_dry_run_writes_no_state(bench):
    await Process(Installation(), bench.folder).put()

    assert isinstance(await bench.process(may_write=False).decide(), Expire)
    assert bench.remembered == {}


@pytest.mark.parametrize(
    ("failure", "raised"), [(TryLaterError("away"), TryLaterError), (ForbiddenError("no right"), PermanentError)]
)
async def test_nothing_counts_while_the_shared_state_cannot_be_read(bench, failure, raised):
    await bench.process().put()
    bench.installation.state.failure = failure

    with pytest.raises(raised, match="its id is unknown"):
        await bench.process().put()
    decision = await bench.process().decide()
    assert decision.reason is Reason.ARCHIVE_UNREAD
    assert "its id is unknown" in decision.facts.problem


async def test_nothing_is_stored_if_the_id_cannot_be_remembered(bench):
    bench.installation.state.write_failure = ForbiddenError("no right")

    with pytest.raises(PermanentError, match="could not be remembered"):
        await bench.process().put()
    assert not bench.is_stored()


@pytest.mark.parametrize("text", ["{", "[]", '{"main": {}}', '{"main": 7}'])
async def test_damaged_memory_of_ids_keeps_everything(bench, text):
    await bench.process().put()
    bench.installation.state.data[ARCHIVES] = text

    with pytest.raises(PermanentError, match="archive adopt"):
        await bench.process().put()
    assert (await bench.process().decide()).reason is Reason.ARCHIVE_UNREAD
    assert bench.installation.state.data[ARCHIVES] == text


@pytest.mark.parametrize("data", [b"", b"{}", b"\xff", b'{"id": "a"}', b"x" * 5_000])
async def test_damaged_marker_keeps_everything(bench, data):
    await bench.process().put()
    (bench.folder / MARKER).write_bytes(data)

    with pytest.raises(TryLaterError, match="is damaged"):
        await bench.process().put()
    assert (await bench.process().decide()).reason is Reason.ARCHIVE_UNREAD
