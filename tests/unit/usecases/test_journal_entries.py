"""What the journal says about a deletion, a stop and an archive."""

from datetime import timedelta

import pytest

from shared.core.values.objects import format_instant
from shared.messages import ObjectArchived, ObjectStopped
from shared.ports import EventReason
from shared.usecases.reports import entry_of_archive, entry_of_deletion, entry_of_stop
from tests.builders import NOW
from tests.journals import deletion, refusal

FINISH, DUE = format_instant(NOW - timedelta(hours=1)), format_instant(NOW)


@pytest.mark.parametrize(
    ("fields", "note"),
    [
        ({}, f"failed at {FINISH}, due at {DUE} by policy rule ci (policy 0123456789ab)"),
        ({"policy": ""}, f"failed at {FINISH}, due at {DUE} by policy rule ci"),
        (
            {"moved_by": "minAge of policy rule ci", "policy": ""},
            f"failed at {FINISH}, due at {DUE} by policy rule ci, moved by minAge of policy rule ci",
        ),
        (
            {"deleted_at": NOW + timedelta(minutes=2), "lateness_seconds": 120.0, "policy": ""},
            f"failed at {FINISH}, due at {DUE} by policy rule ci, deleted 2m later",
        ),
        (
            {"finalizers": ("a", "b"), "policy": ""},
            f"failed at {FINISH}, due at {DUE} by policy rule ci; it exists until its finalizers are removed: a, b",
        ),
        (
            {"finished_at": None, "outcome": None, "policy": ""},
            f"finished at an unknown time, due at {DUE} by policy rule ci",
        ),
        (
            {"reason": "over-count", "ttl_from": "maxCount of policy rule ci", "policy": ""},
            f"failed at {FINISH}, beyond the count of its group, due at {DUE} by maxCount of policy rule ci",
        ),
    ],
    ids=["policy", "no policy", "moved", "late", "finalizers", "no finish", "over-count"],
)
def test_deletion_names_finish_due_time_source_and_policy(fields, note):
    entry = entry_of_deletion(deletion(**fields), by="sweep")
    assert (entry.reason, entry.level) == (EventReason.EXPIRED, "Normal")
    assert entry.note == f"deleted: {note}"


@pytest.mark.parametrize(
    ("reason", "event", "note"),
    [
        (
            "deadline-exceeded",
            ("DeadlineExceeded", "Warning"),
            f"its deadline was over at {DUE} by policy rule ci",
        ),
        ("unused", ("UnusedDeleted", "Normal"), f"nothing referred to it; due at {DUE} by policy rule ci"),
    ],
)
def test_deletion_without_a_ttl_has_a_reason_of_its_own(reason, event, note):
    entry = entry_of_deletion(deletion(reason=reason, policy="", finished_at=None, outcome=None), by="enforce")
    assert (entry.reason, entry.level) == event
    assert entry.note == f"deleted: {note}"


def test_stop_names_its_detail_due_time_and_policy():
    stopped = ObjectStopped(
        ref=deletion().ref,
        started_at=NOW - timedelta(hours=1),
        deadline_from="policy rule ci",
        due_at=NOW,
        stopped_at=NOW,
        lateness_seconds=0,
        stops=1,
        policy="0123456789ab",
    )
    entry = entry_of_stop(stopped, "ran for longer than 1h; stopped by the patch X", by="enforce")
    assert entry.note == f"ran for longer than 1h; stopped by the patch X; due at {DUE} (policy 0123456789ab)"
    assert (entry.action, entry.reason, entry.level) == ("Stop", "DeadlineExceeded", "Warning")


def test_archive_names_version_archive_and_place():
    archived = ObjectArchived(
        ref=deletion().ref,
        archive="main",
        resource_version="7",
        digest="d",
        location="s3://bucket/x",
        archived_at=NOW,
        timer=None,
    )
    entry = entry_of_archive(archived, by="archive")
    assert entry.note == "archived: resource version 7 is in archive main: s3://bucket/x"
    assert (entry.action, entry.reason) == ("Archive", "Archived")


def test_refusal_has_the_answer_and_the_class_of_the_error():
    entry = refusal()
    assert (entry.action, entry.reason, entry.level) == ("Refuse", EventReason.DELETION_REFUSED, "Warning")
    assert (entry.note, entry.source) == ("refused: jobs a is forbidden", "ForbiddenError")
