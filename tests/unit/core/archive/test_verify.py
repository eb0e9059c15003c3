"""A document is the one that its key names: digest and identity."""

from dataclasses import replace

import pytest

from shared.core.archive.copies import find_damage
from shared.core.archive.document import Document, digest_of
from shared.core.values.jsontext import JSON_VALUES_MAX
from tests.contract.archives import make


def test_document_under_its_own_key_is_whole():
    key, document = make()
    assert find_damage(key, document) == ""


def test_changed_document_has_another_digest():
    key, document = make()
    assert "its digest is" in find_damage(key, replace(document, text=document.text + b" "))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("namespace", "x"),
        ("name", "x"),
        ("uid", "x"),
        ("resource_version", "1"),
        ("kind", "Pod"),
        ("api_version", "v1"),
    ],
)
def test_document_under_the_key_of_another_object_is_named(field, value):
    key, document = make()
    assert find_damage(replace(key, **{field: value}), document).startswith("its object has ")


@pytest.mark.parametrize(("part", "is_damaged"), [("prod.3f2c1a9b", False), ("prod.00000000", True), ("prod", True)])
def test_document_of_another_cluster_is_named(part, is_damaged):
    key, document = make()
    record = document.record.model_copy(update={"cluster_id": "3f2c1a9b-0d3e-4f5a-8b6c-1d2e3f405162"})
    found = find_damage(replace(key, cluster=part), Document(record, document.text))
    assert ("its record names the cluster with id 3f2c1a9b-" in found) == is_damaged


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b'{"x":%s%s}' % (b"[" * 400, b"]" * 400), "its object is not read: nested too deeply"),
        (b'{"x":[%s0]}' % (b"0," * JSON_VALUES_MAX), "its object is not read: expected JSON of at most"),
    ],
    ids=["deep", "many-values"],
)
def test_object_beyond_the_limits_of_json_is_named(text, problem):
    key, document = make()
    assert problem in find_damage(replace(key, digest=digest_of(text)), Document(document.record, text))


@pytest.mark.parametrize("text", [b"not JSON", b"[]", b"\xff", b"[" * 100_000])
def test_document_without_an_object_is_named(text):
    key, document = make()
    damaged = Document(document.record, text)
    assert find_damage(replace(key, digest=digest_of(text)), damaged)
