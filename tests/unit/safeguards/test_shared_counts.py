"""Shared counts: each process sees only its own deletions, and all processes know the sum."""

import asyncio
import json
from datetime import timedelta

import pytest

from shared.core.policy.limits import BreakerLimits, Limits, RecreationLimits
from shared.core.values.objects import ObjectRef
from shared.errors import ConflictError, ForbiddenError, PermanentError, TryLaterError
from shared.messages import ObjectDeleted
from shared.safeguards import shared_state
from shared.safeguards.denials import SHARED_CHARACTERS_MAX, SHARED_MAX, Recreations, release_breaker
from shared.safeguards.shared_state import CACHED_SECONDS, UNWRITTEN
from shared.safeguards.state_schema import DELETIONS, LAST_TRIP, NAMES, Trip, parse_state, with_trip
from tests.builders import JOB, NOW, later, not_none
from tests.counts import counting, counts, keys_of
from tests.installation import Installation

pytestmark = pytest.mark.anyio

LIMITS = BreakerLimits(count=3, window=timedelta(minutes=10))
LOOP = RecreationLimits(times=3, window=timedelta(minutes=10))
NONSENSE = ["", "yes", "5", "[1]", "null", "[" * 5_000, '{"a": 5}', '{"a": {"b": "c"}}', '{"a": {"b": 1e400}}', "\x00"]


@pytest.fixture
def at():
    return Installation()


async def deleted(process, *names):
    """The names that the process deletes."""
    return [name for name in names if isinstance(await process.delete(name), ObjectDeleted)]


def looks_again(at):
    at.clock.advance(CACHED_SECONDS)


# The breaker


async def test_counts_of_all_processes_trip_the_breaker(at):
    limits = BreakerLimits(count=10, window=timedelta(minutes=10))
    processes = [at.process(by=by, breaker=limits) for by in ("expire", "sweep")]
    gone = 0
    for number in range(20):
        gone += len(await deleted(processes[number % 2], f"job-{number}"))
        looks_again(at)

    assert gone == 11  # the other process sees the last deletion at its next read
    assert not_none(parse_state(at.state.data).trip).why == "10 objects were deleted within 10m, and the limit is 10"
    looks_again(at)
    assert await deleted(processes[0], "another") == []


async def test_counts_of_a_process_remain_after_its_end(at):
    for name in "abc":
        process = at.process(breaker=LIMITS)
        assert await deleted(process, name) == [name]
        await process.safeguards.flush()
    assert await deleted(at.process(breaker=LIMITS), "d") == []


async def test_counts_of_all_processes_make_a_share(at):
    limits = BreakerLimits(share=0.5, at_least=2)
    one, other = at.process(breaker=limits), at.process(breaker=limits)
    assert await deleted(one, *"abc") == [*"abc"]
    await one.safeguards.flush()
    at.objects = 7  # three of ten are gone
    assert await deleted(other, *"defg") == [*"de"]


async def test_counts_of_others_before_the_window_are_ignored(at):
    one, other = at.process(breaker=LIMITS), at.process(breaker=LIMITS)
    for number in range(9):
        process = (one, other)[number % 2]
        assert await deleted(process, f"job-{number}") == [f"job-{number}"]
        at.clock.advance(250)
    kinds = [json.loads(at.state.data[name])["kinds"] for name in keys_of(at.state.data)]
    assert sum(len(parts["Job.batch"]) for parts in kinds) <= 4  # nor are they kept


async def test_counts_are_written_at_most_once_in_three_seconds(at):
    process = at.process(breaker=BreakerLimits(count=1_000))
    for second in range(20):
        for number in range(10):
            await process.delete(f"job-{second}-{number}")
        at.clock.advance(1)
    assert at.state.reads == 1
    assert at.state.writes == 6
    await process.safeguards.flush()
    assert counts(at.state.data)["Job.batch"] == 200


async def test_counts_of_an_idle_process_are_not_written(at):
    process = at.process(breaker=LIMITS)
    at.cluster.before_delete = at.cluster.remove
    for _ in range(3):
        await process.delete("gone-meanwhile")
        looks_again(at)
    await process.safeguards.flush()
    assert at.state.writes == 0


