"""The commands and the YAML of the tutorial and the how-tos: each command exists, and each file loads."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import click
import pytest
import yaml
from click.testing import CliRunner

from shared.adapters.config.policy_file import parse_policy
from shared.adapters.config.yaml_file import parse_model
from shared.cli.main import main
from shared.core.kinds.rule import KindRule
from shared.core.references.carrier import Carrier
from tests.builders import ROOT, not_none, shipped_kinds
from tests.snippets import DOCS, PAGES, Block, read_blocks, read_commands, read_inline, write_files

BLOCKS = {page: read_blocks(page) for page in PAGES}
COMMANDS = [command for blocks in BLOCKS.values() for command in read_commands(blocks)]
OWN = [(command, words) for command in COMMANDS for words in command.own]
YAML = [block for blocks in BLOCKS.values() for block in blocks if block.language == "yaml"]
KINDS = shipped_kinds()
PROSE = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", ROOT / "knative" / "README.md", *sorted(DOCS.rglob("*.md"))]
KUBECTL = shutil.which("kubectl")
LANGUAGES = {"console", "sh", "yaml", "text", "json"}


def place(value):
    if isinstance(value, list):
        return " ".join(value)
    return value.place if isinstance(value, Block) else value.block.place


def parse(words: list[str]) -> None:
    """Let click read the arguments of each command on the way, without a call of the command.

    Raises:
        UsageError: There is no such command or option, or a value is refused.
    """
    command: click.Command = main
    name: str | None = "ttl-after-finished"
    context = None
    while True:
        context = command.make_context(name, list(words), parent=context)
        if not isinstance(command, click.Group):
            return
        rest = [*context._protected_args, *context.args]
        name, found, words = command.resolve_command(context, rest)
        assert found is not None
        command = found


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A folder with the files of a page, as its reader has it."""

    def enter(page: Path) -> None:
        write_files(BLOCKS[page], tmp_path)
        monkeypatch.chdir(tmp_path)

    return enter


@pytest.mark.parametrize(("command", "words"), OWN, ids=place)
def test_each_command_and_its_options_exist(command, words, reader):
    reader(command.block.page)
    try:
        parse(words)
    except click.exceptions.Exit:  # of --help and --version
        return
    except click.ClickException as error:
        pytest.fail(f"{command.block.place}: {command.text}: {error.format_message()}")


@pytest.mark.parametrize(
    ("command", "words"),
    [(command, words) for command, words in OWN if words[:1] == ["kinds"] and "-" not in words],
    ids=place,
)
def test_each_command_that_needs_no_cluster_works(command, words, reader):
    reader(command.block.page)
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 0, result.output
    shown = [line.split()[0] for line in command.output if line.strip() not in ("", "…")]
    printed = {line.split()[0] for line in result.output.splitlines() if line.strip()}
    assert set(shown) <= printed, result.output


@pytest.mark.parametrize("page", PROSE, ids=lambda page: str(page.relative_to(ROOT)))
def test_each_command_in_the_text_exists(page, monkeypatch, tmp_path):
    """Those between backticks, and in lines that are indented as code."""
    monkeypatch.chdir(tmp_path)
    problems = []
    for words in read_inline(page):
        try:
            parse(words)
        except (click.exceptions.Exit, click.MissingParameter):  # a text names a command without its arguments, too
            continue
        except click.ClickException as error:
            problems.append(f"{' '.join(words)}: {error.format_message()}")
    assert not problems


@pytest.mark.parametrize("command", COMMANDS, ids=place)
def test_each_target_and_manifest_exists(command):
    targets = set(re.findall(r"^([a-z0-9-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for words in command.parts:
        if words[:1] == ["make"]:
            assert set(words[1:]) <= targets
        for word in words:
            made = {str(Path(block.file).parent) for block in BLOCKS[command.block.page] if block.file}
            if word.startswith("knative/") and str(Path(word).parent) not in made:
                assert word in made or (ROOT / word).exists(), word


@pytest.mark.parametrize("block", YAML, ids=place)
def test_each_yaml_block_loads_as_its_kind_of_file(block):
    """A policy, a kind rule, a carrier rule, a case of `kinds test`, or an object."""
    documents = list(yaml.safe_load_all(block.text))
    assert block.file, f"{block.place}: expected a first line such as `# policy.yaml`"
    for document in documents:
        if document.get("kind") == "Policy" and len(documents) == 1:
            assert parse_policy(block.text, KINDS, name=block.place).rules
        elif "apiVersions" in document and len(documents) == 1:
            model: type[KindRule | Carrier] = Carrier if "source" in document else KindRule
            assert parse_model(block.text, model, name=block.place).kind
        else:
            obj = document["object"] if "expect" in document else document
            assert re.fullmatch(r"([a-z0-9.-]+/)?v[a-z0-9]+", obj["apiVersion"])
            assert re.fullmatch(r"[A-Z][A-Za-z0-9]+", obj["kind"])


@pytest.mark.skipif(KUBECTL is None and not os.environ.get("CI"), reason="kubectl is not installed; CI needs it")
@pytest.mark.parametrize("block", [block for block in YAML if block.file.endswith("kustomization.yaml")], ids=place)
def test_each_overlay_builds(block, tmp_path):
    shutil.copytree(ROOT / "knative", tmp_path / "knative")
    write_files(BLOCKS[block.page], tmp_path)
    overlay = (tmp_path / block.file).parent
    built = subprocess.run(
        [not_none(KUBECTL), "kustomize", str(overlay)], check=True, capture_output=True, text=True
    ).stdout
    kinds = {document["kind"] for document in yaml.safe_load_all(built)}
    assert {"Namespace", "Deployment", "ClusterRole", "ValidatingAdmissionPolicy"} <= kinds


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_block_names_a_language_that_is_tested(page):
    blocks = BLOCKS[page]
    assert page.read_text().count("\n```") == 2 * len(blocks), "expected fences at the start of their lines"
    assert {block.language for block in blocks} <= LANGUAGES
    assert read_commands(blocks)


@pytest.mark.parametrize("page", [page for page in PAGES if page.parent.name == "how-to"], ids=lambda page: page.name)
def test_how_to_is_short_and_in_the_index(page):
    assert len(page.read_text().splitlines()) <= 100
    assert f"(how-to/{page.name})" in (ROOT / "docs" / "README.md").read_text()


@pytest.mark.parametrize("words", [["plan", "--polcy", "p.yaml"], ["describe", "job/a"], ["kinds", "test"], ["stop"]])
def test_invalid_command_is_rejected(words):
    with pytest.raises(click.UsageError):
        parse(words)
