"""`deleted`, and `explain` of an object that only the journal knows."""

import json
import re
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from click.testing import CliRunner

from shared.adapters.kubernetes.journal_events import Sum, event_of, event_of_sum, key_of
from shared.adapters.kubernetes.requests import Answer
from shared.cli.deleted import describe_past
from shared.cli.deleters.in_force import PolicyInForce
from shared.cli.explanation.live_explanation import DeletionRecord, explain_gone, find_record
from shared.cli.main import main
from shared.cli.objects.journal import entry_as_json, find_entries, find_entries_of
from shared.cli.objects.preview import AbsentObjectError
from shared.core.policy.policy import NO_POLICY
from shared.core.values.objects import format_instant
from shared.errors import ForbiddenError, TtlError
from shared.ports import JournalAction
from tests.archives import opened_archives
from tests.builders import JOB, NOW
from tests.journals import archived, deletion, entry, refusal, report, stop
from tests.reference.outputs import OUTPUTS

pytestmark = pytest.mark.anyio


class Listed:
    """An API server that lists Events, two a page."""

    def __init__(self, *events: dict[str, Any], error: Exception | None = None) -> None:
        self.events, self.error, self.paths = events, error, list[str]()

    async def request(self, _method: str, path: str, **_: Any) -> Any:
        self.paths.append(path)
        if self.error:
            raise self.error
        start = int(path.rpartition("continue=")[2]) if "continue=" in path else 0
        rest = str(start + 2) if start + 2 < len(self.events) else ""
        body = {"metadata": {"continue": rest}, "items": list(self.events[start : start + 2])}
        return Answer(body=body, read_at=NOW)


def listed(*events: dict[str, Any], **options: Any) -> Any:
    return Listed(*events, **options)


def at(minutes: int, name: str = "a", **fields: Any) -> dict[str, Any]:
    return event_of(entry(name, deleted_at=NOW + timedelta(minutes=minutes), **fields), "x")


SUM = event_of_sum(key_of(entry()), Sum(7, NOW, NOW + timedelta(minutes=2)), "x", number=1)


async def test_deletions_of_all_pages_are_found_with_the_newest_first():
    cluster = listed(at(1, "a"), at(3, "b"), SUM, at(2, "c"), {"reason": "Scheduled"})
    found = await find_entries(cluster, namespace="ci")
    assert [one.ref.name for one in found.named] == ["b", "c", "a"]
    assert (found.count, len(cluster.paths)) == (7, 3)
    assert cluster.paths[0].startswith("/apis/events.k8s.io/v1/namespaces/ci/events?fieldSelector=reportingController")


async def test_stop_is_no_deletion():
    stop = replace(entry(), action=JournalAction.STOP)
    assert (await find_entries(listed(event_of(stop, "x")), namespace="")).named == []


async def test_refusal_is_no_deletion_and_is_found_if_asked_for():
    both = event_of(refusal(), "x"), at(1)
    assert [one.reason for one in (await find_entries(listed(*both), namespace="")).named] == ["Expired"]
    found = await find_entries(listed(*both), JournalAction.REFUSE, namespace="")
    assert [(one.reason, one.data["error"]) for one in found.named] == [("DeletionRefused", "ForbiddenError")]


async def test_refusal_has_its_own_fields_as_json():
    (one,) = (await find_entries(listed(event_of(refusal(), "x")), JournalAction.REFUSE, namespace="")).named
    shown = entry_as_json(one)
    assert (shown["message"], shown["refusedAt"]) == ("jobs a is forbidden", format_instant(NOW))
    assert "deletedAt" not in shown


async def test_since_leaves_out_older_deletions_and_older_counts():
    found = await find_entries(listed(at(1), at(3), SUM), namespace="", since=NOW + timedelta(minutes=3))
    assert (len(found.named), found.count) == (1, 0)


async def test_limit_keeps_the_newest_deletions_of_each_namespace():
    events = [at(minute, f"n{minute}") for minute in (3, 9, 1, 7, 5, 2, 8)]
    other = event_of(entry("z", "web", deleted_at=NOW), "x")
    found = await find_entries(listed(*events, other), namespace="", most=2)
    assert [one.ref.name for one in found.named] == ["n9", "n8", "z"]
    assert found.left_out == 5


async def test_deletions_of_a_name_are_those_of_its_kind_and_what_is_counted():
    other = event_of(entry(ref=replace(deletion().ref, kind="Pod", api_version="v1")), "x")
    found = await find_entries_of(listed(at(1), at(2, "b"), other, SUM), deletion().ref)
    assert ([one.ref.kind for one in found.named], found.count) == (["Job"], 7)


