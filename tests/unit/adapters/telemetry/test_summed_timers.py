"""The lines of timers on a terminal."""

import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from shared.adapters.telemetry.logs import LogTelemetry, SummedTimers
from shared.core.decision.reasons import Reason
from shared.core.values.objects import format_instant, ref_of
from shared.ports import Verdict
from tests.builders import NOW, job, pod

JOB, POD = ref_of(job()), ref_of(pod())


class Lines(logging.Handler):
    """The fields of each line that is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[dict[str, object]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.written.append({"message": record.getMessage(), **getattr(record, "fields", {})})


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Lines:
    lines = Lines()
    log = logging.getLogger("ttl")
    monkeypatch.setattr(log, "handlers", [lines])
    monkeypatch.setattr(log, "level", logging.INFO)
    log.manager._clear_cache()  # type: ignore[attr-defined] # it caches the level
    return lines


@pytest.fixture
def waiting(lines: Lines) -> list[Callable[[], None]]:
    """The calls that wait for the end of the second."""
    calls: list[Callable[[], None]] = []
    lines.addFilter(SummedTimers(lines, lambda _, call: calls.append(call)))
    return calls


def set_timers(count: int, *, by: str = "schedule") -> None:
    for number in range(count):
        ref, due_at = replace(JOB, name=f"job-{number}"), NOW + timedelta(hours=count - number)
        LogTelemetry().record(Verdict.TIMER_SET, ref, Reason.NOT_DUE, by=by, due_at=due_at)


def test_timers_of_a_kind_share_a_line(lines: Lines, waiting: list[Callable[[], None]]) -> None:
    set_timers(90)
    LogTelemetry().record(Verdict.TIMER_SET, POD, Reason.NOT_DUE, by="sweep", due_at=NOW)
    assert lines.written == []
    (end,) = waiting

    end()

    first_due = format_instant(NOW + timedelta(hours=1))
    summed, alone = lines.written
    assert summed == {"message": "timer-set", "kind": "Job", "objects": 90, "first_due": first_due}
    assert (alone["object"], alone["reason"]) == (str(POD), "not-due")


def test_timers_after_the_line_get_another_one(lines: Lines, waiting: list[Callable[[], None]]) -> None:
    for _ in range(2):
        set_timers(3)
        waiting.pop()()
    assert [line["objects"] for line in lines.written] == [3, 3]


def test_other_lines_are_written_at_once(lines: Lines, waiting: list[Callable[[], None]]) -> None:
    set_timers(1, by="expire")
    LogTelemetry().record(Verdict.WOULD_DELETE, JOB, Reason.EXPIRED, by="expire")
    assert [line["message"] for line in lines.written] == ["timer-set", "would-delete"]
    assert not waiting
