"""The journal in Kubernetes Events: their form, what is written, counted and dropped, and that no deletion waits."""

import asyncio
import json
from datetime import timedelta
from functools import partial

import pytest

from shared.adapters.kubernetes.journal import JournaledTelemetry, ReportingTelemetry
from shared.adapters.kubernetes.journal_events import (
    COUNTED,
    NOTE_BYTES_MAX,
    RECORD,
    Sum,
    event_of,
    event_of_sum,
    key_of,
)
from shared.adapters.kubernetes.journal_reading import parse_event
from shared.core.policy.limits import Rate
from shared.core.values.objects import ObjectRef
from shared.core.values.timing import BACKOFF_SECONDS_MAX
from shared.errors import ForbiddenError, TryLaterError
from shared.ports import EventReason, JournalResult, Report
from tests.builders import NOW, not_none
from tests.fakes import FakeTelemetry
from tests.journals import Bench, deletion, entry, refusal, report
from tests.simulation.virtualloop import VirtualLoop

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def anyio_backend():
    """Each test runs in virtual time."""
    return "asyncio", {"loop_factory": partial(VirtualLoop, 0)}


class TestEvent:
    def test_event_is_about_the_object_and_says_who_did_what_why(self):
        event = event_of(entry(), "expire-7")
        assert event["regarding"] == {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "namespace": "ci",
            "name": "a",
            "uid": "uid-ci-a",
        }
        fields = ("reason", "action", "type", "reportingController", "reportingInstance", "eventTime")
        assert [event[one] for one in fields] == [
            "Expired",
            "Delete",
            "Normal",
            "ttl-after-finished",
            "expire/expire-7",
            f"{NOW:%Y-%m-%dT%H:%M:%S}.250000Z",
        ]
        assert event["metadata"]["namespace"] == "ci"
        record = json.loads(event["metadata"]["annotations"][RECORD])
        assert record == json.loads(deletion().model_dump_json(by_alias=True))

    def test_event_has_the_same_name_each_time_so_that_a_repetition_is_a_conflict(self):
        first, again = event_of(entry(), "x"), event_of(entry(), "x")
        assert first["metadata"]["name"] == again["metadata"]["name"]
        assert event_of(entry("b"), "x")["metadata"]["name"] != first["metadata"]["name"]

    def test_event_about_a_cluster_scoped_object_is_in_the_namespace_default(self):
        assert event_of(entry(namespace=""), "x")["metadata"]["namespace"] == "default"

    @pytest.mark.parametrize("name", ["system:node", "A.B", "a..b", "-", "x" * 300, "a-.b"])
    def test_name_of_any_object_gives_a_valid_name_of_an_event(self, name):
        ref = ObjectRef("batch/v1", "Job", "ci", name, "u")
        written = event_of(entry(ref=ref), "x")["metadata"]["name"]
        assert len(written) <= 253
        for label in written.split("."):
            assert label.strip("-") == label
            assert label
            assert set(label) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")

    def test_note_is_never_too_long_for_the_api_server(self):
        note = event_of(entry(finalizers=("ä" * 2_000,)), "x")["note"]
        assert NOTE_BYTES_MAX - 2 <= len(note.encode()) <= NOTE_BYTES_MAX

    def test_event_is_read_back(self):
        read = parse_event(event_of(entry(), "x"))
        assert read is not None
        assert (read.ref, read.reason, read.count, read.is_sum) == (deletion().ref, "Expired", 1, False)
        assert read.data["ttlFrom"] == "policy rule ci"

    @pytest.mark.parametrize(
        "change",
        [
            {"reportingController": "kubelet"},
            {"eventTime": None},
            {"metadata": {}},
            {"regarding": {}},
            {"metadata": {"annotations": {COUNTED: "[]"}}},
            {"metadata": {"annotations": {COUNTED: '{"count": "many"}'}}},
        ],
        ids=str,
    )
    def test_event_of_another_form_is_not_read(self, change):
        assert parse_event(event_of(entry(), "x") | change) is None

    def test_sum_has_its_count_as_a_series_and_is_read_back(self):
        event = event_of_sum(key_of(entry()), Sum(7, NOW, NOW), "x", number=1)
        assert event["series"]["count"] == 7
        assert event["regarding"]["kind"] == "Namespace"
        assert event["note"].startswith("7 more objects of kind Job deleted from ")
        read = parse_event(event)
        assert read is not None
        assert (read.is_sum, read.count, read.ref.kind, read.ref.namespace) == (True, 7, "Job", "ci")

    def test_sum_of_one_has_no_series_because_the_api_server_rejects_it(self):
        assert "series" not in event_of_sum(key_of(entry()), Sum(1, NOW, NOW), "x", number=1)


