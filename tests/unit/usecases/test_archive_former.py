"""Documents under a former name of the cluster: their children and logs may be nowhere else."""

from dataclasses import replace

import pytest

from shared.core.archive.document import Document
from shared.core.archive.layout import parse_key, parse_log_path
from shared.errors import MissingLogError
from shared.messages import ObjectArchived, ObjectDeleted
from shared.usecases.archives.byte_gate import ByteGate
from shared.usecases.archives.lookup import FormerDocuments, Found
from tests.archives import CLUSTER, archiving, copied_of
from tests.builders import JOB, not_none
from tests.unit.usecases.test_archive import UID, Bench, logging

pytestmark = pytest.mark.anyio

WHOLE = archiving(archive={"to": "main", "logs": True})
RENAMED = f"before.{CLUSTER.id[:8]}"
POD = "a"


def rename(bench, part):
    """The archive as if the cluster had another name, or no id, when it stored what is there."""

    def renamed(text):
        return text.replace(f"/{CLUSTER.part}/", f"/{part}/")

    documents, bench.archive.documents = bench.archive.documents, {}
    for path, (data, at) in documents.items():
        old = Document.parse(data)
        record = Document.parse(renamed(data.decode()).encode()).record
        record = record if "." in part else record.model_copy(update={"cluster_id": ""})
        bench.archive.documents[renamed(path)] = Document(record, old.text).to_bytes(), at
    bench.archive.logs = {renamed(path): data for path, data in bench.archive.logs.items()}
    bench.writer._former._listed.clear()  # a process that starts now


async def archived_before(part, log="the log\n"):
    """A Job that waits for its deletion, and whose document with its Pod and log has a former key."""
    bench = Bench(WHOLE)
    bench.put(logging(POD, UID, log))
    stored = bench.put()
    await bench.store(stored)
    rename(bench, part)
    bench.clock.advance(7200)
    return bench, stored


async def archive_again(bench, stored):
    """Archive the Job when `expire` does not find it; return its record."""
    (timer,) = (await bench.expire(stored)).timers
    assert timer.purpose == "archive"
    answer = await bench.archival.handle(timer)
    assert isinstance(answer, ObjectArchived)
    obj = not_none(await bench.cluster.get(JOB, answer.ref)).obj
    return answer, (await bench.archive.read(copied_of(obj).key)).record


@pytest.mark.parametrize("part", [CLUSTER.name, "before", RENAMED])
@pytest.mark.parametrize("is_gone", [True, False])
async def test_children_and_logs_under_a_former_key_are_copied(part, is_gone):
    bench, stored = await archived_before(part)
    if is_gone:
        bench.cluster.remove(POD)

    answer, record = await archive_again(bench, stored)

    assert (answer.children, answer.logs) == (1, 1)
    assert (record.with_children, record.with_logs, record.log_problems) == (True, True, {})
    (child,), (log,) = record.children, record.logs
    assert {parse_key(child).cluster, parse_log_path(log)[0].cluster} == {CLUSTER.part}
    copied = await bench.archive.read(parse_key(child))
    assert (copied.obj["metadata"]["name"], copied.record.cluster_id) == (POD, CLUSTER.id)
    assert copied.record.logs == (log,)
    assert bench.archive.logs[log] == b"the log\n"

    bench.clock.at = not_none(answer.timer).due_at
    assert isinstance(await bench.expire(stored), ObjectDeleted)


async def test_log_that_cannot_be_read_any_more_is_copied_with_its_pod():
    """The document of the Job is lost, so that its Pod is found as a live child."""
    bench, stored = await archived_before(CLUSTER.name)
    (job,) = [path for path in bench.archive.documents if "/Job.v1" in path]
    del bench.archive.documents[job]
    bench.cluster.fail("log", MissingLogError("rotated"))

    answer, record = await archive_again(bench, stored)

    assert (answer.children, [bench.archive.logs[log] for log in record.logs]) == (1, [b"the log\n"])


