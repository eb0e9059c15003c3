"""If the log is JSON, a command writes only JSON to standard error."""

import asyncio
import io
import json
import logging
import os
import re
import subprocess
import sys
from datetime import UTC, datetime

import pytest

from shared.adapters.telemetry.log_lines import configure_logging
from shared.adapters.telemetry.logs import LogTelemetry
from shared.cli.input.command import run_in_loop
from shared.cli.output.printing import warn
from shared.core.decision.decide import Reason
from shared.core.values.objects import ObjectRef
from shared.messages import ObjectDeleted
from shared.ports import Verdict
from tests.builders import ROOT

MAIN = "from shared.cli.main import main; main()"
LOGGING = "from shared.adapters.telemetry.log_lines import configure_logging; configure_logging('json')"
JOB = ObjectRef("batch/v1", "Job", "ci", "done", "uid")
DUE = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def run_program(code, *words, **environment):
    known = {name: value for name, value in os.environ.items() if not name.startswith("TTL_")}
    environment = {**known, "KUBECONFIG": "/nonexistent", **environment}
    return subprocess.run(
        [sys.executable, "-c", code, *words], check=False, env=environment, capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize(
    ("words", "environment", "code"),
    [
        (("run",), {}, 1),
        (("run", "--no-such-option"), {}, 2),
        (("run", "-n", ""), {}, 2),
        (("no-such-command",), {}, 2),
        (("plan",), {"TTL_KINDS": ""}, 2),
        (("watch", "--sink", "ftp://x"), {}, 2),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_errors_of_a_command_are_json_if_the_log_is(words, environment, code):
    ended = run_program(MAIN, *words, TTL_LOG="json", **environment)
    assert ended.returncode == code
    (line,) = ended.stderr.splitlines()
    assert json.loads(line)["level"] == "critical"


def test_warnings_of_a_command_are_json_if_the_log_is(monkeypatch, capsys):
    monkeypatch.setattr(logging.getLogger("ttl"), "level", logging.WARNING)
    configure_logging("json", level=logging.WARNING)
    try:
        warn("one", fg="red", bold=True)
        warn("two")
    finally:
        logging.basicConfig(force=True)
    assert [json.loads(line)["message"] for line in capsys.readouterr().err.splitlines()] == ["one", "two"]


def test_only_printing_writes_to_standard_error():
    modules = [module for module in (ROOT / "shared/cli").rglob("*.py") if "err=True" in module.read_text()]
    assert [module.name for module in modules] == ["printing.py"]


@pytest.mark.parametrize(
    "code",
    [
        "1 / 0",
        "import warnings; warnings.warn('old')",
        "import threading; thread = threading.Thread(target=lambda: 1 / 0); thread.start(); thread.join()",
        "class Odd:\n    def __del__(self): 1 / 0\nodd = Odd(); del odd",
        "import logging; logging.getLogger('uvicorn.error').warning('slow')",
    ],
)
def test_python_warnings_and_stack_traces_are_json_if_the_log_is(code):
    uvicorn = "from uvicorn.config import Config; Config('x:y')"
    ended = run_program(f"{uvicorn}\n{LOGGING}\n{code}")
    lines = [json.loads(line) for line in ended.stderr.splitlines()]
    assert len(lines) == 1
    assert ("exception" in lines[0]) == ("1 / 0" in code)


def test_help_is_text_if_the_log_is_json():
    ended = run_program(MAIN, "run", "--help", TTL_LOG="json")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith("Usage: ")


@pytest.fixture
def logged():
    """Lines of the log in text form."""
    stream = io.StringIO()
    configure_logging("text", stream=stream)
    yield lambda: stream.getvalue().splitlines()
    configure_logging("text", stream=sys.__stderr__)


def test_text_lines_begin_with_date_time_and_zone(logged):
    LogTelemetry().problem("something")
    (line,) = logged()
    assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z warning ", line)


def test_timer_that_is_set_is_logged_with_its_due_time(logged):
    LogTelemetry().record(Verdict.TIMER_SET, JOB, Reason.NO_TTL, by="schedule", due_at=DUE)
    assert "due=2026-01-02T03:04:05Z" in logged()[0]


def test_deletion_that_waits_for_a_finalizer_is_logged_as_accepted(logged):
    deleted = ObjectDeleted(
        ref=JOB, due_at=DUE, deleted_at=DUE, outcome=None, finished_at=None, ttl_from="", lateness_seconds=0.0
    )
    telemetry = LogTelemetry()
    telemetry.deleted(deleted, by="sweep")
    telemetry.deleted(deleted.model_copy(update={"finalizers": ("example.com/backup", "x")}), by="sweep")
    plain, accepted = logged()
    assert " deleted " in plain
    assert " deletion accepted " in accepted
    assert 'finalizers="example.com/backup, x"' in accepted


def test_sweep_is_one_line_with_its_counts(logged):
    LogTelemetry().sweep_ended("id", {"looked_at": 3, "deleted": 1, "kept": 2}, whole=True)
    assert "sweep ended  looked_at=3 deleted=1 kept=2 sweep_id=id" in logged()[0]


class Transport:
    def __init__(self, *, closed: bool) -> None:
        self.closed = closed

    def is_closing(self) -> bool:
        return self.closed


CLOSED = "unable to perform operation on <TCPTransport closed=True>; the handler is closed"


@pytest.mark.parametrize("context", [{}, {"transport": Transport(closed=False)}], ids=["no transport", "open"])
def test_loop_error_is_logged(logged, context):
    report_loop_error(context, "a bug")
    assert "Fatal error on SSL protocol" in logged()[0]


@pytest.mark.parametrize(
    ("closed", "text"), [(True, "any"), (False, CLOSED)], ids=["closed", "canceled in the handshake"]
)
def test_loop_error_about_a_closed_connection_is_not_logged(logged, closed, text):
    report_loop_error({"transport": Transport(closed=closed)}, text)
    assert logged() == []


def report_loop_error(context, text) -> None:
    """Report an error in the event loop of a command, as uvloop does."""

    async def command() -> None:
        loop, error = asyncio.get_running_loop(), RuntimeError(text)
        loop.call_exception_handler({"message": "Fatal error on SSL protocol", "exception": error, **context})

    run_in_loop(command())
