"""The brake: a person stops all deletions, every process obeys within five seconds, and a start ends the stop."""

import pytest

from shared.core.policy.limits import BreakerLimits
from shared.errors import ForbiddenError, TryLaterError
from shared.messages import ObjectDeleted, TimersSet
from shared.safeguards.denials import REASON_CHARACTERS_MAX, start_deletions, stop_deletions
from shared.safeguards.shared_state import CACHED_SECONDS, UNREAD
from shared.safeguards.state_schema import BrakeStop, Trip, parse_state, with_stop, with_trip
from tests.builders import NOW, not_none
from tests.installation import Installation

pytestmark = pytest.mark.anyio

STOP = BrakeStop(NOW, "the dashboards look wrong", "ann")


@pytest.fixture
def at():
    return Installation()


def set_stop(at, stop=STOP):
    at.state.data = with_stop(at.state.data, stop)


async def deletes(process, name):
    return isinstance(await process.delete(name), ObjectDeleted)


async def test_stop_keeps_a_due_object_and_reports_time_user_and_reason(at):
    set_stop(at)
    process = at.process()

    assert await process.delete("a") is None

    assert process.last == ("kept", "stopped")
    detail = process.telemetry.records[-1].detail
    assert all(part in detail for part in ("2026-03-14T15:09:26Z", "ann", "the dashboards look wrong"))
    assert "`kubectl ttl start -n here`" in detail
    assert process.telemetry.is_stopped is True


async def test_stop_is_obeyed_within_five_seconds_of_a_read(at):
    process = at.process()
    assert await deletes(process, "a")

    set_stop(at)
    at.clock.advance(CACHED_SECONDS)

    assert not await deletes(process, "b")
    assert CACHED_SECONDS < 5


async def test_stop_keeps_objects_in_a_sweep_and_a_later_sweep_deletes_them(at):
    set_stop(at)
    process = at.process(by="sweep")
    await process.delete("a")
    await process.sweep()
    assert at.cluster.names == {"a"}

    await start_deletions(at.state, at.write_event, by="bob")
    at.clock.advance(CACHED_SECONDS)
    await process.sweep()

    assert at.cluster.names == set()


async def test_stop_remains_after_a_restart(at):
    set_stop(at)
    assert not await deletes(at.process(), "a")
    assert not await deletes(at.process(), "a")


async def test_stop_and_start_are_reported_once_by_each_process_that_sees_them(at):
    one, other = at.process(), at.process()
    set_stop(at)
    for name in "abc":
        await one.delete(name)
        await other.delete(name)
    await start_deletions(at.state, at.write_event, by="bob")
    at.clock.advance(CACHED_SECONDS)
    assert await deletes(one, "a")

    assert [what for what, _ in one.telemetry.problems] == ["deletions are stopped", "deletions are started again"]
    assert [what for what, _ in other.telemetry.problems] == ["deletions are stopped"]
    reported = one.telemetry.problems[0][1]
    assert (reported["why"], reported["by"]) == ("the dashboards look wrong", "ann")
    assert (one.telemetry.is_stopped, other.telemetry.is_stopped) == (False, True)


async def test_start_is_seen_by_a_process_that_has_nothing_to_delete_and_counts_as_a_release(at):
    process = at.process()
    set_stop(at)
    assert await process.safeguards.releases() == 0
    assert process.telemetry.is_stopped is True

    await start_deletions(at.state, at.write_event, by="bob")

    assert await process.safeguards.releases() == 1
    assert process.telemetry.is_stopped is False


async def test_state_that_may_not_be_read_keeps_everything_and_is_reported_once(at):
    at.state.failure = ForbiddenError("configmaps is forbidden")
    process = at.process()
    for name in "abc":
        assert not await deletes(process, name)
    assert process.telemetry.verdicts() == [("kept", "stop-unread")] * 3
    assert [what for what, _ in process.telemetry.problems] == [UNREAD]


async def test_state_that_cannot_be_read_now_is_tried_later(at):
    at.state.failure = TryLaterError("busy")
    process = at.process()
    assert isinstance(await process.delete("a"), TimersSet)
    assert process.last == ("timer-set", "try-later")
    at.state.failure = None
    at.clock.advance(1)
    assert await deletes(process, "a")