async def test_counts_of_two_simultaneous_writes_are_exact(at):
    one, other = at.process(breaker=BreakerLimits(count=9)), at.process(breaker=BreakerLimits(count=9))
    await deleted(one, "a", "b")
    await deleted(other, "c")
    between = counting(1, BreakerLimits(count=9), kind="Job.batch")

    def write():
        at.state.data = dict(between.merge(at.state.data, at.clock.now()))

    at.state.before_put = write
    await one.safeguards.flush()
    await other.safeguards.flush()
    assert counts(at.state.data)["Job.batch"] == 4


async def test_counts_of_a_write_that_is_cut_off_are_exact(at, monkeypatch):
    process = at.process(breaker=BreakerLimits(count=9))
    await deleted(process, "a")
    looks_again(at)
    write, is_written = at.state.write, asyncio.Event()

    async def unanswered(change):
        await write(change)
        is_written.set()
        await asyncio.Event().wait()

    with monkeypatch.context() as patched:
        patched.setattr(at.state, "write", unanswered)
        request = asyncio.create_task(process.delete("b"))
        await is_written.wait()
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request

    assert await deleted(process, "b") == ["b"]
    await process.safeguards.flush()
    assert counts(at.state.data)["Job.batch"] == 2


# The deletions of one process


async def goes_round(at, processes, *, between=lambda: None):
    """The number of deletions until the first of these processes, in turns, finds the breaker open."""
    for number in range(50):
        process = processes[number % len(processes)]
        if not await deleted(process, f"job-{number}"):
            return number
        between()
        looks_again(at)
    return None


async def test_counts_of_a_process_survive_a_process_with_other_limits(at):
    """Processes have different policies while a new one is rolled out, or if functions are configured differently."""
    processes = [at.process(breaker=BreakerLimits(count=count)) for count in (10, 12)]
    assert await goes_round(at, processes) == 20


async def test_counts_of_a_process_survive_a_process_with_a_wrong_clock(at):
    ahead = Installation()
    ahead.state = at.state
    ahead.clock.advance(660)
    limits = BreakerLimits(count=10)
    processes = [at.process(breaker=limits), ahead.process(breaker=limits)]
    assert await goes_round(at, processes, between=lambda: looks_again(ahead)) == 20


async def test_counts_of_a_process_survive_a_deleted_configmap(at):
    def take_away():
        at.state.data = {}

    assert await goes_round(at, [at.process(breaker=BreakerLimits(count=10))], between=take_away) == 10


# Released


async def test_counts_start_from_zero_after_a_release(at):
    one, other = at.process(breaker=LIMITS), at.process(breaker=LIMITS)
    await deleted(one, "a", "b")
    await deleted(other, "c", "d")
    looks_again(at)
    assert await deleted(one, "e") == ["e"]  # it cannot know of the other's before
    looks_again(at)
    assert await deleted(other, "f") == []
    looks_again(at)
    assert await deleted(one, "f") == []

    await release_breaker(at.state, at.write_event)
    assert keys_of(at.state.data) == []
    looks_again(at)

    assert await deleted(one, "f", "g") == ["f", "g"]
    looks_again(at)
    assert await deleted(at.process(breaker=LIMITS), "h") == ["h"]
    looks_again(at)
    assert await deleted(other, "i") == ["i"]
    await other.safeguards.flush()
    looks_again(at)
    assert await deleted(one, "j") == []


@pytest.mark.parametrize("is_by_hand", [True, False])
async def test_counts_before_a_trip_are_ignored_by_a_process_that_was_idle(at, is_by_hand):
    one, idle = at.process(breaker=LIMITS), at.process(breaker=LIMITS)
    await deleted(idle, "a", "b", "c")
    assert await deleted(one, *"defg") == [*"def"]

    if is_by_hand:
        del at.state.data["breaker"]
    else:
        await release_breaker(at.state, at.write_event)
    looks_again(at)
    assert await deleted(one, "g") == ["g"]
    await one.safeguards.flush()
    assert await deleted(idle, "h", "i", "j") == ["h", "i"]


async def test_trip_that_was_written_without_an_answer_and_released_does_not_return(at, monkeypatch):
    process = at.process(breaker=LIMITS)
    await deleted(process, *"abc")
    write = at.state.write

    async def unanswered(change):
        await write(change)
        at.state.failure = TryLaterError("no answer")
        raise at.state.failure

    with monkeypatch.context() as patched:
        patched.setattr(at.state, "write", unanswered)
        assert await deleted(process, "d") == []
    at.state.failure = None
    await release_breaker(at.state, at.write_event)
    looks_again(at)
    assert await deleted(process, *"defg") == [*"def"]


