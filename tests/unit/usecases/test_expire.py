"""The function expire: what it reads, deletes, answers and reports when a timer fires."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from shared.adapters.timers.delivery import LIMITS
from shared.core.deadlines.decide_stop import Stop
from shared.core.decision.decide import Reason
from shared.core.decision.facts import Facts
from shared.core.decision.finish import Finish
from shared.core.kinds.rule import Catalogue, Outcome
from shared.core.values.objects import ref_of
from shared.core.values.timing import BACKOFF_SECONDS, BACKOFF_SECONDS_MAX
from shared.errors import ConflictError, ForbiddenError, PermanentError, TryLaterError
from shared.evaluation.evaluator import Evaluation, Evaluator
from shared.messages import ATTEMPTS_COUNTED_MAX, ObjectDeleted, Purpose, Timer, TimersSet
from shared.standalone.triggers import read_triggers
from shared.usecases.expire import DELETION
from shared.usecases.handler import ATTEMPT_SECONDS_MAX, DECISIONS_MAX, Handler
from tests.builders import (
    JOB,
    NOW,
    POD,
    ROOT,
    TRAINJOB,
    ago,
    annotated,
    ended,
    having,
    job,
    later,
    not_none,
    owned_by,
    pod,
)
from tests.fakes import FakeClock, FakeCluster, FakeTelemetry

pytestmark = pytest.mark.anyio

KINDS = Catalogue((JOB, POD, TRAINJOB))
DUE = job(complete=ago(60), ttl=30)
NAME = DUE["metadata"]["name"]


@pytest.fixture
def cluster():
    return FakeCluster(FakeClock())


@pytest.fixture
def telemetry():
    return FakeTelemetry()


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def expiry(cluster, clock, telemetry):
    return Handler(DELETION, cluster, KINDS, Evaluator(cluster, KINDS), clock, telemetry, dry_run=False)


def fired(obj=DUE, due_at=None):
    return Timer(ref=ref_of(obj), purpose=Purpose.EXPIRE, due_at=due_at or ago(30))


# Due


async def test_expire_reads_and_deletes_a_due_object(expiry, cluster, clock, telemetry):
    cluster.put(DUE)
    clock.advance(0.25)

    answer = await expiry.handle(fired())

    assert answer == ObjectDeleted(
        ref=ref_of(DUE),
        outcome=Outcome.SUCCEEDED,
        finished_at=ago(60),
        ttl_from="spec.ttlSecondsAfterFinished",
        due_at=ago(30),
        deleted_at=later(0.25),
        lateness_seconds=30.25,
    )
    assert [call.verb for call in cluster.calls] == ["get", "delete"]
    assert telemetry.deletions == [answer]
    assert telemetry.missed == 0


async def test_expire_deletes_an_object_that_is_due_exactly_now(expiry, cluster):
    cluster.put(job(complete=ago(30), ttl=30))

    assert isinstance(await expiry.handle(fired()), ObjectDeleted)


async def test_expire_deletes_a_cached_due_object_without_a_read(expiry, cluster):
    cluster.remember(cluster.put(DUE))

    assert isinstance(await expiry.handle(fired()), ObjectDeleted)
    assert [call.verb for call in cluster.calls] == ["delete"]


async def test_expire_of_cached_objects_at_one_instant_reads_the_server_time_once(expiry, cluster):
    cluster.clock.advance(-0.6)
    jobs = [cluster.put(job(name=f"build-{n}", uid=f"uid-{n}", complete=ago(30), ttl=30)) for n in range(5)]
    for one in jobs:
        cluster.remember(one)
    await cluster.served([JOB])
    cluster.clock.advance(0.6)  # the Date of the last answer is now 1 s old

    answers = await asyncio.gather(*(expiry.handle(fired(one, due_at=NOW)) for one in jobs))

    assert [type(answer) for answer in answers] == [ObjectDeleted] * 5
    assert cluster.counted() == {"version": 1, "delete": 5}


async def test_expire_reads_an_outdated_cached_object_again_and_deletes_it(expiry, cluster):
    cluster.remember(cluster.put(DUE))
    cluster.write(NAME)

    assert isinstance(await expiry.handle(fired()), ObjectDeleted)
    assert [call.verb for call in cluster.calls] == ["delete", "get", "get", "delete"]


async def test_expire_keeps_a_cached_due_object_that_is_held_by_now(expiry, cluster, telemetry):
    cluster.remember(cluster.put(DUE))
    cluster.put(annotated(DUE, hold="look at it"))

    assert await expiry.handle(fired()) is None
    assert cluster.deleted == []
    assert telemetry.verdicts() == [("kept", "held")]


@pytest.mark.parametrize("remembered", [job(), annotated(DUE, hold="x"), job(complete=ago(1), ttl=30)])
async def test_expire_never_keeps_an_object_because_of_its_cached_state(expiry, cluster, remembered):
    cluster.remember(remembered)
    cluster.put(DUE)

    assert isinstance(await expiry.handle(fired()), ObjectDeleted)
    assert [call.verb for call in cluster.calls] == ["get", "delete"]


# Another one, or none


async def test_expire_reports_an_object_that_is_gone(expiry, telemetry):
    assert await expiry.handle(fired()) is None
    assert telemetry.verdicts() == [("already-gone", "")]


async def test_expire_keeps_another_object_of_the_same_name(expiry, cluster, telemetry):
    cluster.put(job(complete=ago(60), ttl=30, uid="another"))

    assert await expiry.handle(fired()) is None
    assert cluster.deleted == []
    assert telemetry.verdicts() == [("already-gone", "")]


async def test_expire_keeps_an_object_that_is_recreated_between_read_and_delete(expiry, cluster):
    cluster.put(DUE)
    cluster.before_delete = lambda _: cluster.put(job(complete=ago(60), ttl=30, uid="another"))

    assert await expiry.handle(fired()) is None
    assert cluster.deleted == []


async def test_expire_reports_an_object_that_is_gone_between_read_and_delete(expiry, cluster, telemetry):
    cluster.put(DUE)
    cluster.before_delete = cluster.remove

    assert await expiry.handle(fired()) is None
    assert telemetry.deletions == []
    assert telemetry.verdicts() == [("already-gone", "")]


async def test_expire_does_not_read_a_kind_that_is_not_enabled(cluster, clock, telemetry):
    expiry = Handler(DELETION, cluster, Catalogue((POD,)), Evaluator(cluster, KINDS), clock, telemetry, dry_run=False)
    cluster.put(DUE)

    assert await expiry.handle(fired()) is None
    assert cluster.calls == []
    assert telemetry.verdicts() == [("kept", "kind-not-enabled")]


async def test_expire_deletes_an_object_that_is_served_in_another_version(cluster, clock, telemetry):
    rule = JOB.model_copy(update={"api_versions": ("batch/v2", "batch/v1")})
    expiry = Handler(
        DELETION, cluster, Catalogue((rule,)), Evaluator(cluster, Catalogue((rule,))), clock, telemetry, dry_run=False
    )
    cluster.put({**DUE, "apiVersion": "batch/v2"})

    deleted = await expiry.handle(fired(DUE))

    assert isinstance(deleted, ObjectDeleted)
    assert (fired(DUE).ref.api_version, deleted.ref.api_version) == ("batch/v1", "batch/v2")


async def test_expire_does_not_read_a_kind_that_is_not_served(expiry, cluster, telemetry):
    cluster.serve_only(POD)

    assert await expiry.handle(fired()) is None
    assert cluster.calls == []
    assert telemetry.verdicts() == [("kept", "kind-not-served")]


# Changed meanwhile


async def test_expire_reads_an_object_again_after_a_conflict(expiry, cluster):
    cluster.put(DUE)
    writes = iter([True])
    cluster.before_delete = lambda name: cluster.write(name) if next(writes, False) else None

    assert isinstance(await expiry.handle(fired()), ObjectDeleted)
    assert cluster.counted() == {"get": 3, "delete": 2}


async def test_expire_obeys_a_ttl_that_is_raised_between_read_and_delete(expiry, cluster):
    cluster.put(DUE)
    cluster.before_delete = lambda name: cluster.write(name, "spec.ttlSecondsAfterFinished", 3_600)

    answer = await expiry.handle(fired())

    assert [timer.due_at for timer in answer.timers] == [ago(60) + timedelta(hours=1)]
    assert cluster.deleted == []


async def test_expire_retries_later_an_object_that_changes_again_and_again(expiry, cluster, telemetry):
    cluster.put(DUE)
    cluster.before_delete = cluster.write

    answer = await expiry.handle(fired())

    assert (answer.timers[0].ref, answer.timers[0].attempts) == (ref_of(DUE), 1)
    assert cluster.counted() == {"get": 2 * DECISIONS_MAX, "delete": DECISIONS_MAX}
    assert telemetry.verdicts() == [("timer-set", "try-later")]


# Not due


async def test_expire_replies_with_a_timer_for_an_object_that_is_due_later(expiry, cluster, telemetry):
    cluster.put(job(complete=ago(60), ttl=90))

    answer = await expiry.handle(fired())

    assert answer == TimersSet(timers=(fired(due_at=later(30)),))
    assert telemetry.verdicts() == [("timer-set", "not-due")]


@pytest.mark.parametrize(
    ("obj", "reason"),
    [
        (job(), "unfinished"),
        (job(complete=ago(60)), "no-ttl"),
        (annotated(DUE, hold="why"), "held"),
        (annotated(DUE, ttl="never"), "never"),
        (having(DUE, "metadata.deletionTimestamp", "2026-03-14T15:09:00Z"), "terminating"),
        (having(DUE, "status.conditions", "gibberish"), "unknown-shape"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_expire_keeps_an_object_with_a_reason(expiry, cluster, telemetry, obj, reason):
    cluster.put(obj)

    assert await expiry.handle(fired()) is None
    assert cluster.counted()["get"] == 1
    assert cluster.counted()["delete"] == 0
    assert telemetry.verdicts() == [("kept", reason)]


@pytest.mark.parametrize(
    "obj",
    [
        annotated(DUE, hold="why"),
        annotated(DUE, ttl="never"),
        annotated(DUE, ttl="1h"),
        annotated(job(ttl=30), ttl="1h"),
    ],
    ids=["held", "never", "longer", "unfinished"],
)
async def test_expire_reports_an_overridden_ttl(expiry, cluster, telemetry, obj):
    cluster.put(obj)

    await expiry.handle(fired(due_at=ago(29.5)))

    ((ref, reason, message),) = telemetry.events
    assert (ref, reason) == (ref_of(obj), "OverriddenTtl")
    assert "spec.ttlSecondsAfterFinished: 30" in message
    assert "kubectl ttl hold" in message


@pytest.mark.parametrize(
    "obj",
    [
        annotated(job(complete=ago(10), ttl=30), ttl="30s"),
        annotated(DUE, ttl="40s"),
        annotated(having(DUE, "metadata.deletionTimestamp", "2026-03-14T15:09:00Z"), ttl="1h"),
    ],
    ids=["no sooner", "due by both", "terminating"],
)
async def test_expire_reports_no_ttl_that_is_not_overridden(expiry, cluster, telemetry, obj):
    cluster.put(obj)

    await expiry.handle(fired())

    assert telemetry.events == []


async def test_expire_reports_an_invalid_ttl(expiry, cluster, telemetry):
    cluster.put(annotated(DUE, ttl="soon"))

    assert await expiry.handle(fired()) is None

    ((ref, reason, message),) = telemetry.events
    assert (ref, reason) == (ref_of(DUE), "InvalidTtl")
    assert "ttlafterfinished.dev/ttl" in message
    assert "soon" in message
    assert telemetry.verdicts() == [("kept", "invalid-ttl")]


async def test_expire_leaves_the_events_about_its_decisions_to_the_journal(expiry, cluster, telemetry):
    cluster.put(annotated(DUE, ttl="soon"))

    for _ in range(2):
        await expiry.handle(fired())

    assert cluster.events == []  # the journal writes one, within limits
    assert len({one.id for one in telemetry.reports}) == 1


@pytest.mark.parametrize("behind", [1.25, 30.0, 3_600.0])
async def test_expire_timer_does_not_return_at_once_when_the_server_clock_is_behind(expiry, cluster, clock, behind):
    cluster.put(job(complete=ago(60), ttl=59))
    cluster.clock.advance(-behind)

    (timer,) = (await expiry.handle(fired(due_at=ago(1)))).timers

    assert cluster.deleted == []
    assert timer.due_at > clock.now()
    clock.at, cluster.clock.at = timer.due_at, cluster.clock.at + (timer.due_at - clock.now())
    assert isinstance(await expiry.handle(timer), ObjectDeleted), "once more is enough"


async def test_expire_is_not_late_when_the_server_clock_is_ahead(expiry, cluster, clock):
    clock.advance(-30)
    cluster.put(job(complete=ago(60), ttl=59))

    assert isinstance(await expiry.handle(fired()), ObjectDeleted)


async def test_expire_decides_by_the_clock_of_the_api_server(expiry, cluster, clock):
    clock.advance(3_600)
    cluster.put(job(complete=ago(60), ttl=90))

    assert isinstance(await expiry.handle(fired()), TimersSet)
    assert cluster.deleted == []


# Dry run


async def test_expire_in_a_dry_run_reports_and_deletes_nothing(cluster, clock, telemetry):
    expiry = Handler(DELETION, cluster, KINDS, Evaluator(cluster, KINDS), clock, telemetry, dry_run=True)
    cluster.put(DUE)

    assert await expiry.handle(fired()) is None

    assert cluster.counted() == {"get": 1}
    (record,) = telemetry.records
    assert (record.verdict, record.reason) == ("would-delete", "expired")
    assert "by spec.ttlSecondsAfterFinished" in record.detail


# Refused, busy


async def test_expire_reports_and_raises_a_forbidden_delete(expiry, cluster, telemetry):
    cluster.put(DUE)
    cluster.fail("delete", ForbiddenError("jobs is forbidden"))

    with pytest.raises(ForbiddenError):
        await expiry.handle(fired())

    (record,) = telemetry.records
    assert (record.verdict, record.reason, record.detail) == ("failed", "ForbiddenError", "jobs is forbidden")
    (refusal,) = telemetry.refusals
    assert (refusal.ref, refusal.reason, refusal.message) == (ref_of(DUE), "DeletionRefused", "jobs is forbidden")
    assert cluster.events == []  # the journal writes it, within limits


async def test_expire_notes_each_refusal_with_its_time(expiry, cluster, clock, telemetry):
    cluster.put(DUE)
    cluster.fail("delete", ForbiddenError("jobs is forbidden"))
    for _ in range(2):
        with pytest.raises(ForbiddenError):
            await expiry.handle(fired())
        clock.advance(1)

    assert len({one.id for one in telemetry.refusals}) == 2


@pytest.mark.parametrize("verb", ["get", "delete"])
@pytest.mark.parametrize("error", [PermanentError("invalid"), ForbiddenError("forbidden")])
async def test_expire_raises_every_final_refusal_as_permanent(expiry, cluster, verb, error):
    cluster.put(DUE)
    cluster.fail(verb, error)
    cluster.fail("event", ForbiddenError("this too"))

    with pytest.raises(type(error), match=str(error)):
        await expiry.handle(fired())


@pytest.mark.parametrize("verb", ["served", "get", "delete"])
async def test_expire_replies_with_a_retry_timer_while_the_api_server_is_busy(expiry, cluster, telemetry, verb):
    cluster.put(DUE)
    cluster.fail(verb, TryLaterError("429", retry_after_seconds=7))

    answer = await expiry.handle(fired())

    (again,) = answer.timers
    assert (again.ref, again.due_at, again.attempts) == (ref_of(DUE), later(7), 1)
    assert [(record.verdict, record.reason) for record in telemetry.records] == [("timer-set", "try-later")]
    assert cluster.events == []


async def test_expire_backs_off_further_after_each_failed_attempt(expiry, cluster, clock):
    cluster.put(DUE)
    cluster.fail("get", TryLaterError("the webhook is away", retry_after_seconds=0.0))
    timer, pauses = fired(), []
    for attempts in range(1, 12):
        (timer,) = (await expiry.handle(timer)).timers
        assert timer.attempts == attempts
        pauses.append((timer.due_at - clock.now()).total_seconds())
        clock.at = timer.due_at

    for attempts, pause in enumerate(pauses):
        longest = min(BACKOFF_SECONDS_MAX, BACKOFF_SECONDS * 2**attempts)
        assert 0.75 * longest <= pause <= longest


async def test_expire_counts_failed_attempts_up_to_a_bound(expiry, cluster):
    cluster.put(DUE)
    cluster.fail("get", TryLaterError("429"))

    answer = await expiry.handle(fired().model_copy(update={"attempts": ATTEMPTS_COUNTED_MAX}))

    assert answer.timers[0].attempts == ATTEMPTS_COUNTED_MAX


async def test_decision_of_another_purpose_deletes_nothing(expiry, cluster):
    cluster.put(DUE)

    async def stop(*_):
        return Evaluation(Stop(ago(60), Reason.EXPIRED, Facts(Finish(finished=True))))

    with pytest.raises(TypeError, match="expected a Expire, got Stop"):
        await replace(expiry, procedure=replace(DELETION, evaluate=stop)).handle(fired())
    assert cluster.counted()["delete"] == 0


async def test_expire_replies_with_a_retry_timer_when_the_api_server_hangs(expiry, cluster):
    expiry = replace(expiry, procedure=replace(DELETION, attempt_seconds=0.01))
    cluster.put(DUE)

    async def hang(*_):
        await asyncio.Event().wait()

    cluster.get = hang
    answer = await expiry.handle(fired())

    assert answer.timers[0].attempts == 1


def test_expire_replies_before_the_trigger_and_the_engine_time_out():
    (trigger,) = (one for one in read_triggers(ROOT / "knative" / "base") if one.name == "expire")
    limits = not_none(trigger.delivery.timeout).total_seconds(), LIMITS.timeout_of(Purpose.EXPIRE)
    assert min(limits) > ATTEMPT_SECONDS_MAX


# Owners


OWNED = owned_by(pod(containers=(ended(at=ago(60)),), ttl="30"), "Job")
OWNER = {"name": "owner", "uid": "owner-uid", "namespace": "ci"}


@pytest.mark.parametrize(
    ("owner", "is_deleted"),
    [(job(**OWNER), False), (job(complete=ago(5), **OWNER), True), (None, True)],
    ids=["unfinished", "finished", "gone"],
)
async def test_expire_keeps_a_pod_until_its_owner_is_finished(expiry, cluster, owner, is_deleted):
    cluster.put(OWNED)
    if owner:
        cluster.put(owner)

    assert isinstance(await expiry.handle(fired(OWNED)), ObjectDeleted) is is_deleted
    assert ("owner" in cluster.names) is (owner is not None)


async def test_expire_keeps_a_pod_whose_owner_is_forbidden(expiry, cluster, telemetry):
    cluster.put(OWNED)
    cluster.fail("get", ForbiddenError("jobs is forbidden"), on="owner")

    assert await expiry.handle(fired(OWNED)) is None
    assert telemetry.verdicts() == [("kept", "owner-unread")]


async def test_expire_reads_the_owner_of_a_cached_pod(expiry, cluster):
    cluster.remember(cluster.put(OWNED))
    cluster.put(job(**OWNER))

    assert await expiry.handle(fired(OWNED)) is None
    assert cluster.deleted == []


async def test_expire_records_verdicts_under_the_name_of_the_function(cluster, clock, telemetry):
    expiry = Handler(DELETION, cluster, KINDS, Evaluator(cluster, KINDS), clock, telemetry, dry_run=False, by="sweep")
    cluster.put(job(complete=NOW))
    await expiry.handle(fired())

    assert telemetry.records[0].by == "sweep"


# A 409 whose object has not changed, and one whose object is marked


async def test_expire_reports_a_delete_that_is_refused_twice_although_nothing_changed(expiry, cluster, telemetry):
    cluster.put(having(DUE, "metadata.finalizers", ["orphan"]))

    with pytest.raises(PermanentError, match=r"409.*unchanged.*finalizer orphan.*propagation"):
        await expiry.handle(fired())

    assert cluster.counted()["delete"] == 2
    assert telemetry.verdicts() == [("failed", "PermanentError")]
    assert [one.reason for one in telemetry.refusals] == ["DeletionRefused"]
    assert cluster.deleted == []


async def test_expire_repeats_a_delete_that_is_refused_once_although_nothing_changed(expiry, cluster):
    cluster.put(DUE)

    def refuse(_):
        cluster.before_delete = lambda _: None
        raise ConflictError("Precondition failed: ResourceVersion in precondition: , in object meta: 203")

    cluster.before_delete = refuse

    assert isinstance(await expiry.handle(fired()), ObjectDeleted)
    assert cluster.counted()["delete"] == 2


async def test_expire_reports_an_object_that_another_client_deletes_as_gone(expiry, cluster, telemetry):
    cluster.put(DUE)
    cluster.before_delete = lambda name: cluster.write(name, "metadata.deletionTimestamp", "2026-01-02T03:04:05Z")

    assert await expiry.handle(fired()) is None
    assert cluster.counted()["delete"] == 1
    assert telemetry.deletions == []
    assert telemetry.verdicts() == [("already-gone", "")]


async def test_expire_does_not_count_another_object_that_is_terminating(expiry, cluster, telemetry):
    cluster.put(DUE)
    cluster.before_delete = lambda _: cluster.put(
        having(job(complete=ago(60), ttl=30, uid="another"), "metadata.deletionTimestamp", "2026-01-02T03:04:05Z")
    )

    assert await expiry.handle(fired()) is None
    assert telemetry.deletions == []
    assert telemetry.verdicts() == [("already-gone", "")]
