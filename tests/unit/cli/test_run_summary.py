"""The last line of `run`: what was deleted and stopped, or would have been."""

from datetime import UTC, datetime

import pytest

from shared.adapters.telemetry import logs
from shared.adapters.telemetry.logs import LogTelemetry
from shared.cli import run
from shared.cli.run import summarize
from shared.core.values.objects import ObjectRef
from shared.messages import ObjectStopped
from shared.ports import Verdict

DUE = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def ref(uid):
    return ObjectRef("batch/v1", "Job", "ci", f"job-{uid}", uid)


def test_summary_names_stops_only_if_there_were_any():
    telemetry = LogTelemetry()
    assert summarize(telemetry, dry_run=False) == "0 deleted, 0 of them found only by a sweep"
    stop = {
        "started_at": DUE,
        "deadline_from": "",
        "due_at": DUE,
        "stopped_at": DUE,
        "lateness_seconds": 0.0,
        "stops": 1,
    }
    telemetry.object_stopped(ObjectStopped(ref=ref("a"), **stop), by="enforce")
    expected = "0 deleted, 0 of them found only by a sweep; 1 stopped at their deadline"
    assert summarize(telemetry, dry_run=False) == expected


def test_summary_of_a_dry_run_counts_each_object_once():
    telemetry = LogTelemetry()
    telemetry.record(Verdict.WOULD_DELETE, ref("a"))
    assert summarize(telemetry, dry_run=True) == "dry run: 1 object would have been deleted"
    for uid in ("b", "b", "c"):
        telemetry.record(Verdict.WOULD_STOP, ref(uid))
    assert summarize(telemetry, dry_run=True) == "dry run: 1 object would have been deleted, 2 stopped"


def test_summary_of_a_dry_run_says_that_it_stopped_counting(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(logs, "REMEMBERED_UIDS_MAX", 2)
    monkeypatch.setattr(run, "REMEMBERED_UIDS_MAX", 2)
    telemetry = LogTelemetry()
    for uid in ("a", "b", "c"):
        telemetry.record(Verdict.WOULD_DELETE, ref(uid))
    assert summarize(telemetry, dry_run=True) == "dry run: at least 2 objects would have been deleted"
