"""Metrics: each call is passed on and counted, under a bounded set of labels."""

import asyncio
import socket
import threading
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import aiohttp
import pytest
from prometheus_client import generate_latest

from shared.adapters.config.settings import read_settings
from shared.adapters.telemetry import metric_parts
from shared.adapters.telemetry.metric_parts import SCRAPES_MAX
from shared.adapters.telemetry.metrics import Metrics
from shared.bootstrap.build import build
from shared.bootstrap.config import read_config
from shared.bootstrap.start import serve_metrics
from shared.core.decision.decide import Reason
from shared.core.decision.forecast import Forecast
from shared.core.values.objects import ObjectRef
from shared.devserver.ports import free_port
from shared.errors import TryLaterError, TtlError
from shared.messages import ObjectDeleted, ObjectStopped, SweepStep, Timer
from shared.ports import Verdict
from tests.builders import shipped_kinds
from tests.fakes import FakePublisher, FakeTelemetry

pytestmark = pytest.mark.anyio

DUE = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def of(reported=None):
    return Metrics(reported or FakeTelemetry(), kinds=shipped_kinds(), sweep_interval=timedelta(minutes=10))


def ref(kind="Job"):
    return ObjectRef("batch/v1", kind, "ns", "done", "uid")


def kind_of(group, kind):
    return shipped_kinds().of(group, kind)[0]


def deleted(seconds, kind="Job"):
    return ObjectDeleted(
        ref=ref(kind),
        outcome=None,
        finished_at=None,
        ttl_from="spec",
        due_at=DUE,
        deleted_at=DUE,
        lateness_seconds=seconds,
    )


def value(metrics, name, **labels):
    return metrics.registry.get_sample_value(name, labels)


def series(metrics, name):
    return [sample.labels for family in metrics.registry.collect() for sample in family.samples if sample.name == name]


def test_verdict_is_passed_on_and_counted():
    reported = FakeTelemetry()
    metrics = of(reported)

    metrics.record(Verdict.KEPT, ref(), Reason.UNFINISHED, by="sweep")
    metrics.record(Verdict.KEPT, ref(), Reason.UNFINISHED, by="sweep")

    assert reported.verdicts() == [("kept", "unfinished")] * 2
    assert value(metrics, "ttl_objects_total", verdict="kept", kind="Job", reason="unfinished", by="sweep") == 2


def test_deletion_is_counted_with_its_lateness():
    reported = FakeTelemetry()
    metrics = of(reported)

    metrics.deleted(deleted(0.03), by="expire")
    metrics.deleted(deleted(700.0), by="sweep", missed=True)

    assert len(reported.deletions) == 2
    assert value(metrics, "ttl_objects_total", verdict="deleted", kind="Job", reason="expired", by="expire") == 1
    assert value(metrics, "ttl_deletion_lateness_seconds_bucket", kind="Job", by="expire", le="0.025") == 0
    assert value(metrics, "ttl_deletion_lateness_seconds_bucket", kind="Job", by="expire", le="0.05") == 1
    assert value(metrics, "ttl_deletion_lateness_seconds_sum", kind="Job", by="sweep") == 700
    assert value(metrics, "ttl_missed_by_events_total", kind="Job") == 1


def test_stop_is_counted_with_its_lateness_from_the_deadline():
    metrics = of()
    stop = {"started_at": DUE, "deadline_from": "annotation", "due_at": DUE, "stopped_at": DUE, "stops": 1}
    for seconds in (0.04, -0.2):
        metrics.object_stopped(ObjectStopped(ref=ref(), lateness_seconds=seconds, **stop), by="enforce")

    counted = {"verdict": "stopped", "kind": "Job", "reason": "deadline-exceeded", "by": "enforce"}
    assert value(metrics, "ttl_objects_total", **counted) == 2
    assert value(metrics, "ttl_stop_lateness_seconds_bucket", kind="Job", by="enforce", le="0.05") == 2
    assert value(metrics, "ttl_stop_lateness_seconds_sum", kind="Job", by="enforce") == 0.04
    assert value(metrics, "ttl_deletion_lateness_seconds_sum", kind="Job", by="enforce") is None


