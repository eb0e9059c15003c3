"""The sweep: what it lists, deletes, leaves to timers, skips and returns as the next step."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from shared.core.kinds.rule import Catalogue
from shared.core.policy.policy import NO_POLICY
from shared.core.values.objects import ref_of
from shared.core.values.timing import BACKOFF_SECONDS
from shared.errors import ConflictError, ForbiddenError, PermanentError, TryLaterError
from shared.evaluation.evaluator import Evaluator
from shared.evaluation.namespaces_and_owners import find_served
from shared.messages import SWEEP_COUNT_MAX, TIMERS_MAX, ObjectDeleted, SweepStep, TimersSet
from shared.ports import PASSED_OVER
from shared.usecases import sweep
from shared.usecases.expire import DELETION
from shared.usecases.handler import Handler
from shared.usecases.sweeps import pages as sweep_pages
from shared.usecases.sweeps.pages import FULL_READS_MAX, LIST_PAUSE_SECONDS_MAX
from tests.builders import BARE_TRAINJOB, JOB, POD, ago, annotated, ended, having, job, later, namespace, pod, trainjob
from tests.fakes import FakeClock, FakeCluster, FakePublisher, FakeTelemetry
from tests.sweeps import sweep_with

pytestmark = pytest.mark.anyio

KINDS = Catalogue((JOB, POD, BARE_TRAINJOB))
START = SweepStep()


class Bench:
    """A sweep over fakes."""

    def __init__(
        self, *, page_size=500, interval=timedelta(minutes=10), namespace="", dry_run=False, policy=lambda: NO_POLICY
    ):
        self.clock = FakeClock()
        self.cluster = FakeCluster(self.clock, page_size=page_size)
        self.telemetry = FakeTelemetry()
        self.publisher = FakePublisher()
        self.expiry = Handler(
            DELETION,
            self.cluster,
            KINDS,
            Evaluator(self.cluster, KINDS),
            self.clock,
            self.telemetry,
            dry_run=dry_run,
            namespace=namespace,
            by="sweep",
        )
        self.message = []
        self.tell_failure = None
        self._sweep = sweep_with(self.expiry, self.publisher, interval, concurrency=4, write_event=self._write_event)

    async def _write_event(self, reason, message, level):
        if self.tell_failure:
            raise self.tell_failure
        self.message.append((reason, level, message))

    async def sweep(self, step=START):
        return await self._sweep.sweep(step)

    def published(self, kind):
        return [message for message in self.publisher.published if isinstance(message, kind)]

    def timers(self):
        return [timer for message in self.published(TimersSet) for timer in message.timers]

    def put(self, count, make=job, prefix="job", **parts):
        for number in range(count):
            self.cluster.put(make(name=f"{prefix}-{number:03}", uid=f"{prefix}-{number:03}", **parts))


@pytest.fixture
def bench():
    return Bench()


# Deleting


async def test_sweep_of_an_empty_cluster_lists_each_kind_once(bench):
    assert await bench.sweep() is None
    assert [call.what for call in bench.cluster.calls] == ["jobs", "pods", "trainjobs"]
    assert bench.publisher.published == []


async def test_sweep_deletes_due_objects_on_all_pages_and_publishes_them(bench):
    bench.cluster.page_size = 3
    bench.put(10, complete=ago(60), ttl=30)
    bench.put(5, prefix="stays")

    assert await bench.sweep() is None

    assert bench.cluster.names == {f"stays-{number:03}" for number in range(5)}
    assert len(bench.published(ObjectDeleted)) == 10
    assert len(bench.telemetry.deletions) == 10


async def test_sweep_deletes_a_listed_object_without_a_read(bench):
    bench.put(20, complete=ago(60), ttl=30)

    await bench.sweep()

    assert bench.cluster.counted() == {"list": 1, "list-metadata": 2, "delete": 20}


async def test_sweep_counts_only_long_overdue_objects_as_missed(bench):
    bench.put(1, prefix="missed", complete=ago(60), ttl=49)
    bench.put(1, prefix="just-due", complete=ago(60), ttl=50)

    await bench.sweep()

    assert len(bench.telemetry.deletions) == 2
    assert bench.telemetry.missed == 1


async def test_sweep_in_a_dry_run_deletes_nothing():
    bench = Bench(dry_run=True)
    bench.put(3, complete=ago(60), ttl=30)

    await bench.sweep()

    assert bench.cluster.deleted == []
    assert bench.telemetry.verdicts() == [("would-delete", "expired")] * 3


async def test_sweep_of_one_namespace_keeps_the_others():
    bench = Bench(namespace="ci")
    bench.put(1, prefix="in", complete=ago(60), ttl=30)
    bench.put(1, prefix="out", complete=ago(60), ttl=30, namespace="prod")

    await bench.sweep()

    assert bench.cluster.names == {"out-000"}


async def test_sweep_of_one_namespace_skips_cluster_scoped_kinds():
    bench = Bench(namespace="ci")
    bench.cluster.serve_cluster_scoped("Pod")

    await bench.sweep()

    assert [call.what for call in bench.cluster.calls] == ["jobs", "trainjobs"]


async def test_sweep_does_not_list_a_kind_that_is_not_served(bench):
    bench.cluster.serve_only(JOB)

    assert await bench.sweep() is None
    assert [call.what for call in bench.cluster.calls] == ["jobs"]
    assert [message for _, _, message in bench.message] == [
        "listed all objects of jobs.batch: sweep 2026-03-14T15:09:26+00:00, steps: 1"
    ]


async def test_sweep_is_retried_when_discovery_fails(bench):
    bench.cluster.fail("served", TryLaterError("away"))

    with pytest.raises(TryLaterError, match="away"):
        await bench.sweep()


# Kinds with a TTL in their metadata


async def test_sweep_reads_few_candidates_of_a_metadata_page_one_by_one(bench):
    bench.put(FULL_READS_MAX, trainjob, "due", complete=ago(60), ttl="30s")
    bench.put(50, trainjob, "stays", complete=ago(60))

    await bench.sweep()

    assert bench.cluster.counted() == {"list": 1, "list-metadata": 2, "get": 10, "delete": 10}
    assert len(bench.cluster.names) == 50


async def test_sweep_lists_a_page_in_full_when_it_has_many_candidates(bench):
    bench.put(FULL_READS_MAX + 1, trainjob, "due", complete=ago(60), ttl="30s")
    bench.put(50, trainjob, "stays", complete=ago(60))

    await bench.sweep()

    assert bench.cluster.counted() == {"list": 2, "list-metadata": 2, "delete": 11}
    assert len(bench.cluster.names) == 50


async def test_sweep_reads_objects_that_the_full_page_leaves_out_one_by_one(bench, monkeypatch):
    """If objects are large, a full page has fewer of them than a metadata page."""
    bench.put(FULL_READS_MAX + 5, trainjob, "due", complete=ago(60), ttl="30s")
    list_page = bench.cluster.list_page

    async def short(rule, **asked):
        page = await list_page(rule, **asked)
        return page if asked.get("metadata_only") else replace(page, items=page.items[:4])

    monkeypatch.setattr(bench.cluster, "list_page", short)

    await bench.sweep()

    assert not bench.cluster.names
    assert bench.cluster.counted()["get"] == FULL_READS_MAX + 1


async def test_sweep_holds_one_short_page_of_large_objects_at_a_time(monkeypatch):
    bench = Bench(page_size=3)
    bench.put(9, complete=ago(60), ttl=30)
    delete, deleted_at_lists = bench.cluster.delete, []

    async def slowly(rule, obj, **options):
        await asyncio.sleep(1)  # time enough for the next page to be listed
        return await delete(rule, obj, **options)

    monkeypatch.setattr(bench.cluster, "delete", slowly)
    bench.cluster.on_list = lambda: deleted_at_lists.append(len(bench.cluster.deleted))

    await bench.sweep()

    assert deleted_at_lists[:3] == [0, 3, 6]
    assert not bench.cluster.names


class Large:
    """Makes all pages of a bench large, and counts those whose objects are not dealt with yet."""

    def __init__(self, bench, monkeypatch):
        self.bench, self.alive, self.most = bench, 0, 0
        self.list, self.delete = bench.cluster.list_page, bench.cluster.delete
        monkeypatch.setattr(bench.cluster, "list_page", self.list_page)
        monkeypatch.setattr(bench.cluster, "delete", self.slowly)

    async def list_page(self, rule, **asked):
        return replace(await self.list(rule, **asked), is_large=rule.kind != "Namespace")

    async def slowly(self, rule, obj, **options):
        self.alive |= 1 << KINDS.rules.index(rule)
        self.most = max(self.most, self.alive.bit_count())
        await asyncio.sleep(0.001)
        done = await self.delete(rule, obj, **options)
        if not any(one.startswith(rule.plural) for one in self.bench.cluster.names):
            self.alive &= ~(1 << KINDS.rules.index(rule))
        return done


async def test_sweeps_of_several_kinds_hold_one_large_page_at_a_time(bench, monkeypatch):
    for kind in (job(complete=ago(60)), pod(containers=(ended(at=ago(60)),)), trainjob(complete=ago(60))):
        for number in range(3):
            bench.cluster.put(annotated(having(kind, "metadata.name", f"{kind['kind'].lower()}s-{number}"), ttl="0s"))
    large = Large(bench, monkeypatch)
    kinds = [f"{rule.api_version}/{rule.kind}" for rule in (JOB, POD, BARE_TRAINJOB)]

    await asyncio.gather(*(bench.sweep(SweepStep(kinds=(kind,))) for kind in kinds))

    assert not bench.cluster.names
    assert large.most == 1


async def test_sweep_of_other_kinds_continues_when_deletions_of_a_large_page_hang(bench, monkeypatch):
    monkeypatch.setattr(sweep_pages, "TURN_SECONDS", 0.05)
    bench.cluster.put(annotated(job(name="stuck", complete=ago(60)), ttl="0s"))
    bench.cluster.put(annotated(trainjob(complete=ago(60)), ttl="0s"))
    large, hanging = Large(bench, monkeypatch), asyncio.Event()

    async def hang(rule, obj, **options):
        if rule.kind == "Job":
            hanging.set()
            await asyncio.Event().wait()
        return await large.delete(rule, obj, **options)

    monkeypatch.setattr(bench.cluster, "delete", hang)
    stuck = asyncio.ensure_future(bench.sweep(SweepStep(kinds=("batch/v1/Job",))))
    await hanging.wait()
    await bench.sweep(SweepStep(kinds=(f"{BARE_TRAINJOB.api_version}/TrainJob",)))
    stuck.cancel()

    assert bench.cluster.names == {"stuck"}


@pytest.mark.parametrize("rule", [JOB, POD], ids=["listed-in-full", "metadata-first"])
async def test_sweep_reports_and_keeps_an_unreadable_object_and_handles_the_others(bench, rule):
    done = job(complete=ago(60)) if rule is JOB else pod(containers=(ended(at=ago(60)),))
    put = bench.cluster.put
    refs = [ref_of(put(annotated(having(done, "metadata.name", name), ttl="0s"))) for name in ("deep", "due")]
    bench.cluster.unreadable["deep"] = "nested too deeply"

    assert await bench.sweep() is None

    assert bench.cluster.names == {"deep"}
    about = {"object": str(refs[0]), "uid": refs[0].uid, "error": "nested too deeply"}
    assert bench.telemetry.problems == [(PASSED_OVER, about)]
    assert [reason for reason, _, _ in bench.message] == ["Swept"], "the kind was not passed over"


async def test_sweep_never_deletes_by_metadata_alone(bench):
    bench.put(3, trainjob, "running", ttl="30s")

    await bench.sweep()

    assert bench.cluster.deleted == []
    assert bench.telemetry.verdicts() == [("kept", "unfinished")] * 3


async def test_sweep_ignores_a_candidate_that_is_gone(bench):
    bench.put(3, trainjob, "due", complete=ago(60), ttl="30s")
    bench.cluster.before_get = lambda _: bench.cluster.remove("due-001")

    assert await bench.sweep() is None
    assert [obj["metadata"]["name"] for obj in bench.cluster.deleted] == ["due-000", "due-002"]


# Timers


async def test_sweep_sets_timers_for_objects_due_within_two_intervals(bench):
    bench.put(1, prefix="soon", complete=ago(60), ttl=60 + 1_199)
    bench.put(1, prefix="later", complete=ago(60), ttl=60 + 1_200)

    await bench.sweep()

    assert [(timer.ref.name, timer.due_at) for timer in bench.timers()] == [("soon-000", later(1_199))]


async def test_sweep_publishes_timers_in_bounded_messages(bench):
    bench.put(TIMERS_MAX + 1, complete=ago(60), ttl=90)

    await bench.sweep()

    assert [len(message.timers) for message in bench.published(TimersSet)] == [TIMERS_MAX, 1]


@pytest.mark.parametrize(
    "error", [TryLaterError("timers answered 503: the timer file is full"), PermanentError("timer.set: 403")], ids=repr
)
async def test_sweep_reports_timers_that_cannot_be_set_and_continues(error):
    bench = Bench()
    bench.put(2 * TIMERS_MAX, prefix="soon", complete=ago(60), ttl=90)
    bench.put(1, trainjob, "train", complete=ago(600), ttl="1s")
    bench.cluster.on_list = lambda: bench.clock.advance(11)
    bench.publisher.failure = error
    step = await bench.sweep()
    assert step is not None

    while step is not None:
        step = await bench.sweep(step)

    assert "train-000" not in bench.cluster.names
    (reported, *_) = [fields for problem, fields in bench.telemetry.problems if problem == "sweep could not set timers"]
    assert reported["error"] == str(error)
    assert int(str(reported["timers"])) > TIMERS_MAX // 2


async def test_sweep_counts_a_deletion_that_cannot_be_published(bench):
    bench.put(2, complete=ago(60), ttl=30)
    bench.publisher.failure = TryLaterError("no answer")

    assert await bench.sweep() is None
    assert len(bench.cluster.deleted) == 2
    assert len(bench.telemetry.problems) == 2


async def test_sweep_sets_a_timer_after_a_conflict(bench):
    bench.put(3, complete=ago(60), ttl=30)
    bench.cluster.fail("delete", ConflictError("modified"), on="job-001")

    assert await bench.sweep() is None

    assert bench.cluster.names == {"job-001"}
    (retry,) = bench.timers()
    assert (retry.ref.name, retry.attempts) == ("job-001", 1)
    assert timedelta() < retry.due_at - bench.clock.now() <= timedelta(seconds=BACKOFF_SECONDS)


async def test_sweep_timer_ends_with_a_permanent_error_when_a_delete_is_always_refused(bench):
    bench.put(1, complete=ago(60), ttl=30)
    bench.cluster.fail("delete", ConflictError("Precondition failed"))
    await bench.sweep()
    (timer,) = bench.timers()

    with pytest.raises(PermanentError, match="409"):
        await bench.expiry.handle(timer)
    assert bench.timers() == [timer]


async def test_sweep_reports_an_object_that_another_client_deletes_as_gone(bench):
    bench.put(1, complete=ago(60), ttl=30)
    mark = "metadata.deletionTimestamp"
    bench.cluster.before_delete = lambda name: bench.cluster.write(name, mark, "2026-01-02T03:04:05Z")

    assert await bench.sweep() is None
    assert bench.telemetry.verdicts() == [("already-gone", "")]
    assert bench.timers() == []


async def test_sweep_sets_a_timer_when_a_delete_is_answered_busy(bench):
    bench.put(3, complete=ago(60), ttl=30)
    bench.cluster.fail("delete", TryLaterError("429", retry_after_seconds=20), on="job-001")

    assert await bench.sweep() is None
    (retry,) = bench.timers()
    assert (retry.ref.name, retry.due_at - bench.clock.now()) == ("job-001", timedelta(seconds=20))


# Failures


async def test_sweep_continues_after_a_permanent_error_on_one_object(bench):
    bench.put(5, complete=ago(60), ttl=30)
    bench.cluster.fail("delete", ForbiddenError("jobs is forbidden"), on="job-002")

    assert await bench.sweep() is None

    assert bench.cluster.names == {"job-002"}
    assert [(record.verdict, record.name) for record in bench.telemetry.records] == [("failed", "job-002")]
    assert [one.reason for one in bench.telemetry.refusals] == ["DeletionRefused"]


async def test_sweep_reports_an_invalid_ttl_and_continues(bench):
    bench.put(3, complete=ago(60), ttl=30)
    bench.cluster.put(annotated(job(complete=ago(60), name="odd", uid="odd"), ttl="soon"))

    await bench.sweep()

    assert bench.cluster.names == {"odd"}
    assert [reason for _, reason, _ in bench.telemetry.events] == ["InvalidTtl"]


@pytest.mark.parametrize("verb", ["list", "list-metadata"])
async def test_sweep_lists_a_kind_once_more_after_a_429(bench, verb, monkeypatch):
    waited = []

    async def rest(seconds):
        if seconds:
            waited.append(seconds)
            bench.cluster.stop_failing()
        await sleep(0)

    sleep = asyncio.sleep
    monkeypatch.setattr(asyncio, "sleep", rest)
    bench.put(1, complete=ago(60), ttl=30)
    bench.cluster.put(annotated(trainjob(complete=ago(60)), ttl="0s"))
    bench.cluster.fail(verb, TryLaterError("429", retry_after_seconds=30, is_overload=True))

    assert await bench.sweep() is None

    assert waited == [LIST_PAUSE_SECONDS_MAX]
    assert bench.cluster.names == set()
    assert [reason for reason, _, _ in bench.message] == ["Swept"], "no kind was passed over"


async def test_step_that_gets_only_429s_is_repeated_as_a_whole(bench, monkeypatch):
    """It waits once: with a pause for each kind, its time would be over, and it would pass over some kinds."""

    async def rest(seconds):
        bench.clock.advance(seconds)
        await sleep(0)

    sleep = asyncio.sleep
    monkeypatch.setattr(asyncio, "sleep", rest)
    monkeypatch.setattr(sweep_pages, "LIST_PAUSE_SECONDS_MAX", 12)  # a step lists for 20 seconds
    bench.put(1, complete=ago(60), ttl=30)
    for verb in ("list", "list-metadata"):
        bench.cluster.fail(verb, TryLaterError("429", retry_after_seconds=30, is_overload=True))

    with pytest.raises(TryLaterError, match="429"):
        await bench.sweep()

    bench.cluster.stop_failing()
    assert await bench.sweep() is None
    assert bench.cluster.names == set()


async def test_kind_that_fails_slowly_keeps_no_later_kind_from_its_sweep(bench, monkeypatch):
    listing = bench.cluster.list_page

    async def time_out(rule, **options):
        if rule is JOB:
            bench.clock.advance(30)
            raise TryLaterError("no answer within 30 s")
        return await listing(rule, **options)

    monkeypatch.setattr(bench.cluster, "list_page", time_out)
    bench.cluster.put(annotated(trainjob(complete=ago(60)), ttl="0s"))
    step = await bench.sweep()
    while step:
        step = await bench.sweep(step)
    assert bench.cluster.names == set()


@pytest.mark.parametrize("seconds", [0, 30])
async def test_sweep_ends_although_each_kind_of_its_last_step_fails(bench, monkeypatch, seconds):
    listing = bench.cluster.list_page

    async def fail_last(rule, **options):
        if rule is BARE_TRAINJOB:
            bench.clock.advance(seconds)
            raise TryLaterError("500: conversion webhook failed", retry_after_seconds=60)
        if rule in (JOB, POD):
            bench.clock.advance(11)  # these two take the whole time of the first step
        return await listing(rule, **options)

    monkeypatch.setattr(bench.cluster, "list_page", fail_last)
    step = await bench.sweep()
    assert step.kinds == ("trainer.kubeflow.org/v1alpha1/TrainJob",)
    assert await bench.sweep(step) is None
    assert [reason for reason, _, _ in bench.message] == ["SweptInPart"]


async def test_kind_that_fails_on_a_later_page_is_passed_over_with_true_counts(monkeypatch):
    bench = Bench(page_size=2)
    listing = bench.cluster.list_page

    async def fail_later(rule, **options):
        if rule is JOB and options.get("continue_token"):
            raise TryLaterError("500: etcd leader changed")
        return await listing(rule, **options)

    monkeypatch.setattr(bench.cluster, "list_page", fail_later)
    bench.put(4, complete=ago(60), ttl=30)
    assert await bench.sweep(SweepStep(kinds=("batch/v1/Job",))) is None
    assert len(bench.cluster.names) == 2
    (counts,) = bench.telemetry.sweeps
    assert (counts["looked_at"], counts["deleted"]) == (2, 2)


async def test_sweep_asks_once_more_after_a_429_what_is_served(bench, monkeypatch):
    failures = [TryLaterError("429", retry_after_seconds=0, is_overload=True)]

    async def fail_once(*about, **options):
        if failures:
            raise failures.pop()
        return await find_served(*about, **options)

    monkeypatch.setattr(sweep, "find_served", fail_once)
    bench.put(1, complete=ago(60), ttl=30)
    assert await bench.sweep() is None
    assert [reason for reason, _, _ in bench.message] == ["Swept"]
    assert bench.cluster.names == set()


async def test_sweep_that_may_list_nothing_asks_for_the_longest_pause(bench, monkeypatch):
    monkeypatch.setattr(sweep_pages, "LIST_PAUSE_SECONDS_MAX", 0)
    bench.cluster.fail("list", TryLaterError("429", retry_after_seconds=30, is_overload=True))
    bench.cluster.fail("list-metadata", TryLaterError("500", retry_after_seconds=2))

    with pytest.raises(TryLaterError, match="no kind could be listed") as raised:
        await bench.sweep()

    assert raised.value.retry_after_seconds == 30


@pytest.mark.parametrize("error", [TryLaterError("500"), ForbiddenError("pods is forbidden"), PermanentError("400")])
async def test_sweep_continues_when_a_kind_cannot_be_listed(bench, error):
    bench.put(1, complete=ago(60), ttl=30)
    bench.put(1, trainjob, "train", complete=ago(60), ttl="30s")
    bench.cluster.fail("list-metadata", error, on="pods")

    assert await bench.sweep() is None

    assert bench.cluster.names == set()
    ((_, fields),) = bench.telemetry.problems
    assert fields == {"kind": "pods", "error": str(error)}
    assert bench.telemetry.swept_kinds == ["Job", "TrainJob"]


async def test_sweep_step_is_retried_when_all_kinds_fail(bench):
    for verb in ("list", "list-metadata"):
        bench.cluster.fail(verb, TryLaterError("connection refused"))

    with pytest.raises(TryLaterError, match="connection refused"):
        await bench.sweep()


async def test_sweep_does_not_fail_on_a_kind_that_is_not_served(bench):
    bench.cluster.serve_only(JOB)
    bench.put(1, complete=ago(60), ttl=30)

    assert await bench.sweep() is None
    assert bench.cluster.names == set()
    assert bench.telemetry.problems == []


async def test_sweep_without_kinds_ends_at_once():
    bench = Bench()
    expiry = Handler(
        DELETION,
        bench.cluster,
        Catalogue(()),
        Evaluator(bench.cluster, KINDS),
        bench.clock,
        bench.telemetry,
        dry_run=False,
    )

    assert await sweep_with(expiry, bench.publisher, timedelta(minutes=1), concurrency=1).sweep(START) is None


@pytest.mark.parametrize("kind", ["Job", "", "/", "batch/v1/", "batch/v1/CronJob", "a/b/c/d"])
async def test_sweep_skips_an_unknown_kind(bench, kind):
    bench.put(1, complete=ago(60), ttl=30)

    assert await bench.sweep(SweepStep(kinds=(kind, "batch/v1/Job"))) is None
    assert bench.cluster.names == set()


# Steps


async def test_sweep_step_returns_the_next_step_when_its_time_is_over():
    bench = Bench(page_size=2)
    bench.put(10, complete=ago(60), ttl=30_000)
    bench.cluster.on_list = lambda: bench.clock.advance(10)

    step = await bench.sweep()

    assert step.kinds == ("batch/v1/Job", "v1/Pod", "trainer.kubeflow.org/v1alpha1/TrainJob")
    assert step.step == 1
    assert step.sweep_id
    rest = await bench.cluster.list_page(JOB, continue_token=step.continue_token)
    assert [obj["metadata"]["name"] for obj in rest.items] == ["job-004", "job-005"]


async def test_sweep_steps_list_each_object_once_and_have_distinct_ids():
    bench = Bench(page_size=2)
    bench.put(9, complete=ago(60), ttl=300_000)
    bench.put(5, trainjob, "train", complete=ago(60), ttl="30d")
    bench.cluster.on_list = lambda: bench.clock.advance(11)
    steps, step = [], START
    while step is not None:
        step = await bench.sweep(step)
        steps.append(step)

    seen = [record.name for record in bench.telemetry.records]
    assert len(seen) == len(set(seen)) == 14
    ids = [step.id for step in steps if step]
    assert len(ids) == len(set(ids))
    assert len({step.sweep_id for step in steps if step}) == 1
    assert bench.telemetry.swept_kinds == ["Job", "Pod", "TrainJob"]  # each once: at its last page


async def test_sweep_step_deletes_its_listed_objects_before_it_ends():
    bench = Bench(page_size=2)
    bench.put(10, complete=ago(60), ttl=30)
    bench.cluster.on_list = lambda: bench.clock.advance(20)

    step = await bench.sweep()

    assert len(bench.cluster.deleted) == 2
    assert step.step == 1


async def test_sweep_step_with_the_last_page_is_the_last():
    bench = Bench()
    bench.cluster.on_list = lambda: bench.clock.advance(6)

    assert await bench.sweep() is None


async def test_sweep_goes_on_after_a_bug_that_one_object_brings_out(bench, caplog):
    bench.put(3, complete=ago(60), ttl=30)
    bench.cluster.fail("delete", ZeroDivisionError("bug"), on="job-001")

    await bench.sweep()

    assert bench.cluster.names == {"job-001"}
    assert [one.reason for one in bench.telemetry.records if one.verdict == "failed"] == ["ZeroDivisionError"]
    assert bench.telemetry.sweeps[-1]["failed"] == 1
    assert "sweep failed on an object" in caplog.text


# The Event at the end


async def test_sweep_writes_an_event_at_its_end_with_its_id(bench):
    await bench.sweep()
    bench.clock.advance(60)
    await bench.sweep()

    assert [(reason, level) for reason, level, _ in bench.message] == [("Swept", "Normal")] * 2
    first, second = (message for _, _, message in bench.message)
    assert first.startswith("listed all objects of jobs.batch, pods, trainjobs.trainer.kubeflow.org: sweep 20")
    assert first != second  # two Events with the same text are one Event


async def test_sweep_event_of_the_last_step_names_kinds_that_an_earlier_step_could_not_list():
    bench = Bench(page_size=2)
    bench.put(9, trainjob, "train", complete=ago(60), ttl="30d")
    bench.cluster.on_list = lambda: bench.clock.advance(11)
    bench.cluster.fail("list", ForbiddenError("jobs is forbidden"), on="jobs")
    step, steps = START, 0
    while step is not None:
        assert bench.message == []
        step = await bench.sweep(step)
        steps += 1

    assert steps > 1
    ((reason, level, message),) = bench.message
    assert (reason, level) == ("SweptInPart", "Warning")
    assert message.startswith(
        "could not list batch/v1/Job; listed all objects of pods, trainjobs.trainer.kubeflow.org: sweep"
    )


async def test_sweep_event_does_not_name_a_kind_that_is_not_served(bench):
    bench.cluster.serve_only(JOB)

    await bench.sweep()

    assert [reason for reason, _, _ in bench.message] == ["Swept"]


async def test_sweep_of_single_kinds_writes_no_event(bench):
    await bench.sweep(SweepStep(kinds=("batch/v1/Job",), sweep_id="Job/now"))

    assert bench.message == []


async def test_sweep_that_is_retried_writes_no_event(bench):
    for verb in ("list", "list-metadata"):
        bench.cluster.fail(verb, TryLaterError("connection refused"))

    with pytest.raises(TryLaterError):
        await bench.sweep()

    assert bench.message == []


async def test_sweep_ends_when_its_event_cannot_be_written(bench):
    bench.put(3, complete=ago(60), ttl=30)
    bench.tell_failure = ForbiddenError("events is forbidden")

    assert await bench.sweep() is None

    assert bench.cluster.names == set()
    assert bench.telemetry.problems == [("could not write an Event", {"error": "events is forbidden"})]


async def test_sweep_writes_an_event_about_an_overridden_hold(bench):
    bench.cluster.put(job(complete=ago(60), ttl=3_600, hold="why"))
    bench.cluster.put(job(name="safe", complete=ago(60), hold="why"))

    await bench.sweep()

    assert [(ref.name, reason) for ref, reason, _ in bench.telemetry.events] == [("build-42", "OverriddenTtl")]
    assert bench.cluster.deleted == []


# Its counts


async def counted(bench):
    """The counts of a sweep, and how many steps it had."""
    step, steps = await bench.sweep(), 1
    while step is not None:
        step, steps = await bench.sweep(step), steps + 1
    (counts,) = bench.telemetry.sweeps
    return counts, steps


async def test_sweep_counts_its_verdicts_over_all_steps():
    bench = Bench(page_size=2)
    bench.put(3, prefix="due", complete=ago(60), ttl=30)
    bench.put(2, prefix="soon", complete=ago(60), ttl=120)
    bench.put(4, prefix="unfinished")
    bench.cluster.on_list = lambda: bench.clock.advance(11)

    counts, steps = await counted(bench)

    assert steps > 1
    expected = {"looked_at": 9, "deleted": 3, "would_delete": 0, "would_stop": 0, "timers_set": 2, "kept": 4}
    assert counts == {**expected, "timers_not_set": 0, "failed": 0, "already_gone": 0}


async def test_sweep_records_no_timer_for_an_object_left_to_a_later_sweep():
    bench = Bench()
    bench.put(1, prefix="soon", complete=ago(60), ttl=120)
    bench.put(1, prefix="far", complete=ago(60), ttl=10**6)

    counts, _ = await counted(bench)

    assert sorted(bench.telemetry.verdicts()) == [("kept", "left-to-sweep"), ("timer-set", "not-due")]
    assert (counts["timers_set"], counts["kept"]) == (1, 1)


class Watched(list):
    """A list that calls a function before each new item."""

    def __init__(self, before):
        self._before = before

    def append(self, item):
        self._before()
        super().append(item)


async def test_sweep_records_a_timer_only_after_it_is_published(bench):
    bench.put(2, prefix="soon", complete=ago(60), ttl=120)
    bench.put(1, prefix="written", complete=ago(60), ttl=30)
    bench.put(1, prefix="deadline", active_deadline="1s")
    bench.cluster.fail("delete", ConflictError("modified"), on="written-000")
    recorded: list[list[tuple[str, str]]] = []
    bench.publisher.published = Watched(lambda: recorded.append(bench.telemetry.verdicts()))

    counts, _ = await counted(bench)

    assert recorded == [[]]
    assert [verdict for verdict, _ in bench.telemetry.verdicts()] == ["timer-set"] * 3
    assert counts["timers_set"] == 4


async def test_sweep_that_cannot_publish_its_timers_says_so_in_its_counts_and_in_its_event(bench):
    bench.put(2, prefix="soon", complete=ago(60), ttl=120)
    bench.put(1, prefix="written", complete=ago(60), ttl=30)
    bench.cluster.fail("delete", ConflictError("modified"), on="written-000")
    bench.publisher.failure = TryLaterError("full")

    counts, _ = await counted(bench)

    assert bench.telemetry.verdicts() == []
    assert (counts["timers_set"], counts["timers_not_set"], counts["kept"]) == (0, 3, 0)
    ((reason, level, message),) = bench.message
    assert (reason, level) == ("Swept", "Warning")
    assert "the timers of 3 objects could not be set" in message


async def test_sweep_counts_of_a_forged_event_stay_bounded():
    bench = Bench(page_size=2)
    bench.put(3, complete=ago(60), ttl=30)
    bench.cluster.on_list = lambda: bench.clock.advance(21)

    step = await bench.sweep(SweepStep(kinds=("batch/v1/Job",), counts={"deleted": SWEEP_COUNT_MAX}))

    assert step is not None
    assert step.counts["deleted"] == SWEEP_COUNT_MAX
    assert SweepStep.model_validate_json(step.model_dump_json()) == step


async def test_sweep_in_a_dry_run_counts_what_it_would_delete():
    bench = Bench(dry_run=True)
    bench.put(3, complete=ago(60), ttl=30)
    bench.put(1, prefix="unfinished")

    counts, _ = await counted(bench)

    assert (counts["would_delete"], counts["deleted"], counts["kept"]) == (3, 0, 1)


async def test_sweep_in_a_dry_run_counts_what_it_would_stop():
    bench = Bench(dry_run=True)
    bench.put(2, prefix="late", active_deadline="1s")
    bench.put(1, prefix="unfinished")

    counts, _ = await counted(bench)

    assert (counts["would_stop"], counts["would_delete"], counts["kept"]) == (2, 0, 1)


async def test_sweep_records_the_finalizers_of_a_deletion(bench):
    held = job(complete=ago(60), ttl=30)
    held["metadata"]["finalizers"] = ["example.com/backup"]
    bench.cluster.put(held)

    await bench.sweep()

    assert bench.telemetry.finalizers == ["example.com/backup"]


# Deadlines


def running(seconds, *, make=job, deadline="1h", **parts):
    """An object that has run for so long."""
    obj = having(make(**parts), "status.startTime", ago(seconds).isoformat().replace("+00:00", "Z"))
    return obj if deadline is None else annotated(obj, active_deadline=deadline)


async def test_sweep_sets_timers_for_deadlines_and_stops_nothing(bench):
    for name, seconds in (("over", 3_700), ("now", 3_600), ("soon", 3_600 - 1_199), ("later", 3_600 - 1_200)):
        bench.cluster.put(running(seconds, name=name, uid=name))

    assert await bench.sweep() is None

    assert {(timer.ref.name, timer.purpose, timer.due_at) for timer in bench.timers()} == {
        ("over", "enforce", bench.clock.now()),
        ("now", "enforce", bench.clock.now()),
        ("soon", "enforce", later(1_199)),
    }
    assert {call.verb for call in bench.cluster.calls} <= {"list", "list-metadata"}
    assert bench.published(ObjectDeleted) == []


async def test_sweep_deletes_no_running_object_at_its_deadline_itself(bench):
    bench.cluster.put(annotated(running(3_700), on_deadline="delete"))

    await bench.sweep()
    assert bench.cluster.deleted == []
    assert [timer.purpose for timer in bench.timers()] == ["enforce"]


async def test_sweep_deletes_finished_objects_beside_running_ones(bench):
    bench.put(3, complete=ago(60), ttl=30)
    bench.cluster.put(running(3_700, name="runs", uid="runs"))
    bench.cluster.put(annotated(job(complete=ago(60), ttl=30, name="ended", uid="ended"), active_deadline="1s"))

    await bench.sweep()
    assert bench.cluster.names == {"runs"}


@pytest.mark.parametrize(
    ("obj", "events"),
    [
        (running(60, deadline="soon"), ["InvalidDeadline"]),
        (running(60, deadline="0"), ["InvalidDeadline"]),
        (annotated(running(60, deadline=None), on_deadline="explode"), ["InvalidDeadline"]),
        (annotated(running(60), deadline_exceeded=ago(10)), ["StopUndone"]),
        (annotated(running(60), ttl="soon"), ["InvalidTtl"]),
        (annotated(running(60, deadline="soon"), ttl="soon"), ["InvalidDeadline", "InvalidTtl"]),
        (annotated(having(running(60), "spec.ttlSecondsAfterFinished", 5), ttl="1h"), ["OverriddenTtl"]),
        (annotated(running(60, deadline="soon"), hold="x"), []),
        (running(60), []),
    ],
)
async def test_sweep_reports_what_a_running_object_sets_in_vain(bench, obj, events):
    bench.cluster.put(obj)

    await bench.sweep()
    assert sorted(reason for _, reason, _ in bench.telemetry.events) == events


async def test_sweep_of_a_kind_by_metadata_reads_only_objects_with_a_deadline(bench):
    bench.cluster.serve_only(BARE_TRAINJOB)
    conditions = [{"type": "Suspended", "status": "False", "lastTransitionTime": "2026-03-14T14:00:00Z"}]
    bench.put(30, trainjob, "plain", conditions=conditions)
    bench.cluster.put(running(4_000, make=trainjob, conditions=conditions, name="asked", uid="asked"))

    await bench.sweep()
    counted = bench.cluster.counted()
    assert (counted["list-metadata"], counted["list"], counted["get"]) in {(1, 0, 1), (0, 1, 0)}


async def test_sweep_in_a_dry_run_reports_what_would_be_stopped():
    bench = Bench(dry_run=True)
    bench.cluster.put(running(3_700))

    await bench.sweep()
    assert bench.telemetry.verdicts() == [("would-stop", "deadline-exceeded")]
    assert bench.timers() == []


async def test_sweep_repeats_for_the_deadline_what_it_could_not_evaluate(bench):
    """A Job of a namespace that sets a deadline, with an owner that cannot be read now."""
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "owner", "uid": "owner-uid", "controller": True}
    bench.cluster.put(namespace(default_active_deadline="1h"))
    bench.cluster.put(having(running(3_700, deadline=None), "metadata.ownerReferences", [owner]))
    bench.cluster.fail("get", TryLaterError("busy"), on="owner")

    await bench.sweep()
    assert "enforce" in {timer.purpose for timer in bench.timers()}