async def test_log_that_cannot_be_copied_is_stored_again_or_reported():
    for is_gone in (True, False):
        bench, stored = await archived_before(CLUSTER.name)
        bench.archive.logs.clear()
        if is_gone:
            bench.cluster.remove(POD)

        answer, record = await archive_again(bench, stored)

        assert (answer.children, len(record.children)) == (0 if is_gone else 1, 1)
        assert len(record.logs) == (0 if is_gone else 1)
        assert [problem.partition(":")[0] for problem in record.log_problems.values()] == ["gone"] * is_gone


async def test_former_document_that_lacks_what_is_wanted_now_is_completed():
    bench = Bench(archiving(archive={"to": "main", "children": False}))
    bench.put(logging(POD, UID, "the log\n"))
    stored = bench.put()
    await bench.store(stored)
    rename(bench, CLUSTER.name)
    bench.policy = WHOLE

    answer, record = await archive_again(bench, stored)

    assert (answer.children, answer.logs, record.with_children, record.with_logs) == (1, 1, True, True)


async def test_damaged_former_document_is_not_used():
    bench, stored = await archived_before(CLUSTER.name)
    bench.archive.documents = {path: (b"cut", at) for path, (_, at) in bench.archive.documents.items()}

    answer, record = await archive_again(bench, stored)

    assert (answer.children, answer.logs, record.with_logs) == (1, 1, True)


async def test_child_of_another_namespace_is_not_copied():
    """A record can be forged by an account that may write the archive."""
    bench, stored = await archived_before(CLUSTER.name)
    bench.cluster.remove(POD)
    for path, (data, at) in list(bench.archive.documents.items()):
        document = Document.parse(data)
        if document.record.children:
            moved = tuple(one.replace("/ci/", "/other/") for one in document.record.children)
            forged = document.record.model_copy(update={"children": moved})
            bench.archive.documents[path] = replace(document, record=forged).to_bytes(), at

    _, record = await archive_again(bench, stored)

    assert record.children == ()


async def test_document_of_another_cluster_is_not_copied():
    bench, stored = await archived_before(f"{CLUSTER.name}.ffffffff")
    bench.cluster.remove(POD)

    answer, record = await archive_again(bench, stored)

    assert (answer.children, record.children, record.logs) == (0, (), ())


async def test_archive_without_former_names_is_listed_once_in_a_while():
    bench = Bench(WHOLE)
    for number in range(3):
        await bench.store(bench.put(logging(f"p{number}", "none", "x")))
        await bench.store(bench.put())

    assert bench.archive.calls["folders"] == 1


async def test_record_of_another_cluster_is_not_copied():
    bench, stored = await archived_before("before")
    for path, (data, at) in bench.archive.documents.items():
        old = Document.parse(data)
        other = old.record.model_copy(update={"cluster_id": "another"})
        bench.archive.documents[path] = Document(other, old.text).to_bytes(), at
    bench.cluster.remove(POD)

    answer, record = await archive_again(bench, stored)

    assert (answer.children, record.children, record.logs) == (0, (), ())


async def test_damaged_child_under_its_present_key_is_replaced():
    bench, stored = await archived_before("before")
    (former,) = [path for path in bench.archive.documents if "/Pod.v1" in path]
    bench.archive.documents[former.replace("/before/", f"/{CLUSTER.part}/")] = b"cut", bench.clock.now()
    bench.cluster.remove(POD)

    _, record = await archive_again(bench, stored)

    (child,) = record.children
    assert (await bench.archive.read(parse_key(child))).obj["metadata"]["name"] == POD


async def test_what_a_record_of_another_archive_says_of_logs_does_not_count():
    bench, stored = await archived_before("before")
    (former,) = [path for path in bench.archive.documents if "/Job.v1" in path]
    data, at = bench.archive.documents[former]
    old = Document.parse(data)
    lacking = old.record.model_copy(update={"with_logs": False, "logs": (), "children": ()})
    bench.archive.documents[former] = Document(lacking, old.text).to_bytes(), at
    foreign = old.record.model_copy(update={"archive_id": "another", "logs": (), "children": ()})
    found = Found(replace(bench.archive.store(stored), archive_id="present"), foreign)

    adopted = await FormerDocuments(ByteGate()).adopt(bench.archive, copied_of(stored), found, now=bench.clock.now())

    record = not_none(not_none(adopted).record)
    assert (record.with_logs, record.with_children) == (False, lacking.with_children)