def test_dead_letter_about_a_stop_is_counted_with_its_type():
    metrics = of()
    metrics.dead_letter(ObjectStopped.type, 422)
    assert value(metrics, "ttl_dead_letters_total", type=ObjectStopped.type, code="422") == 1


def test_negative_lateness_counts_as_zero():
    metrics = of()
    metrics.deleted(deleted(-2.0), by="expire")
    assert value(metrics, "ttl_deletion_lateness_seconds_sum", kind="Job", by="expire") == 0


def test_unknown_kinds_types_and_statuses_share_one_label():
    metrics = of()

    for number in range(100):
        metrics.record(Verdict.KEPT, ref(f"Gizmo{number}"), "kind-not-enabled", by="schedule")
        metrics.deleted(deleted(1.0, f"Gizmo{number}"), by="expire", missed=True)
        metrics.dead_letter(f"com.example.{number}", 10_000 + number)
        metrics.swept(kind_of("batch", "Job").model_copy(update={"kind": f"Gizmo{number}"}))

    kept = value(metrics, "ttl_objects_total", verdict="kept", kind="other", reason="kind-not-enabled", by="schedule")
    assert kept == 100
    assert series(metrics, "ttl_missed_by_events_total") == [{"kind": "other"}]
    assert series(metrics, "ttl_dead_letters_total") == [{"type": "other", "code": "other"}]
    assert series(metrics, "ttl_sweep_last_end_timestamp_seconds") == [{"kind": "other"}]


def test_problem_labels_are_bounded():
    reported = FakeTelemetry()
    metrics = of(reported)

    for number in range(200):
        metrics.problem(f"problem {number}", object="ns/name")

    assert len(reported.problems) == 200
    assert len(series(metrics, "ttl_problems_total")) == 51
    assert value(metrics, "ttl_problems_total", problem="other") == 150


@pytest.mark.parametrize("type_", [Timer.type, "dev.knative.sources.ping", "dev.knative.apiserver.resource.update"])
def test_dead_letter_is_counted_by_type_and_status(type_):
    reported = FakeTelemetry()
    metrics = of(reported)

    metrics.dead_letter(type_, 422, trigger="expire")
    metrics.dead_letter(type_, "422", function="expire")

    assert [fields["type"] for _, fields in reported.problems] == [type_, type_]
    assert value(metrics, "ttl_dead_letters_total", type=type_, code="422") == 2


def test_last_sweep_of_a_kind_has_its_time():
    metrics = of()
    assert value(metrics, "ttl_sweep_last_end_timestamp_seconds", kind="Job") is None

    before = datetime.now(UTC).timestamp()
    metrics.swept(kind_of("batch", "Job"))

    assert value(metrics, "ttl_sweep_last_end_timestamp_seconds", kind="Job") >= before
    assert value(metrics, "ttl_sweep_interval_seconds") == 600


def test_forecast_has_a_value_for_each_kind_and_hour():
    metrics, forecast, now = of(), Forecast(), datetime.now(UTC)
    for hours in (-1, 0.5, 1.5, 1.6, 50):
        forecast.add("batch", "Job", now + timedelta(hours=hours), now)
    metrics.forecast(forecast)

    values = {
        labels["hour"]: value(metrics, "ttl_forecast_objects", **labels)
        for labels in series(metrics, "ttl_forecast_objects")
    }
    assert list(values) == sorted(values) == [*(f"{hour:02}" for hour in range(25)), "later"]
    assert {hour: count for hour, count in values.items() if count} == {"00": 1, "01": 1, "02": 2, "later": 1}


def test_forecast_of_a_kind_ends_with_its_objects():
    metrics, forecast, now = of(), Forecast(), datetime.now(UTC)
    forecast.add("batch", "Job", now, now)
    forecast.add("", "Pod", now, now)
    metrics.forecast(forecast)
    forecast.forget(["batch/v1/Job"])
    metrics.forecast(forecast)
    assert {labels["kind"] for labels in series(metrics, "ttl_forecast_objects")} == {"Pod"}


