"""The commands and the YAML of the pages: each command exists, and each file loads.

tests/integration runs those of the tutorial and the how-tos against real servers.
"""

import re
from collections.abc import Iterator
from functools import cache
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
from shared.errors import TtlError
from tests.builders import ROOT, not_none, shipped_kinds
from tests.docs.problems import expect_none, place
from tests.snippets import DOCS, PAGES, Block, Command, read_blocks, read_commands, read_mentions, write_files

BLOCKS = {page: read_blocks(page) for page in PAGES}
COMMANDS = [command for blocks in BLOCKS.values() for command in read_commands(blocks)]
PROSE = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", ROOT / "SECURITY.md", ROOT / "knative/README.md"]
PROSE += sorted(DOCS.rglob("*.md"))
FILES = dict.fromkeys(("render.yaml", "cases.yaml", "objects.yaml", "new.yaml"), "")
"""What a reader of docs/explanation has, beside the files that a page itself shows."""
LANGUAGES = {"console", "sh", "yaml", "text", "json"}
LINES_MAX = 100
"""Of a how-to."""


def parse(words: list[str], *, whole: bool = True) -> str:
    """Let click read the arguments of each command on the way, without a call of the command.

    Args:
        whole: Whether no argument may be missing.

    Returns:
        The problem; empty if there is such a command, with these options and values.
    """
    command: click.Command = main
    name: str | None = "ttl-after-finished"
    rest, context = list(words), None
    try:
        while isinstance(command, click.Group):
            context = command.make_context(name, rest, parent=context)
            name, found, rest = command.resolve_command(context, [*context._protected_args, *context.args])
            command = not_none(found)
        command.make_context(name, rest, parent=context)
    except click.exceptions.Exit:  # of --help and --version
        return ""
    except click.MissingParameter as error:
        return error.format_message() if whole else ""
    except click.ClickException as error:
        return error.format_message()
    return ""


def yaml_of(page: str) -> list[str]:
    return re.findall(r"^```yaml\n(.*?)^```$", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)


