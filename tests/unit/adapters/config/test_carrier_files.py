"""Carrier rules on disk: an error names the file, the line and the field."""

import pytest
import yaml

from shared.adapters.config.carrier_files import read_carriers
from shared.adapters.config.yaml_file import FileError
from tests.builders import not_none

GIZMO = {
    "apiVersions": ["example.com/v1"],
    "kind": "Gizmo",
    "plural": "gizmos",
    "source": "example.com/docs",
    "fields": [{"path": "spec.secretName", "to": "Secret"}],
}


def write(folder, name, document):
    (folder / name).write_text(document if isinstance(document, str) else yaml.safe_dump(document))


def test_operators_rules_are_added_to_the_shipped_ones(tmp_path):
    write(tmp_path, "gizmo.yaml", GIZMO)
    write(tmp_path, "notes.txt", "no rule")

    assert read_carriers(tmp_path).get("example.com/v1", "Gizmo") is not None
    assert len(read_carriers(tmp_path).carriers) == len(read_carriers().carriers) + 1


def test_operators_rule_replaces_the_shipped_one(tmp_path):
    write(tmp_path, "pod.yml", GIZMO | {"apiVersions": ["v1"], "kind": "Pod", "plural": "pods"})

    assert not_none(read_carriers(tmp_path).get("v1", "Pod")).source == "example.com/docs"
    assert len(read_carriers(tmp_path).carriers) == len(read_carriers().carriers)


def test_two_rules_for_one_kind_are_rejected(tmp_path):
    write(tmp_path, "a.yaml", GIZMO)
    write(tmp_path, "b.yaml", GIZMO)

    with pytest.raises(FileError, match=r"b.yaml: expected one rule for Gizmo of example.com/v1, but a.yaml has one"):
        read_carriers(tmp_path)


def test_error_names_the_file_and_the_field(tmp_path):
    write(tmp_path, "gizmo.yaml", GIZMO | {"fields": [{"path": "spec..x", "to": "Secret"}]})

    with pytest.raises(FileError, match=r"gizmo.yaml:\d+: fields.0.path: expected a path such as"):
        read_carriers(tmp_path)


def test_folder_that_does_not_exist_is_rejected(tmp_path):
    with pytest.raises(FileError, match="expected a directory of carrier rules"):
        read_carriers(tmp_path / "absent")
