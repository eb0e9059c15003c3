import pytest

from shared.core.archive.document import OBJECT_BYTES_MAX, RECORD_BYTES_MAX, Document, without_secret_data
from shared.core.values.jsontext import JSON_VALUES_MAX
from tests.contract.archives import make_document

SECRET = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {
        "name": "access",
        "annotations": {
            "kapp.k14s.io/original": '{"data": {"password": "aHVudGVyMg=="}}',
            "kubectl.kubernetes.io/last-applied-configuration": '{"data": {"password": "aHVudGVyMg=="}}',
            "ttlafterfinished.dev/ttl": "1h",
        },
    },
    "data": {"password": "aHVudGVyMg=="},
    "stringData": {"token": "hunter2"},
}


def test_secret_keeps_the_names_of_its_data_and_no_value():
    kept = without_secret_data(SECRET)

    assert (kept["data"], kept["stringData"]) == ({"password": ""}, {"token": ""})
    assert kept["metadata"]["annotations"] == {
        "kapp.k14s.io/original": "",
        "kubectl.kubernetes.io/last-applied-configuration": "",
        "ttlafterfinished.dev/ttl": "1h",
    }
    assert "hunter2" not in str(kept)
    assert "aHVudGVyMg" not in str(kept)


def test_other_object_is_unchanged():
    thing = {**SECRET, "kind": "ConfigMap"}

    assert without_secret_data(thing) is thing


RECORD = b'{"archivedAt":"2026-03-14T15:09:26Z","x":%s}\n{}'


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (RECORD % b'"%s"' % (b"x" * RECORD_BYTES_MAX), f"the line about .* at most {RECORD_BYTES_MAX}"),
        (RECORD % b"0" + b" " * OBJECT_BYTES_MAX, f"the object has .* at most {OBJECT_BYTES_MAX}"),
        (RECORD % (b"[%s0]" % (b"0," * JSON_VALUES_MAX)), "values"),
        (RECORD % (b"[" * 200 + b"]" * 200), "nested too deeply"),
        (b"{}", "expected a line about the archiving"),
    ],
    ids=["long-record", "large-object", "many-values", "deep", "one-line"],
)
def test_document_beyond_a_limit_is_not_parsed(data, problem):
    with pytest.raises(ValueError, match=problem):
        Document.parse(data)


def test_document_that_could_not_be_read_back_is_not_written():
    record = make_document({}).record
    with pytest.raises(ValueError, match="the object has"):
        Document(record, bytes(OBJECT_BYTES_MAX + 1)).to_bytes()
    with pytest.raises(ValueError, match="the line about the archiving has"):
        Document(record.model_copy(update={"children": ("x" * RECORD_BYTES_MAX,)}), b"{}").to_bytes()
