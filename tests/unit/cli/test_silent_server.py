"""Commands against an API server that accepts connections and never answers."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from shared.adapters.kubernetes import requests
from shared.cli.deleters import brakes
from shared.cli.input import target
from shared.cli.main import main

COMMANDS = [
    ("stop", "--reason", "test"),
    ("start",),
    ("plan",),
    ("explain", "job/a"),
    ("hold", "job/a", "--reason", "test"),
    ("top",),
    ("deleted",),
    ("doctor",),
]


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Iterator[Path]:
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:  # the kernel accepts, and nothing answers
        server = f"{{cluster: {{server: 'http://127.0.0.1:{listener.getsockname()[1]}'}}, name: c}}"
        context = "{name: c, context: {cluster: c, user: u}}"
        path = tmp_path / "kubeconfig"
        path.write_text(
            f"apiVersion: v1\nkind: Config\nclusters: [{server}]\nusers: [{{name: u, user: {{token: t}}}}]\n"
            f"contexts: [{context}]\ncurrent-context: c\n"
        )
        yield path


@pytest.fixture(autouse=True)
def limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target, "READ_SECONDS", 0.05)
    monkeypatch.setattr(requests, "LATE_SECONDS", 0.01)
    monkeypatch.setattr(brakes, "BRAKE_READ_SECONDS_MAX", 0.05)


def ran(kubeconfig: Path, *words: str) -> Result:
    return CliRunner(env={"KUBECONFIG": None}).invoke(main, [*words, "--kubeconfig", str(kubeconfig)])


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
def test_command_says_that_it_waits_and_ends_after_the_limit_of_a_read(
    words: tuple[str, ...], kubeconfig: Path
) -> None:
    result = ran(kubeconfig, *words)
    assert result.exit_code == 1, result.output
    assert result.stderr.count("waiting for the API server at http://127.0.0.1:") == 1
    assert "it sent nothing for 0.05 s" in result.output


def test_stop_names_each_namespace_that_it_could_not_stop(kubeconfig: Path) -> None:
    result = ran(kubeconfig, "stop", "--reason", "test")
    assert result.stderr.count("FAILED: namespace ") == 2
    assert "not stopped: namespaces " in result.stderr