@pytest.fixture
def enter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Enter a folder with the files of a page, as its reader has it."""

    def enter_folder(page: Path) -> None:
        folder = tmp_path / page.relative_to(ROOT)
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in FILES.items():
            (folder / name).write_text(text)
        write_files(BLOCKS.get(page, ()), folder)
        monkeypatch.chdir(folder)

    return enter_folder


# Commands


def test_each_command_of_a_block_exists_with_its_options(enter):
    problems = []
    for command in COMMANDS:
        enter(command.block.page)
        problems += [
            f"{command.block.place}: `{command.text}`: {problem}: correct the command"
            for words in command.own
            if (problem := parse(words))
        ]
    expect_none(problems)


def test_each_command_in_a_text_exists_with_its_options(enter):
    problems = []
    for page in PROSE:
        enter(page)
        problems += [
            f"{place(page, one.line)}: `{' '.join(one.words)}`: {problem}: correct the command"
            for one in read_mentions(page)
            if (problem := parse(one.words, whole=one.whole))
        ]
    expect_none(problems)


def test_command_that_needs_no_cluster_prints_what_its_page_shows(enter):
    """Those of `kinds`."""
    problems: list[str] = []
    for command in COMMANDS:
        for words in command.own:
            if words[:1] == ["kinds"] and "-" not in words:
                enter(command.block.page)
                problems += find_differences(command, words)
    expect_none(problems)


def find_differences(command: Command, words: list[str]) -> Iterator[str]:
    result = CliRunner().invoke(main, words)
    shown = [line.split()[0] for line in command.output if line.strip() not in ("", "…")]
    printed = {line.split()[0] for line in result.output.splitlines() if line.strip()}
    if result.exit_code != 0 or not printed.issuperset(shown):
        missing = ", ".join(sorted({*shown} - printed))
        yield (
            f"{command.block.place}: `{command.text}` exits with {result.exit_code} and prints no lines that begin "
            f"with {missing or '(all are there)'}: show its real output\n{result.output}"
        )


def test_each_make_target_and_each_manifest_of_a_command_exists():
    expect_none(
        f"{command.block.place}: `{command.text}`: there is no {missing}: correct the command"
        for command in COMMANDS
        for missing in find_missing(command)
    )


@cache
def targets() -> set[str]:
    return set(re.findall(r"^([a-z0-9-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE))


def find_missing(command: Command) -> Iterator[str]:
    made = {str(Path(block.file).parent) for block in BLOCKS[command.block.page] if block.file}
    for words in command.parts:
        if words[:1] == ["make"]:
            yield from sorted({*words[1:]} - targets())
        for word in words:
            is_of_the_reader = str(Path(word).parent) in made or word in made
            if word.startswith("knative/") and not is_of_the_reader and not (ROOT / word).exists():
                yield word


# YAML


def test_each_yaml_block_loads_as_its_kind_of_file():
    """A policy, a kind rule, a carrier rule, a case of `kinds test`, or an object."""
    expect_none(
        f"{block.place}: {problem}: correct the file"
        for blocks in BLOCKS.values()
        for block in blocks
        if block.language == "yaml" and (problem := problem_of(block))
    )


def problem_of(block: Block) -> str:
    if not block.file:
        return "expected a first line such as `# policy.yaml`"
    try:
        documents = list(yaml.safe_load_all(block.text))
        for document in documents:
            load(document, block, alone=len(documents) == 1)
    except (TtlError, ValueError, KeyError, AssertionError, yaml.YAMLError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def load(document, block: Block, *, alone: bool) -> None:
    if document.get("kind") == "Policy" and alone:
        assert parse_policy(block.text, shipped_kinds(), name=block.place).rules
    elif "apiVersions" in document and alone:
        model: type[KindRule | Carrier] = Carrier if "source" in document else KindRule
        assert parse_model(block.text, model, name=block.place).kind
    else:
        obj = document["object"] if "expect" in document else document
        assert re.fullmatch(r"([a-z0-9.-]+/)?v[a-z0-9]+", obj["apiVersion"]), obj["apiVersion"]
        assert re.fullmatch(r"[A-Z][A-Za-z0-9]+", obj["kind"]), obj["kind"]


def test_policy_of_the_readme_is_valid():
    (block,) = yaml_of("README.md")
    policy = parse_policy(block, shipped_kinds(), name="README.md")
    assert [rule.name for rule in policy.rules] == ["ci-keeps-three-of-each", "everything-else"]


def test_rule_for_dispatched_objects_is_valid():
    (line,) = re.findall(
        r"^    - \{name: left-behind.*$", (ROOT / "docs/explanation/policies.md").read_text(), re.MULTILINE
    )
    policy = {"apiVersion": "ttlafterfinished.dev/v1", "kind": "Policy", "rules": yaml.safe_load(line)}
    assert parse_policy(yaml.safe_dump(policy), shipped_kinds(), name="policies.md").rules


# The form of a page


def test_each_block_names_a_language_that_is_checked():
    problems = []
    for page, blocks in BLOCKS.items():
        if page.read_text().count("\n```") != 2 * len(blocks):
            problems.append(f"{place(page)}: a fence does not start at the start of its line: move it there")
        if not read_commands(blocks):
            problems.append(f"{place(page)}: it shows no command: write ```console or ```sh")
        problems += [
            f"{block.place}: {block.language or 'no language'}: expected one of {', '.join(sorted(LANGUAGES))}"
            for block in blocks
            if block.language not in LANGUAGES
        ]
    expect_none(problems)


def test_each_how_to_is_short_and_in_the_index():
    index = (ROOT / "docs/README.md").read_text()
    problems = []
    for page in PAGES:
        lines = len(page.read_text().splitlines())
        if page.parent.name == "how-to":
            if lines > LINES_MAX:
                problems.append(f"{place(page)}: {lines} lines: expected at most {LINES_MAX}")
            if f"(how-to/{page.name})" not in index:
                problems.append(f"docs/README.md: how-to/{page.name} is not listed: add a line")
    expect_none(problems)


def test_wrong_command_is_found():
    for words in (["plan", "--polcy", "p.yaml"], ["describe", "job/a"], ["kinds", "test"], ["stop"]):
        assert parse(words), words
    assert not parse(["kinds", "test"], whole=False)
