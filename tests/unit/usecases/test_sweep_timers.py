"""The timers of a sweep: each object that could not be handled is handled again, by the function that it needs."""

from dataclasses import replace

import pytest

from shared.core.values.objects import ref_of
from shared.errors import ConflictError, TryLaterError
from shared.messages import TIMERS_MAX, Purpose, Timer
from shared.ports import Snapshot
from shared.usecases.sweeps.results import WantedTimers, retries_of
from tests.builders import JOB, NOW, ago, job
from tests.fakes import FakePublisher, FakeTelemetry

pytestmark = pytest.mark.anyio

RUNNING, FINISHED = job(), job(complete=ago(60))


def purposes(obj, *, rule=JOB):
    snapshot = None if obj is None else Snapshot(obj, NOW)
    return [one.purpose for one in retries_of(ref_of(RUNNING), rule, snapshot, ConflictError("changed"), now=NOW)]


def test_running_object_is_retried_by_enforce_and_a_finished_one_by_expire():
    assert purposes(RUNNING) == [Purpose.ENFORCE]
    assert purposes(FINISHED) == [Purpose.EXPIRE]


def test_object_that_could_not_be_read_is_retried_by_both():
    assert purposes(None) == [Purpose.EXPIRE, Purpose.ENFORCE]
    assert purposes(None, rule=JOB.model_copy(update={"deadline": None})) == [Purpose.EXPIRE]


def test_retry_waits_as_long_as_the_api_server_asks():
    (timer,) = retries_of(
        ref_of(RUNNING), JOB, Snapshot(RUNNING, NOW), TryLaterError("busy", retry_after_seconds=20), now=NOW
    )
    assert (timer.due_at - NOW).total_seconds() >= 20


def wanted(count, *, each=1):
    found, timer = WantedTimers(), Timer(ref=ref_of(RUNNING), purpose=Purpose.EXPIRE, due_at=NOW)
    for number in range(count):
        ref = replace(timer.ref, uid=str(number))
        found.add(ref, [timer.model_copy(update={"ref": ref})] * each)
    return found


async def test_timers_that_the_broker_refuses_are_reported_once():
    publisher, telemetry = FakePublisher(failure=TryLaterError("full")), FakeTelemetry()

    assert await wanted(1200).publish(publisher, telemetry) == set()
    assert [message for message, _ in telemetry.problems] == ["sweep could not set timers"]


async def test_only_objects_whose_timers_are_all_published_are_confirmed():
    """The second message fails; the timers of one object are in the first message and in the second one."""
    publisher, telemetry = FullAfterOne(), FakeTelemetry()

    confirmed = await wanted(400, each=3).publish(publisher, telemetry)

    assert confirmed == {str(number) for number in range(TIMERS_MAX // 3)}
    assert telemetry.problems == [("sweep could not set timers", {"timers": 1200 - TIMERS_MAX, "error": "full"})]


class FullAfterOne(FakePublisher):
    async def publish(self, message):
        if self.published:
            raise TryLaterError("full")
        await super().publish(message)
