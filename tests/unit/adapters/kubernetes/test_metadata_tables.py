"""Secrets and ConfigMaps from Tables."""

import pytest

from shared.adapters.kubernetes.metadata_tables import read_rows
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
