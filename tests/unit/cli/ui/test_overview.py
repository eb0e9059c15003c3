"""The document of the page: what it counts, what it names, and how large it can get."""

import json
from dataclasses import replace

import pytest

from shared.adapters.kubernetes.journal_events import event_of
from shared.cli.objects.journal import FoundEntries
from shared.cli.ui.cluster_view import KindPlace, UnreadPart
from shared.cli.ui.overview import ROWS_MAX, overview
from shared.cli.ui.shown import Asked, Grant, show_view
from tests.builders import ago, job
from tests.journals import entry
from tests.reference.outputs import OUTPUTS
from tests.ui_views import deletions, read, view_of

pytestmark = pytest.mark.anyio

BYTES_MAX = 100_000


async def document(view, asked=Asked(), find_grant=None):  # noqa: B008 - frozen
    found = overview(await show_view(view, asked, find_grant), refresh_seconds=30)
    text = json.dumps(found)
    OUTPUTS["ui"].adapter.validate_json(text, by_alias=True, by_name=False)
    assert len(text) <= BYTES_MAX
    return found


def granting(*places, status=False):
    async def find_grant(asked):
        granted = frozenset(KindPlace("batch", "jobs", one) for one in places)
        return Grant(granted & set(asked), status=status)

    return find_grant


async def test_document_counts_what_is_due_and_what_is_kept():
    found = await document(await view_of())
    assert found["totals"] == {
        "objects": 8, "finished": 8, "dueNow": 3, "within1h": 0, "from1hTo24h": 2, "later": 1, "kept": 2,
    }  # fmt: skip
    forecast = found["forecast"]
    counts = dict(zip(forecast["windows"], forecast["counts"], strict=True))
    assert {window: count for window, count in counts.items() if count} == {"now": 3, "1-2h": 2, "later": 1}
    assert [(one["namespace"], one["kind"]) for one in forecast["rows"]] == [
        ("ci", "jobs.batch"),
        ("web", "jobs.batch"),
    ]
    assert {one["reason"]: (one["count"], one["examples"][0]["name"]) for one in found["kept"]} == {
        "held": (1, "held"),
        "no-ttl": (1, "forever"),
    }
    assert [(one["namespace"], one["finished"], one["forever"]) for one in found["piles"]["rows"]] == [
        ("ci", 5, 0),
        ("web", 3, 2),
    ]


async def test_document_has_the_deletions_with_reason_and_lateness():
    found = (await document(await view_of()))["deletions"]
    assert (found["total"], found["maxLatenessSeconds"], found["counted"][0]["count"]) == (9, 0.25, 7)
    assert [(one["name"], one["latenessSeconds"]) for one in found["rows"]] == [("gone", 0.25)] * 2


async def test_document_has_the_breaker_the_leader_and_the_last_sweep():
    status = (await document(await view_of()))["status"]
    assert status["breaker"] == {"open": True, "limits": None, "deletionsInWindow": 12}
    assert [one["reason"] for one in status["obstacles"]] == ["breaker-open"]
    assert (status["leaders"][0]["holder"], status["leaders"][0]["leads"]) == ("pod-1/7", True)
    assert status["lastSweep"]["complete"]
    assert [one["name"] for one in status["recreateLoops"]] == ["Job.batch/ci/loop"]


@pytest.mark.parametrize("asked", [Asked(namespace="web"), Asked(namespace="web", kind="job")])
async def test_filter_leaves_only_what_is_asked_for(asked):
    found = await document(await view_of(), asked)
    assert (found["totals"]["objects"], found["deletions"]["total"]) == (3, 1)
    assert (await document(await view_of(), Asked(kind="pods")))["totals"]["objects"] == 0


async def test_reader_of_one_namespace_sees_nothing_of_another():
    found = await document(await view_of(), find_grant=granting("web"))
    assert found["totals"]["objects"] == 3
    assert found["namespaces"] == ["web"]
    assert found["status"] is None
    assert [one["about"] for one in found["problems"]] == ["cronjobs.batch"]
    text = json.dumps(found)
    assert "due-0" not in text
    assert '"ci"' not in text
    assert found["deletions"]["total"] == 1


async def test_reader_without_a_right_sees_no_object_and_no_name():
    found = await document(await view_of(), find_grant=granting())
    assert (found["totals"]["objects"], found["kept"], found["deletions"]["total"]) == (0, [], 0)


async def test_reader_who_may_read_the_state_sees_the_status():
    assert (await document(await view_of(), find_grant=granting(status=True)))["status"] is not None


async def test_only_a_reader_who_may_read_the_state_sees_what_is_wrong_with_it():
    unread = [UnreadPart(about, "secret-name", is_status=True) for about in ("policy", "state in namespace x")]
    view = await view_of(unread=unread)
    hidden = (await document(view, find_grant=granting("web")))["problems"]
    assert [one["about"] for one in hidden] == ["state"]
    assert "secret" not in hidden[0]["problem"]
    shown = (await document(view, find_grant=granting("web", status=True)))["problems"]
    assert [one["about"] for one in shown] == ["policy", "state in namespace x"]


async def test_document_of_many_namespaces_is_bounded():
    long = "n" * 57
    view = await view_of(
        *(job(name="j" * 60, uid=f"u{n}", namespace=f"{long}{n:06}", complete=ago(60), ttl=1) for n in range(2_000))
    )
    events = [read(event_of(entry("e" * 253, f"{long}{n:06}"), "x")) for n in range(2_000)]
    sums = [replace(deletions().counted[0], note="x" * 9_000)] * 2_000
    found = await document(replace(view, deletions=FoundEntries(events, sums)))
    assert len(found["forecast"]["rows"]) == ROWS_MAX
    assert found["forecast"]["moreRows"] == 2_000 - ROWS_MAX
    assert found["totals"]["objects"] == 2_000


async def test_forged_event_cannot_put_other_values_into_the_document():
    event = event_of(entry(), "x")
    annotations = event["metadata"]["annotations"]
    (name,) = annotations
    annotations[name] = json.dumps({"latenessSeconds": float("inf"), "reason": {"a": []}, "ttlFrom": "x" * 5_000})
    forged = FoundEntries([read(event)], [])
    (row,) = (await document(await view_of(deletions=forged)))["deletions"]["rows"]
    assert row["latenessSeconds"] is None
    assert len(row["ttlFrom"]) < 600
