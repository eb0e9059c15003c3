"""One suite for an archive in a folder, in a bucket of a real S3 server, in obstore's memory, and for the fake."""

import asyncio
import os
import random
import tracemalloc
from collections.abc import AsyncIterator
from datetime import UTC, date, datetime, timedelta

import obstore
import pytest

from shared.adapters.archive.open_archive import open_archive
from shared.core.archive.layout import SUFFIX, log_path, prefix_of
from shared.errors import AbsentDocumentError, DamagedDocumentError
from tests.archives import FakeArchive
from tests.contract.archives import Subject, in_folder, key_of, make, make_document, make_object

pytestmark = pytest.mark.anyio

MEBIBYTE = 1024 * 1024
ODD_NAMES = [
    "system:controller:job-controller",
    "with space",
    "ünï-çødé-日本",
    "percent%2Fsign%",
    "a/slash",
    ".",
    "..",
    "tilde~plus+equals=and&question?hash#",
    "back\\slash\"quote'",
    "UPPER.lower",
    "n" * 253,
]


@pytest.fixture(params=["folder", "s3", "memory", "fake"])
def subject(request, tmp_path, monkeypatch) -> Subject:
    if request.param == "folder":
        root = tmp_path / "archive"
        return Subject(
            open_archive("main", f"file://{root}"), lambda: open_archive("main", f"file://{root}"), *in_folder(root)
        )
    if request.param == "s3":
        server = request.getfixturevalue("s3")
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        bucket = f"archive-{os.getpid()}-{random.randrange(10**9)}"
        url = server.url(bucket, "some/prefix")
        _, read = in_folder(server.root / bucket / "some/prefix")
        archive = open_archive("main", url)
        return Subject(archive, lambda: open_archive("main", url), _write_past(archive), read)
    if request.param == "memory":
        memory = open_archive("main", "memory:", for_tests=True)
        bucket = _bucket_of(memory)
        return Subject(
            memory, lambda: memory, _write_past(memory), lambda path: bytes(obstore.get(bucket, path).bytes())
        )
    fake = FakeArchive(now=lambda: datetime.now(UTC))
    return Subject(fake, lambda: fake, _write_document(fake), lambda path: fake.documents[path][0])


def _write_document(fake):
    """The fake keeps documents apart from logs, and has no other files."""

    def write(path, data):
        if path in fake.documents:
            fake.documents[path] = data, datetime.now(UTC)

    return write


def _bucket_of(archive):
    return archive._store._bucket


def _write_past(archive):
    return lambda path, data: obstore.put(_bucket_of(archive), path, data)


async def listed(archive, prefix=""):
    return [stored async for page in archive.ls(prefix) for stored in page]


async def folders(archive, *parts):
    return [name async for name in archive.folders(prefix_of(*parts))]


async def chunks_of(*chunks: bytes) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


@pytest.mark.smoke
async def test_document_is_read_as_it_was_stored(subject):
    key, document = make()
    before = datetime.now(UTC) - timedelta(milliseconds=20)  # the time of a file may be a tick of the kernel behind
    stored = await subject.archive.put(key, document)
    assert stored.key == key
    assert stored.size == len(subject.read(key.path))
    assert before < stored.stored_at < before + timedelta(seconds=10)
    assert stored.stored_at.microsecond == 0
    assert stored.location.endswith(key.path.replace("%", "%25") if "file:" in stored.location else key.path)
    assert await subject.archive.find(key) == stored
    assert await subject.again().find(key) == stored
    assert await subject.again().read(key) == document


@pytest.mark.smoke
async def test_absent_document_is_not_found(subject):
    key, _ = make()
    assert await subject.archive.find(key) is None
    with pytest.raises(AbsentDocumentError):
        await subject.archive.read(key)
    with pytest.raises(AbsentDocumentError):
        [chunk async for chunk in subject.archive.read_log(log_path(key, "main"))]
    await subject.archive.delete([key])


@pytest.mark.smoke
async def test_second_put_of_a_key_keeps_the_first_document(subject):
    obj = make_object()
    first, second = make_document(obj), make_document(obj, finished_at=datetime(2026, 3, 1, tzinfo=UTC))
    key = key_of(obj, first)
    stored = await subject.archive.put(key, first)
    assert await subject.again().put(key, second) == stored
    assert await subject.archive.read(key) == first


async def test_put_that_replaces_leaves_the_new_document_alone(subject):
    obj = make_object()
    first, second = make_document(obj), make_document(obj, with_logs=True)
    key = key_of(obj, first)
    await subject.archive.put(key, first)
    stored = await subject.again().put(key, second, replaces=True)
    assert await subject.archive.read(key) == second
    assert await listed(subject.archive) == [stored]
    assert await subject.archive.put(key, first) == stored
    assert await subject.archive.read(key) == second


