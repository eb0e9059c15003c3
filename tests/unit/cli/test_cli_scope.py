"""An empty value of an option or a variable never widens what a command acts on."""

import os
import subprocess
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import shared.cli
from shared.cli.main import COMMANDS, main
from tests.builders import COMMAND
from tests.unit.cli.timers.test_timers_commands import create, timer

CLEAN = {name: None for name in os.environ if name.startswith(("TTL_", "K_SINK"))}


def all_commands(group=main, words=()):
    """Each command with the words that lead to it."""
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        if isinstance(command, click.Group):
            yield from all_commands(command, (*words, name))
        else:
            yield (*words, name), command


def all_options():
    for words, command in all_commands():
        for one in command.params:
            if isinstance(one, click.Option) and not one.is_flag:
                yield from ((words, name) for name in one.opts)


def invoke(*words, **environment):
    return CliRunner(env={**CLEAN, "KUBECONFIG": "/nonexistent", **environment}).invoke(main, list(words))


def run_program(*words, **environment):
    known = {name: value for name, value in os.environ.items() if name not in CLEAN}
    environment = {**known, "KUBECONFIG": "/nonexistent", **environment}
    return subprocess.run([*COMMAND, *words], check=False, env=environment, capture_output=True, text=True, timeout=60)


def test_every_command_is_checked():
    assert {words[0] for words, _ in all_commands()} == set(COMMANDS)


def test_package_of_the_commands_directly_holds_nothing_else():
    modules = {path.stem for path in Path(shared.cli.__file__).parent.glob("*.py")}
    commands = {place.module.partition(":")[0] for place in COMMANDS.values()}
    assert modules - commands == {"__init__"}


def test_empty_value_of_each_option_is_rejected():
    options = list(all_options())
    assert len(options) > 200
    failures = []
    for words, option in options:
        for value in ("", " "):
            result = invoke(*words, option, value)
            if result.exit_code != 2 or not all(one in result.stderr for one in (option, "expected", "empty")):
                failures.append(f"{' '.join(words)} {option} {value!r}: {result.exit_code} {result.output!r}")
    assert failures == []


def rejected_with(named: str, *words: str) -> bool:
    """Whether a command with these words exits with 2, and names the option."""
    result = invoke(*words)
    return result.exit_code == 2 and named in result.stderr


@pytest.mark.parametrize("command", ["run", "plan", "watch"])
def test_kinds_that_name_no_kind_are_rejected(command):
    for value in (",", " , "):
        assert rejected_with("--kinds", command, "--kinds", value), value


@pytest.mark.parametrize("command", ["run", "plan", "top", "unused", "pending", "watch", "ui", "deleted"])
def test_one_namespace_and_all_of_them_are_rejected(command):
    for words in (("-n", "ci", "-A"), ("-A", "--namespace=ci")):
        assert rejected_with("-A", command, *words), words


def test_all_namespaces_is_what_such_a_command_is_about_anyway(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    create(tmp_path / "timers.db", [timer("a")])
    assert invoke("pending", "-A").output == invoke("pending").output
    assert "1 timer: 1 expire" in invoke("pending", "-A").output


@pytest.mark.parametrize("command", ["run", "plan", "watch", "doctor"])
def test_invalid_namespace_name_is_rejected(command):
    for value in ("Prod", "prod/pods", "prod ", "a,b", "-", "a" * 64):
        assert rejected_with("--namespace", command, f"--namespace={value}"), value


@pytest.mark.parametrize(
    ("words", "environment", "named"),
    [
        (("run", "-n", ""), {}, "'-n'"),
        (("run", "--kinds="), {}, "'--kinds'"),
        (("run",), {"TTL_KINDS": ""}, "TTL_KINDS"),
        (("run",), {"TTL_DRY_RUN": ""}, "TTL_DRY_RUN"),
        (("plan",), {"TTL_POLICY": ""}, "TTL_POLICY"),
        (("plan",), {"TTL_API_SERVER": " "}, "TTL_API_SERVER"),
        (("kinds",), {"TTL_KINDS_DIR": ""}, "TTL_KINDS_DIR"),
        (("run", "--sweep-interval", "abc"), {}, "--sweep-interval: expected"),
        (("run", "--concurrency", "many"), {}, "--concurrency: "),
        (("run", "--kinds", "gizmos", "--policy", "none"), {}, "--kinds: unknown kind 'gizmos'"),
    ],
)
def test_program_exits_with_2_and_names_the_option_or_variable(words, environment, named):
    ended = run_program(*words, **environment)
    assert ended.returncode == 2
    assert named in ended.stderr
    assert "expected" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_watch_checks_its_sink_before_it_connects():
    result = invoke("watch")
    assert result.exit_code == 2
    assert result.stderr.startswith("Error: K_SINK: ")
