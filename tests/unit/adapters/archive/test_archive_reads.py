"""How much of an archive's documents is in memory at once, whatever they are."""

import asyncio
import tracemalloc

import pytest

from shared.adapters.archive.archive import BODIES_BYTES_MAX, SMALL_BODY_BYTES, StoreArchive, whole_second_after
from shared.adapters.archive.codec import compress
from shared.errors import DamagedDocumentError, TryLaterError
from shared.ports.archive import StoredFile
from shared.usecases.archives.byte_gate import ByteGate
from tests.builders import NOW
from tests.contract.archives import make

pytestmark = pytest.mark.anyio

MB = 1024 * 1024


class CountingStore:
    """Files in memory; it counts the bytes that reads may have at once, and lets other tasks run meanwhile."""

    def __init__(self):
        self.files: dict[str, bytes] = {}
        self.in_flight = self.most = 0
        self.grown = b""

    def location(self, path=""):
        return f"memory:///{path}"

    async def head(self, path):
        file = StoredFile(path, whole_second_after(NOW), len(self.files[path]))
        self.files[path] += self.grown
        return file

    async def get(self, path, limit):
        self.in_flight += limit
        self.most = max(self.most, self.in_flight)
        try:
            for _ in range(3):
                await asyncio.sleep(0)
            if len(self.files[path]) > limit:
                raise OverflowError
            return self.files[path]
        finally:
            self.in_flight -= limit


@pytest.fixture
def store():
    return CountingStore()


def add(store, size, *, padding=0):
    """Store a document of so many bytes of an object; the padding makes its file larger, and damages it."""
    key, document = make(text="x" * size)
    store.files[key.path] = compress(document.to_bytes()) + bytes(padding)
    return key


async def test_concurrent_reads_wait_for_the_memory_that_their_documents_take(store):
    size, gate = MB, ByteGate(3 * MB)
    archive = StoreArchive("main", store, gate)
    keys = [add(store, size) for _ in range(12)]

    async def read(key):
        return len((await archive.read(key)).text) >= size

    tracemalloc.start()
    try:
        assert all(await asyncio.gather(*map(read, keys)))
        assert tracemalloc.get_traced_memory()[1] < 5 * MB
    finally:
        tracemalloc.stop()
    assert gate.in_flight == 0


async def test_archives_of_a_process_share_the_memory_of_their_documents(store):
    gate = ByteGate(1)
    archives = [StoreArchive(name, store, gate) for name in ("main", "other")]
    key = add(store, 1_000)
    async with gate.hold(1):
        reads = [asyncio.ensure_future(archive.read(key)) for archive in archives]
        for _ in range(20):
            await asyncio.sleep(0)
        assert not any(read.done() for read in reads)
    await asyncio.gather(*reads)


async def test_concurrent_reads_wait_for_the_memory_of_their_files(store):
    archive = StoreArchive("main", store)
    small = [add(store, 10) for _ in range(100)]
    large = [add(store, 10, padding=2 * MB) for _ in range(10)]
    results = await asyncio.gather(*map(archive.read, small + large), return_exceptions=True)
    assert [type(one) for one in results[100:]] == [DamagedDocumentError] * 10
    assert not any(isinstance(one, Exception) for one in results[:100])
    assert 8 * SMALL_BODY_BYTES <= store.most <= BODIES_BYTES_MAX


async def test_file_that_grows_while_it_is_read_is_read_later(store):
    key, store.grown = add(store, 10, padding=SMALL_BODY_BYTES), b"more"
    with pytest.raises(TryLaterError, match="was replaced meanwhile"):
        await StoreArchive("main", store).read(key)