async def test_breaker_that_was_opened_by_hand_is_released_by_the_command(at):
    process = at.process(breaker=LIMITS)
    await deleted(process, "a", "b")
    await process.safeguards.flush()
    at.state.data["breaker"] = "stop"
    looks_again(at)
    assert await deleted(process, "c") == []
    await release_breaker(at.state, at.write_event)
    looks_again(at)
    assert await deleted(process, *"cdef") == [*"cde"]


async def test_breaker_denies_a_deletion_that_asked_before_the_trip_was_known(at, monkeypatch):
    process = at.process(breaker=BreakerLimits(share=0.9, at_least=2))
    await deleted(process, "a", "b")
    is_counting, is_counted = asyncio.Event(), asyncio.Event()

    async def count(rule):
        is_counting.set()
        await is_counted.wait()
        return 1_000

    monkeypatch.setattr(process.safeguards._breaker, "_count_objects", count)
    asked = asyncio.create_task(process.delete("c"))
    await is_counting.wait()
    at.state.data = with_trip(at.state.data, Trip(NOW, "another's"))
    looks_again(at)
    assert await deleted(process, "d") == []
    is_counted.set()
    assert await asked is None
    assert process.last == ("kept", "breaker-open")


async def test_breaker_is_released_by_hand(at):
    """A user removes the value of `breaker` with `kubectl edit`."""
    process = at.process(breaker=LIMITS)
    await deleted(process, *"abcd")
    del at.state.data["breaker"]
    looks_again(at)
    assert await deleted(process, *"defg") == [*"def"]


async def test_counts_start_from_zero_after_new_limits(at):
    one, other = at.process(breaker=LIMITS), at.process(breaker=LIMITS)
    await deleted(one, "a", "b")
    await deleted(other, "c")
    for process in (one, other):
        await process.safeguards.flush()
    one.limits = other.limits = Limits(breaker=BreakerLimits(count=2, window=LIMITS.window))
    looks_again(at)
    assert await deleted(one, "d") == ["d"]
    await one.safeguards.flush()
    assert await deleted(other, "e", "f") == ["e"]


async def test_counts_remain_when_limits_are_unchanged(at):
    process = at.process(breaker=LIMITS)
    await deleted(process, "a", "b", "c")
    await process.safeguards.flush()
    process.limits = Limits(breaker=LIMITS, recreation=LOOP)
    assert await deleted(process, "d") == []


# Recreated names


async def test_recreate_loop_is_found_by_processes_that_live_for_one_round(at):
    for number in range(LOOP.times):
        process = at.process(recreation=LOOP)
        assert isinstance(await process.delete("nightly", uid=f"uid-{number}"), ObjectDeleted)
        await process.safeguards.flush()
        at.clock.advance(100)

    process = at.process(recreation=LOOP)
    assert await process.delete("nightly", uid="uid-new") is None
    assert process.last == ("kept", "recreate-loop")
    assert process.telemetry.loops == ["nightly"]


async def test_recreate_loop_is_found_by_processes_that_take_turns(at):
    processes = [at.process(recreation=LOOP) for _ in range(2)]
    gone = 0
    for number in range(6):
        gone += isinstance(await processes[number % 2].delete("nightly", uid=f"uid-{number}"), ObjectDeleted)
        at.clock.advance(60)
    assert gone == LOOP.times + 1  # the other process sees the last deletion a round later


async def test_recreate_loop_is_not_found_when_rounds_exceed_the_window(at):
    for number in range(9):
        process = at.process(recreation=LOOP)
        assert isinstance(await process.delete("nightly", uid=f"uid-{number}"), ObjectDeleted)
        await process.safeguards.flush()
        at.clock.advance(250)
    (marks,) = json.loads(at.state.data[NAMES]).values()
    assert len(marks) == 3


async def test_recreate_loop_detection_survives_a_clock_that_is_set_back(at):
    names, now = Recreations(LOOP), 0
    for number in range(LOOP.times):
        now += 1_800
        names.deleted(_ref("nightly", f"uid-{number}"), later(now))
    now -= 10_000
    assert not names.is_loop(_ref("nightly", "uid-new"), later(now))
    for number in range(LOOP.times):
        names.deleted(_ref("nightly", f"uid-back-{number}"), later(now + number))
    assert names.is_loop(_ref("nightly", "uid-new"), later(now + 5))


