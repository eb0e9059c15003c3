"""Log lines distinguish kinds that share a name."""

import logging
from datetime import UTC, datetime

import pytest

from shared.adapters.telemetry.logs import LogTelemetry
from shared.core.decide import Reason
from shared.core.objects import ObjectRef
from shared.messages import ObjectDeleted
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
