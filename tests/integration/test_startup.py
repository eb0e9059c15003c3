"""How `run` and `plan` start where something is wrong: before any banner, in one sentence."""

import os
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from shared.devserver.real_servers import RealServer
from tests.builders import COMMAND
from tests.integration.conftest import Api, Run


class Ended:
    """A command that ended by itself."""

    def __init__(self, server: RealServer, folder: Path, *words: str, **environment: str) -> None:
        environment = {**os.environ, "KUBECONFIG": str(server.kubeconfig), "XDG_STATE_HOME": str(folder), **environment}
        ended = subprocess.run(
            [*COMMAND, *words], check=False, env=environment, capture_output=True, text=True, timeout=60
        )
        self.code, self.text = ended.returncode, ended.stdout + ended.stderr

    def is_one_sentence(self) -> bool:
        return self.text.startswith("Error: ") and self.text.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "environment", "code", "named"),
    [
        (
            ("run", "--timers", "sqlite:/proc/nowhere/timers.db"),
            {},
            1,
            "/proc/nowhere/timers.db: expected a timer",
        ),
        (("run", "--lease-namespace", "nowhere"), {}, 1, "namespace nowhere"),
        (("run", "--context", "nowhere"), {}, 2, "got 'nowhere'"),
        (("plan", "--context", "nowhere"), {}, 2, "got 'nowhere'"),
        (("plan",), {"KUBECONFIG": "/nowhere/config"}, 1, "/nowhere/config"),
        (("plan", "-n", "porduction"), {}, 1, "namespace porduction"),
    ],
    ids=["timer-file", "lease-namespace", "context-of-run", "context-of-plan", "kubeconfig", "namespace"],
)
def test_setting_that_names_nothing_is_one_sentence_before_the_banner(
    server: RealServer, tmp_path: Path, words: tuple[str, ...], environment: dict[str, str], code: int, named: str
) -> None:
    ended = Ended(server, tmp_path, *words, **environment)

    assert ended.code == code
    assert ended.is_one_sentence(), ended.text
    assert named in ended.text


def test_timer_file_of_another_process_is_reported_before_the_banner(
    server: RealServer, tmp_path: Path, api: Api, start_run: Callable[..., Run]
) -> None:
    timers = f"sqlite:{tmp_path}/timers.db"
    first = start_run("--no-lease", "--timers", timers)
    api.wait("the first to work", lambda: "sweep at start" in first.text)

    for options in ((), ("--no-lease",)):
        ended = Ended(server, tmp_path, "run", "--timers", timers, *options)
        assert ended.code == 1
        assert ended.is_one_sentence(), ended.text
        assert "another process holds the lock" in ended.text


def test_processes_that_start_in_one_moment_share_the_timer_file(
    api: Api, namespace: str, start_run: Callable[..., Run]
) -> None:
    """Each owns the file for the moment of its own check; one leads, and the others wait."""
    for _ in range(4):
        run = start_run()  # all write to one log

    api.wait("the leader", lambda: "sweep at start" in run.text)
    api.wait("all starts", lambda: run.text.count("\nno policy (nothing is installed") == 4)

    assert "another process holds the lock" not in run.text


def test_metrics_port_in_use_is_reported_before_the_banner(server: RealServer, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        ended = Ended(server, tmp_path, "run", TTL_METRICS_PORT=str(taken.getsockname()[1]))

    assert ended.code == 1
    assert ended.is_one_sentence(), ended.text


def test_run_warns_of_a_namespace_that_does_not_exist(api: Api, start_run: Callable[..., Run]) -> None:
    run = start_run("--namespace", "porduction", "--no-lease", everywhere=True)
    api.wait("the start", lambda: "sweep at start" in run.text)

    assert "warning: namespace porduction does not exist; nothing is deleted until it is created" in run.text
    assert run.stop() == 0
