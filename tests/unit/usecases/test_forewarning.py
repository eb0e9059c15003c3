"""A rule with `warn`: the event `object.warned` is sent before the object is due, and never after its deletion."""

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from shared.adapters.config.policy_file import parse_policy
from shared.core.decision.namespaces import plain_namespace
from shared.core.kinds.rule import Catalogue
from shared.core.policy.policy import Policy
from shared.core.values.objects import ref_of
from shared.evaluation.evaluator import Evaluator
from shared.messages import ObjectDeleted, ObjectWarned, Purpose, SweepStep, Timer, TimersSet
from shared.usecases.expire import DELETION, WARNING
from shared.usecases.handler import Handler
from shared.usecases.timers import schedule
from tests.builders import JOB, NOW, ago, annotated, job, later, owned_by, shipped_kinds
from tests.fakes import FakeClock, FakeCluster, FakePublisher, FakeTelemetry
from tests.sweeps import sweep_with

pytestmark = pytest.mark.anyio

KINDS = Catalogue((JOB,))
DONE = job(complete=NOW)
RULE = {"name": "ci", "match": {"kinds": ["jobs"]}, "ttl": "1h", "warn": "10m"}
DUE, WARNED = later(3600), later(3000)


def policy_of(*rules: dict[str, Any]) -> Policy:
    return parse_policy(json.dumps({"rules": rules}), shipped_kinds(), name="policy.yaml")


class Bench:
    """`schedule`, `expire` and `sweep` over fakes."""

    def __init__(self, **fields: Any) -> None:
        self.policy = policy_of(RULE | fields)
        self.clock, self.telemetry, self.publisher = FakeClock(), FakeTelemetry(), FakePublisher()
        self.cluster = FakeCluster(self.clock)
        evaluator = Evaluator(self.cluster, KINDS, lambda: self.policy)
        self.expiry = Handler(DELETION, self.cluster, KINDS, evaluator, self.clock, self.telemetry, dry_run=False)

    async def schedule(self, obj: dict[str, Any] = DONE, **options: Any) -> list[tuple[str, Any]]:
        about: dict[str, Any] = {"catalogue": KINDS, "clock": self.clock, "telemetry": self.telemetry}
        about |= {"get_cached": plain_namespace, "policy": self.policy}
        return _listed(await schedule(obj, **about | options))

    async def fire(
        self, obj: dict[str, Any] = DONE, *, at: float = 3000, purpose: Purpose = Purpose.WARN, late: float = 0
    ) -> Any:
        """Deliver the timer that is due at `at`, so many seconds late."""
        self.clock.advance((later(at + late) - self.clock.now()).total_seconds())
        procedure = WARNING if purpose is Purpose.WARN else DELETION
        handler = replace(self.expiry, procedure=procedure)
        return await handler.handle(Timer(ref=ref_of(obj), purpose=purpose, due_at=later(at)))

    async def sweep(self) -> list[tuple[str, Any]]:
        sweep = sweep_with(replace(self.expiry, by="sweep"), self.publisher, timedelta(hours=2), concurrency=1)
        assert await sweep.sweep(SweepStep()) is None
        return [one for message in self.publisher.published for one in _listed(message)]


def _listed(message: Any) -> list[tuple[str, Any]]:
    return [(str(one.purpose), one.due_at) for one in message.timers] if isinstance(message, TimersSet) else []


async def test_schedule_sets_the_timers_of_the_deletion_and_of_the_warning():
    assert await Bench().schedule() == [("expire", DUE), ("warn", WARNED)]


async def test_schedule_sets_only_the_warning_if_the_deletion_is_left_to_the_sweep():
    assert await Bench().schedule(horizon=timedelta(minutes=55)) == [("warn", WARNED)]


async def test_schedule_sets_the_warning_also_if_the_namespace_is_read_first():
    assert await Bench().schedule(get_cached=lambda _: None) == [("expire", NOW), ("warn", WARNED)]


async def test_warning_is_due_at_once_if_the_ttl_is_shorter():
    assert await Bench(warn="2h").schedule() == [("expire", DUE), ("warn", NOW)]


@pytest.mark.parametrize("fields", [{"audit": True}, {"warn": None}])
async def test_no_warning_is_scheduled_without_a_deletion_or_a_warn(fields):
    bench = Bench()
    bench.policy = policy_of({name: value for name, value in (RULE | fields).items() if value is not None})
    assert await bench.schedule() == [("expire", DUE)]


async def test_ttl_of_the_object_itself_has_no_warning():
    assert await Bench().schedule(annotated(DONE, ttl="2h")) == [("expire", later(7200))]


async def test_warning_is_sent_before_the_deletion():
    bench = Bench()
    bench.cluster.put(DONE)
    warned = await bench.fire()
    assert isinstance(warned, ObjectWarned)
    assert (warned.due_at, warned.ttl_from, warned.finished_at) == (DUE, "policy rule ci", NOW)
    assert warned.id == f"{ref_of(DONE).uid}/warned/{DUE.isoformat()}"
    assert bench.telemetry.verdicts() == [("warned", "not-due")]
    assert bench.cluster.counted()["delete"] == 0
    assert isinstance(await bench.fire(at=3600, purpose=Purpose.EXPIRE), ObjectDeleted)


