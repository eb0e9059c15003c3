"""What a put into a bucket concludes from the size of what the bucket then has."""

import obstore
import pytest
from obstore.store import MemoryStore

from shared.adapters.archive.bucket import BucketStore
from shared.core.archive.destination import Destination
from shared.errors import PermanentError, TryLaterError
from shared.ports.archive import StoredFile
from tests.builders import NOW

pytestmark = pytest.mark.anyio

BUCKET = Destination("memory", "tests", "")


class RacedStore(BucketStore):
    """A store in which another document is under the key when the put asks for it."""

    async def head(self, path: str) -> StoredFile:
        return StoredFile(path, NOW, 100)


async def test_put_that_replaces_is_tried_again_if_another_archiver_replaced_the_document_too():
    store = RacedStore("main", BUCKET, MemoryStore())
    with pytest.raises(TryLaterError, match="has 100 bytes instead of 4") as caught:
        await store.put("key", b"mine", replaces=True)
    assert "delete" not in str(caught.value)
    assert not caught.value.outage


async def test_put_of_a_new_document_that_the_bucket_cut_is_an_error():
    store = RacedStore("main", BUCKET, MemoryStore())
    with pytest.raises(PermanentError, match="has 100 of 4 bytes; delete it"):
        await store.put("key", b"mine")


class LongerResult:
    """An answer with more bytes than its header says; it counts the chunks that are read."""

    meta = {"size": 3}  # noqa: RUF012 - never changed

    def __init__(self):
        self.read = 0

    async def stream(self, *, min_chunk_size):
        for _ in range(100):
            self.read += 1
            yield bytes(min_chunk_size)


async def test_file_that_is_longer_than_its_size_is_read_up_to_the_limit(monkeypatch):
    result = LongerResult()

    async def get(*_):
        return result

    monkeypatch.setattr(obstore, "get_async", get)
    with pytest.raises(OverflowError):
        await BucketStore("main", BUCKET, MemoryStore()).get("key", 1_000_000)
    assert result.read == 4
