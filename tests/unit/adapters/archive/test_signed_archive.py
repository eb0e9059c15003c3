"""An archive in a folder whose documents are signed, beside a writer that has no key."""

from dataclasses import replace

import pytest

from shared.adapters.archive.open_archive import open_archive
from shared.adapters.config.settings import ARCHIVE_KEYS, SettingsError
from shared.errors import DamagedDocumentError, UnsignedDocumentError
from shared.usecases.archives.retention import verify_archive
from tests.contract.archives import key_of, make, make_document, make_object

pytestmark = pytest.mark.anyio

KEY = "k" * 32


@pytest.fixture
def opened(tmp_path, monkeypatch):
    """Open the archive as a process with these keys, or without any."""

    def opened(keys=""):
        monkeypatch.setenv(ARCHIVE_KEYS, keys) if keys else monkeypatch.delenv(ARCHIVE_KEYS, raising=False)
        return open_archive("main", f"file://{tmp_path}/archive")

    return opened


async def test_document_of_a_writer_without_the_key_is_damaged_until_it_is_replaced(opened):
    key, document = make()
    await opened().put(key, document)
    archive = opened(KEY)

    with pytest.raises(UnsignedDocumentError, match="it has no signature: another writer may have stored it") as caught:
        await archive.read(key)
    assert caught.value.record == document.record

    await archive.put(key, document, replaces=True)
    assert await archive.read(key) == document
    assert await opened().read(key) == document


async def test_record_of_an_unsigned_document_with_another_digest_is_of_no_use(opened):
    key, document = make()
    await opened().put(replace(key, digest="0" * 64), document)

    with pytest.raises(DamagedDocumentError, match="its digest is") as caught:
        await opened(KEY).read(replace(key, digest="0" * 64))
    assert not isinstance(caught.value, UnsignedDocumentError)


async def test_signed_document_that_is_copied_under_another_key_is_damaged(opened, tmp_path):
    archive, (key, document) = opened(KEY), make()
    await archive.put(key, document)
    other = replace(key, cluster="staging")
    path = tmp_path / "archive" / other.path
    path.parent.mkdir(parents=True)
    path.write_bytes((tmp_path / "archive" / key.path).read_bytes())

    with pytest.raises(DamagedDocumentError, match="its signature is of no key"):
        await archive.read(other)


async def test_large_document_is_signed_too(opened):
    archive, (key, document) = opened(KEY), make(text="x" * 1_000_000)
    await archive.put(key, document)
    assert await archive.read(key) == document
    with pytest.raises(DamagedDocumentError, match="of no key"):
        await opened("z" * 32).read(key)


async def test_process_without_keys_says_once_that_others_sign(opened, caplog):
    key, document = make()
    await opened().put(key, document)
    await opened(KEY).read((await opened(KEY).put(key, document, replaces=True)).key)
    assert not caplog.records

    archive = opened()
    assert [await archive.read(key) for _ in range(2)] == [document] * 2

    (said,) = [record.getMessage() for record in caplog.records]
    assert "is signed, but this process has no TTL_ARCHIVE_KEYS: it checks no signature" in said


async def test_verify_counts_only_the_forged_document_of_one_version(opened):
    obj = make_object()
    ours, forged = (make_document(one) for one in (obj, obj | {"spec": {"hostPID": True}}))
    keys = [key_of(obj, document) for document in (ours, forged)]
    await opened(KEY).put(keys[0], ours)
    await opened().put(keys[1], forged)

    found = {one.stored.key: one.problem async for one in verify_archive(opened(KEY))}

    assert found[keys[0]] == ""
    assert "it has no signature" in found[keys[1]]
    assert all(["differ" in one.problem async for one in verify_archive(opened())])


def test_short_key_is_an_error_that_names_the_variable(opened):
    with pytest.raises(SettingsError, match=f"^{ARCHIVE_KEYS}: expected keys of at least 32 random characters"):
        opened("secret")
