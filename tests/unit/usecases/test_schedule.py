"""The function schedule: the timers of running objects with a deadline, and the reads that their events cause."""

from datetime import timedelta
from typing import Any

import pytest

from shared.core.decision.namespaces import namespace_of, plain_namespace
from shared.core.kinds.rule import Catalogue
from shared.core.policy.policy import NO_POLICY, Policy
from shared.messages import Proof, Purpose
from shared.usecases.timers import NEW, SETTLED, schedule
from tests.builders import JOB, POD, ago, annotated, condition, having, job, later, namespace, stamp
from tests.fakes import FakeClock, FakeTelemetry

pytestmark = pytest.mark.anyio

CANNOT = JOB.model_copy(update={"deadline": None})
HOME = plain_namespace("ci")


def running(seconds: float = 600, *, deadline: Any = "1h", **annotations: Any) -> dict[str, Any]:
    """A Job that started so long ago; its status was just written, its spec and its metadata when it was created."""
    given = {} if deadline is None else {"active_deadline": deadline}
    return written(having(job(**given, **annotations), "status.startTime", stamp(ago(seconds))), 86_400)


def written(obj: dict[str, Any], seconds: float) -> dict[str, Any]:
    """The object as if its spec or its metadata was last written so long ago."""
    writes = [{"manager": "kubectl", "time": stamp(ago(seconds))}]
    writes += [{"manager": "kube-controller-manager", "subresource": "status", "time": stamp(ago(0))}]
    return having(obj, "metadata.managedFields", writes)


async def timer_for(obj, **options):
    """The purpose and the instant of the timer; None for none."""
    timer = await whole_timer_for(obj, **options)
    return timer and (timer.purpose, timer.due_at)


async def whole_timer_for(obj, proof=None, *, rule=JOB, place=HOME, policy=NO_POLICY, horizon=timedelta.max):
    answer = await schedule(
        obj,
        proof,
        catalogue=Catalogue((rule, POD)),
        clock=FakeClock(),
        telemetry=FakeTelemetry(),
        policy=policy,
        get_cached=lambda _: place,
        horizon=horizon,
    )
    if answer is None:
        return None
    (timer,) = answer.timers
    return timer


def at(instant):
    return (Purpose.ENFORCE, instant)


async def test_running_object_gets_a_timer_for_its_deadline():
    assert await timer_for(running()) == at(later(3_000))


async def test_clock_that_restarts_moves_the_timer():
    resumed = [condition("Suspended", ago(5), status="False")]

    assert await timer_for(having(running(), "status.conditions", resumed)) == at(later(3_595))


@pytest.mark.parametrize(
    "obj",
    [
        running(deadline=None),
        running(deadline="never"),
        running(hold="look"),
        having(running(), "spec.suspend", True),
        having(running(), "spec.activeDeadlineSeconds", 60),
        having(running(), "metadata.deletionTimestamp", stamp(ago(1))),
        having(running(), "status.startTime", None),
    ],
    ids=["none", "never", "held", "suspended", "native", "goes", "not started"],
)
async def test_running_object_whose_clock_does_not_run_gets_no_timer(obj):
    assert await timer_for(obj) is None


async def test_finished_object_gets_the_timer_of_its_ttl_alone():
    obj = annotated(having(running(), "status.conditions", [condition("Failed", ago(10))]), ttl="1m")

    assert await timer_for(obj) == (Purpose.EXPIRE, later(50))


async def test_stopped_object_gets_the_timer_of_its_ttl():
    obj = annotated(running(), ttl="1m", deadline_exceeded=ago(20), stops="1", stopped_generation="2")
    obj = having(having(obj, "metadata.generation", 2), "spec.suspend", True)

    assert await timer_for(obj) is None
    assert await timer_for(having(obj, "status.conditions", [condition("Suspended", ago(10))])) == (
        Purpose.EXPIRE,
        later(50),
    )


async def test_deadline_beyond_the_horizon_is_left_to_the_sweep():
    assert await timer_for(running(), horizon=timedelta(seconds=3_000)) is None
    assert await timer_for(running(), horizon=timedelta(seconds=3_001)) == at(later(3_000))


# The namespace


@pytest.mark.parametrize(("seconds", "expected"), [(0, 2), (1, 1), (5, 0), (29, 0)])
async def test_namespace_of_a_new_object_is_read_once_soon_after_its_start(seconds, expected):
    assert timedelta(seconds=2) == SETTLED
    assert await timer_for(running(seconds, deadline=None), place=None) == at(later(expected))


@pytest.mark.parametrize("seconds", [30, 600])
async def test_later_events_of_an_object_without_a_deadline_cause_no_read(seconds):
    assert timedelta(seconds=30) == NEW
    assert await timer_for(running(seconds, deadline=None), place=None) is None


async def test_object_without_a_start_causes_no_read():
    assert await timer_for(having(running(deadline=None), "status.startTime", None), place=None) is None


@pytest.mark.parametrize("rule", [CANNOT, JOB.model_copy(update={"opt_in": "data"})])
async def test_kind_without_a_default_causes_no_read(rule):
    assert await timer_for(running(1, deadline=None), rule=rule, place=None) is None


