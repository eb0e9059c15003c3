"""Timeouts of deliveries: a healthy attempt is never cancelled, and a long one delays no other timer."""

from dataclasses import replace
from pathlib import Path

import pytest

from shared.adapters.timers.delivery import LIMITS
from shared.messages import Purpose
from shared.standalone.triggers import read_triggers
from shared.usecases import archive
from shared.usecases.enforce import ENFORCEMENT
from shared.usecases.expire import DELETION, WARNING
from tests.builders import not_none
from tests.fakes import FakeClock
from tests.unit.adapters.timers.test_sqlite_engine import NOW, QUICK, Broker, World, timer, turns, until

pytestmark = pytest.mark.anyio

BASE = Path(__file__).parents[4] / "knative" / "base"
ATTEMPT_SECONDS = {
    Purpose.EXPIRE: DELETION.attempt_seconds,
    Purpose.ENFORCE: ENFORCEMENT.attempt_seconds,
    Purpose.ARCHIVE: archive.ATTEMPT_SECONDS,
    Purpose.WARN: WARNING.attempt_seconds,
}
SHORT = replace(QUICK, delivery_seconds={Purpose.EXPIRE: 0.001, Purpose.ARCHIVE: 3_600.0})


@pytest.fixture
def world(tmp_path):
    clock = FakeClock(NOW)
    return World(tmp_path / "timers.db", clock, Broker(clock))


@pytest.mark.parametrize("purpose", Purpose)
def test_delivery_outlasts_its_trigger_and_the_attempt_of_its_function(purpose):
    (trigger,) = (one for one in read_triggers(BASE) if one.name == purpose.function)
    trigger_seconds = not_none(trigger.delivery.timeout).total_seconds()
    assert LIMITS.timeout_of(purpose) >= trigger_seconds > ATTEMPT_SECONDS[purpose]


@pytest.mark.parametrize("purpose", Purpose)
def test_delivery_has_time_for_the_attempt_and_then_for_the_timer_of_its_reply(purpose):
    (timers,) = (one for one in read_triggers(BASE) if one.name == "timers")
    reply_seconds = not_none(timers.delivery.timeout).total_seconds()
    assert LIMITS.timeout_of(purpose) >= ATTEMPT_SECONDS[purpose] + reply_seconds


def purposes(world):
    """The purposes of all attempts."""
    return [one.purpose for _, one in world.broker.attempts]


def test_purpose_of_a_later_version_has_the_longest_timeout():
    assert LIMITS.timeout_of("later") == LIMITS.timeout_of(Purpose.ARCHIVE)


async def test_archive_delivery_that_outlasts_the_timeout_of_expire_is_not_started_again(world):
    gate = world.broker.hang(Purpose.ARCHIVE)
    world.broker.hang(Purpose.EXPIRE)
    async with world.running(SHORT) as engine:
        await engine.set([timer(), timer(purpose=Purpose.ARCHIVE)])
        while purposes(world).count(Purpose.EXPIRE) < 3:
            world.clock.advance(60)
            await turns(engine)
        gate.set()
        await until(lambda: world.broker.fired)
    assert purposes(world).count(Purpose.ARCHIVE) == 1


async def test_long_archive_deliveries_of_a_namespace_delay_no_other_timer(world):
    world.broker.hang("slow")
    async with world.running(QUICK) as engine:
        await engine.set([timer(f"slow-{n}", -60, purpose=Purpose.ARCHIVE, namespace="slow") for n in range(500)])
        await until(lambda: world.broker.waiting == LIMITS.in_flight // 3)
        await engine.set([timer(f"due-{n}", purpose=one) for n in range(100) for one in Purpose])
        await until(lambda: len(world.broker.fired) == 100 * len(Purpose))
        assert world.broker.waiting == LIMITS.in_flight // 3
