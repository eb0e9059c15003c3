"""The safeguards before a DELETE: budget, breaker and recreate loops deny or delay it, and each of them ends."""

import asyncio
import json
from dataclasses import replace
from datetime import timedelta

import pytest

from shared.core.policy.limits import BreakerLimits, Limits, Rate, RecreationLimits
from shared.core.values.objects import ref_of
from shared.errors import ConflictError, ForbiddenError, PermanentError, TryLaterError
from shared.messages import ObjectDeleted, Purpose, Timer, TimersSet
from shared.safeguards.denials import KEPT_NAMES_MAX, name_of, release_breaker
from shared.safeguards.shared_state import CACHED_SECONDS, UNREAD
from shared.safeguards.state_schema import LOOPS_MAX, Trip, parse_state, with_loop, with_trip
from shared.usecases.expire import DELETION
from shared.usecases.timers import CLOCKS_APART_MAX
from tests.builders import JOB, NOW, ago, having, job, later, not_none
from tests.installation import Installation

pytestmark = pytest.mark.anyio


@pytest.fixture
def at():
    return Installation()


def is_retry(answer) -> bool:
    """Whether `expire` could not deal with the object now, and replied with a timer for its next attempt."""
    return isinstance(answer, TimersSet) and [timer.attempts for timer in answer.timers] == [1]


# No limits


async def test_safeguards_without_limits_delay_and_deny_nothing(at):
    process = at.process()
    for number in range(300):
        assert isinstance(await process.delete(f"job-{number}"), ObjectDeleted)


# The budget


async def test_budget_that_is_exhausted_gives_a_timer_at_the_next_free_slot(at):
    process = at.process(everywhere=Rate(2, burst=1))
    assert isinstance(await process.delete("first"), ObjectDeleted)

    answers = [await process.delete(name) for name in ("second", "third")]

    assert [answer.timers[0].due_at for answer in answers] == [later(0.5), later(1.0)]
    assert [answer.timers[0].ref.name for answer in answers] == ["second", "third"]
    assert process.last == ("timer-set", "budget")
    assert process.telemetry.waits == [0.5, 1.0]
    assert at.cluster.names == {"second", "third"}


async def test_budget_lets_an_object_pass_at_its_slot_before_newcomers(at):
    process = at.process(everywhere=Rate(1, burst=1))
    await process.delete("first")
    await process.delete("waits")
    at.clock.advance(1)

    assert isinstance(await process.delete("newcomer"), TimersSet)
    assert isinstance(await process.delete("waits"), ObjectDeleted)


async def test_budget_timer_does_not_loop_when_the_engine_clock_is_ahead(at):
    process = at.process(everywhere=Rate(1, burst=1))
    await process.delete("first")
    await process.delete("waits")

    answer = await process.delete("waits", due_at=later(30))

    assert [timer.due_at for timer in answer.timers] == [later(31)]


async def test_budget_delays_a_forged_timer_only_for_a_short_time(at):
    process = at.process(everywhere=Rate(1, burst=1))
    await process.delete("first")

    answer = await process.delete("waits", due_at=later(1e9))

    assert answer.timers[0].due_at <= later(1) + CLOCKS_APART_MAX


async def test_budget_of_a_crowded_namespace_does_not_delay_others(at):
    process = at.process(everywhere=Rate(10, burst=5), per_namespace=Rate(0.1, burst=1))
    for number in range(50):
        await process.delete(f"job-{number}", namespace="crowded")
    at.clock.advance(1)

    assert isinstance(await process.delete("other", namespace="quiet"), ObjectDeleted)


async def test_budget_takes_no_token_for_an_object_that_was_not_deleted(at):
    process = at.process(everywhere=Rate(0.001, burst=1), breaker=BreakerLimits(count=1))
    at.cluster.before_delete = at.cluster.remove
    await process.delete("gone-meanwhile")
    at.cluster.before_delete = lambda _: None
    at.cluster.fail("delete", ForbiddenError("no"), on="forbidden")
    with pytest.raises(ForbiddenError):
        await process.delete("forbidden")
    at.cluster.before_delete = at.cluster.write
    assert is_retry(await process.delete("changing"))
    mark = "metadata.deletionTimestamp"
    at.cluster.before_delete = lambda name: at.cluster.write(name, mark, "2026-01-02T03:04:05Z")
    await process.delete("marked-meanwhile")
    at.cluster.before_delete = lambda _: None
    at.cluster.fail("delete", ConflictError("refused"), on="unchanged")
    with pytest.raises(PermanentError):
        await process.delete("unchanged")

    assert isinstance(await process.delete("deleted"), ObjectDeleted)