async def test_twenty_concurrent_writers_store_one_document(subject):
    obj = make_object()
    documents = [make_document(obj, parent=f"writer-{number}") for number in range(20)]
    key = key_of(obj, documents[0])
    archives = [subject.again() for _ in documents]
    stored = await asyncio.gather(*(one.put(key, doc) for one, doc in zip(archives, documents, strict=True)))
    assert len({*stored}) == 1
    assert await subject.archive.read(key) in documents
    assert len(await listed(subject.archive)) == 1


async def test_put_after_a_lost_answer_returns_what_is_stored(subject):
    key, document = make()
    task = asyncio.ensure_future(subject.archive.put(key, document))
    await asyncio.sleep(0)
    task.cancel()  # the answer is lost; whether the document is stored is unknown
    await asyncio.gather(task, return_exceptions=True)
    stored = await subject.again().put(key, document)
    assert await subject.archive.find(key) == stored
    assert await subject.archive.read(key) == document


async def test_other_version_of_an_object_has_a_document_of_its_own(subject):
    obj = make_object()
    other = {**obj, "metadata": {**obj["metadata"], "resourceVersion": "2"}}
    document, changed = make_document(obj), make_document(other)
    await subject.archive.put(key_of(obj, document), document)
    assert await subject.archive.find(key_of(other, changed)) is None
    await subject.archive.put(key_of(other, changed), changed)
    assert await subject.archive.read(key_of(other, changed)) == changed
    assert await subject.archive.read(key_of(obj, document)) == document


@pytest.mark.parametrize("name", ODD_NAMES, ids=lambda name: name[:12])
async def test_odd_names_are_stored_and_listed(subject, name):
    key, document = make(name, cluster="c l:u%s/t~er")
    await subject.archive.put(key, document)
    assert await subject.archive.read(key) == document
    assert [stored.key for stored in await listed(subject.archive)] == [key]
    assert [stored.key for stored in await listed(subject.archive, prefix_of(key.cluster, "ci"))] == [key]
    assert await folders(subject.archive) == [key.cluster]
    assert await folders(subject.archive, key.cluster, "ci", "Job.v1.batch", "2026-03-14") == [name]


async def test_cluster_scoped_object_is_stored_and_listed(subject):
    obj = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "uid": "u.1", "resourceVersion": "1"}}
    document = make_document(obj)
    key = key_of(obj, document)
    await subject.archive.put(key, document)
    assert [stored.key for stored in await listed(subject.archive, prefix_of("prod", "_"))] == [key]
    assert await folders(subject.archive, "prod") == ["_"]


async def test_documents_are_listed_in_the_order_of_their_keys_below_a_prefix(subject):
    names = ["a", "a-b", "a.b", "a0", "ab", "A", "a-b-c", "b"]
    made = [make(name, cluster=cluster) for name in names for cluster in ("prod", "prod-2")]
    await asyncio.gather(*(subject.archive.put(key, document) for key, document in made))
    paths = [stored.key.path for stored in await listed(subject.archive)]
    assert paths == sorted(key.path for key, _ in made)
    below = [stored.key.path for stored in await listed(subject.archive, prefix_of("prod"))]
    assert below == sorted(key.path for key, _ in made if key.cluster == "prod")
    assert await listed(subject.archive, prefix_of("pro")) == []
    assert await folders(subject.archive) == ["prod", "prod-2"]
    assert await folders(subject.archive, "prod", "ci", "Job.v1.batch", "2026-03-14") == sorted(names)
    assert await folders(subject.archive, "none") == []


@pytest.mark.timeout(300)
async def test_two_and_a_half_thousand_documents_are_listed_in_pages(subject):
    made = [make(f"job-{number % 50}", day=date(2026, 3, 1 + number % 5)) for number in range(2_500)]
    for start in range(0, len(made), 100):
        await asyncio.gather(*(subject.archive.put(*one) for one in made[start : start + 100]))
    pages = [page async for page in subject.archive.ls(prefix_of("prod", "ci"))]
    assert all(len(page) <= 1_000 for page in pages)
    assert [stored.key.path for page in pages for stored in page] == sorted(key.path for key, _ in made)
    stored = {key: await subject.archive.find(key) for key, _ in made[:5]}
    assert {one.key: one for page in pages for one in page if one.key in stored} == stored
    await subject.archive.delete([key for key, _ in made[:1_200]])
    await subject.archive.delete([key for key, _ in made[:1_200]])
    rest = [stored.key.path for stored in await listed(subject.archive)]
    assert rest == sorted(key.path for key, _ in made[1_200:])