async def test_names_deleted_during_a_write_are_written_next():
    names = Recreations(LOOP)
    names.deleted(_ref("nightly", "uid-1"), NOW)
    data = names.merge({}, NOW)
    names.deleted(_ref("nightly", "uid-2"), later(0.1))
    names.learn(data, later(0.2), is_written=True)
    assert names.has_unwritten
    names.learn(names.merge(data, later(1)), later(1), is_written=True)
    assert not names.has_unwritten


async def test_names_count_an_object_that_two_processes_deleted_once(at):
    """Its finalizers hold it; neither process's delete recreated it."""
    for _ in range(9):
        process = at.process(recreation=LOOP)
        assert isinstance(await process.delete("nightly", uid="uid"), ObjectDeleted)
        await process.safeguards.flush()


@pytest.mark.parametrize(
    ("name", "prefix", "is_shared"),
    [("build-x7k2p", "build-", False), ("web-0", "web-", True), ("web-12345", "web-", True), ("nightly", "", True)],
)
async def test_names_that_the_api_server_generated_are_not_shared(at, name, prefix, is_shared):
    process = at.process(recreation=LOOP)
    await process.delete(name, metadata={"generateName": prefix} if prefix else {})
    await process.safeguards.flush()
    assert at.state.writes == int(is_shared)


async def test_names_are_shared_up_to_a_bound_most_deleted_first(at):
    limits = RecreationLimits(times=5, window=timedelta(minutes=10))
    many = Recreations(limits)
    for number in range(3):
        many.deleted(_ref("often", f"uid-{number}"), NOW)
    for number in range(SHARED_MAX + 50):
        many.deleted(_ref(f"{'j' * 200}-{number}", "uid"), later(number / 10))
    data = many.merge({"mine": "stays"}, later(30))

    names = json.loads(data[NAMES])
    assert len(names) <= SHARED_MAX
    assert len(data[NAMES]) <= SHARED_CHARACTERS_MAX + SHARED_MAX
    assert {"Job.batch/ci/often", f"Job.batch/ci/{'j' * 200}-{SHARED_MAX + 49}"} <= names.keys()
    assert f"Job.batch/ci/{'j' * 200}-0" not in names
    assert data["mine"] == "stays"

    few = Recreations(limits)
    for number in range(SHARED_MAX + 50):
        few.deleted(_ref(f"job-{number}", "uid"), later(number / 10))
    assert len(json.loads(few.merge({}, later(30))[NAMES])) == SHARED_MAX


def _ref(name, uid):
    return ObjectRef(JOB.api_version, "Job", "ci", name, uid)


# Unusable state


@pytest.mark.parametrize("text", NONSENSE)
async def test_state_that_cannot_be_read_keeps_nothing_and_is_replaced(at, text):
    at.state.data = {f"{DELETIONS}other.5f0c91aa": text, LAST_TRIP: text, NAMES: text, "another": text}
    process = at.process(breaker=LIMITS, recreation=LOOP)
    assert await deleted(process, *"abc") == [*"abc"]
    await process.safeguards.flush()
    assert counts(at.state.data)["Job.batch"] == 3
    assert len(json.loads(at.state.data[NAMES])) == 3
    assert at.state.data["another"] == text


@pytest.mark.parametrize(("ahead", "is_loop"), [(30, True), (3_600, False), (1e9, False)])
async def test_names_far_in_the_future_are_ignored(at, ahead, is_loop):
    names = Recreations(LOOP)
    for number in range(3):
        names.deleted(_ref("nightly", f"uid-{number}"), later(ahead))
    at.state.data = dict(names.merge({}, later(ahead)))

    assert await deleted(at.process(recreation=LOOP), "nightly") == ([] if is_loop else ["nightly"])


async def test_names_of_any_size_are_reduced(at):
    names = Recreations(LOOP)
    names.deleted(_ref("nightly", "uid"), NOW)
    marks = {f"{number:08x}": int(NOW.timestamp()) - number for number in range(1_000)}
    forged = {f"{'n' * 300}-{number}": marks for number in range(40)} | {"x" * 100_000: marks}

    assert len(names.merge({NAMES: json.dumps(forged)}, NOW)[NAMES]) <= SHARED_CHARACTERS_MAX + SHARED_MAX
    names.learn({NAMES: json.dumps(forged)}, NOW, is_written=False)
    assert not names.is_loop(_ref("nightly", "another"), NOW)


# State that may not be written