async def test_breaker_counts_a_delete_without_an_answer(at):
    process = at.process(breaker=BreakerLimits(count=1))
    at.cluster.fail("delete", TryLaterError("no answer"), on="unknown")
    assert is_retry(await process.delete("unknown"))

    assert await process.delete("next") is None
    assert process.last == ("kept", "breaker-open")


async def test_breaker_counts_a_delete_without_an_answer_once(at):
    """A webhook that hangs or fails DELETEs of one kind must not trip the breaker for all kinds."""
    process = at.process(breaker=BreakerLimits(count=2))
    at.cluster.fail("delete", TryLaterError("failed calling webhook"), on="unknown")
    for _ in range(5):
        assert is_retry(await process.delete("unknown"))
        at.clock.advance(60)

    assert isinstance(await process.delete("next"), ObjectDeleted)
    assert await process.delete("one-more") is None
    assert process.last == ("kept", "breaker-open")


async def test_breaker_counts_a_delete_without_an_answer_again_after_the_window(at):
    process = at.process(breaker=BreakerLimits(count=2, window=timedelta(minutes=10)))
    at.cluster.fail("delete", TryLaterError("no answer"), on="unknown")
    await process.delete("unknown")
    at.clock.advance(2 * 600)
    assert isinstance(await process.delete("a"), ObjectDeleted)
    await process.delete("unknown")

    assert await process.delete("b") is None
    assert process.last == ("kept", "breaker-open")


async def test_breaker_keeps_the_count_of_a_delete_without_an_answer_that_was_carried_out(at):
    process = at.process(breaker=BreakerLimits(count=1))
    at.cluster.fail("delete", TryLaterError("no answer"), on="unknown")
    await process.delete("unknown")
    at.cluster._failures.clear()
    at.cluster.before_delete = at.cluster.remove
    assert await process.delete("unknown") is None
    assert process.last == ("already-gone", "")

    at.cluster.before_delete = lambda _: None
    assert await process.delete("next") is None
    assert process.last == ("kept", "breaker-open")


async def test_breaker_does_not_count_a_delete_that_was_not_sent(at):
    process = at.process(everywhere=Rate(0.001, burst=1), breaker=BreakerLimits(count=1))
    process.expiry = replace(process.expiry, procedure=replace(DELETION, attempt_seconds=0.01))
    ask_brake = process.safeguards.ask_brake

    async def hang():
        await asyncio.Event().wait()

    process.safeguards.ask_brake = hang
    assert is_retry(await process.delete("cut-off"))
    process.safeguards.ask_brake = ask_brake

    assert isinstance(await process.delete("deleted"), ObjectDeleted)


async def test_budget_slot_stays_when_a_sweep_finds_the_object_again(at):
    process = at.process(everywhere=Rate(0.01, burst=1))
    for name in "abcd":
        at.cluster.put(job(complete=ago(60), ttl=0, name=name, uid=name))
    first = await process.sweep()
    assert at.cluster.names == {"b", "c", "d"}

    at.clock.advance(50)
    assert await process.sweep() == first
    for timer in first:
        at.clock.at = timer.due_at
        assert isinstance(await process.expiry.handle(timer), ObjectDeleted)


