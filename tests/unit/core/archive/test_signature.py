"""Only a process with the key can make a document that counts."""

import pytest

from shared.core.archive.document import Document, Record
from shared.core.archive.signature import UNSIGNED, SigningKeys, split_signature
from tests.builders import NOW

OLD, NEW = "o" * 32, "n" * 40
KEYS = SigningKeys.parse(OLD)
PATH = "v1/prod/ci/Job.v1.batch/2026-03-14/build-42/u.1.d.json.zst"
DOCUMENT = Document(Record(archived_at=NOW, archive_id="a", cluster_id="c", rule="all"), b'{"kind":"Job"}')
SIGNED = DOCUMENT.to_bytes(PATH, KEYS)
LINE = SIGNED.partition(b"\n")[0]


def test_signed_document_is_read_with_the_key_and_also_unchecked_without_one():
    assert Document.parse(SIGNED, PATH, KEYS) == DOCUMENT
    assert Document.parse(SIGNED, PATH) == DOCUMENT
    assert split_signature(LINE)[0] == DOCUMENT.to_bytes().partition(b"\n")[0]


def test_change_of_any_byte_of_the_record_is_found():
    for at in range(len(LINE)):
        changed = bytes([*SIGNED[:at], SIGNED[at] ^ 1, *SIGNED[at + 1 :]])
        with pytest.raises(ValueError, match="signature"):
            Document.parse(changed, PATH, KEYS)


@pytest.mark.parametrize(
    ("data", "path", "keys"),
    [
        (DOCUMENT.to_bytes(), PATH, KEYS),
        (DOCUMENT.to_bytes(PATH, SigningKeys.parse(NEW)), PATH, KEYS),
        (SIGNED, PATH.replace("build-42", "build-43"), KEYS),  # the document of another object, copied
        (SIGNED.replace(b'"rule":"all"', b'"rule":"all","signature":"' + b"0" * 64 + b'"'), PATH, KEYS),
        (DOCUMENT.to_bytes().replace(b'{"arch', b'{"signature":"' + LINE[-66:-2] + b'","arch'), PATH, KEYS),
    ],
    ids=["unsigned", "another key", "another path", "second signature", "signature in another place"],
)
def test_document_without_a_valid_signature_is_damaged(data, path, keys):
    with pytest.raises(ValueError, match="signature"):
        Document.parse(data, path, keys)


def test_keys_are_rotated_without_a_document_that_no_process_can_read():
    before, between, after = (SigningKeys.parse(text) for text in (OLD, f"{OLD},{NEW}", f"{NEW},{OLD}\n"))
    for writes, reads in [(before, between), (between, before), (between, after), (after, between)]:
        assert Document.parse(DOCUMENT.to_bytes(PATH, writes), PATH, reads) == DOCUMENT
    with pytest.raises(ValueError, match="of no key"):
        Document.parse(DOCUMENT.to_bytes(PATH, after), PATH, before)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "expected keys, separated by commas"),
        (" , ", "expected keys, separated by commas"),
        ("secret", "at least 32 random characters, separated by commas, got 6 characters in key 1 of 1"),
        (f"{OLD},secret", "got 6 characters in key 2 of 2"),
        (f"{OLD},secret{NEW}\udcff", "^expected keys in UTF-8, got other bytes in key 2 of 2$"),
    ],
)
def test_wrong_key_is_an_error_that_does_not_show_it(text, problem):
    with pytest.raises(ValueError, match=problem) as caught:
        SigningKeys.parse(text)
    assert "secret" not in str(caught.value)


def test_keys_are_in_no_text():
    assert OLD not in f"{KEYS} {KEYS!r}"
    assert not UNSIGNED
