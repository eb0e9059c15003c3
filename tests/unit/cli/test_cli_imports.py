"""What a command imports before it prints: each library lengthens the wait, most of all that for a completion."""

import json
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from shared.cli.main import LazyGroup, archive, main, timers
from tests.builders import ROOT

JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: a, namespace: ci, uid: u, resourceVersion: "5"}
spec: {ttlSecondsAfterFinished: 60}
status: {conditions: [{type: Complete, status: "True", lastTransitionTime: "2026-01-01T00:01:00Z"}]}
"""

PROBE = """
import json, sys
sys.argv[0] = "ttl-after-finished"
from shared.cli.main import main
try:
    main()
except SystemExit:
    pass
print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""

CLIENTS = {"aiohttp", "cryptography", "grpc", "kubernetes", "nats", "obstore", "prometheus_client", "requests"}
"""What talks to servers."""

SERVERS = {"flask", "functions_framework", "starlette", "uvicorn"}


def imported(*words: str, **environment: str) -> set[str]:
    """The top-level packages that a command has imported at its end, beyond those of Python itself."""
    done = subprocess.run(
        [sys.executable, "-c", PROBE, *words],
        cwd=ROOT,
        env={**os.environ, "KUBECONFIG": "/nonexistent", **environment},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    modules = json.loads(done.stderr.splitlines()[-1])
    assert done.stdout
    return {name.partition(".")[0] for name in modules} - set(sys.stdlib_module_names)


def completing(words: str) -> dict[str, str]:
    """The variables by which a shell asks for the completion of a command's last word."""
    return {
        "_TTL_AFTER_FINISHED_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(words.count(" ")),
    }


@pytest.mark.parametrize("words", [("--help",), ("archive", "--help"), ("timers", "--help"), ("--version",)], ids=str)
def test_list_of_commands_imports_no_command(words: tuple[str, ...]) -> None:
    assert imported(*words) & {"pydantic", "yaml", "rich", *CLIENTS, *SERVERS} == set()


@pytest.mark.parametrize("words", ["ttl-after-finished ex", "ttl-after-finished archive l"])
def test_completion_of_a_command_imports_no_command(words: str) -> None:
    packages = imported(**completing(words))
    assert packages & {"pydantic", "yaml", "rich", *CLIENTS, *SERVERS} == set()


def test_explain_of_a_file_imports_no_client_of_a_server(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(JOB)
    assert imported("explain", "-f", str(file)) & (CLIENTS | SERVERS) == set()


@pytest.mark.parametrize("group", [main, archive, timers], ids=lambda group: group.name)
def test_list_of_commands_says_what_each_command_says(group: click.Group) -> None:
    assert isinstance(group, LazyGroup)
    context = click.Context(group, info_name=group.name)
    for name, place in group._places.items():
        command = group.get_command(context, name)
        assert command is not None
        paragraph = (command.help or "").split("\n\n", 1)[0]
        assert place.text == " ".join(paragraph.split()), name


@pytest.mark.parametrize("group", [main, archive, timers], ids=lambda group: group.name)
def test_list_of_commands_looks_as_that_of_click(group: click.Group) -> None:
    context = click.Context(group, info_name=group.name, terminal_width=100)
    ours, theirs = context.make_formatter(), context.make_formatter()
    group.format_commands(context, ours)
    click.Group.format_commands(group, context, theirs)
    assert ours.getvalue() == theirs.getvalue()
