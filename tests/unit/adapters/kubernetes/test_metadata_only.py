"""Secrets and ConfigMaps from Tables."""

import json

import pytest

from shared.adapters.kubernetes.bodies import as_target, read_rows
from shared.core.references.reference import TargetKind
from shared.errors import PermanentError
from tests.builders import NOW

COLUMNS = [{"name": "Name"}, {"name": "Type"}, {"name": "Data"}, {"name": "Age"}]


def table(*cells, kind="PartialObjectMetadata", columns=COLUMNS):
    row = {"cells": [*cells], "object": {"kind": kind, "metadata": {"name": "a"}}}
    return {"kind": "Table", "columnDefinitions": columns, "rows": [row]}


def read(answer, kind=TargetKind.SECRET):
    return read_rows(answer, kind, NOW, NOW - NOW)


def test_type_and_number_of_keys_are_found_by_their_columns():
    (one,) = read(table("a", "Opaque", 3, "1d"))
    assert (one.obj["type"], one.keys) == ("Opaque", 3)


@pytest.mark.parametrize("cells", [(), ("a",), ("a", 7, "3")])
def test_cell_that_cannot_be_read_leaves_type_and_keys_unknown(cells):
    (one,) = read(table(*cells))
    assert ("type" in one.obj, one.keys) == (False, None)


@pytest.mark.parametrize("answer", [table("a", kind="Secret"), {"kind": "SecretList", "items": []}, "text", {}])
def test_answer_with_more_than_metadata_is_refused(answer):
    with pytest.raises(PermanentError, match="expected"):
        read(answer)


HIDDEN = "aHVudGVyMg=="
REPEATED = json.dumps({"kind": "Secret", "data": {"a": HIDDEN}})
COPIED = {
    "kubectl.kubernetes.io/last-applied-configuration": REPEATED,
    "kapp.k14s.io/original": REPEATED,
    "kapp.k14s.io/original-diff": HIDDEN,
    "kapp.k14s.io/original-diff-md5": HIDDEN,
    "kapp.k14s.io/original-diff-full": HIDDEN,
    "banzaicloud.com/last-applied": HIDDEN,
    "objectset.rio.cattle.io/applied": HIDDEN,
    "example.com/copy": REPEATED,
    "example.com/list": json.dumps([{"stringData": {"a": HIDDEN}}], indent=1),
    "example.com/binary": json.dumps({"binaryData": {"a": HIDDEN}}, separators=(",", ":")),
    "example.com/spaced": f'{{"data" \n: "{HIDDEN}"}}',
    "example.com/text-in-text": json.dumps({"last": REPEATED}),
    "example.com/twice": json.dumps(json.dumps({"last": REPEATED})),
}


@pytest.mark.parametrize("name", COPIED)
def test_annotation_that_may_repeat_the_data_is_removed(name):
    found = as_target({"metadata": {"annotations": {name: COPIED[name], "team": "web"}}}, TargetKind.SECRET)
    assert found["metadata"]["annotations"] == {"team": "web"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("team", "web"),
        ("note", "the data: read by a script"),
        ("meta", '{"database": "x", "metadata": {}}'),
        ("number", 7),
        ("ttlafterfinished.dev/hold", f'because of "data": {HIDDEN}'),
    ],
)
def test_any_other_annotation_stays(name, value):
    found = as_target({"metadata": {"annotations": {name: value}}}, TargetKind.CONFIG_MAP)
    assert found["metadata"]["annotations"] == {name: value}


@pytest.mark.parametrize("annotations", [None, [], "text", 7])
def test_annotations_that_are_no_mapping_stay(annotations):
    assert as_target({"metadata": {"annotations": annotations}}, TargetKind.SECRET)["metadata"] == {
        "annotations": annotations
    }


def test_object_that_was_read_is_not_changed():
    obj = {"metadata": {"annotations": dict(COPIED)}}
    as_target(obj, TargetKind.SECRET)
    assert obj == {"metadata": {"annotations": COPIED}}