async def test_stop_is_obeyed_by_a_process_that_may_not_write(at):
    at.state.write_failure = ForbiddenError("may not update configmaps")
    process = at.process(breaker=BreakerLimits(count=100))
    assert await deletes(process, "a")
    set_stop(at)
    at.clock.advance(CACHED_SECONDS)
    assert not await deletes(process, "b")
    assert process.last == ("kept", "stopped")


async def test_state_that_was_read_too_slowly_deletes_nothing(at):
    """The API server may have read the state before the stop, and answered long after it."""
    process = at.process()
    read = at.state.read

    async def slow():
        data = await read()
        at.clock.advance(CACHED_SECONDS)
        return data

    at.state.read = slow
    assert isinstance(await process.delete("a"), TimersSet)
    assert process.last == ("timer-set", "try-later")
    assert at.cluster.names == {"a"}


async def test_stop_between_the_decision_and_the_delete_is_seen(at):
    process = at.process(breaker=BreakerLimits(count=1))
    ask = process.safeguards.ask

    async def slow(*args, **options):
        answer = await ask(*args, **options)
        set_stop(at)
        at.clock.advance(CACHED_SECONDS)
        return answer

    process.safeguards.ask = slow
    assert not await deletes(process, "a")
    assert process.last == ("kept", "stopped")

    process.safeguards.ask = ask
    await start_deletions(at.state, at.write_event, by="bob")
    at.clock.advance(CACHED_SECONDS)
    assert await deletes(process, "a")  # a delete that was not sent is not counted


async def test_stop_and_an_open_breaker_end_one_by_one(at):
    at.state.data = with_trip({}, Trip(NOW, "too many"))
    set_stop(at)
    process = at.process()
    await process.delete("a")
    assert process.last == ("kept", "stopped")
    await start_deletions(at.state, at.write_event, by="bob")
    at.clock.advance(CACHED_SECONDS)
    await process.delete("a")
    assert process.last == ("kept", "breaker-open")
    assert process.telemetry.is_stopped is False


async def test_stop_remains_after_a_trip(at):
    process = at.process(breaker=BreakerLimits(count=1))
    await process.delete("a")
    set_stop(at)
    await process.delete("b")  # trips, and writes that
    contents = parse_state(at.state.data)
    assert (contents.stop, contents.trip is not None) == (STOP, True)


async def test_stop_and_start_write_the_state_and_an_event(at):
    before = await stop_deletions(at.state, at.write_event, STOP)
    assert before is None
    assert parse_state(at.state.data).stop == STOP
    second = BrakeStop(NOW, "still wrong", "bob")
    assert await stop_deletions(at.state, at.write_event, second) == STOP
    assert await start_deletions(at.state, at.write_event, by="bob") == second
    assert await start_deletions(at.state, at.write_event, by="bob") is None
    assert [reason for reason, _ in at.message] == ["Stopped", "Stopped", "Started"]
    assert "bob" in at.message[-1][1]


async def test_stop_works_when_its_event_cannot_be_written(at):
    async def refuse(*_):
        raise ForbiddenError("events is forbidden")

    await stop_deletions(at.state, refuse, STOP)
    assert parse_state(at.state.data).stop == STOP
    await start_deletions(at.state, refuse, by="bob")
    assert parse_state(at.state.data).stop is None


async def test_stop_with_a_long_reason_cuts_the_reason(at):
    await stop_deletions(at.state, at.write_event, BrakeStop(NOW, "x" * 2_000_000, "ann"))
    assert len(not_none(parse_state(at.state.data).stop).why) == REASON_CHARACTERS_MAX


@pytest.mark.parametrize("text", ["", "{}", "looks wrong", "[1]", '{"at": 5, "why": []}', "[" * 5_000])
def test_stop_that_was_written_by_hand_stops(text):
    """`kubectl patch configmap` must work without this program."""
    assert parse_state({"stop": text}).stop is not None


def test_stop_that_is_plain_text_has_the_text_as_its_reason():
    assert not_none(parse_state({"stop": "looks wrong"}).stop).why == "looks wrong"


def test_stop_contains_no_control_characters():
    assert "\x1b" not in str(parse_state({"stop": '{"why": "\x1b[2J", "by": "\x1b[2J"}'}).stop)
    assert "\x1b" not in str(parse_state({"stop": "\x1b[2J"}).stop)
