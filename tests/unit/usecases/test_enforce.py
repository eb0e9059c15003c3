"""The function enforce: what it reads, stops, answers and reports when a timer of a running object fires."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from shared.core.deadlines.deadline import STOPS_MAX
from shared.core.decision.finish import finish_of
from shared.core.kinds.rule import Catalogue
from shared.core.kinds.ttl_and_deadline import DeadlineRule
from shared.core.policy.limits import BreakerLimits, Limits, Rate
from shared.core.policy.policy import NO_POLICY, Policy
from shared.core.values.objects import get_annotations, get_in, ref_of
from shared.core.values.timing import BACKOFF_SECONDS, BACKOFF_SECONDS_MAX
from shared.errors import ConflictError, ForbiddenError, PermanentError, TryLaterError
from shared.evaluation.evaluator import DECIDED_SECONDS, Evaluator
from shared.messages import ObjectDeleted, ObjectStopped, Purpose, Timer, TimersSet
from shared.safeguards.safeguards import Denied, Safeguard, Safeguards
from shared.safeguards.shared_state import Runtime, SharedState
from shared.usecases.enforce import ENFORCEMENT
from shared.usecases.expire import DELETION
from shared.usecases.handler import ATTEMPT_SECONDS_MAX, DECISIONS_MAX, Handler
from tests.builders import (
    JOB,
    NOW,
    POD,
    TRAINJOB,
    ago,
    annotated,
    condition,
    created,
    having,
    job,
    later,
    namespace,
    not_none,
    owned_by,
    without,
)
from tests.fakes import FakeClock, FakeCluster, FakeState, FakeTelemetry, ReadClock
from tests.simulation.virtualloop import VirtualLoop

pytestmark = pytest.mark.anyio

CANNOT = JOB.model_copy(
    update={
        "deadline": DeadlineRule.model_validate({"startedAt": ["status.startTime"], "cannotStop": "it starts again"})
    }
)
KINDS = Catalogue((JOB, POD, TRAINJOB))
MARKS = ("deadline-exceeded", "stops", "stopped-generation")


def running(seconds: float = 60, *, deadline: Any = "30s", **annotations: Any) -> dict[str, Any]:
    """A Job that has run for so long; its deadline is half a minute."""
    given = {} if deadline is None else {"active_deadline": deadline}
    obj = having(job(**given, **annotations), "status.startTime", ago(seconds).isoformat().replace("+00:00", "Z"))
    return created(obj, ago(86_400))


DUE = running()
NAME = DUE["metadata"]["name"]


class Bench:
    """A process that enforces deadlines, over fakes."""

    def __init__(self, *, rule=JOB, policy=NO_POLICY, limits=None, dry_run=False, clock=None):
        self.clock = clock or FakeClock()
        self.cluster, self.telemetry = Cluster(self.clock), FakeTelemetry()
        self.kinds, self.rule = Catalogue((rule, POD, TRAINJOB)), rule
        self.state, self.objects = FakeState(), 1_000
        self.enforcement = Handler(
            ENFORCEMENT,
            self.cluster,
            self.kinds,
            Evaluator(self.cluster, self.kinds, lambda: policy),
            self.clock,
            self.telemetry,
            dry_run=dry_run,
            by="enforce",
            safeguards=self._safeguards(limits) if limits else None,
        )
        self.expiry = replace(self.enforcement, procedure=DELETION)

    def _safeguards(self, limits):
        runtime = Runtime(self.clock, self._seconds, self.telemetry)
        shared_state = SharedState(self.state, runtime, write_event=self._write_event)
        return Safeguards(
            lambda: limits, shared_state, runtime, count_objects=self._count, horizon=timedelta(minutes=20)
        )

    def _seconds(self):
        return (self.clock.now() - NOW).total_seconds()

    async def _write_event(self, *_):
        pass

    async def _count(self, _):
        return self.objects

    async def fire(self, obj=DUE, *, due_at=None, attempts=0, put=True):
        if put:
            self.cluster.put(obj)
        timer = Timer(ref=ref_of(obj), purpose=Purpose.ENFORCE, due_at=due_at or ago(30), attempts=attempts)
        return await self.enforcement.handle(timer)

    def stored(self, name=NAME):
        return self.cluster._find(name)[1]

    @property
    def verbs(self):
        return [call.verb for call in self.cluster.calls if call.verb != "event"]

    @property
    def reported(self):
        events = [(reason, message) for _, reason, message in self.telemetry.events]
        return events + [(str(one.reason), one.message) for one in self.telemetry.refusals]


class Cluster(FakeCluster):
    """An API server that remembers each patch, and lets other clients write before it."""

    def __init__(self, clock):
        super().__init__(clock)
        self.patches: list[dict[str, Any]] = []
        self.before_patch = lambda _: None
        self.pruned = ""

    async def patch(self, rule, ref, patch, **options):
        self.before_patch(ref.name)
        self.patches.append(patch)
        return await super().patch(rule, ref, without(patch, self.pruned) if self.pruned else patch, **options)


@pytest.fixture
def bench():
    return Bench()


# Over its deadline


async def test_enforce_reads_and_stops_an_object_over_its_deadline(bench):
    bench.clock.advance(0.25)

    answer = await bench.fire()

    assert answer == ObjectStopped(
        ref=ref_of(DUE),
        started_at=ago(60),
        deadline_from="ttlafterfinished.dev/active-deadline",
        due_at=ago(30),
        stopped_at=later(0.25),
        lateness_seconds=30.25,
        stops=1,
    )
    assert bench.verbs == ["get", "patch"]
    assert bench.telemetry.stops == [answer]
    assert bench.cluster.deleted == []


async def test_stop_has_preconditions_and_writes_the_mark_in_the_same_patch(bench):
    before = bench.cluster.put(DUE)
    await bench.fire(put=False)

    (patch,) = bench.cluster.patches
    assert set(patch) == {"spec", "metadata"}
    assert patch["spec"] == {"activeDeadlineSeconds": 1}
    metadata = patch["metadata"]
    assert metadata["uid"] == before["metadata"]["uid"]
    assert metadata["resourceVersion"] == before["metadata"]["resourceVersion"]
    annotations = get_annotations(bench.stored())
    assert {name: annotations[name] for name in MARKS} == {
        "deadline-exceeded": "2026-03-14T15:09:26Z",
        "stops": "1",
        "stopped-generation": "2",
    }
    assert get_in(bench.stored(), "metadata.generation") == 2


async def test_object_without_a_resource_version_is_not_stopped(bench):
    """A merge patch with an empty resourceVersion has no precondition: it would overwrite what a user wrote since."""
    bench.cluster.remember(without(bench.cluster.put(DUE), "metadata.resourceVersion"))

    with pytest.raises(PermanentError, match=r"expected metadata\.uid and metadata\.resourceVersion"):
        await bench.fire(put=False)
    assert bench.cluster.patches == []


async def test_stopped_object_is_recorded_with_the_deadline_and_the_patch(bench):
    await bench.fire()

    [detail] = bench.telemetry.stop_details
    assert detail == (
        "ran for longer than 30s, its deadline by ttlafterfinished.dev/active-deadline; "
        'stopped by the patch {"spec": {"activeDeadlineSeconds": 1}}'
    )


async def test_second_timer_does_not_stop_a_stopped_object_again(bench):
    await bench.fire()
    bench.clock.advance(3_600)

    assert await bench.fire(put=False) is None
    assert len(bench.cluster.patches) == 1
    assert bench.telemetry.verdicts() == [("kept", "already-stopped")]


async def test_object_that_asks_for_it_is_suspended_by_the_other_patch(bench):
    await bench.fire(annotated(DUE, on_deadline="suspend"))

    assert [patch["spec"] for patch in bench.cluster.patches] == [{"suspend": True}]
    assert bench.telemetry.stop_details[0].endswith('stopped by the patch {"spec": {"suspend": true}}')


async def test_suspended_object_counts_as_failed_and_expires_by_its_ttl(bench):
    await bench.fire(annotated(DUE, ttl="60s", on_deadline="suspend"))
    bench.clock.advance(10)
    bench.cluster.put(having(bench.stored(), "status.conditions", [condition("Suspended", later(10))]))
    timer = Timer(ref=ref_of(DUE), purpose=Purpose.EXPIRE, due_at=NOW)

    assert finish_of(bench.stored(), JOB).at == later(10)
    bench.clock.advance(59)
    assert isinstance(await bench.expiry.handle(timer), TimersSet)
    bench.clock.advance(1)
    deleted = await bench.expiry.handle(timer)
    assert isinstance(deleted, ObjectDeleted)
    assert (deleted.due_at, deleted.outcome) == (later(70), "failed")


async def test_object_is_deleted_at_its_deadline_if_it_asks_for_that():
    bench = Bench(rule=CANNOT)
    answer = await bench.fire(annotated(DUE, on_deadline="delete"))

    assert isinstance(answer, ObjectDeleted)
    assert (answer.ttl_from, answer.due_at, answer.finished_at) == (
        "ttlafterfinished.dev/active-deadline",
        ago(30),
        None,
    )
    assert answer.reason == "deadline-exceeded"
    assert bench.verbs == ["get", "delete"]
    assert bench.telemetry.deletions == [answer]
    assert bench.cluster.patches == []


async def test_propagation_of_a_rule_that_deletes_at_the_deadline_is_sent():
    rule = {"name": "a", "match": {"kinds": ["jobs"]}, "activeDeadline": "30s", "onDeadline": "delete"}
    bench = Bench(policy=Policy.model_validate({"rules": [{**rule, "propagation": "Orphan"}]}))

    assert isinstance(await bench.fire(running(deadline=None)), ObjectDeleted)
    assert bench.cluster.propagations == ["Orphan"]


async def test_enforce_stops_a_cached_object_without_a_read(bench):
    bench.cluster.remember(bench.cluster.put(DUE))

    assert isinstance(await bench.fire(put=False), ObjectStopped)
    assert bench.verbs == ["patch"]


@pytest.mark.parametrize("remembered", [running(1), annotated(DUE, hold="x"), running(deadline=None)])
async def test_enforce_never_leaves_an_object_alone_because_of_its_cached_state(bench, remembered):
    bench.cluster.remember(remembered)

    assert isinstance(await bench.fire(), ObjectStopped)
    assert bench.verbs == ["get", "patch"]


async def test_object_whose_mark_is_removed_with_each_stop_is_not_stopped_without_end(bench):
    """A controller may write the whole object from its template, again and again."""
    for _ in range(STOPS_MAX + 2):
        answer = await bench.fire()

    assert answer is None
    assert len(bench.cluster.patches) == STOPS_MAX
    assert bench.telemetry.verdicts()[-1] == ("kept", "stop-undone")
    reason, message = bench.reported[-1]
    assert reason == "StopUndone"
    assert "and its mark was removed each time" in message


# Another one, or none


async def test_object_that_is_gone_is_not_an_error(bench):
    assert await bench.fire(put=False) is None
    assert bench.telemetry.verdicts() == [("already-gone", "")]


async def test_another_object_of_the_same_name_is_left_alone(bench):
    bench.cluster.put(having(DUE, "metadata.uid", "another"))

    assert await bench.fire(put=False) is None
    assert bench.cluster.patches == []


async def test_object_that_is_replaced_between_read_and_stop_is_left_alone(bench):
    other = having(DUE, "metadata.uid", "another")

    def replace_it(name):
        bench.cluster.remove(name)
        bench.cluster.put(other)

    bench.cluster.before_patch = replace_it
    assert await bench.fire() is None
    assert get_in(bench.stored(), "spec.suspend") is None
    assert bench.telemetry.verdicts() == [("already-gone", "")]


async def test_object_that_goes_between_read_and_stop_is_not_an_error(bench):
    bench.cluster.before_patch = bench.cluster.remove

    assert await bench.fire() is None
    assert bench.telemetry.verdicts() == [("already-gone", "")]


# Changed between read and stop


async def test_object_that_changed_is_read_and_decided_again(bench):
    def write_once(name):
        bench.cluster.before_patch = lambda _: None
        bench.cluster.write(name)

    bench.cluster.before_patch = write_once
    answer = await bench.fire()

    assert isinstance(answer, ObjectStopped)
    assert bench.verbs == ["get", "patch", "get", "patch"]
    assert get_in(bench.stored(), "metadata.labels.touched") == "yes"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda obj: annotated(obj, hold="look"), "held"),
        (lambda obj: having(obj, "spec.suspend", True), "suspended"),
        (lambda obj: annotated(obj, active_deadline="never"), "never"),
        (lambda obj: without(obj, "metadata.annotations"), "no-deadline"),
        (lambda obj: having(obj, "status.conditions", [condition("Complete", NOW)]), "finished"),
        (lambda obj: having(obj, "spec.activeDeadlineSeconds", 3_600), "enforced-by-controller"),
    ],
    ids=["held", "suspended", "never", "removed", "finished", "native"],
)
async def test_change_between_read_and_stop_is_never_overwritten(bench, change, reason):
    bench.cluster.before_patch = lambda name: bench.cluster.put(change(DUE)) if len(bench.cluster.patches) < 1 else None

    assert await bench.fire() is None
    assert bench.telemetry.verdicts() == [("kept", reason)]
    assert "deadline-exceeded" not in get_annotations(bench.stored())


async def test_deadline_that_is_raised_between_read_and_stop_sets_a_timer(bench):
    bench.cluster.before_patch = lambda _: bench.cluster.put(running(deadline="1h"))
    answer = await bench.fire()

    assert isinstance(answer, TimersSet)
    (timer,) = answer.timers
    assert (timer.purpose, timer.due_at) == ("enforce", later(3_540))


async def test_object_that_keeps_changing_is_tried_again_later(bench):
    bench.cluster.before_patch = lambda name: bench.cluster.write(name, value=str(len(bench.cluster.patches)))
    answer = await bench.fire()

    assert isinstance(answer, TimersSet)
    assert answer.timers[0].attempts == 1
    assert bench.verbs == ["get", "patch"] * DECISIONS_MAX


# Not over, or not to be stopped


async def test_early_timer_sets_the_next_one(bench):
    answer = await bench.fire(running(10))

    assert isinstance(answer, TimersSet)
    (timer,) = answer.timers
    assert (timer.purpose, timer.due_at, timer.attempts) == (Purpose.ENFORCE, later(20), 0)
    assert bench.cluster.patches == []


async def test_engine_that_is_ahead_waits_for_the_rest_and_does_not_spin(bench):
    answer = await bench.fire(running(10), due_at=later(20))

    assert isinstance(answer, TimersSet)
    assert answer.timers[0].due_at == later(40)


@pytest.mark.parametrize(
    ("obj", "reason", "event"),
    [
        (running(deadline="soon"), "invalid-deadline", "InvalidDeadline"),
        (running(deadline="0"), "invalid-deadline", "InvalidDeadline"),
        (running(deadline="-1"), "invalid-deadline", "InvalidDeadline"),
        (running(deadline=str(10**20)), "invalid-deadline", "InvalidDeadline"),
        (running(on_deadline="explode"), "invalid-deadline", "InvalidDeadline"),
        (running(deadline_exceeded="once"), "invalid-deadline", "InvalidDeadline"),
        (running(deadline_exceeded=ago(10), stops="1"), "stop-undone", "StopUndone"),
        (running(deadline=None), "no-deadline", ""),
        (running(hold="look", deadline="soon"), "held", ""),
        (having(DUE, "spec.suspend", True), "suspended", ""),
        (having(DUE, "spec.activeDeadlineSeconds", -5), "enforced-by-controller", ""),
    ],
)
async def test_object_that_is_left_alone_is_reported_where_a_person_has_to_know(bench, obj, reason, event):
    assert await bench.fire(obj) is None
    assert bench.telemetry.verdicts() == [("kept", reason)]
    assert [one for one, _ in bench.reported] == ([event] if event else [])
    assert bench.cluster.patches == []


async def test_kind_that_cannot_be_stopped_is_reported_only_if_the_object_asks():
    own, policy = Bench(rule=CANNOT), Bench(rule=CANNOT, policy=_policy("30s"))

    assert await own.fire() is None
    assert own.telemetry.verdicts() == [("kept", "cannot-stop")]
    assert own.reported == [("CannotStop", "not stopped: it starts again")]
    assert await policy.fire(running(deadline=None)) is None
    assert policy.telemetry.verdicts() == [("kept", "cannot-stop")]
    assert policy.reported == []


def _policy(deadline, **settings):
    rule = {"name": "all", "match": {"kinds": ["jobs"]}, "activeDeadline": deadline, **settings}
    return Policy.model_validate({"rules": [rule]})


async def test_namespace_that_is_exempt_or_cannot_be_read_stops_nothing(bench):
    bench.cluster.put(namespace("ci", exempt="true"))
    assert await bench.fire() is None

    other = Bench()
    other.cluster.put(namespace("ci", max_active_deadline="soon"))
    assert await other.fire() is None
    assert [one.telemetry.verdicts()[-1] for one in (bench, other)] == [("kept", "exempt"), ("kept", "invalid-policy")]
    assert [(ref.kind, reason) for ref, reason, _ in other.telemetry.events] == [("Namespace", "InvalidPolicy")]


async def test_namespace_maximum_and_default_are_read_before_the_stop(bench):
    bench.cluster.put(namespace("ci", default_active_deadline="1h", max_active_deadline="20s"))

    stopped = await bench.fire(running(deadline=None))
    assert isinstance(stopped, ObjectStopped)
    assert stopped.due_at == ago(40)
    assert "20s; the namespace's max-active-deadline shortens 1h" in bench.telemetry.stop_details[0]


async def test_unfinished_owner_keeps_an_object_whose_deadline_is_set_elsewhere():
    bench = Bench(policy=_policy("30s"))
    owner = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "owner", "namespace": "ci"}}
    bench.cluster.put(having(owner, "metadata.uid", "owner-uid"))

    assert await bench.fire(owned_by(running(deadline=None), "Job")) is None
    assert bench.telemetry.verdicts() == [("kept", "owner-unfinished")]


# A stop that does not last


async def test_patch_that_is_not_stored_is_reported_and_never_repeated(bench):
    """As for a kind whose CRD prunes the field: only the mark is stored."""
    bench.cluster.pruned = "spec"
    with pytest.raises(PermanentError, match="did not store all of it"):
        await bench.fire()
    assert bench.reported[-1][0] == "StopRefused"
    assert bench.telemetry.stops == []

    for _ in range(5):
        bench.clock.advance(600)
        assert await bench.fire(put=False) is None
    assert len(bench.cluster.patches) == 1
    assert bench.telemetry.verdicts()[-1] == ("kept", "stop-undone")
    assert [reason for reason, _ in bench.reported].count("StopUndone") == 1


@pytest.mark.parametrize(("action", "field"), [("stop", "spec.activeDeadlineSeconds"), ("suspend", "spec.suspend")])
async def test_stop_that_a_controller_undoes_is_reported_and_never_repeated(bench, action, field):
    await bench.fire(annotated(DUE, on_deadline=action))
    for _ in range(5):
        bench.cluster.put(without(bench.stored(), field))
        bench.clock.advance(60)
        assert await bench.fire(put=False) is None

    assert len(bench.cluster.patches) == 1
    assert bench.telemetry.verdicts()[-1] == ("kept", "stop-undone")


async def test_object_that_is_resumed_again_and_again_is_stopped_a_limited_number_of_times(bench):
    bench.cluster.put(annotated(DUE, on_deadline="suspend"))
    for _ in range(3 * STOPS_MAX):
        await bench.fire(put=False)
        bench.clock.advance(5)
        started = bench.clock.now().isoformat().replace("+00:00", "Z")
        bench.cluster.put(having(having(bench.stored(), "spec.suspend", False), "status.startTime", started))
        bench.clock.advance(40)

    assert [stop.stops for stop in bench.telemetry.stops] == list(range(1, STOPS_MAX + 1))
    assert bench.telemetry.verdicts()[-1] == ("kept", "stop-undone")
    assert "stopped 3 times" in bench.reported[-1][1]


# Errors


async def test_refused_stop_is_reported_and_not_tried_again(bench):
    bench.cluster.fail("patch", ForbiddenError("jobs.batch is forbidden"))

    with pytest.raises(ForbiddenError):
        await bench.fire()
    assert bench.reported == [("StopRefused", "jobs.batch is forbidden")]
    assert bench.telemetry.verdicts() == [("failed", "ForbiddenError")]


@pytest.mark.parametrize("verb", ["get", "patch"])
@pytest.mark.parametrize("seconds", [0.0, 40.0])
async def test_busy_api_server_is_tried_again_with_a_growing_pause(bench, verb, seconds):
    bench.cluster.fail(verb, TryLaterError("busy", retry_after_seconds=seconds))
    pauses = []
    for attempts in (0, 1, 3, 500):
        answer = await bench.fire(attempts=attempts)
        assert isinstance(answer, TimersSet)
        (timer,) = answer.timers
        assert (timer.purpose, timer.attempts) == (Purpose.ENFORCE, attempts + 1)
        pauses.append((timer.due_at - NOW).total_seconds())
    assert pauses == sorted(pauses)
    assert pauses[0] >= max(seconds, 0 if seconds else BACKOFF_SECONDS / 2)
    assert pauses[-1] <= BACKOFF_SECONDS_MAX + seconds


@pytest.mark.parametrize("kind", ["Secret", "CronJob"])
async def test_kind_that_is_not_enabled_is_not_read(bench, kind):
    assert await bench.fire(DUE | {"kind": kind}, put=False) is None
    assert bench.verbs == []


async def test_other_namespace_is_not_read(bench):
    bench.enforcement = replace(bench.enforcement, namespace="elsewhere")

    assert await bench.fire() is None
    assert bench.verbs == []


# Safeguards


async def test_budget_delays_a_stop():
    bench = Bench(limits=Limits(everywhere=Rate(0.1, burst=1)))
    first, second = running(name="a", uid="a"), running(name="b", uid="b")

    assert isinstance(await bench.fire(first), ObjectStopped)
    answer = await bench.fire(second)
    assert isinstance(answer, TimersSet)
    assert answer.timers[0].purpose is Purpose.ENFORCE
    assert bench.telemetry.verdicts()[-1] == ("timer-set", "budget")
    bench.clock.advance(10)
    assert isinstance(await bench.fire(second), ObjectStopped)


async def test_breaker_counts_stops_and_deletions_together():
    bench = Bench(limits=Limits(breaker=BreakerLimits(count=2)))
    done = job(complete=ago(60), ttl=30, name="done", uid="done")
    bench.cluster.put(done)

    assert isinstance(await bench.fire(running(name="a", uid="a")), ObjectStopped)
    timer = Timer(ref=ref_of(done), purpose=Purpose.EXPIRE, due_at=NOW)
    assert isinstance(await bench.expiry.handle(timer), ObjectDeleted)
    assert await bench.fire(running(name="b", uid="b")) is None
    assert bench.telemetry.verdicts()[-1] == ("kept", "breaker-open")
    assert len(bench.cluster.patches) == 1


@pytest.mark.parametrize("error", [ConflictError("changed"), ForbiddenError("no")])
async def test_breaker_counts_no_stop_that_was_refused(error):
    bench = Bench(limits=Limits(breaker=BreakerLimits(count=1)))
    bench.cluster.fail("patch", error, on="refused")
    refused = running(name="refused", uid="refused")
    if isinstance(error, PermanentError):
        with pytest.raises(PermanentError):
            await bench.fire(refused)
    else:
        await bench.fire(refused)

    assert isinstance(await bench.fire(running(name="next", uid="next")), ObjectStopped)


async def test_breaker_knows_that_stopped_objects_still_exist():
    """The share is that of the objects at the start of the window; a stop does not reduce their number."""
    bench = Bench(limits=Limits(breaker=BreakerLimits(share=0.5, at_least=4)))
    bench.objects = 10

    answers = [
        await bench.fire(having(having(DUE, "metadata.name", f"job-{n}"), "metadata.uid", f"job-{n}"))
        for n in range(10)
    ]

    assert [isinstance(one, ObjectStopped) for one in answers] == [True] * 5 + [False] * 5


async def test_breaker_counts_a_stop_without_an_answer():
    bench = Bench(limits=Limits(breaker=BreakerLimits(count=1)))
    bench.cluster.fail("patch", TryLaterError("no answer"), on="unknown")

    assert isinstance(await bench.fire(running(name="unknown", uid="unknown")), TimersSet)
    assert await bench.fire(running(name="next", uid="next")) is None
    assert bench.telemetry.verdicts()[-1] == ("kept", "breaker-open")


async def test_brake_stops_stops(monkeypatch):
    bench, answers = Bench(limits=Limits()), [Denied(Safeguard.STOPPED, "the brake is on"), None]

    async def ask_brake(_):
        return answers.pop(0)

    monkeypatch.setattr(Safeguards, "ask_brake", ask_brake)
    assert await bench.fire() is None
    assert bench.cluster.patches == []
    assert bench.telemetry.verdicts() == [("kept", "stopped")]
    assert isinstance(await bench.fire(), ObjectStopped)


async def test_dry_run_reports_and_changes_nothing():
    bench = Bench(dry_run=True, limits=Limits(breaker=BreakerLimits(count=1)))

    for name in ("a", "b", "c"):
        assert await bench.fire(running(name=name, uid=name)) is None
    assert bench.telemetry.verdicts() == [("would-stop", "deadline-exceeded")] * 3
    assert bench.verbs == ["get"] * 3
    assert bench.telemetry.events == []


# Slow


class SlowCluster(Cluster):
    """An API server with slow answers."""

    def __init__(self, clock):
        super().__init__(clock)
        self.seconds: dict[str, float] = {}
        self.meanwhile = lambda: None

    async def get(self, rule, ref):
        found = await super().get(rule, ref)
        await asyncio.sleep(self.seconds.get(f"get-{rule.kind}", 0))
        return found

    async def patch(self, rule, ref, patch, **options):
        await asyncio.sleep(self.seconds.get("patch", 0))
        return await super().patch(rule, ref, patch, **options)


def in_virtual_time(scenario):
    loop = VirtualLoop(0)

    async def live():
        clock = ReadClock(lambda: NOW + timedelta(seconds=asyncio.get_running_loop().time()))
        bench = Bench(clock=clock, limits=Limits(breaker=BreakerLimits(count=1_000, share=1.0, at_least=0)))
        bench.cluster = SlowCluster(clock)
        evaluator = Evaluator(bench.cluster, bench.kinds)
        bench.enforcement = replace(bench.enforcement, cluster=bench.cluster, evaluator=evaluator)
        return await scenario(bench)

    try:
        return loop.run_until_complete(live())
    finally:
        loop.close()


@pytest.mark.parametrize("verb", ["get-Job", "patch"])
def test_api_server_that_hangs_is_tried_again_within_the_delivery(verb):
    async def scenario(bench):
        bench.cluster.seconds = {verb: 3_600.0}
        begun = asyncio.get_running_loop().time()
        answer = await bench.fire()
        return answer, asyncio.get_running_loop().time() - begun

    answer, seconds = in_virtual_time(scenario)
    assert isinstance(answer, TimersSet)
    assert answer.timers[0].attempts == 1
    assert seconds == ATTEMPT_SECONDS_MAX


def test_namespace_that_is_exempted_during_a_slow_count_stops_nothing():
    """The last decision uses fresh facts, also if a safeguard takes its time."""

    async def scenario(bench):
        async def count(_):
            bench.cluster.put(namespace("ci", exempt="true"))
            await asyncio.sleep(9 * DECIDED_SECONDS)
            return 1_000

        not_none(bench.enforcement.safeguards)._breaker._count_objects = count
        bench.cluster.put(DUE)
        answer = await bench.fire(put=False)
        return answer, bench

    answer, bench = in_virtual_time(scenario)
    assert answer is None
    assert bench.telemetry.verdicts() == [("kept", "exempt")]
    assert bench.cluster.patches == []