async def test_empty_archive_has_no_folders_and_no_documents_after_a_delete(subject):
    key, document = make()
    await subject.archive.put(key, document)
    await subject.archive.delete([key])
    assert await listed(subject.archive) == []
    assert await folders(subject.archive, "prod", "ci", "Job.v1.batch") == []
    assert await subject.archive.find(key) is None
    await subject.archive.put(key, document)
    assert await subject.archive.read(key) == document


async def test_foreign_files_below_the_prefix_are_skipped(subject):
    key, document = make()
    await subject.archive.put(key, document)
    await subject.archive.put_log(log_path(key, "main"), chunks_of(b"hello"))
    folder = key.path.rpartition("/")[0]
    for path in ("README.txt", "v1/notes", f"{folder}/x{SUFFIX}", f"{folder}/other.log.zst", "v2/" + key.path[3:]):
        subject.write(path, b"foreign")
    assert [stored.key for stored in await listed(subject.archive)] == [key]
    files = [file.path async for page in subject.archive.files() for file in page]
    assert files == sorted([key.path, log_path(key, "main")])


@pytest.mark.parametrize("damage", ["cut", "changed", "empty", "other", "more"])
async def test_damaged_document_is_an_error_and_stays(subject, damage):
    key, document = make()
    other_key, other = make("other")
    await subject.archive.put(key, document)
    await subject.archive.put(other_key, other)
    data = subject.read(key.path)
    damaged = {
        "cut": data[:-20],
        "changed": data.replace(data[-30:-10], b"x" * 20),
        "empty": b"",
        "other": subject.read(other_key.path),
        "more": data + b"more",
    }[damage]
    subject.write(key.path, damaged)
    with pytest.raises(DamagedDocumentError):
        await subject.again().read(key)
    await subject.archive.put(key, document)
    assert subject.read(key.path) == damaged
    await subject.archive.delete([key])
    await subject.archive.put(key, document)
    assert await subject.archive.read(key) == document


async def test_object_of_the_largest_size_of_etcd_is_stored(subject):
    key, document = make(
        spec={"text": random.Random(1).randbytes(750_000).hex(), "escapes": '\n"\\\u2028 ü 日' * 1_000}
    )
    assert len(document.text) > 1_500_000
    await subject.archive.put(key, document)
    assert await subject.archive.read(key) == document


async def test_log_is_read_as_it_was_stored_and_replaced(subject):
    key, document = make()
    path = log_path(key, "main")
    assert await subject.archive.put_log(path, chunks_of(b"first ", b"", b"log")) == 9
    assert b"".join([chunk async for chunk in subject.archive.read_log(path)]) == b"first log"
    assert await subject.archive.put_log(path, chunks_of()) == 0
    assert b"".join([chunk async for chunk in subject.archive.read_log(path)]) == b""
    await subject.archive.put(key, document)
    await subject.archive.delete_files([path, key.path])
    assert [page async for page in subject.archive.files()] == []


async def test_log_whose_source_fails_is_not_stored(subject):
    key, _ = make()
    path = log_path(key, "main")

    async def source():
        for _ in range(8):
            yield os.urandom(MEBIBYTE)
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        await subject.archive.put_log(path, source())
    assert [page async for page in subject.archive.files()] == []


async def test_stored_log_stays_if_the_source_of_another_one_fails_at_its_end(subject):
    key, _ = make()
    path = log_path(key, "main")
    await subject.archive.put_log(path, chunks_of(b"first log"))

    async def source(size):
        yield os.urandom(size)
        raise ConnectionResetError

    for size in (10, 12 * MEBIBYTE):
        with pytest.raises(ConnectionResetError):
            await subject.archive.put_log(path, source(size))
        assert b"".join([chunk async for chunk in subject.again().read_log(path)]) == b"first log"


@pytest.mark.parametrize("kind", ["random", "lines"])
async def test_long_log_is_streamed_in_bounded_memory(subject, kind, request):
    if "s3" not in request.node.name and "folder" not in request.node.name:
        pytest.skip("it keeps logs in memory")
    key, _ = make()
    path, source = log_path(key, "main"), random.Random(1)

    async def chunks():
        for number in range(60):
            line = f"2026-03-14T15:09:26.000000000Z line {number} of the log\n".encode()
            yield source.randbytes(MEBIBYTE) if kind == "random" else line * (MEBIBYTE // len(line))

    tracemalloc.start()
    try:
        size = await subject.archive.put_log(path, chunks())
        read = 0
        async for chunk in subject.archive.read_log(path):
            assert len(chunk) <= MEBIBYTE
            read += len(chunk)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert read == size > 59 * MEBIBYTE
    assert peak < 24 * MEBIBYTE  # of which 5 MiB wait, are sent and are acknowledged: parts of an upload to S3
