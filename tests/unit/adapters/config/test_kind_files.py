"""Kind rules on disk, also compiled: an error names the file, the line, the field and the expected value."""

import re
import shutil
from pathlib import Path

import pytest
import yaml

from shared.adapters.config.kind_files import (
    COMPILED,
    KINDS,
    compile_kinds,
    list_yaml,
    read_catalogue,
    read_compiled,
    read_rule_files,
)
from shared.adapters.config.yaml_file import FileError
from tests.builders import ROOT

JOB = yaml.safe_load((KINDS / "job.yaml").read_text())
GIZMO = JOB | {"apiVersions": ["example.com/v1"], "kind": "Gizmo", "plural": "gizmos"}

ODD = """\
apiVersions: [example.com/v1]
kind: Gizmo
plural: gizmos
finished:
  cases: [{outcome: good,
    when: {cel: object.status.phase = 'x'}}]
finishedAt:
- END
"""


def write(folder, name, document):
    (folder / name).write_text(document if isinstance(document, str) else yaml.safe_dump(document))


def test_shipped_rules_are_one_per_kind():
    catalogue = read_catalogue()

    assert len(catalogue.rules) == len(list(KINDS.glob("*.yaml")))
    for rule in catalogue.rules:
        assert all(catalogue.get(version, rule.kind) is rule for version in rule.api_versions)


def test_operators_rules_are_added_to_the_shipped_ones(tmp_path):
    write(tmp_path, "gizmo.yaml", GIZMO)
    write(tmp_path, "notes.txt", "no rule")

    kinds = [rule.kind for rule in read_catalogue(tmp_path).rules]

    assert kinds == [rule.kind for rule in read_catalogue().rules] + ["Gizmo"]


def test_operators_rule_replaces_the_shipped_one(tmp_path):
    write(tmp_path, "my-job.yml", JOB | {"propagation": "Foreground"})

    files = read_rule_files(tmp_path)

    (mine,) = [one for one in files if one.rule.kind == "Job" and one.rule.group == "batch"]
    assert mine.rule.propagation == "Foreground"
    assert mine.path.name == "my-job.yml"
    assert mine.replaces is not None
    assert mine.replaces.path == KINDS / "job.yaml"


def test_mounted_config_map_is_a_folder_of_rules(tmp_path):
    data = tmp_path / "..2026_01_02"
    data.mkdir()
    write(data, "gizmo.yaml", GIZMO)
    (tmp_path / "..data").symlink_to(data.name)
    (tmp_path / "gizmo.yaml").symlink_to("..data/gizmo.yaml")

    assert [one.rule.kind for one in read_rule_files(tmp_path, shipped=tmp_path / "..data")] == ["Gizmo"]


def test_missing_folder_is_an_error(tmp_path):
    with pytest.raises(FileError, match="expected a directory of kind rules"):
        read_catalogue(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("document", "reported"),
    [
        ("a: [", "gizmo.yaml:2: expected one YAML document"),
        ("a: 1\n--- \nb: 2\n", "gizmo.yaml:2: expected one YAML document"),
        ("", "gizmo.yaml:1: the document: expected"),
        ("- a", "gizmo.yaml:1: the document: expected"),
        ("text", "gizmo.yaml:1: the document: expected"),
        ("kind: A\nplural: b\nkind: B\n", "gizmo.yaml:3: kind: expected it once, got it twice"),
        ({}, "gizmo.yaml:1: apiVersions: "),
        ({**GIZMO, "kind": "job"}, r"kind: expected a text like ^[A-Z][A-Za-z0-9]*$, got 'job'"),
        ({**GIZMO, "propagation": "Sideways"}, "expected 'Background', 'Foreground' or 'Orphan', got 'Sideways'"),
        ({**GIZMO, "ttlSecondsFeild": "spec.x"}, "ttlSecondsFeild: "),
        ({**GIZMO, "finishedAt": ["finished"]}, "expected 'finishing-condition', "),
        (
            ODD.replace("END", "managed-fields"),
            "gizmo.yaml:6: finished.cases.0.when.cel: ",
        ),
        (
            ODD.replace("END", "{field: status.end, unit: hours}"),
            "gizmo.yaml:8: finishedAt.0.field.unit: expected 'rfc3339'",
        ),
        (ODD.replace("END", "managed-fields"), "gizmo.yaml:5: finished.cases.0.outcome: expected 'succeeded'"),
    ],
    ids=str,
)
def test_invalid_rule_file_is_an_error_with_its_place(tmp_path, document, reported):
    write(tmp_path, "gizmo.yaml", document)

    with pytest.raises(FileError, match=re.escape(reported)) as error:
        read_catalogue(tmp_path)

    assert str(error.value).startswith("gizmo.yaml:")


