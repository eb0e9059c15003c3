"""The commands and the YAML of the READMEs and docs/explanation: each command exists, and each file loads."""

import re
import shlex

import click
import pytest
import yaml
from click.testing import CliRunner

from shared.adapters.config.policy_file import parse_policy
from shared.cli.main import main
from tests.builders import ROOT, not_none, shipped_kinds

PAGES = [
    *(ROOT / name for name in ("README.md", "SECURITY.md", "knative/README.md", "docs/runbook.md")),
    *sorted((ROOT / "docs/explanation").glob("*.md")),
]
_COMMAND = re.compile(r"^    (?:kubectl ttl|ttl-after-finished) ([^|\n]*)", re.MULTILINE)
COMMANDS = [(page.name, found) for page in PAGES for found in _COMMAND.findall(page.read_text())]
FILES = ("render.yaml", "cases.yaml", "objects.yaml", "new.yaml")


def yaml_blocks(page):
    return re.findall(r"^```yaml\n(.*?)^```$", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder of a reader who saved the files of docs/explanation/kinds.md."""
    for block in yaml_blocks("docs/explanation/kinds.md"):
        (tmp_path / not_none(re.match(r"# (\S+)\n", block))[1]).write_text(block)
    for name in FILES:
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(("page", "text"), COMMANDS)
def test_each_command_and_its_options_exist(page, text, folder):
    command: click.Command | None = main
    name: str | None = "ttl-after-finished"
    words, context = shlex.split(text, comments=True), None
    try:
        while True:
            assert command is not None
            context = command.make_context(name, list(words), parent=context)
            if not isinstance(command, click.Group):
                return
            name, command, words = command.resolve_command(context, [*context._protected_args, *context.args])
    except click.ClickException as error:
        pytest.fail(f"{page}: {text}: {error.format_message()}")


def test_policy_of_the_readme_is_valid():
    (block,) = yaml_blocks("README.md")
    policy = parse_policy(block, shipped_kinds(), name="README.md")
    assert [rule.name for rule in policy.rules] == ["ci-keeps-three-of-each", "everything-else"]


def test_rule_for_dispatched_objects_is_valid():
    (line,) = re.findall(
        r"^    - \{name: left-behind.*$", (ROOT / "docs/explanation/policies.md").read_text(), re.MULTILINE
    )
    policy = {"apiVersion": "ttlafterfinished.dev/v1", "kind": "Policy", "rules": yaml.safe_load(line)}
    assert parse_policy(yaml.safe_dump(policy), shipped_kinds(), name="policies.md").rules


def test_rule_of_the_kinds_page_passes_its_case(folder):
    result = CliRunner().invoke(main, ["kinds", "test", "cases.yaml", "--rule", "render.yaml"])
    assert result.exit_code == 0, result.output
    assert "failed" in result.output


def test_first_command_of_the_readme_is_at_line_ten_or_earlier():
    lines = (ROOT / "README.md").read_text().splitlines()
    assert any(line.startswith("    make ") for line in lines[:10])