async def test_budget_leaves_a_backlog_beyond_the_horizon_to_later_sweeps(at):
    process = at.process(everywhere=Rate(0.01, burst=1))
    for number in range(60):
        at.cluster.put(job(complete=ago(60), ttl=0, name=f"job-{number:02}", uid=f"uid-{number}"))
    timers = await process.sweep()
    assert len(timers) == 11  # of twenty minutes
    assert process.telemetry.verdicts().count(("kept", "budget")) == 48

    pending = {timer.ref.uid: timer for timer in timers}
    for minute in range(1, 60 * 60 // 36 + 20):
        at.clock.at = later(60 * minute)
        for uid, timer in list(pending.items()):
            if timer.due_at <= at.clock.now():
                del pending[uid]
                answer = await process.expiry.handle(timer)
                pending |= {one.ref.uid: one for one in answer.timers} if isinstance(answer, TimersSet) else {}
        if minute % 10 == 0:
            pending |= {timer.ref.uid: timer for timer in await process.sweep()}
    assert at.cluster.names == set()
    assert len(process.telemetry.deletions) == 60


async def test_safeguards_apply_new_limits_from_the_next_deletion(at):
    process = at.process(everywhere=Rate(0.001))
    await process.delete("a")
    assert isinstance(await process.delete("b"), TimersSet)

    process.limits = Limits()

    assert isinstance(await process.delete("b"), ObjectDeleted)


# The breaker


async def test_breaker_that_trips_after_one_deletion_says_so_in_the_singular(at):
    process = at.process(by="sweep", breaker=BreakerLimits(count=1, window=timedelta(minutes=10)))
    await process.delete("a")
    assert await process.delete("b") is None
    assert ": 1 object was deleted within 10m, and the limit is 1" in at.message[0][1]


async def test_breaker_trips_at_the_deletion_after_its_count(at):
    process = at.process(by="sweep", breaker=BreakerLimits(count=3, window=timedelta(minutes=10)))
    for name in "abc":
        assert isinstance(await process.delete(name), ObjectDeleted)

    assert await process.delete("d") is None
    assert await process.delete("e") is None

    assert at.cluster.names == {"d", "e"}
    assert process.telemetry.verdicts() == [("kept", "breaker-open")] * 2
    assert process.telemetry.breaker_open is True
    assert [reason for reason, _ in at.message] == ["BreakerOpen"]
    assert "3 objects were deleted within 10m, and the limit is 3" in at.message[0][1]
    assert parse_state(at.state.data).trip == Trip(
        NOW, "3 objects were deleted within 10m, and the limit is 3", "sweep"
    )


async def test_breaker_ignores_deletions_before_the_window(at):
    process = at.process(breaker=BreakerLimits(count=3, window=timedelta(minutes=10)))
    for number in range(9):
        assert isinstance(await process.delete(f"job-{number}"), ObjectDeleted)
        at.clock.advance(250)


@pytest.mark.parametrize(("share", "at_least", "gone"), [(0.5, 2, 5), (0.5, 8, 8), (1.0, 2, 10), (0.05, 0, 0)])
async def test_breaker_trips_at_a_share_of_a_kind(at, share, at_least, gone):
    process = at.process(breaker=BreakerLimits(share=share, at_least=at_least))
    for number in range(10):
        at.objects = 10 - len(process.telemetry.deletions)
        await process.delete(f"job-{number}")
    assert len(process.telemetry.deletions) == gone
    assert [reason for reason, _ in at.message] == ["BreakerOpen"] * (gone < 10)


async def test_breaker_denies_a_kind_that_cannot_be_counted_for_a_share(at):
    at.objects = ForbiddenError("jobs is forbidden: cannot list")
    process = at.process(breaker=BreakerLimits(share=0.5, at_least=2))
    for name in "abcd":
        await process.delete(name)
    assert at.cluster.names == {"c", "d"}
    assert [what for what, _ in process.telemetry.problems] == ["could not count the objects of a kind"]
    assert process.last == ("kept", "breaker-unread")
    assert at.message == []


async def test_breaker_trip_stops_all_processes_within_the_cache_time(at):
    one, other = (at.process(breaker=BreakerLimits(count=count)) for count in (1, 100))
    await other.delete("first-of-the-other")
    await one.delete("a")
    await one.delete("b")  # trips

    assert isinstance(await other.delete("just-before"), ObjectDeleted)
    at.clock.advance(CACHED_SECONDS)
    assert await other.delete("after") is None
    assert other.last == ("kept", "breaker-open")


async def test_breaker_stays_open_after_a_restart_until_the_release(at):
    limits = BreakerLimits(count=1)
    before = at.process(breaker=limits)
    await before.delete("a")
    await before.delete("b")
    after = at.process(breaker=limits)
    assert await after.delete("b") is None

    trip = await release_breaker(at.state, at.write_event)
    at.clock.advance(CACHED_SECONDS)

    assert "the limit is 1" in not_none(trip).why
    assert [reason for reason, _ in at.message] == ["BreakerOpen", "BreakerReleased"]
    assert isinstance(await before.delete("b"), ObjectDeleted)  # the count starts from zero
    assert before.telemetry.breaker_open is False
    assert isinstance(await after.delete("c"), ObjectDeleted)


async def test_breaker_release_is_seen_by_an_idle_process(at):
    process = at.process(breaker=BreakerLimits(count=1))
    await process.delete("a")
    await process.delete("b")
    await process.safeguards.report()
    assert process.telemetry.breaker_open is True

    await release_breaker(at.state, at.write_event)

    await process.safeguards.report()
    assert process.telemetry.breaker_open is False
    assert "the breaker is released" in [message for message, _ in process.telemetry.problems]


async def test_breaker_release_is_counted_by_the_call_that_reads_it(at):
    """Also a release within seconds of the trip, which a check for an open breaker would miss."""
    process = at.process(breaker=BreakerLimits(count=1))
    assert await process.safeguards.releases() == 0
    await process.delete("a")
    await process.delete("b")

    await release_breaker(at.state, at.write_event)
    at.clock.advance(CACHED_SECONDS)
    assert isinstance(await process.delete("b"), ObjectDeleted)

    assert await process.safeguards.releases() == 1


@pytest.mark.parametrize(("shared", "command"), [(True, "`kubectl ttl release --breaker -n here`"), (False, "restart")])
async def test_breaker_log_and_event_name_the_command_that_releases_it(at, shared, command):
    process = at.process(shared=shared, breaker=BreakerLimits(count=1))
    for name in "abc":
        await process.delete(name)
    ((_, event),) = at.message
    ((_, fields),) = process.telemetry.problems
    assert all(command in reported for reported in (event, fields["then"], process.telemetry.records[-1].detail))


async def test_breaker_texts_from_the_state_contain_no_control_characters(at):
    at.state.data = {"breaker": json.dumps({"why": "\x1b[2J all well \ud800"})}

    trip = await release_breaker(at.state, at.write_event)

    assert str(trip) == "\N{REPLACEMENT CHARACTER}[2J all well \N{REPLACEMENT CHARACTER}"
    assert at.message == [("BreakerReleased", f"deletes again; nothing was deleted {trip}")]


async def test_breaker_release_does_nothing_when_closed(at):
    assert await release_breaker(at.state, at.write_event) is None
    assert at.message == []


async def test_breaker_trip_stops_processes_without_breaker_limits(at):
    at.state.data = with_trip({}, Trip(NOW, "another process's"))
    process = at.process()
    assert await process.delete("a") is None
    assert "another process's" in process.telemetry.records[-1].detail


async def test_breaker_reports_the_first_of_two_simultaneous_trips(at):
    one, other = (at.process(by=by, breaker=BreakerLimits(count=1)) for by in ("expire", "sweep"))
    await one.delete("a")
    await other.delete("b")
    await one.delete("c")
    await other.delete("d")
    assert len(at.message) == 1
    assert not_none(parse_state(at.state.data).trip).by == "expire"


async def test_safeguards_deny_everything_when_the_state_may_not_be_read(at):
    at.state.failure = ForbiddenError("configmaps is forbidden")
    process = at.process(breaker=BreakerLimits(count=100))
    for name in "abc":
        assert await process.delete(name) is None
    assert process.telemetry.verdicts() == [("kept", "stop-unread")] * 3
    assert [what for what, _ in process.telemetry.problems] == [UNREAD]
    assert at.state.reads == 1


async def test_safeguards_retry_later_when_the_state_cannot_be_read_now(at):
    process = at.process(breaker=BreakerLimits(count=100))
    await process.delete("a")
    at.clock.advance(CACHED_SECONDS)
    at.state.failure = TryLaterError("busy")
    assert is_retry(await process.delete("b"))

    at.state.failure = None
    at.clock.advance(1)
    assert isinstance(await process.delete("b"), ObjectDeleted)


async def test_breaker_trip_that_cannot_be_written_holds_here_and_is_written_later(at):
    process = at.process(breaker=BreakerLimits(count=1))
    await process.delete("a")
    at.state.failure = TryLaterError("busy")
    assert await process.delete("b") is None
    at.clock.advance(1)
    assert is_retry(await process.delete("b"))
    assert at.message == []

    at.state.failure = None
    at.clock.advance(1)
    assert await process.delete("b") is None
    assert parse_state(at.state.data).trip
    assert len(at.message) == 1


async def test_breaker_trip_without_shared_state_stops_one_process(at):
    process = at.process(shared=False, breaker=BreakerLimits(count=1))
    await process.delete("a")
    assert await process.delete("b") is None
    assert len(at.message) == 1
    assert isinstance(await at.process(shared=False, breaker=BreakerLimits(count=1)).delete("b"), ObjectDeleted)


async def test_safeguards_count_and_read_nothing_in_a_dry_run(at):
    process = at.process(everywhere=Rate(0.001), breaker=BreakerLimits(count=1))
    expiry = replace(process.expiry, dry_run=True)
    for number in range(3):
        obj = job(complete=ago(60), ttl=0, name=f"job-{number}", uid=f"uid-{number}")
        at.cluster.put(obj)
        assert await expiry.handle(Timer(ref=ref_of(obj), purpose=Purpose.EXPIRE, due_at=NOW)) is None
    assert process.telemetry.verdicts() == [("would-delete", "expired")] * 3
    assert at.state.reads == 0
    assert at.state.data == {}


async def test_breaker_stores_the_first_names_that_all_processes_keep(at):
    limits = BreakerLimits(count=1)
    one, other = at.process(breaker=limits), at.process(breaker=limits)
    await one.delete("gone")
    for number in range(30):
        await one.delete(f"one-{number}")
        at.clock.advance(1)
    await other.delete("other")
    await other.safeguards.flush()

    kept = parse_state(at.state.data).kept
    assert kept[:2] == ("Job.batch/ci/one-0", "Job.batch/ci/one-1")
    assert len(kept) == KEPT_NAMES_MAX
    await release_breaker(at.state, at.write_event)
    assert parse_state(at.state.data).kept == ()
    at.clock.advance(CACHED_SECONDS)
    await one.delete("again")
    await one.delete("kept-again")
    await one.safeguards.flush()
    assert parse_state(at.state.data).kept == ("Job.batch/ci/kept-again",)


@pytest.mark.parametrize("text", ["", "5", "[5]", "{}", "[" * 5_000])
def test_breaker_ignores_kept_names_that_cannot_be_read(text):
    assert parse_state({"breaker": "{}", "kept": text}).kept == ()


# Recreate loops

LOOP = RecreationLimits(times=2, window=timedelta(minutes=10))


async def test_recreate_loop_keeps_a_name_that_is_recreated_too_often(at):
    process = at.process(recreation=LOOP)
    for number in range(2):
        assert isinstance(await process.delete("nightly", uid=f"uid-{number}"), ObjectDeleted)

    for _ in range(2):
        assert await process.delete("nightly", uid="uid-2") is None

    assert process.last == ("kept", "recreate-loop")
    assert process.telemetry.loops == ["nightly"]
    (event,) = process.telemetry.events
    assert event[1] == "RecreateLoop"
    assert event[2] == (
        "kept until 2026-03-14T15:19:26Z: deleted 2 times within 10m and back each time; something recreates it"
    )
    assert isinstance(await process.delete("another"), ObjectDeleted)
    assert isinstance(await process.delete("nightly", uid="elsewhere", namespace="other"), ObjectDeleted)


async def test_recreate_loop_event_names_the_parent(at):
    process = at.process(recreation=LOOP)
    for number in range(2):
        await process.delete("pod", uid=f"uid-{number}")
    owner = {"apiVersion": "example.com/v1", "kind": "Robot", "name": "arm", "uid": "u", "controller": True}
    obj = having(job(complete=ago(60), ttl=0, name="pod", uid="uid-2"), "metadata.ownerReferences", [owner])
    kept = await process.safeguards.ask(JOB, obj, by="expire")
    assert kept.event.endswith("Robot arm recreates it")


async def test_recreate_loop_ends_after_the_window(at):
    process = at.process(recreation=LOOP)
    for number in range(3):
        await process.delete("nightly", uid=f"uid-{number}")
    at.clock.advance(601)
    assert isinstance(await process.delete("nightly", uid="uid-2"), ObjectDeleted)


async def test_recreate_loop_is_not_found_when_a_name_is_rarely_recreated(at):
    process = at.process(recreation=LOOP)
    for number in range(9):
        assert isinstance(await process.delete("nightly", uid=f"uid-{number}"), ObjectDeleted)
        at.clock.advance(400)


async def test_recreate_loop_continues_after_a_restart(at):
    before = at.process(recreation=LOOP)
    for number in range(3):
        await before.delete("nightly", uid=f"uid-{number}")

    after = at.process(recreation=LOOP)

    assert await after.delete("nightly", uid="uid-2") is None
    assert after.last == ("kept", "recreate-loop")
    assert after.telemetry.loops == []  # no new one
    at.clock.advance(601)
    assert isinstance(await after.delete("nightly", uid="uid-2"), ObjectDeleted)


async def test_recreate_loop_that_cannot_be_written_holds_here(at):
    at.state.write_failure = ForbiddenError("configmaps is forbidden")
    process = at.process(recreation=LOOP)
    for number in range(3):
        await process.delete("nightly", uid=f"uid-{number}")
    assert process.last == ("kept", "recreate-loop")

    at.state.write_failure = None
    at.clock.advance(CACHED_SECONDS)
    await process.delete("nightly", uid="uid-2")
    assert process.telemetry.loops == ["nightly"]


async def test_recreate_loop_ignores_a_deleted_object_that_still_exists(at):
    process = at.process(recreation=LOOP)
    for number in (0, 1, 1):
        assert isinstance(await process.delete("nightly", uid=f"uid-{number}"), ObjectDeleted)


async def test_recreate_loop_detection_can_be_turned_off(at):
    process = at.process(recreation=RecreationLimits(times=0))
    for number in range(20):
        assert isinstance(await process.delete("nightly", uid=f"uid-{number}"), ObjectDeleted)


# The written state


def test_recreate_loop_names_are_bounded_and_expired_names_are_removed():
    data = with_loop({"breaker": "{}"}, "Job.batch/ci/old", later(1), NOW)
    for number in range(LOOPS_MAX + 50):
        data = with_loop(data, f"Job.batch/{'n' * 63}/{'j' * 200}-{number}", later(100 + number), later(2))
    loops = parse_state(data).loops
    assert len(loops) == LOOPS_MAX
    assert "Job.batch/ci/old" not in loops
    assert max(loops.values()) == later(100 + LOOPS_MAX + 49)
    assert len(data["recreation"]) < 100_000
    assert data["breaker"] == "{}"


@pytest.mark.parametrize("text", ["{}", "yes", "[1]", '{"at": 5, "why": []}', "[" * 5_000])
def test_breaker_is_open_when_the_trip_cannot_be_read(text):
    assert parse_state({"breaker": text}).trip is not None


@pytest.mark.parametrize("text", ["", "yes", "[1]", '{"a": 5}', "[" * 5_000])
def test_recreate_loop_ignores_names_that_cannot_be_read(text):
    assert parse_state({"recreation": text}).loops == {}


def test_recreate_loop_names_do_not_contain_the_api_version():
    obj = job(name="a", namespace="ci")
    ref = ref_of(obj)
    assert name_of(ref) == "Job.batch/ci/a"
    assert name_of(replace(ref, api_version="batch/v1beta1")) == name_of(ref)
    assert name_of(replace(ref, api_version="v1", kind="Pod")) == "Pod/ci/a"