@pytest.mark.parametrize(
    ("group", "kind", "label"),
    [
        ("velero.io", "Backup", "Backup.velero.io"),
        ("postgresql.cnpg.io", "Backup", "Backup.postgresql.cnpg.io"),
        ("batch.volcano.sh", "Job", "Job.batch.volcano.sh"),
        ("batch", "Job", "Job"),
        ("", "Pod", "Pod"),
        ("jobset.x-k8s.io", "JobSet", "JobSet"),
    ],
)
def test_kinds_that_share_a_name_have_separate_series(group, kind, label):
    metrics, rule = of(), kind_of(group, kind)
    one = ObjectRef(rule.api_version, kind, "ns", "done", "uid")

    metrics.swept(rule)
    metrics.record(Verdict.KEPT, one, Reason.UNFINISHED, by="sweep")
    metrics.delayed(one, 1.0)

    assert series(metrics, "ttl_sweep_last_end_timestamp_seconds") == [{"kind": label}]
    assert [labels["kind"] for labels in series(metrics, "ttl_objects_total")] == [label]
    assert [labels["kind"] for labels in series(metrics, "ttl_budget_wait_seconds_count")] == [label]


def test_known_kind_of_an_unknown_group_is_other():
    metrics = of()
    metrics.record(Verdict.KEPT, ObjectRef("example.com/v1", "Job", "ns", "done", "uid"), "kind-not-enabled")
    assert [labels["kind"] for labels in series(metrics, "ttl_objects_total")] == ["other"]


async def test_published_event_is_counted_with_its_result():
    broker = FakePublisher()
    metrics = of()
    publisher = metrics.measuring(broker)

    await publisher.publish(SweepStep())
    broker.failure = TryLaterError("busy")
    with pytest.raises(TryLaterError):
        await publisher.publish(SweepStep())

    assert len(broker.published) == 1
    assert value(metrics, "ttl_published_total", type=SweepStep.type, result="accepted") == 1
    assert value(metrics, "ttl_published_total", type=SweepStep.type, result="failed") == 1


# Timers: asked in the engine's loop, from another thread


@dataclass
class Engine:
    """A timer engine with so many timers."""

    count: int = 3
    due_at: datetime | None = DUE
    failure: Exception | None = None

    async def pending(self):
        if self.failure:
            raise self.failure
        return self.count

    async def next_due(self):
        return self.due_at


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """On a slow machine, no value of a scrape is late."""
    monkeypatch.setattr(metric_parts, "SCRAPED_VALUE_SECONDS_MAX", 60.0)


async def scraped(metrics):
    return (await asyncio.to_thread(generate_latest, metrics.registry)).decode()


async def test_pending_timers_are_counted_at_each_scrape():
    metrics, engine = of(), Engine()
    metrics.count_timers(lambda: engine, "sqlite")

    first = await scraped(metrics)
    engine.count, engine.due_at = 0, None
    second = await scraped(metrics)

    assert 'ttl_timer_engine_info{engine="sqlite"} 1.0\n' in first
    assert "ttl_timers_pending 3.0\n" in first
    (line,) = [line for line in first.splitlines() if line.startswith("ttl_timers_next_due_timestamp_seconds ")]
    assert float(line.split()[1]) == DUE.timestamp()
    assert "ttl_timers_pending 0.0\n" in second
    assert "ttl_timers_next_due_timestamp_seconds" not in second


@pytest.mark.parametrize("engine", [None, object(), Engine(failure=TryLaterError("locked"))])
async def test_scrape_without_a_timer_count_has_the_other_metrics(engine):
    metrics = of()
    metrics.count_timers(lambda: engine, "sqlite")

    text = await scraped(metrics)

    assert "ttl_timers" not in text
    assert "ttl_build_info" in text


# Serving


async def test_metrics_are_served_until_they_are_closed():
    metrics, port = of(), free_port()
    metrics.answered("expire", 204)
    close = metrics.serve(port, "127.0.0.1")
    try:
        async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/metrics") as response:
            text = await response.text()
    finally:
        await asyncio.to_thread(close)

    assert 'ttl_events_total{function="expire",status="204"} 1.0' in text
    assert 'ttl_build_info{version="' in text
    assert "process_resident_memory_bytes" in text
    assert "_created" not in text
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)


