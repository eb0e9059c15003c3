"""How `run` and `plan` start where something is wrong: before any banner, in one sentence."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from shared.devserver.real_servers import RealServer
from tests.integration.conftest import Api, Run

PROGRAM = [sys.executable, "-c", "from shared.cli.main import main; main()"]


class Ended:
    """A command that ended by itself."""

    def __init__(self, server: RealServer, folder: Path, *words: str, **environment: str) -> None:
        environment = {**os.environ, "KUBECONFIG": str(server.kubeconfig), "XDG_STATE_HOME": str(folder), **environment}
        ended = subprocess.run(
            [*PROGRAM, *words], check=False, env=environment, capture_output=True, text=True, timeout=60
        )
        self.code, self.text = ended.returncode, ended.stdout + ended.stderr

    def is_one_sentence(self) -> bool:
        return self.text.startswith("Error: ") and self.text.count("\n") == 1


def test_timer_file_that_cannot_be_written_is_reported_before_the_banner(server: RealServer, tmp_path: Path) -> None:
    ended = Ended(server, tmp_path, "run", "--timers", "/proc/nowhere/timers.db")

    assert ended.code == 1
    assert ended.is_one_sentence(), ended.text
    assert "/proc/nowhere/timers.db: expected a timer file" in ended.text


def test_timer_file_of_another_process_is_reported_before_the_banner(
    server: RealServer, tmp_path: Path, api: Api, start_run: Callable[..., Run]
) -> None:
    timers = str(tmp_path / "timers.db")
    first = start_run("--no-lease", "--timers", timers)
    api.wait("the first to work", lambda: "sweep at start" in first.text)

    for options in ((), ("--no-lease",)):
        ended = Ended(server, tmp_path, "run", "--timers", timers, *options)
        assert ended.code == 1
        assert ended.is_one_sentence(), ended.text
        assert "another process holds the lock" in ended.text


def test_metrics_port_in_use_is_reported_before_the_banner(server: RealServer, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        ended = Ended(server, tmp_path, "run", TTL_METRICS_PORT=str(taken.getsockname()[1]))

    assert ended.code == 1
    assert ended.is_one_sentence(), ended.text


def test_lease_namespace_that_does_not_exist_is_reported_before_the_banner(server: RealServer, tmp_path: Path) -> None:
    ended = Ended(server, tmp_path, "run", "--lease-namespace", "nowhere")

    assert ended.code == 1
    assert ended.is_one_sentence(), ended.text
    assert "namespace nowhere of the Lease does not exist" in ended.text


def test_kubeconfig_that_does_not_exist_is_named(server: RealServer, tmp_path: Path) -> None:
    ended = Ended(server, tmp_path, "plan", KUBECONFIG="/nowhere/config")

    assert ended.code == 1
    assert ended.is_one_sentence(), ended.text
    assert "/nowhere/config" in ended.text


def test_plan_of_a_namespace_that_does_not_exist_is_an_error(server: RealServer, tmp_path: Path) -> None:
    ended = Ended(server, tmp_path, "plan", "-n", "porduction")

    assert ended.code == 1
    assert ended.is_one_sentence(), ended.text
    assert "namespace porduction does not exist" in ended.text


def test_run_warns_of_a_namespace_that_does_not_exist(api: Api, start_run: Callable[..., Run]) -> None:
    run = start_run("--namespace", "porduction", "--no-lease", everywhere=True)
    api.wait("the start", lambda: "sweep at start" in run.text)

    assert "warning: namespace porduction does not exist; nothing is deleted until it is created" in run.text
    assert run.stop() == 0


@pytest.mark.parametrize("command", ["plan", "run"])
def test_unknown_context_is_rejected_with_the_valid_ones(server: RealServer, tmp_path: Path, command: str) -> None:
    ended = Ended(server, tmp_path, command, "--context", "nowhere")

    assert ended.code == 1
    assert ended.is_one_sentence(), ended.text
    assert "context 'nowhere' does not exist; expected one of: " in ended.text
