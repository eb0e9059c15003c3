"""What `explain` prints about an object that only an archive has."""

import json
from dataclasses import replace
from typing import Any

import pytest

from shared.cli.deleters.in_force import PolicyInForce
from shared.cli.explanation import live_explanation
from shared.cli.explanation.live_explanation import explain_gone
from shared.cli.objects.preview import AbsentObjectError
from shared.core.policy.policy import Policy
from shared.core.values.objects import ref_of
from shared.errors import TryLaterError, TtlError
from tests.archives import FakeArchive, opened_archives
from tests.builders import JOB, NOW, ago, having, job

pytestmark = pytest.mark.anyio
IDENTITY = opened_archives("prod").identity
REF = replace(ref_of(job()), uid="")


@pytest.fixture
def archives(monkeypatch: pytest.MonkeyPatch) -> dict[str, FakeArchive]:
    archives = {"main": FakeArchive(), "cold": FakeArchive()}
    monkeypatch.setattr(live_explanation, "open_destination", lambda name, _: archives[name])
    return archives


async def explain(output: str = "text", **archives: Any) -> None:
    policy = Policy.model_validate(
        {"archives": archives or {"main": {"url": "file:///a"}, "cold": {"url": "file:///b"}}}
    )
    error = AbsentObjectError("Job build-42 does not exist in namespace ci")
    await explain_gone(
        error,
        REF,
        JOB,
        PolicyInForce(policy, "policy.yaml", is_local=True),
        identity=IDENTITY,
        flags=("--context=x",),
        output=output,
    )


RECORD: dict[str, Any] = {
    "finished_at": ago(120),
    "outcome": "failed",
    "due_at": ago(60),
    "ttl_from": "policy rule ci",
    "rule": "keep",
    "children": ("v1/child",),
    "logs": ("v1/log",),
    "log_problems": {"p/init": "refused: 403", "p/main": "cut: 10 MiB"},
}


async def test_explain_of_a_gone_object_says_when_it_finished_and_which_rule_was_to_delete_it(
    archives: dict[str, FakeArchive], capsys: pytest.CaptureFixture[str]
) -> None:
    archives["main"].add(job(), **RECORD)
    await explain()
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["Job ci/build-42", "  decision  gone: it does not exist any more; an archive has it"]
    shown = "\n".join(lines)
    assert (
        "`kubectl ttl archive restore jobs.batch/build-42 -n ci --archive main --policy policy.yaml --context=x`"
        in shown
    )
    assert "  finished  failed at 2026-03-14T15:07:26Z (" in shown
    assert "  ttl       set by policy rule ci" in shown
    assert "  due       2026-03-14T15:08:26Z (" in shown
    assert "  archive   main, by policy rule keep; acknowledged 2026-03-14T15:09:26Z (" in shown
    assert "resource version 1042, 1 stored version, 1 child, 1 log, 1 log missing" in shown
    assert "  logs      no log of p/init: refused: 403" in shown
    assert "            the log of p/main is not complete: cut: 10 MiB" in shown


async def test_explain_of_a_gone_object_as_json(
    archives: dict[str, FakeArchive], capsys: pytest.CaptureFixture[str]
) -> None:
    stored = archives["main"].add(job(), **RECORD)
    await explain("json")
    assert json.loads(capsys.readouterr().out) == {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "namespace": "ci",
        "name": "build-42",
        "finished": True,
        "finishedAt": "2026-03-14T15:07:26Z",
        "outcome": "failed",
        "ttlFrom": "policy rule ci",
        "dueAt": "2026-03-14T15:08:26Z",
        "decision": "gone",
        "reason": "archived",
        "archive": {
            "name": "main",
            "rule": "keep",
            "acknowledgedAt": "2026-03-14T15:09:26Z",
            "location": stored.location,
            "uid": "6f1f8a52-0c7e-4c53-9f0e-0d9a3c1b7e11",
            "resourceVersion": "1042",
            "digest": stored.key.digest,
            "children": ["v1/child"],
            "logs": ["v1/log"],
            "logProblems": {"p/init": "refused: 403", "p/main": "cut: 10 MiB"},
            "redacted": False,
            "others": [],
        },
    }


async def test_damaged_document_beside_a_good_one_of_the_same_version_is_left_out(
    archives: dict[str, FakeArchive], capsys: pytest.CaptureFixture[str]
) -> None:
    good = archives["main"].add(job(), at=ago(60))
    damaged = replace(good.key, digest="0" * 64)
    archives["main"].documents[damaged.path] = archives["main"].documents[good.key.path][0], NOW
    await explain("json")
    assert json.loads(capsys.readouterr().out)["archive"]["location"] == good.location


async def test_newest_of_several_archives_counts(
    archives: dict[str, FakeArchive], capsys: pytest.CaptureFixture[str]
) -> None:
    archives["main"].add(job(), at=ago(60))
    archives["cold"].add(having(job(), "metadata.resourceVersion", "2000"), at=NOW)
    await explain("json")
    assert json.loads(capsys.readouterr().out)["archive"]["name"] == "cold"


async def test_several_objects_of_the_name_are_named(
    archives: dict[str, FakeArchive], capsys: pytest.CaptureFixture[str]
) -> None:
    archives["main"].add(job(uid="first"), at=ago(60))
    archives["main"].add(job(uid="second"))
    await explain("json")
    assert [one["uid"] for one in json.loads(capsys.readouterr().out)["archive"]["others"]] == ["first"]
    await explain()
    assert "2 objects of this name are archived" in capsys.readouterr().out


async def test_object_that_no_archive_has_is_an_error_with_the_archives(archives: dict[str, FakeArchive]) -> None:
    archives["main"].add(job(name="other"))
    with pytest.raises(TtlError, match="does not exist in namespace ci, and not in archive main, cold"):
        await explain()


async def test_policy_without_readable_archives_changes_nothing() -> None:
    with pytest.raises(TtlError, match=r"does not exist in namespace ci$"):
        await explain(tekton={"native": "tekton-results"})


async def test_archive_that_cannot_be_read_is_a_warning(
    archives: dict[str, FakeArchive], capsys: pytest.CaptureFixture[str]
) -> None:
    archives["main"].failure = TryLaterError("away")
    archives["cold"].add(job())
    await explain()
    captured = capsys.readouterr()
    assert captured.err == "archive main could not be searched: away\n"
    assert "archive   cold" in captured.out
