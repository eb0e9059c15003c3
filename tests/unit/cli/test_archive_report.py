"""What `explain` and `plan` say about the archive of an object that exists."""

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from shared.cli.main import main
from shared.cli.objects.archive_report import (
    archive_as_json,
    archive_lines,
    describe_own_deletion,
    find_unarchived_deletions,
)
from shared.cli.plan import describe_unarchived
from shared.core.archive.archiving import ArchiveFact, Archiving
from shared.core.deadlines.decide_stop import StopDecision
from shared.core.decision.decide import Ignore
from shared.core.decision.facts import Facts, Reason
from shared.core.decision.finish import Finish
from shared.core.values.objects import ref_of
from shared.evaluation.batch import BatchResult
from tests.builders import JOB, NOW, ago, job, later, stamp

DAY = timedelta(days=1)
MAIN = Archiving("main", "policy rule ci", grace=DAY)
STORED = ArchiveFact("main", "u", "1", ago(60), location="s3://bucket/key")
ABSENT = ArchiveFact("main", "u", "1")


def facts(archiving: Archiving | None, fact: ArchiveFact | None, **others: Any) -> Facts:
    return Facts(Finish(finished=True, at=ago(120)), archiving=archiving, archived=fact, **others)


def test_acknowledged_object_has_its_place_and_the_end_of_the_grace() -> None:
    assert list(archive_lines(facts(MAIN, STORED), NOW)) == [
        "main, by policy rule ci; acknowledged 2026-03-14T15:08:26Z (1m ago): s3://bucket/key",
        "its grace of 1d ends 2026-03-15T15:08:26Z (in 23h59m)",
    ]
    assert archive_as_json(facts(MAIN, STORED)) == {
        "name": "main",
        "from": "policy rule ci",
        "graceSeconds": 86_400,
        "acknowledged": True,
        "acknowledgedAt": "2026-03-14T15:08:26Z",
        "graceEndsAt": "2026-03-15T15:08:26Z",
        "location": "s3://bucket/key",
    }


def test_object_that_is_not_stored_says_so() -> None:
    assert list(archive_lines(facts(MAIN, ABSENT), NOW)) == [
        "main, by policy rule ci; not acknowledged: this version of the object is not stored",
        "its grace of 1d begins with the acknowledgement",
    ]
    reported = archive_as_json(facts(MAIN, ABSENT))
    assert reported is not None
    assert (reported["acknowledged"], reported["graceEndsAt"]) == (False, None)


@pytest.mark.parametrize(
    ("children", "logs", "archive_id", "lacking"),
    [
        (True, False, "a", "without its logs"),
        (False, True, "a", "without its children"),
        (False, False, "", "without its children and logs"),
        (True, True, "a", "by another archive, a"),
        (True, True, "", "before the archive had an id"),
    ],
)
def test_object_that_is_stored_without_what_is_wanted_names_the_document(
    children: bool, logs: bool, archive_id: str, lacking: str
) -> None:
    fact = replace(ABSENT, location="s3://bucket/key", children=children, logs=logs, archive_id=archive_id)
    line = next(archive_lines(facts(replace(MAIN, logs=True), fact), NOW))
    assert line == f"main, by policy rule ci; not acknowledged: stored at s3://bucket/key {lacking}"


@pytest.mark.parametrize("fact", [None, replace(ABSENT, problem="away")])
def test_unknown_acknowledgement_is_not_said_to_be_absent(fact: ArchiveFact | None) -> None:
    assert next(archive_lines(facts(MAIN, fact), NOW)).endswith(("was not read", "does not count"))
    reported = archive_as_json(facts(MAIN, fact))
    assert reported is not None
    assert reported["acknowledged"] is None


def test_object_without_an_archive_has_no_line() -> None:
    assert (list(archive_lines(facts(None, None), NOW)), archive_as_json(facts(None, None))) == ([], None)


def test_native_archive_names_its_archiver() -> None:
    assert "Tekton Results" in next(archive_lines(facts(replace(MAIN, native=True), ABSENT), NOW))


def result(reason: Reason, found: Facts) -> BatchResult:
    stop: StopDecision = Ignore(Reason.FINISHED, found)
    return BatchResult(ref_of(job()), JOB, NOW, (Ignore(reason, found),), (stop,))