async def test_process_that_may_not_write_counts_for_itself_and_reports_it_once(at):
    at.state.write_failure = ForbiddenError("configmaps is forbidden: cannot update")
    process = at.process(breaker=LIMITS, recreation=LOOP)
    for name in "abc":
        assert await deleted(process, name) == [name]
        looks_again(at)
    assert [what for what, _ in process.telemetry.problems] == [UNWRITTEN]

    assert await deleted(process, "d", "d") == []
    assert "restart this process" in process.telemetry.records[-1].detail  # a release could not reach it
    looks_again(at)
    assert await deleted(process, "d") == []
    assert [reason for reason, _ in at.message] == ["BreakerOpen"]
    assert await release_breaker(at.state, at.write_event) is None


async def test_process_that_may_not_write_reads_the_counts_of_others(at):
    other = at.process(breaker=LIMITS)
    await deleted(other, "a", "b")
    await other.safeguards.flush()
    at.state.write_failure = PermanentError("too large")
    process = at.process(breaker=LIMITS)
    assert await deleted(process, "c") == ["c"]
    looks_again(at)
    assert await deleted(process, "d") == []  # its own trip

    at.state.data = with_trip(at.state.data, Trip(NOW, "another's"))
    looks_again(at)
    assert await deleted(process, "d") == []
    assert "another's" in process.telemetry.records[-1].detail
    await release_breaker(_writable(at), at.write_event)
    looks_again(at)
    assert await deleted(process, *"defg") == [*"def"]  # its own count starts from zero, too


async def test_process_that_may_write_again_writes_its_trip(at):
    at.state.write_failure = ForbiddenError("configmaps is forbidden: cannot update")
    process = at.process(breaker=LIMITS)
    await deleted(process, *"abcd")
    assert parse_state(at.state.data).trip is None

    _writable(at)
    looks_again(at)
    assert await deleted(process, "d") == []
    assert "release --breaker" in process.telemetry.records[-1].detail
    await release_breaker(at.state, at.write_event)
    looks_again(at)
    assert await deleted(process, "d") == ["d"]


def _writable(at):
    at.state.write_failure = None
    return at.state


async def test_process_that_cannot_write_now_deletes_up_to_the_limit(at):
    process = at.process(breaker=BreakerLimits(count=9))
    await deleted(process, "a")
    looks_again(at)
    at.state.write_failure = TryLaterError("mvcc: database space exceeded")
    assert await deleted(process, "b") == ["b"]  # which makes space
    looks_again(at)
    assert await deleted(process, *"cdefghij") == [*"cdefghi"]
    assert [what for what, _ in process.telemetry.problems] == [UNWRITTEN, "the breaker is open"]


async def test_counts_that_were_not_written_are_written_once_later(at):
    process = at.process(breaker=BreakerLimits(count=9))
    await deleted(process, "a")
    looks_again(at)
    at.state.write_failure = TryLaterError("busy")
    assert await deleted(process, "b") == ["b"]
    at.state.write_failure = None
    await process.safeguards.flush()
    assert counts(at.state.data)["Job.batch"] == 2


async def test_conflicting_writes_do_not_stop_deletions(at):
    process = at.process(breaker=BreakerLimits(count=9))
    await deleted(process, "a")
    looks_again(at)
    at.state.write_failure = ConflictError("it changed 5 times")
    assert await deleted(process, "b") == ["b"]
    _writable(at)
    await process.safeguards.flush()
    assert counts(at.state.data)["Job.batch"] == 2


async def test_flush_does_not_wait_for_a_state_that_hangs(at, monkeypatch):
    monkeypatch.setattr(shared_state, "FLUSH_SECONDS_MAX", 0.01)
    process = at.process(breaker=LIMITS)
    await deleted(process, "a")

    async def write(change):
        await asyncio.Event().wait()

    monkeypatch.setattr(at.state, "write", write)
    await process.safeguards.flush()
    assert [what for what, _ in process.telemetry.problems] == [UNWRITTEN]


async def test_flush_that_fails_does_not_raise(at):
    process = at.process(breaker=LIMITS)
    await deleted(process, "a")
    at.state.failure = TryLaterError("away")
    await process.safeguards.flush()
    assert [what for what, _ in process.telemetry.problems] == [UNWRITTEN]
    alone = at.process(shared=False, breaker=LIMITS)
    await deleted(alone, "a")
    await alone.safeguards.flush()