@pytest.mark.parametrize(
    "obj",
    [
        annotated(DONE, hold="the release"),
        annotated(DONE, ttl="never"),
        annotated(DONE, ttl="10m"),
        owned_by(DONE, "Workflow"),
    ],
    ids=["held", "never", "due-already", "owner"],
)
async def test_object_that_is_not_deleted_by_the_rule_has_no_warning(obj):
    bench = Bench()
    bench.cluster.put(obj)
    assert await bench.fire(obj) is None
    assert [verdict for verdict, _ in bench.telemetry.verdicts()] == ["kept"]


async def test_rule_that_became_an_audit_has_no_warning():
    bench = Bench()
    bench.cluster.put(DONE)
    bench.policy = policy_of(RULE | {"audit": True})
    assert await bench.fire() is None
    assert bench.telemetry.verdicts() == [("kept", "audit-only")]


AUDITED_CAP = {"name": "cap", "match": {"kinds": ["jobs"]}, "maxCount": 1, "audit": True}


def beyond_the_cap(*rules: dict[str, Any]) -> Bench:
    """A Job that a rule with audit would delete for its number, and that another rule deletes later."""
    bench = Bench()
    bench.policy = policy_of(AUDITED_CAP, *(rules or [RULE]))
    bench.cluster.put(DONE)
    bench.cluster.put(job(name="new", uid="new", complete=later(1)))
    return bench


async def test_object_that_a_limit_with_audit_only_reports_has_the_timer_of_the_warning():
    bench = beyond_the_cap()
    assert await bench.schedule() == [("expire", NOW), ("warn", WARNED)]  # `schedule` counts no objects
    assert _listed(await bench.fire(at=1, purpose=Purpose.EXPIRE)) == [("expire", DUE), ("warn", WARNED)]
    assert bench.telemetry.verdicts()[-1] == ("would-delete", "audit-only")


async def test_object_that_a_limit_with_audit_only_reports_has_a_warning_of_its_deletion():
    bench = beyond_the_cap()
    warned = await bench.fire()
    assert isinstance(warned, ObjectWarned)
    assert (warned.due_at, warned.ttl_from) == (DUE, "policy rule ci")
    assert bench.telemetry.verdicts() == [("warned", "not-due")]
    assert isinstance(await bench.fire(at=3600, purpose=Purpose.EXPIRE), ObjectDeleted)


async def test_object_whose_ttl_and_limit_are_audited_has_no_warning():
    bench = beyond_the_cap(RULE | {"audit": True})
    assert await bench.fire() is None
    assert bench.telemetry.verdicts() == [("kept", "audit-only")]


async def test_warning_waits_if_the_object_is_due_later_now():
    bench = Bench()
    bench.cluster.put(DONE)
    bench.policy = policy_of(RULE | {"ttl": "2h"})
    assert _listed(await bench.fire()) == [("warn", later(6600))]


@pytest.mark.parametrize("at", [3599, 3600, 4000])
async def test_no_warning_follows_the_due_time(at):
    bench = Bench()
    bench.cluster.put(DONE)
    assert await bench.fire(at=at) is None


async def test_cached_object_has_no_warning_by_what_it_was():
    bench = Bench()
    bench.cluster.remember(bench.cluster.put(DONE))
    bench.cluster.put(annotated(DONE, hold="the release"))
    assert await bench.fire() is None
    assert bench.telemetry.verdicts() == [("kept", "held")]


async def test_dry_run_sends_no_warning():
    bench = Bench()
    bench.cluster.put(DONE)
    bench.expiry = replace(bench.expiry, dry_run=True)
    assert await bench.fire() is None
    assert bench.telemetry.verdicts() == [("kept", "not-due")]


async def test_object_that_is_gone_has_no_warning():
    bench = Bench()
    assert await bench.fire() is None
    assert bench.telemetry.verdicts() == [("already-gone", "")]


async def test_sweep_sets_the_timer_of_a_warning_that_the_events_missed():
    bench = Bench()
    bench.cluster.put(job(complete=ago(3500)))
    assert await bench.sweep() == [("expire", later(100)), ("warn", NOW)]


@pytest.mark.parametrize("late", [0, 60, 500])
async def test_redelivered_timer_sends_the_same_event_again(late):
    bench = Bench()
    bench.cluster.put(DONE)
    first = await bench.fire()
    again = await bench.fire(late=late)
    assert isinstance(again, ObjectWarned)
    assert first.id == again.id


async def test_sweep_does_not_repeat_a_warning():
    bench = Bench()
    bench.cluster.put(DONE)
    await bench.fire()
    assert await bench.sweep() == [("expire", DUE)]


async def test_warning_is_not_repeated_for_a_timer_that_another_process_sets_again():
    bench, other = Bench(), Bench()
    for one in (bench, other):
        one.cluster.put(DONE)
    await bench.fire()
    other.clock.advance(3001)
    assert await other.sweep() == [("expire", DUE), ("warn", later(3001))]
    assert await other.schedule() == [("expire", DUE), ("warn", later(3001))]
    assert await bench.fire(at=3001) is None
    assert isinstance(await bench.fire(late=60), ObjectWarned), "the first timer, delivered again"


async def test_retry_of_a_warning_stays_a_warning():
    bench = Bench()
    bench.cluster.put(DONE)
    bench.cluster.fail("get", TimeoutError())
    answer = await bench.fire()
    assert [one.purpose for one in answer.timers] == [Purpose.WARN]
    assert answer.timers[0].attempts == 1


def test_policy_refuses_a_warning_without_a_ttl():
    with pytest.raises(Exception, match="warn: expected a ttl beside it"):
        policy_of({"name": "a", "match": {"kinds": ["jobs"]}, "maxCount": 3, "warn": "1h"})
