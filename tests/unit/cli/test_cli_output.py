"""A standard output that cannot be written: one sentence, a non-zero exit code, and no stack trace."""

import io
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from shared.cli.output.printing import COUNT_STEP, show_count
from shared.errors import TtlError
from tests.builders import COMMAND

FIXTURE = str(Path(__file__).parents[2] / "fixtures" / "job-complete.yaml")
WORDS = [
    ("--help",),
    ("--version",),
    ("run", "--help"),
    ("kinds",),
    ("kinds", "jobs", "-o", "json"),
    ("kinds", "manifests", "jobs"),
    ("kinds", "test", FIXTURE),
    ("explain", "-f", FIXTURE),
    ("explain", "-f", FIXTURE, "-o", "json"),
]


def run_program(*words, **options):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TTL_")}
    return subprocess.run(
        [*COMMAND, *words],
        check=False,
        env=environment,
        text=True,
        timeout=60,
        **{"stderr": subprocess.PIPE, **options},
    )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux only")
@pytest.mark.parametrize("words", WORDS, ids=" ".join)
def test_full_disk_under_standard_output_is_one_message(words):
    with Path("/dev/full").open("w") as full:
        ended = run_program(*words, stdout=full)
    assert ended.stderr == "Error: standard output cannot be written: No space left on device\n"
    assert ended.returncode == 1


@pytest.mark.parametrize(
    "words", [*WORDS, ("plan",), ("run",), ("demo",), ("hold", "job/x", "--reason", "y")], ids=" ".join
)
def test_closed_standard_output_is_an_error(words):
    ended = run_program(*words, preexec_fn=lambda: os.close(1))
    assert ended.stderr.startswith("Error: standard output is closed; expected ")
    assert ended.stderr.count("\n") == 1
    assert ended.returncode == 1


@pytest.mark.parametrize("words", WORDS, ids=" ".join)
def test_reader_that_closes_the_pipe_ends_the_command_silently(words):
    reading, writing = os.pipe()
    os.close(reading)
    ended = run_program(*words, stdout=writing)
    os.close(writing)
    assert ended.stderr == ""
    assert ended.returncode in (1, 128 + signal.SIGPIPE, -signal.SIGPIPE)


def test_closed_standard_input_harms_nothing():
    ended = run_program("explain", "-f", FIXTURE, stdout=subprocess.PIPE, preexec_fn=lambda: os.close(0))
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith("Job ")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux only")
@pytest.mark.parametrize("words", [("plan", "--context", "none"), ("explain", "-f", "none")], ids=" ".join)
def test_standard_error_that_is_full_changes_no_exit_code(words):
    with Path("/dev/full").open("w") as full:
        ended = run_program(*words, stdout=subprocess.PIPE, stderr=full)
    assert (ended.returncode, ended.stdout) == (run_program(*words, stdout=subprocess.PIPE).returncode, "")


def test_warning_is_lost_if_standard_error_cannot_be_written():
    said = (
        "from shared.cli.output.printing import warn; from shared.cli.output.streams import prepare_errors\n"
        "prepare_errors(); warn('lost'); print('result')"
    )
    for program in ("exec 2>/dev/full", "exec 2>&-"):
        script = f'{program}; exec "$0" -c "$1"'
        ended = subprocess.run(
            ["/bin/sh", "-c", script, sys.executable, said], check=False, capture_output=True, text=True, timeout=60
        )
        assert (ended.returncode, ended.stdout) == (0, "result\n")


def test_closed_standard_error_leaves_standard_output_alone():
    ended = run_program("plan", "--context", "none", stdout=subprocess.PIPE, preexec_fn=lambda: os.close(2))
    assert (ended.returncode, ended.stdout) == (1, "")


class _Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("count", [COUNT_STEP - 1, COUNT_STEP, 2 * COUNT_STEP + 1])
def test_count_of_documents_is_shown_on_a_terminal_and_cleared(monkeypatch, count):
    monkeypatch.setattr(sys, "stderr", terminal := _Terminal())
    assert list(show_count(range(count))) == list(range(count))
    shown = "".join(f"\r\x1b[K{number} documents" for number in range(COUNT_STEP, count + 1, COUNT_STEP))
    assert terminal.getvalue() == (f"{shown}\r\x1b[K" if shown else "")


def test_count_is_cleared_before_an_error_is_shown(monkeypatch):
    monkeypatch.setattr(sys, "stderr", terminal := _Terminal())

    def broken():
        yield from range(COUNT_STEP)
        raise TtlError("expected YAML")

    with pytest.raises(TtlError):
        list(show_count(broken()))
    assert terminal.getvalue().endswith("\r\x1b[K")


def test_no_count_is_written_if_standard_error_is_no_terminal(capsys):
    assert len(list(show_count(range(COUNT_STEP)))) == COUNT_STEP
    assert capsys.readouterr().err == ""


def test_explain_of_a_file_counts_its_documents_only_on_a_terminal(tmp_path):
    file = tmp_path / "many.yaml"
    file.write_text("---\napiVersion: v1\nkind: Pod\nmetadata: {name: x}\n" * COUNT_STEP)
    program = [*COMMAND, "explain", "-f", str(file)]
    seen, terminal = pty.openpty()
    try:
        subprocess.run(program, check=True, stdout=subprocess.DEVNULL, stderr=terminal, timeout=60)
        assert f"{COUNT_STEP} documents" in os.read(seen, 4_096).decode()
    finally:
        os.close(seen)
        os.close(terminal)
