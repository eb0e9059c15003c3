"""The compiled kind rules of the image are those of the YAML files."""

import re
import shutil
from pathlib import Path

import pytest

from shared.adapters.config.compiled_kinds import NAME, compile_kinds, list_yaml, read_compiled
from shared.adapters.config.kind_files import KINDS, read_rule_files
from shared.adapters.config.yaml_file import FileError
from tests.builders import ROOT


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the shipped rules, compiled."""
    copy = Path(shutil.copytree(KINDS, tmp_path / "kinds", ignore=shutil.ignore_patterns(NAME)))
    compile_kinds(copy)
    return copy


def test_compiled_rules_equal_those_of_the_yaml_files(folder: Path) -> None:
    compiled = read_rule_files(shipped=folder)
    assert len(read_compiled(folder)) == len(compiled) == len(list_yaml(KINDS))
    (folder / NAME).unlink()
    assert [(one.path, one.rule) for one in compiled] == [
        (one.path, one.rule) for one in read_rule_files(shipped=folder)
    ]


def test_compiled_file_is_what_is_read(folder: Path) -> None:
    text = (folder / NAME).read_text()
    (folder / NAME).write_text(text.replace('"kind": "PipelineRun"', '"kind": "Renamed"'))
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
    assert not (KINDS / NAME).exists()


def test_image_has_a_compiled_file() -> None:
    steps = (ROOT / "Dockerfile").read_text()
    compiled = re.search(r"^RUN .*python -m shared\.adapters\.config\.compiled_kinds$", steps, re.MULTILINE)
    assert compiled
    assert steps.index("COPY shared shared") < compiled.start() < steps.index("FROM", steps.index("AS build"))
