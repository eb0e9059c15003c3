"""The examples as their readers type them: the commands of each README in order, against a real API server."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shared.adapters.config.kind_files import as_catalogue
from shared.adapters.config.policy_file import read_policy
from shared.adapters.config.yaml_file import read_model
from shared.cli.input.options import known_rules
from shared.core.kinds.rule import KindRule
from tests.builders import ROOT
from tests.integration.reader import CONTROLLERS, Reader, commands_of, needs_kubectl, reading

EXAMPLES = ROOT / "examples"
FOLDERS = sorted(file.parent for file in EXAMPLES.glob("*/README.md"))
OF_INSTALLATIONS = ("headlamp-plugin", "warn-chat")
"""Examples that need an installation: tests/examples has tests of their programs instead."""

ARCHIVE = "file:///var/lib/ttl/"
"""Where the example has the folder of an archive; the test has it in the folder of the reader."""


@pytest.fixture(scope="module")
def controllers() -> list[str]:
    return CONTROLLERS


@pytest.fixture
def reader(server: Any, api: Any, tmp_path: Path) -> Iterator[Reader]:
    with reading(server, api, tmp_path) as reader:
        shutil.copytree(EXAMPLES, tmp_path / "examples")
        for file in (tmp_path / "examples").rglob("policy.yaml"):
            file.write_text(file.read_text().replace(ARCHIVE, f"file://{tmp_path}/"))
        yield reader


@needs_kubectl
@pytest.mark.timeout(400)
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_example_does_what_its_readme_shows(folder: Path, reader: Reader) -> None:
    commands = commands_of(folder / "README.md")
    assert bool(commands) == (folder.name not in OF_INSTALLATIONS)
    for command in commands:
        reader.type(command)
    reader.leave()


def test_index_lists_each_example() -> None:
    text = (EXAMPLES / "README.md").read_text()
    assert len(FOLDERS) >= 10
    for folder in FOLDERS:
        assert f"[{folder.name}]({folder.name}/README.md)" in text


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_policy_and_kind_rules_of_an_example_load(folder: Path) -> None:
    kinds_dir = folder / "kinds"
    rules = known_rules(kinds_dir if kinds_dir.exists() else None)
    for file in kinds_dir.glob("*.yaml"):
        assert read_model(file, KindRule).plural
    if (folder / "policy.yaml").exists():
        assert read_policy(folder / "policy.yaml", as_catalogue(rules)).rules