class TestWriting:
    async def test_entry_is_written_at_once(self):
        bench = Bench()
        bench.journal.note(entry())
        await bench.journal.flush()
        assert [one["reason"] for one in bench.events] == ["Expired"]
        assert bench.telemetry.journal == {JournalResult.RECORDED: 1}

    async def test_note_does_not_wait_for_an_api_server_that_hangs(self):
        bench = Bench()
        bench.cluster.gate.clear()
        for number in range(1_000):
            bench.journal.note(entry(str(number)))
        await asyncio.sleep(0)
        assert bench.events == []
        await bench.journal.flush(0.01)
        assert bench.telemetry.journal == {JournalResult.DROPPED: 1_000}
        assert [message for message, _ in bench.telemetry.problems] == ["entries of the journal are dropped"]

    async def test_entries_beyond_the_rate_are_one_event_with_their_count(self):
        bench = Bench(of_kind=Rate(per_second=0.1, burst=3))
        for number in range(10):
            bench.journal.note(entry(str(number)))
        await bench.journal.flush()
        assert sorted(one.get("series", {}).get("count", 1) for one in bench.events) == [1, 1, 1, 7]
        assert bench.telemetry.journal == {JournalResult.RECORDED: 3, JournalResult.COUNTED: 7}

    async def test_sum_is_written_when_its_minute_is_over(self):
        bench = Bench(of_kind=Rate(per_second=0.1, burst=1), sum_seconds=60)
        bench.journal.note(entry("a"))
        bench.journal.note(entry("b"))
        await asyncio.sleep(59)
        assert len(bench.events) == 1
        bench.now = 60.0
        await asyncio.sleep(2)
        assert len(bench.events) == 2

    async def test_another_namespace_kind_or_rule_has_a_sum_of_its_own(self):
        bench = Bench(of_process=Rate(per_second=0.1, burst=1))
        for one in (entry("a"), entry("b"), entry("c"), entry("d", "prod"), entry("e", ttl_from="policy rule x")):
            bench.journal.note(one)
        await bench.journal.flush()
        assert sorted(one.get("series", {}).get("count", 1) for one in bench.events) == [1, 1, 1, 2]

    async def test_entries_beyond_the_sums_are_dropped_and_counted(self):
        bench = Bench(of_process=Rate(per_second=0.1, burst=1), sums_max=2)
        for number in range(5):
            bench.journal.note(entry("a", f"ns-{number}"))
        await bench.journal.flush()
        results = {JournalResult.RECORDED: 1, JournalResult.COUNTED: 2, JournalResult.DROPPED: 2}
        assert bench.telemetry.journal == results

    async def test_sources_of_one_namespace_leave_room_for_the_sums_of_others(self):
        bench = Bench(of_process=Rate(per_second=0.1, burst=1), sums_max=5, sums_of_namespace_max=3)
        for number in range(50):
            bench.journal.note(entry(str(number), "busy", ttl_from=f"field x of Runtime busy/{number}"))
        bench.journal.note(entry("a", "quiet"))
        await bench.journal.flush()
        assert bench.telemetry.journal == {JournalResult.RECORDED: 1, JournalResult.COUNTED: 50}
        read = [not_none(parse_event(one)) for one in bench.events]
        assert sorted(one.count for one in read if one.is_sum) == [1, 1, 1, 1, 46]
        assert [one.data["source"] for one in read if one.count == 46] == ["other sources"]

    async def test_refusals_in_many_namespaces_leave_room_for_deletions(self):
        bench = Bench(of_process=Rate(per_second=0.1, burst=2), of_refusals=Rate(per_second=0.1, burst=2))
        for number in range(10):
            bench.journal.note(refusal("a", f"ns-{number}"))
        bench.journal.note(entry("a", "quiet"))
        await bench.journal.flush()
        assert [one["regarding"]["name"] for one in bench.events if one["action"] == "Delete"] == ["a"]
        assert bench.telemetry.journal == {JournalResult.RECORDED: 3, JournalResult.COUNTED: 8}

    async def test_refused_event_is_dropped_and_reported_once_a_minute(self):
        bench = Bench(ForbiddenError("no"), ForbiddenError("no"))
        for name in "abc":
            bench.journal.note(entry(name))
        await bench.journal.flush()
        assert bench.telemetry.journal == {JournalResult.DROPPED: 2, JournalResult.RECORDED: 1}
        assert len(bench.telemetry.problems) == 1

    async def test_event_is_sent_again_if_the_api_server_is_busy(self):
        bench = Bench(TryLaterError("busy", retry_after_seconds=0))
        bench.journal.note(entry())
        await asyncio.sleep(0.7)  # the first pause of the back-off is half a second
        assert bench.telemetry.journal == {JournalResult.RECORDED: 1}
        assert bench.cluster.writes == 2

    async def test_a_proxy_cannot_stop_the_journal_for_an_hour(self):
        bench = Bench(TryLaterError("busy", retry_after_seconds=3_600))
        bench.journal.note(entry())
        await asyncio.sleep(BACKOFF_SECONDS_MAX - 1)
        assert bench.cluster.writes == 1
        await asyncio.sleep(2)
        assert bench.cluster.writes == 2

    async def test_entry_after_the_flush_is_written_too(self):
        bench = Bench()
        await bench.journal.flush()
        bench.journal.note(entry())
        await asyncio.sleep(1)
        assert len(bench.events) == 1

    async def test_telemetry_passes_each_call_on_and_notes_what_was_done(self):
        bench, inner = Bench(), FakeTelemetry()
        telemetry = JournaledTelemetry(inner, bench.journal)
        telemetry.deleted(deletion(), by="expire", missed=True)
        telemetry.problem("x")
        await bench.journal.flush()
        assert (inner.deletions, inner.missed, inner.problems) == ([deletion()], 1, [("x", {})])
        assert len(bench.events) == 1


