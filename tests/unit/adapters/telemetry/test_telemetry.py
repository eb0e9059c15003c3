"""Log lines distinguish kinds that share a name."""

import logging
from datetime import UTC, datetime

import pytest

from shared.adapters.telemetry.logs import LogTelemetry
from shared.core.decision.decide import Reason
from shared.core.values.objects import ObjectRef
from shared.messages import ObjectDeleted, ObjectStopped
from shared.ports import Verdict
from tests.builders import shipped_kinds

BACKUP = ObjectRef("velero.io/v1", "Backup", "bk", "precious", "uid")
JOB = ObjectRef("batch/v1", "Job", "ci", "done", "uid")
DUE = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.fixture
def logged(caplog):
    caplog.set_level(logging.DEBUG, logger="ttl")
    return lambda: [record.fields for record in caplog.records]


def test_each_line_about_an_object_of_a_custom_kind_has_its_api_version(logged):
    telemetry = LogTelemetry()
    outcome = {"outcome": None, "finished_at": None, "ttl_from": "", "lateness_seconds": 1.0}

    telemetry.record(Verdict.KEPT, BACKUP, Reason.UNFINISHED, by="sweep")
    telemetry.deleted(ObjectDeleted(ref=BACKUP, due_at=DUE, deleted_at=DUE, **outcome), by="expire")
    telemetry.recreate_loop(BACKUP)

    identities = [(fields["object"], fields["api_version"]) for fields in logged()]
    assert identities == [("Backup bk/precious", "velero.io/v1")] * 3


def test_line_about_an_object_of_a_built_in_kind_has_no_api_version(logged):
    LogTelemetry().record(Verdict.KEPT, JOB, Reason.UNFINISHED, by="sweep")
    assert logged() == [{"object": "Job ci/done", "uid": "uid", "reason": "unfinished", "by": "sweep"}]


def test_sweep_line_names_the_kind_as_kubectl_does(logged):
    (rule,) = shipped_kinds().of("velero.io", "Backup")
    LogTelemetry().swept(rule)
    assert logged() == [{"kind": "backups.velero.io"}]


def test_stop_is_logged_with_its_deadline_and_its_lateness(logged):
    telemetry = LogTelemetry()
    stop = {"started_at": DUE, "deadline_from": "policy rule ci", "due_at": DUE, "stopped_at": DUE, "stops": 2}

    telemetry.object_stopped(ObjectStopped(ref=JOB, lateness_seconds=0.04, **stop), by="enforce")

    (line,) = logged()
    assert (line["reason"], line["deadline_from"], line["stops"]) == ("deadline-exceeded", "policy rule ci", 2)
    assert line["lateness_seconds"] == 0.04
    assert telemetry.counts[Verdict.STOPPED] == 1


def test_dry_run_counts_each_object_that_it_would_stop_once(logged):
    telemetry = LogTelemetry()
    for _ in range(2):
        telemetry.record(Verdict.WOULD_STOP, JOB, Reason.DEADLINE_EXCEEDED, by="enforce")
    telemetry.record(Verdict.WOULD_DELETE, BACKUP, Reason.EXPIRED, by="expire")

    assert {verdict: len(uids) for verdict, uids in telemetry.would.items()} == {
        Verdict.WOULD_DELETE: 1,
        Verdict.WOULD_STOP: 1,
    }


@pytest.mark.parametrize("reason", [Reason.INVALID_DEADLINE, Reason.STOP_UNDONE])
def test_deadline_that_needs_a_person_is_logged_as_a_warning(reason, caplog):
    LogTelemetry().record(Verdict.KEPT, JOB, reason, by="enforce")
    assert [one.levelname for one in caplog.records] == ["WARNING"]


def test_namespace_in_which_it_is_unknown_what_is_used_is_logged_once_for_each_cause(caplog):
    caplog.set_level(logging.WARNING, "ttl")
    telemetry = LogTelemetry()
    for cause in ("Gizmo ci/one", "Gizmo ci/one", "Gizmo ci/other"):
        telemetry.usage_pass("", {"ci": cause})
    telemetry.usage_pass("", {})
    telemetry.usage_pass("", {"ci": "Gizmo ci/one"})

    assert [(one.fields["namespace"], one.fields["error"]) for one in caplog.records] == [
        ("ci", "Gizmo ci/one"),
        ("ci", "Gizmo ci/other"),
        ("ci", "Gizmo ci/one"),
    ]


def test_pace_is_logged_when_it_falls_and_when_it_has_recovered(caplog):
    caplog.set_level(logging.DEBUG, "ttl")
    (rule,) = shipped_kinds().of("batch", "Job")
    telemetry = LogTelemetry()

    for before, permits in ((100, 100), (100, 50), (50, 25), (25, 26), (99, 100)):
        telemetry.paced(rule, permits, before=before, most=100)

    assert [(one.levelname, one.fields) for one in caplog.records] == [
        ("WARNING", {"kind": "jobs.batch", "in_flight_max": 50}),
        ("INFO", {"kind": "jobs.batch", "in_flight_max": 100}),
    ]
