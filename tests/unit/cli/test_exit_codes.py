"""The exit codes of the documented table, each from a process.

Code 3 needs a cluster: tests/integration/test_plan.py. For `archive diff`: tests/integration/test_archive_commands.py.
"""

import os
import signal
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from shared.cli.main import LazyGroup, main
from tests.builders import COMMAND, ROOT
from tests.reference.cli import EXIT_CODES
from tests.unit.cli.timers.test_timers_commands import create, timer

DOCUMENTED = {code for codes in EXIT_CODES for code in codes.split(", ")}
CASES = [
    (0, ["--version"], {}),
    (0, ["kinds", "jobs"], {}),
    (1, ["explain", "-f", "absent.yaml"], {}),
    (1, ["plan", "--kubeconfig", "absent"], {}),
    (2, ["plan", "--kubeconfig", "present", "--context", "absent"], {}),
    (2, ["kinds", "nothing"], {}),
    (2, ["kinds", "manifests", "nothing"], {}),
    (2, ["plan", "-k", "nothing"], {}),
    (2, ["references", "job/x"], {}),
    (2, ["hold", "job/x", "--reason", "one\ntwo"], {}),
    (2, ["stop", "--reason", "one\ntwo"], {}),
    (2, ["watch", "--sink", "nothing"], {}),
    (2, ["plan"], {"TTL_DRY_RUN": "yes"}),
    (2, ["plan", "--nothing"], {}),
    (2, ["plan", "--top", "0"], {}),
    (2, ["explain"], {}),
    (2, ["nothing"], {}),
    (2, ["plan"], {"TTL_KINDS": ","}),
    (2, ["set", "job/x", "soon"], {}),
]


@pytest.mark.parametrize(("code", "words", "variables"), CASES, ids=str)
def test_command_exits_with_the_documented_code(code, words, variables, tmp_path):
    (tmp_path / "present").write_text("contexts: [{name: test}]")
    environment = {**os.environ, "KUBECONFIG": str(tmp_path / "absent"), "PYTHONPATH": str(ROOT), **variables}
    done = subprocess.run(
        [*COMMAND, *words], cwd=tmp_path, env=environment, capture_output=True, timeout=60, check=False
    )
    assert done.returncode == code, done.stderr
    assert bool(done.stderr) == bool(code)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_ends_a_command_with_128_and_its_number(number, tmp_path: Path):
    create(tmp_path / "timers.db", [timer("a")])
    command = [*COMMAND, "pending", "-w", "--timers", f"sqlite:{tmp_path}/timers.db"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(number)
        assert process.wait(30) == 128 + number


def test_ctrl_c_while_a_command_is_loaded_ends_it_with_130(monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(LazyGroup, "get_command", interrupted)
    result = CliRunner().invoke(main, ["demo"])
    assert (result.exit_code, result.output) == (130, "")


def test_each_documented_code_is_tested():
    assert {str(code) for code, _, _ in CASES} | {"3", "130", "143"} == DOCUMENTED