NAMESPACE = {"api_version": "v1", "kind": "Namespace"}


def sizes(bench):
    """How many objects each Event is about, the most first."""
    return sorted((one.get("series", {}).get("count", 1) for one in bench.events), reverse=True)


class TestReports:
    async def test_report_is_an_event_that_is_no_deletion_and_no_refusal(self):
        bench = Bench()
        bench.journal.note(report())
        await bench.journal.flush()
        (event,) = bench.events
        fields = ("reason", "action", "type", "note", "reportingInstance")
        assert [event[one] for one in fields] == [
            "InvalidTtl",
            "Report",
            "Warning",
            "kept: soon is no duration",
            "sweep/expire-7",
        ]
        record = json.loads(event["metadata"]["annotations"][RECORD])
        assert (record["reason"], record["message"]) == ("InvalidTtl", event["note"])

    async def test_report_that_each_sweep_repeats_is_one_event_while_the_api_server_keeps_it(self):
        bench = Bench()
        for second in (0.0, 300.0, 3_599.0):
            bench.now = second
            bench.journal.note(report(at=NOW + timedelta(seconds=second)))
        await bench.journal.flush()
        assert bench.telemetry.journal == {JournalResult.RECORDED: 1}
        bench.now = 3_600.0
        bench.journal.note(report())
        await bench.journal.flush()
        assert bench.telemetry.journal == {JournalResult.RECORDED: 2}

    async def test_report_has_the_same_event_in_each_process_so_that_a_repetition_is_a_conflict(self):
        later = report(at=NOW + timedelta(minutes=5))
        assert event_of(report(), "a")["metadata"]["name"] == event_of(later, "b")["metadata"]["name"]
        other = report(message="kept: later is no duration")
        assert event_of(report(), "a")["metadata"]["name"] != event_of(other, "a")["metadata"]["name"]

    async def test_report_is_written_again_if_its_event_could_not_be_written(self):
        bench = Bench(ForbiddenError("no"))
        for _ in range(2):
            bench.journal.note(report())
            await bench.journal.flush()
        assert bench.telemetry.journal == {JournalResult.DROPPED: 1, JournalResult.RECORDED: 1}

    async def test_flood_of_one_namespace_hides_no_other_report_and_no_deletion(self):
        bench = Bench()
        for number in range(10_000):
            bench.journal.note(report(str(number)))
        bench.journal.note(report(reason=EventReason.INVALID_DEADLINE))
        bench.journal.note(report("b", "prod"))
        bench.journal.note(entry())
        bench.journal.note(refusal())
        await bench.journal.flush()
        assert sizes(bench) == [9_980, *[1] * 24]
        assert bench.telemetry.journal == {JournalResult.RECORDED: 24, JournalResult.COUNTED: 9_980}
        (total,) = [one for one in bench.events if "series" in one]
        assert total["note"].startswith("9980 more objects of kind Job with InvalidTtl from ")

    async def test_flood_of_many_namespaces_leaves_the_tokens_of_deletions(self):
        bench = Bench()
        for number in range(400):
            bench.journal.note(report(str(number), f"ns-{number}"))
        for number in range(15):
            bench.journal.note(entry(str(number)))
        await bench.journal.flush()
        assert bench.telemetry.journal == {JournalResult.RECORDED: 200 + 15, JournalResult.COUNTED: 200}

    async def test_flood_of_many_kinds_has_the_tokens_of_one(self):
        bench = Bench()
        for number in range(200):
            bench.journal.note(report(str(number), about={"kind": f"Kind{number % 10}"}))
        await bench.journal.flush()
        assert sizes(bench) == [*[18] * 10, *[1] * 20]

    async def test_problem_of_a_namespace_that_each_object_reports_is_one_event(self):
        bench = Bench()
        for number in range(100):
            bench.journal.note(report("ci", "", message="a", about=NAMESPACE))
            bench.journal.note(report(f"n-{number % 2}", "", message="b", about=NAMESPACE))
        await bench.journal.flush()
        assert sizes(bench) == [1, 1, 1]

    async def test_problem_of_a_namespace_is_counted_once_if_its_namespace_is_flooded(self):
        bench = Bench(of_kind=Rate(per_second=0.1, burst=1))
        reason = EventReason.INVALID_POLICY
        for number in range(10):
            bench.journal.note(report(str(number), reason=reason))
            bench.journal.note(report("ci", "", reason=reason, about=NAMESPACE))
        bench.journal.note(report("prod", "", reason=reason, about=NAMESPACE))
        await bench.journal.flush()
        assert sizes(bench) == [9, 1, 1, 1]

    async def test_memory_of_reports_is_bounded(self):
        bench = Bench(reports_max=2, of_kind=Rate(per_second=1, burst=10))
        for name in ("a", "b", "c", "c", "a"):
            bench.journal.note(report(name))
        await bench.journal.flush()
        assert bench.telemetry.journal == {JournalResult.RECORDED: 4}

    async def test_telemetry_of_reports_alone_notes_no_deletion(self):
        bench, inner = Bench(), FakeTelemetry()
        telemetry = ReportingTelemetry(inner, bench.journal)
        telemetry.deleted(deletion(), by="expire")
        found = Report.of(deletion().ref, EventReason.UNUSED, "its deletion is announced", at=NOW)
        telemetry.reported(found, by="usage", level="Normal")
        await bench.journal.flush()
        assert (inner.deletions, len(inner.reports)) == ([deletion()], 1)
        assert [(one["action"], one["type"]) for one in bench.events] == [("Report", "Normal")]