@pytest.mark.parametrize("document", ["kind: a\nplural: [", "kind: a\nplural: gizmos"], ids=str)
def test_invalid_shipped_rule_is_an_error_with_its_line(tmp_path, document):
    write(tmp_path, "gizmo.yaml", document)

    with pytest.raises(FileError, match=r"gizmo\.yaml:\d: "):
        read_rule_files(shipped=tmp_path)


def test_all_errors_of_a_file_are_reported(tmp_path):
    write(tmp_path, "gizmo.yaml", {**GIZMO, "kind": "job", "scope": "Global"})

    with pytest.raises(FileError) as error:
        read_catalogue(tmp_path)

    assert len(str(error.value).splitlines()) == 2


def test_binary_rule_file_is_an_error(tmp_path):
    (tmp_path / "gizmo.yaml").write_bytes(b"kind: \xff\xfe")

    with pytest.raises(FileError, match=r"gizmo\.yaml: expected a text file, but it cannot be read: "):
        read_catalogue(tmp_path)


def test_second_rule_for_a_kind_is_an_error(tmp_path):
    write(tmp_path, "a.yaml", GIZMO)
    write(tmp_path, "b.yaml", GIZMO | {"apiVersions": ["example.com/v2", "example.com/v1"]})

    with pytest.raises(FileError, match=r"b\.yaml: expected one rule for Gizmo of example.com/v1, but a\.yaml"):
        read_catalogue(tmp_path)


def test_operators_rule_replaces_each_shipped_one_that_it_overlaps(tmp_path):
    rule = "apiVersions: [kubeflow.org/v2beta1, kubeflow.org/v1]\nkind: MPIJob\nplural: mpijobs\nneverFinishes: audit\n"
    (tmp_path / "mpijobs.yaml").write_text(rule)

    assert [one.never_finishes for one in read_catalogue(tmp_path).of("kubeflow.org", "MPIJob")] == ["audit"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the shipped rules, compiled."""
    copy = Path(shutil.copytree(KINDS, tmp_path / "kinds", ignore=shutil.ignore_patterns(COMPILED)))
    compile_kinds(copy)
    return copy


def test_compiled_rules_equal_those_of_the_yaml_files(folder: Path) -> None:
    compiled = read_rule_files(shipped=folder)
    assert len(read_compiled(folder)) == len(compiled) == len(list_yaml(KINDS))
    (folder / COMPILED).unlink()
    assert [(one.path, one.rule) for one in compiled] == [
        (one.path, one.rule) for one in read_rule_files(shipped=folder)
    ]


def test_compiled_file_is_what_is_read(folder: Path) -> None:
    text = (folder / COMPILED).read_text()
    (folder / COMPILED).write_text(text.replace('"kind": "PipelineRun"', '"kind": "Renamed"'))
    assert "Renamed" in {one.rule.kind for one in read_rule_files(shipped=folder)}


@pytest.mark.parametrize("change", ["added", "removed", "edited", "edited to the same size"])
def test_compiled_file_of_other_yaml_files_is_ignored(folder: Path, change: str) -> None:
    file = folder / "job.yaml"
    if change == "added":
        shutil.copy(file, folder / "zz.yaml")
        with pytest.raises(FileError, match=r"zz\.yaml: expected one rule for Job"):
            read_rule_files(shipped=folder)
    elif change == "removed":
        file.unlink()
    elif change == "edited to the same size":
        text = file.read_text()
        file.write_text(text.replace("kind", "Kind", 1))
        assert file.stat().st_size == len(text.encode())
    else:
        file.write_text(file.read_text() + "\n")
    assert read_compiled(folder) == {}


def test_checkout_has_no_compiled_file() -> None:
    assert not (KINDS / COMPILED).exists()


def test_image_has_a_compiled_file() -> None:
    steps = (ROOT / "Dockerfile").read_text()
    compiled = re.search(r"^RUN .*python -m shared\.adapters\.config\.kind_files$", steps, re.MULTILINE)
    assert compiled
    assert steps.index("COPY shared shared") < compiled.start() < steps.index("FROM", steps.index("AS build"))