def test_plan_counts_objects_that_wait_for_their_archive() -> None:
    waiting = [facts(MAIN, ABSENT, due_at=at) for at in (ago(60), ago(1), later(60), None)]
    objects = [result(Reason.NOT_ARCHIVED, one) for one in waiting]
    objects.append(result(Reason.HELD, facts(MAIN, ABSENT)))
    assert list(describe_unarchived(objects)) == [
        "4 kept until archive main has acknowledged them",
        "the TTL of 2 is over: they are archived first, and deleted when the grace after that ends",
    ]


def test_plan_says_that_overdue_objects_without_a_grace_are_deleted_once_they_are_archived() -> None:
    waiting = [facts(replace(MAIN, grace=timedelta(0)), ABSENT, due_at=at) for at in (ago(60), ago(1), later(60))]
    assert list(describe_unarchived([result(Reason.NOT_ARCHIVED, one) for one in waiting])) == [
        "3 kept until archive main has acknowledged them",
        "2 are archived first, and deleted as soon as archive main has them",
    ]


def test_plan_says_that_an_archive_could_not_be_read() -> None:
    objects = [result(Reason.NOT_ARCHIVED, facts(MAIN, None, problem="archive main: 403"))] * 2
    assert list(describe_unarchived(objects)) == [
        "2 kept until archive main has acknowledged them",
        "problem: archive main: 403",
    ]


def explain(tmp_path: Any, obj: dict[str, Any], output: str = "text") -> str:
    policy = tmp_path / "policy.yaml"
    rule = {"name": "ci", "match": {"kinds": ["jobs"]}, "ttl": "1m", "archive": {"to": "main", "grace": "1d"}}
    policy.write_text(yaml.safe_dump({"archives": {"main": {"url": "file:///a"}}, "rules": [rule]}))
    words = ["explain", "-f", "-", "--policy", str(policy), "--now", str(stamp(NOW)), "-o", output]
    return CliRunner().invoke(main, words, input=yaml.safe_dump(obj)).stdout


def test_explain_of_a_file_keeps_what_has_to_be_archived(tmp_path: Any) -> None:
    reported = json.loads(explain(tmp_path, job(complete=ago(3_600)), output="json"))
    assert (reported["decision"], reported["reason"]) == ("ignore", "archive-unread")
    assert reported["archive"]["acknowledged"] is None
    lines = explain(tmp_path, job(complete=ago(3_600))).splitlines()
    assert lines[1].startswith("  decision  kept (archive-unread): ")
    assert "  archive   main, by policy rule ci; the archive was not read" in lines
    assert any("ttlafterfinished.dev/archive=false -n ci`" in line for line in lines)


def test_explain_of_a_file_names_the_controller_that_deletes_an_object_unarchived(tmp_path: Any) -> None:
    shown = explain(tmp_path, job(complete=ago(60), ttl=3_600))
    assert "not deleted by ttl-after-finished (archive-unread)" in shown
    assert "  overridden kube-controller-manager deletes it at 2026-03-14T16:08:26Z, archived or not" in shown


def test_explain_of_a_wrong_annotation_has_the_command_that_fixes_it(tmp_path: Any) -> None:
    shown = explain(tmp_path, job(complete=ago(60), archive="nowhere"))
    assert "`kubectl annotate --overwrite jobs.batch/build-42 ttlafterfinished.dev/archive=NAME -n ci`" in shown


def test_explain_says_when_the_own_controller_deletes_an_object_that_is_not_archived() -> None:
    unarchived = facts(MAIN, ABSENT, overridden="spec.ttlSecondsAfterFinished")
    obj = job(complete=ago(120), ttl=300)
    assert describe_own_deletion(obj, JOB, unarchived) == (
        "kube-controller-manager deletes it at 2026-03-14T15:12:26Z, archived or not, by "
        "spec.ttlSecondsAfterFinished: 300; remove the field, and set `ttl` in the policy rule"
    )
    assert "archived or not" not in describe_own_deletion(obj, JOB, replace(unarchived, archived=STORED))


def test_plan_names_the_objects_that_their_own_controller_deletes_unarchived() -> None:
    unarchived = facts(MAIN, ABSENT, overridden="spec.ttlSecondsAfterFinished")
    objects = [result(Reason.NOT_ARCHIVED, one) for one in (unarchived, facts(MAIN, ABSENT))]
    ((text, refs),) = find_unarchived_deletions(objects)
    assert text.startswith("kube-controller-manager deletes them by spec.ttlSecondsAfterFinished, archived or not")
    assert list(refs) == [objects[0].ref]