async def explain(record: DeletionRecord, output: str = "text") -> None:
    error = AbsentObjectError("Job a does not exist in namespace ci")
    in_force = PolicyInForce(NO_POLICY, "none", is_local=True)
    await explain_gone(
        error,
        deletion().ref,
        JOB,
        in_force,
        identity=opened_archives().identity,
        flags=(),
        output=output,
        deletion=record,
    )


async def test_explain_of_a_gone_object_says_when_and_why_it_was_deleted(capsys):
    await explain(await find_record(listed(at(1), at(2)), deletion().ref))
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["Job ci/a", "  decision  gone: it does not exist any more"]
    assert " ago: failed at 2026-03-14T14:09:26Z, due at 2026-03-14T15:09:26Z by policy rule ci" in lines[2]
    assert "1 older deletion of this name" in lines[3]


async def test_explain_of_a_gone_object_as_json_has_the_facts_of_the_cloudevent(capsys):
    await explain(await find_record(listed(at(1)), deletion().ref), "json")
    shown = json.loads(capsys.readouterr().out)
    assert (shown["decision"], shown["reason"], shown["dueAt"]) == ("gone", "deleted", "2026-03-14T15:09:26Z")
    assert shown["deletion"]["policy"] == "0123456789ab"
    assert shown["deletion"]["ref"]["uid"] == "uid-ci-a"


@pytest.mark.parametrize(
    ("cluster", "words"),
    [
        (listed(), "no Event says that it was deleted: an API server keeps an Event for one hour"),
        (listed(SUM), "7 deletions of kind Job in its namespace are only counted"),
        (listed(error=ForbiddenError("no")), "its Events could not be read: no"),
    ],
    ids=["none", "counted", "forbidden"],
)
async def test_explain_without_an_event_says_what_it_does_not_know(cluster, words):
    with pytest.raises(TtlError) as raised:
        await explain(await find_record(cluster, deletion().ref))
    assert words in str(raised.value)


async def test_sum_as_json_has_its_count_and_no_name():
    (one,) = (await find_entries(listed(SUM), namespace="")).counted
    shown = entry_as_json(one)
    assert (shown["count"], shown["source"], "name" in shown) == (7, "policy rule ci", False)


EVERY = [event_of(one, "x") for one in (entry(), stop(), archived(), refusal(), report())]


@pytest.mark.parametrize(
    ("option", "schema", "name", "row"),
    [
        ("", "deleted", "deletions", r"expired +policy rule ci"),
        ("--stopped", "deleted-stopped", "stops", r"DeadlineExceeded +policy rule ci"),
        ("--archived", "deleted-archived", "archived", r"Archived +main"),
        ("--refused", "deleted-refused", "refusals", r"DeletionRefused +ForbiddenError"),
    ],
)
def test_each_option_shows_the_entries_of_its_action_alone(monkeypatch, option, schema, name, row):
    @asynccontextmanager
    async def connected(_options):
        yield listed(*EVERY, SUM)

    monkeypatch.setattr("shared.cli.deleted.connected", connected)
    words = ["deleted", *filter(None, [option]), "-n", "ci"]
    as_text, as_json, one = (CliRunner().invoke(main, [*words, *more]) for more in ([], ["-o", "json"], ["job/a"]))
    assert re.search(rf"ci +Job +a .* {row} *\n", as_text.stdout)
    assert "older " in as_text.stderr
    OUTPUTS[schema].adapter.validate_json(as_json.stdout, by_alias=True, by_name=False)
    found = json.loads(as_json.stdout)
    assert [entry["ref"]["name"] for entry in found[name]] == ["a"]
    assert len(found["counted"]) == (not option)  # the sum is one of deletions
    assert one.stdout.startswith("Job ci/a\n  ")


@pytest.mark.parametrize(
    "words",
    [["-A", "-n", "ci"], ["-A", "job/x"], ["job/x/y"], ["--since", "soon"], ["--stopped", "--refused"]],
)
def test_deleted_refuses_what_contradicts_itself(words):
    result = CliRunner().invoke(main, ["deleted", *words, "--kubeconfig", "/nowhere"])
    assert result.exit_code == 2, result.output


@pytest.mark.parametrize(("seconds", "words"), [(-60, "1m ago"), (0, "just now"), (2, "just now")])
def test_deletion_is_never_in_the_future(seconds: int, words: str) -> None:
    assert describe_past(NOW + timedelta(seconds=seconds), NOW) == words