async def test_namespace_of_a_new_object_with_its_own_deadline_is_read_since_it_may_shorten_it():
    assert await timer_for(running(1), place=None) == at(later(1))
    assert await timer_for(running(29), place=None) == at(later(0))
    assert await timer_for(running(1, deadline="1s"), place=None) == at(later(0))
    assert await timer_for(running(5, deadline="1s"), place=None) == at(ago(4))


async def test_later_event_leaves_the_timer_that_the_read_of_the_namespace_set():
    assert await timer_for(running(30), place=None) is None
    assert await timer_for(running(3_600), place=None) is None


async def test_own_deadline_that_was_just_written_gets_its_timer_while_the_namespace_is_unread():
    assert await timer_for(written(running(), 1), place=None) == at(later(3_000))


async def test_cached_namespace_sets_the_timer_at_once():
    place = namespace_of(namespace(default_active_deadline="1h", max_active_deadline="30m"))

    assert await timer_for(running(deadline=None), place=place) == at(later(1_200))
    assert await timer_for(running(deadline="2h"), place=place) == at(later(1_200))


# Reads of objects whose events are frequent


async def test_object_over_its_deadline_is_read_until_it_had_its_time():
    """After that a safeguard delays or keeps it, or a timer tries again: more events must not cause more reads."""
    assert await timer_for(running(3_600)) == at(ago(0))
    assert await timer_for(running(3_629)) == at(ago(29))
    assert await timer_for(running(3_630)) is None
    assert await timer_for(running(86_400)) is None


@pytest.mark.parametrize("place", [HOME, None])
async def test_deadline_that_a_person_shortens_takes_effect_at_once(place):
    assert await timer_for(written(running(86_400), 1), place=place) == at(ago(82_800))
    assert await timer_for(written(running(86_400), 29), place=place) == at(ago(82_800))
    assert await timer_for(written(running(86_400), 30), place=place) is None


async def test_object_whose_writes_are_unknown_is_read():
    obj = running(86_400)
    del obj["metadata"]["managedFields"]

    assert await timer_for(obj) == at(ago(82_800))


@pytest.mark.parametrize("time", [None, "soon", 5, []])
async def test_write_without_a_time_is_not_recent(time):
    assert await timer_for(having(running(86_400), "metadata.managedFields", [{"time": time}])) is None


@pytest.mark.parametrize(
    ("obj", "rule"),
    [
        (running(deadline="soon"), JOB),
        (running(deadline="0"), JOB),
        (running(on_deadline="explode"), JOB),
        (running(deadline_exceeded=ago(60)), JOB),
        (running(), CANNOT),
    ],
)
async def test_deadline_that_cannot_be_enforced_is_reported_once_after_a_write(obj, rule):
    assert await timer_for(written(obj, 1), rule=rule) == at(later(0))
    assert await timer_for(written(obj, 600), rule=rule) is None


@pytest.mark.parametrize("seconds", [1, 600])
async def test_policy_for_a_kind_that_cannot_be_stopped_causes_no_read(seconds):
    """A rule for all kinds must not cause a read for each event of each Pod."""
    rules = [{"name": "all", "match": {"kinds": ["*"]}, "activeDeadline": "1h"}]
    policy = Policy.model_validate({"rules": rules})

    assert await timer_for(written(running(deadline=None), seconds), rule=CANNOT, policy=policy) is None
    assert await timer_for(written(running(deadline=None), seconds), policy=policy) == at(later(3_000))


# Proofs of our watch

PROOF = Proof(resource_version="1042", due_at=later(7_000), signature="a" * 64)
"""Whether it holds, only `expire` checks."""


async def test_timer_carries_the_proof_of_the_event():
    timer = await whole_timer_for(job(complete=ago(0), ttl=60), PROOF)

    assert (timer.proof, timer.due_at) == (PROOF, later(60))


async def test_proof_tells_the_due_time_if_the_namespace_is_unread():
    """Without it, the object would be read now, since its namespace may shorten the TTL."""
    obj = job(complete=ago(0), ttl=7_200)

    assert (await whole_timer_for(obj, place=None)).due_at == later(0)
    timer = await whole_timer_for(obj, PROOF, place=None)
    assert (timer.proof, timer.due_at) == (PROOF, later(7_000))


async def test_proof_sets_no_timer_for_an_object_that_is_kept():
    assert await whole_timer_for(job(complete=ago(0)), PROOF) is None


async def test_proof_sets_no_timer_beyond_the_horizon():
    obj = job(complete=ago(0), ttl=7_200)

    assert await whole_timer_for(obj, PROOF, place=None, horizon=timedelta(hours=1)) is None


async def test_timer_of_a_deadline_carries_no_proof():
    assert (await whole_timer_for(running(), PROOF)).proof is None


async def test_timer_of_an_object_that_keep_last_may_keep_says_that_it_is_not_decided():
    """The next line about the object may be its deletion."""
    rule = {"name": "ci", "match": {"kinds": ["jobs"]}, "ttl": "1m", "keepLast": 1}
    policy, telemetry = Policy.model_validate({"rules": [rule]}), FakeTelemetry()

    await schedule(
        job(complete=ago(120)),
        catalogue=Catalogue((JOB,)),
        clock=FakeClock(),
        telemetry=telemetry,
        policy=policy,
        get_cached=lambda _: HOME,
    )

    (record,) = telemetry.records
    assert (record.verdict, record.reason) == ("timer-set", "rank-unread")
    assert record.detail == "not decided yet: its group is counted when the timer fires"