async def test_idle_connections_hold_no_thread_and_delay_no_scrape():
    metrics, port = of(), free_port()
    close = metrics.serve(port, "127.0.0.1")
    before = threading.active_count()
    writers = []
    try:
        readers = []
        for _ in range(5 * SCRAPES_MAX):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /metrics HTTP/1.1\r\n")
            readers.append(reader)
            writers.append(writer)
        closed = await asyncio.gather(*(reader.read() for reader in readers[: 4 * SCRAPES_MAX]))
        async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/metrics") as response:
            assert response.status == 200

        assert set(closed) == {b""}
        while threading.active_count() - before > SCRAPES_MAX:
            await asyncio.sleep(0.01)
    finally:
        for writer in writers:
            writer.close()
        await asyncio.to_thread(close)


async def test_scrape_with_a_slow_value_ends_without_it(monkeypatch):
    sent, setup = threading.Event(), metric_parts._Handler.setup

    def setup_once_sent(handler):
        sent.wait()
        setup(handler)

    monkeypatch.setattr(metric_parts._Handler, "timeout", 0.1)
    monkeypatch.setattr(
        metric_parts._Handler, "setup", setup_once_sent
    )  # bytes after the end would reset the connection
    metrics, port = of(), free_port()
    close = metrics.serve(port, "127.0.0.1")
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /metrics HTTP/1.1\r\n")
        sent.set()
        assert await reader.read() == b""
        writer.close()
    finally:
        await asyncio.to_thread(close)


async def test_port_in_use_is_one_sentence_that_names_the_setting():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        process = build(read_config(read_settings(environment={"TTL_METRICS_PORT": str(port)})))
        with pytest.raises(TtlError, match=f"^TTL_METRICS_PORT: expected a free port, got {port}: "):
            serve_metrics(process)


async def test_process_without_a_metrics_port_has_no_metrics():
    telemetry = FakeTelemetry()
    config = read_config(read_settings(environment={}), telemetry=telemetry)

    serve_metrics(build(config))()

    assert (config.telemetry, config.metrics) == (telemetry, None)


async def test_safeguards_are_measured_and_passed_on():
    reported = FakeTelemetry()
    metrics = of(reported)
    for kind in ("Job", "Forged"):
        metrics.delayed(ref(kind), 7.0)
        metrics.recreate_loop(ref(kind))
    metrics.paced(kind_of("batch", "Job"), 50, before=100, most=100)
    metrics.breaker(is_open=True)
    assert value(metrics, "ttl_deletion_permits", kind="Job") == 50
    assert reported.paces == [("jobs.batch", 50)]
    assert value(metrics, "ttl_budget_wait_seconds_sum", kind="Job") == 7.0
    assert value(metrics, "ttl_recreate_loops_total", kind="other") == 1
    assert value(metrics, "ttl_breaker_open") == 1
    assert (reported.waits, reported.loops, reported.breaker_open) == ([7.0, 7.0], ["done", "done"], True)
    metrics.breaker(is_open=False)
    assert value(metrics, "ttl_breaker_open") == 0


async def test_scrape_reads_a_release_in_an_idle_process():
    metrics = of()
    metrics.breaker(is_open=True)

    async def released():
        metrics.breaker(is_open=False)

    metrics.watch_shared_state(released)

    assert "ttl_breaker_open 0.0\n" in await scraped(metrics)


async def test_scrape_of_an_unreadable_breaker_shows_its_last_state():
    metrics = of()
    metrics.breaker(is_open=True)

    async def unread():
        raise TryLaterError("busy")

    metrics.watch_shared_state(unread)

    assert "ttl_breaker_open 1.0\n" in await scraped(metrics)


async def test_scrape_reads_a_stop_in_an_idle_process():
    metrics = of()

    async def look():
        metrics.stopped(is_stopped=True)

    assert "ttl_stopped 0.0\n" in await scraped(metrics)
    metrics.watch_shared_state(look)
    assert "ttl_stopped 1.0\n" in await scraped(metrics)
