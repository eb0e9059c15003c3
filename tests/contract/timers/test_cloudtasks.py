"""What only the engine on Cloud Tasks does: hops, blocked names, quotas, tokens, and forged requests."""

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp
import grpc
import pytest
from google.cloud import tasks_v2

from shared.adapters.auth.callers import Callers, Issuer, Keys
from shared.adapters.auth.task_callers import TaskCallers
from shared.adapters.config.settings import read_settings
from shared.adapters.events.cloudevents import event_of, to_http
from shared.adapters.timers.cloudtasks.engine import CloudTasksTimers
from shared.adapters.timers.cloudtasks.names import names_of
from shared.adapters.timers.cloudtasks.send_times import AHEAD_MAX, put_off_seconds
from shared.adapters.timers.cloudtasks.task_form import TASK_BYTES_MAX
from shared.adapters.timers.limits import EngineLimits
from shared.bootstrap.admission import build_admission
from shared.core.values.objects import ObjectRef
from shared.errors import EventError, TryLaterError, TtlError
from shared.messages import Purpose, Timer, TimerKey
from shared.ports import FiredTask
from tests.builders import not_none
from tests.contract.timers.cloudtasks_world import ACCOUNT, FORM, TARGET, TimersFunction, tasks_and_function
from tests.contract.timers.worlds import QUICK, ShiftedClock, Target, until
from tests.issuers import SUBJECT, LoopbackIssuer
from tests.loopback import answering_with
from tests.tasks_server import QUEUE, TasksServer

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]

STATUS = grpc.StatusCode


class Setup:
    """The server, the function, and processes that can be started on it."""

    def __init__(self, server: TasksServer, function: TimersFunction) -> None:
        self.server, self.function = server, function
        self.clock = ShiftedClock()
        self.target = Target(self.clock)
        self._engines: list[CloudTasksTimers] = []

    def start(self, *, limits: EngineLimits = QUICK, **config: Any) -> CloudTasksTimers:
        """A new process; the function is its own from now on."""
        engine = CloudTasksTimers(
            FORM, self.clock, self.target, connect=self.server.connect, limits=limits, jitter=lambda: 0.0
        )
        self._engines.append(engine)
        self.function.use(engine, self.clock, self.target, **config)
        return engine

    async def close(self) -> None:
        for engine in self._engines:
            await engine.close()

    def timer(self, uid: str = "uid-1", seconds: float = 0.0, **fields: Any) -> Timer:
        due_at = self.clock.now() + timedelta(seconds=seconds)
        ref = ObjectRef("batch/v1", "Job", "ci", f"build-{uid}", uid)
        return Timer.model_validate({"ref": ref, "purpose": Purpose.EXPIRE, "due_at": due_at, **fields})

    def pass_time(self, by: timedelta) -> None:
        """Let time pass for the server and for the process."""
        self.server.shift += by
        self.clock.shift += by

    async def hop(self) -> None:
        """Let time pass until the one task is set again."""
        known = self.server.names()
        self.pass_time(AHEAD_MAX + timedelta(seconds=1))
        await until(lambda: len(self.server.names()) == 1 and self.server.names() != known, "the hop")

    async def arrival(self, count: int = 1) -> None:
        await until(lambda: len(self.target.arrived) >= count, f"{count} arrivals")

    async def silence(self) -> None:
        """Wait until the server has no task left."""
        await until(lambda: not self.server.tasks, "the end of the last task")


@pytest.fixture
async def setup() -> AsyncIterator[Setup]:
    async with tasks_and_function() as (server, function):
        setup = Setup(server, function)
        yield setup
        await setup.close()
        assert setup.target.early() == []


# Names


async def test_same_timer_is_one_task_across_processes(setup):
    timer = setup.timer(seconds=60)
    await setup.start().set([timer])
    await setup.start().set([timer])
    assert setup.server.names() == [next(names_of(timer))]


async def test_task_name_has_allowed_characters_and_no_common_prefix(setup):
    names = [next(names_of(setup.timer(f"uid-{n}", purpose=purpose))) for n in range(50) for purpose in Purpose]
    assert len({name[:8] for name in names}) == 50 * len(Purpose)
    assert all(name.replace("-", "").isalnum() and len(name) <= 500 for name in names)


async def test_timer_that_fired_can_be_set_again_within_the_hour(setup):
    engine, timer = setup.start(), setup.timer()
    for times in range(1, 7):
        await engine.set([timer])
        await setup.arrival(times)
        await setup.silence()
    assert len(setup.server.tombstones) == 6


async def test_cancelled_timer_can_be_set_again_within_the_hour(setup):
    engine, timer = setup.start(), setup.timer(seconds=0.4)
    await engine.set([timer])
    await engine.cancel([timer.key])
    await engine.set([timer])
    await setup.arrival()
    assert [one.timer for one in setup.target.arrived] == [timer]


async def test_name_is_free_again_after_the_hour(setup):
    engine, timer = setup.start(), setup.timer(seconds=60)
    await engine.set([timer])
    await engine.cancel([timer.key])
    await engine.set([timer])
    assert setup.server.names() != [next(names_of(timer))]
    await engine.cancel([timer.key])
    setup.server.state = tasks_v2.Queue.State.PAUSED  # else it fires at once by the shifted clock
    setup.server.shift += timedelta(hours=1, seconds=1)
    await engine.set([timer])
    assert setup.server.names() == [next(names_of(timer))]


# Hops


async def test_timer_beyond_30_days_hops_and_is_not_early(setup):
    engine = setup.start()
    timer = setup.timer(seconds=timedelta(days=70).total_seconds())
    await engine.set([timer])
    first = setup.server.names()
    for _ in range(2):
        await setup.hop()
        assert setup.target.attempts == []
    setup.pass_time(timer.due_at - setup.clock.now())
    await setup.arrival()
    assert [one.timer for one in setup.target.arrived] == [timer]
    assert first == [next(names_of(timer))]


async def test_timer_of_the_year_9999_is_kept(setup):
    engine = setup.start()
    timer = setup.timer().model_copy(update={"due_at": datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)})
    await engine.set([timer])
    setup.pass_time(AHEAD_MAX + timedelta(seconds=1))
    await until(lambda: len(setup.server.dispatches) == 1 and setup.server.dispatches[0].status == 204, "the hop")
    assert (await engine.page()).timers == (timer,)
    assert setup.target.attempts == []


async def test_timer_of_the_year_1_fires_at_once(setup):
    engine = setup.start()
    await engine.set([setup.timer().model_copy(update={"due_at": datetime(1, 1, 1, tzinfo=UTC)})])
    await setup.arrival()


async def test_cancelled_hop_ends(setup):
    engine = setup.start()
    timer = setup.timer(seconds=timedelta(days=70).total_seconds())
    await engine.set([timer])
    await setup.hop()
    await engine.cancel([timer.key])
    assert setup.server.names() == []


async def test_server_clock_that_is_ahead_makes_few_hops(setup):
    """A loop of early tasks would cost a call each."""
    setup.server.shift = timedelta(seconds=3)
    await setup.start().set([setup.timer(seconds=1.5)])
    await setup.arrival()
    assert len(setup.server.dispatches) <= 4


# Replacing


async def test_replaced_task_that_could_not_be_deleted_fires_too(setup):
    engine = setup.start()
    await engine.set([setup.timer(seconds=0.6)])
    setup.server.refuse("DeleteTask", STATUS.INTERNAL)
    await engine.set([setup.timer(seconds=1.0)])
    await setup.arrival(2)


async def test_timer_that_is_cancelled_while_it_is_delivered_is_not_retried(setup):
    engine, timer = setup.start(), setup.timer()
    gate = setup.target.hanging["Job"] = asyncio.Event()
    await engine.set([timer])
    await until(lambda: setup.target.attempts, "the delivery")
    setup.target.errors["Job"] = TryLaterError("away")
    await engine.cancel([timer.key])
    gate.set()
    await until(lambda: setup.server.dispatches[0].status, "the answer")
    assert setup.server.dispatches[0].status == 204
    assert setup.server.names() == []


async def test_timer_that_is_replaced_while_it_is_delivered_is_not_retried(setup):
    engine = setup.start()
    gate = setup.target.hanging["Job"] = asyncio.Event()
    await engine.set([setup.timer()])
    await until(lambda: setup.target.attempts, "the delivery")
    setup.target.errors["Job"] = TryLaterError("away")
    later = setup.timer(seconds=3600)
    await engine.set([later])
    gate.set()
    await until(lambda: setup.server.dispatches[0].status, "the answer")
    assert (await engine.page()).timers == (later,)


async def test_cancel_that_cloud_tasks_does_not_answer_is_an_error(setup):
    engine, timer = setup.start(), setup.timer(seconds=3600)
    await engine.set([timer])
    setup.server.refuse("DeleteTask", STATUS.INTERNAL)
    with pytest.raises(TryLaterError):
        await engine.cancel([timer.key])
    await engine.cancel([timer.key])
    assert setup.server.names() == []


async def test_task_that_arrives_twice_has_one_successor(setup):
    setup.server.state = tasks_v2.Queue.State.PAUSED
    engine, timer = setup.start(), setup.timer()
    await engine.set([timer])
    setup.target.errors["Job"] = TryLaterError("away")
    fired = FiredTask(timer, setup.server.names()[0], timer.due_at)
    await engine.fire(fired)
    await engine.fire(fired)
    assert len(setup.server.names()) == 2
    assert sorted(one.attempts for one in (await engine.page()).timers) == [0, 1]


# Crowds


async def test_crowd_waits_for_places_and_nothing_counts_as_failed(setup, caplog):
    gate = setup.target.hanging["Job"] = asyncio.Event()
    await setup.start(limits=replace(QUICK, place_seconds=30)).set([setup.timer(f"uid-{n}") for n in range(300)])
    await until(lambda: len(setup.server.dispatches) == 300, "all tasks")
    gate.set()
    await setup.arrival(300)
    assert [one.timer.attempts for one in setup.target.arrived] == [0] * 300
    assert setup.server.calls["CreateTask"] == 300
    assert caplog.messages == []


async def test_timer_without_a_place_is_set_again_with_the_same_attempts(setup, caplog):
    engine = setup.start(limits=replace(QUICK, in_flight=1, place_seconds=0.1))
    gate = setup.target.hanging["Job"] = asyncio.Event()
    await engine.set([setup.timer()])
    await until(lambda: setup.target.attempts, "the delivery")
    await engine.set([setup.timer("late")])
    await until(lambda: len(setup.server.dispatches) == 2 and setup.server.dispatches[1].status, "the answer")
    assert setup.server.dispatches[1].status == 204
    assert {one.attempts for one in (await engine.page()).timers} == {0}
    assert (await engine.pending(), len(setup.target.attempts)) == (2, 1)
    assert caplog.messages == []
    gate.set()
    await setup.arrival(2)
    assert setup.target.arrived[1].timer.attempts == 0


async def test_timer_that_is_cancelled_while_it_waits_for_a_place_is_dropped(setup):
    engine = setup.start(limits=replace(QUICK, in_flight=1))
    gate = setup.target.hanging["Job"] = asyncio.Event()
    await engine.set([setup.timer()])
    await until(lambda: setup.target.attempts, "the delivery")
    await engine.set([late := setup.timer("late")])
    await until(lambda: len(setup.server.dispatches) == 2, "the second dispatch")
    await asyncio.sleep(0.1)
    await engine.cancel([late.key])
    gate.set()
    await until(lambda: setup.server.dispatches[1].status, "the answer")
    assert [one.timer.ref.uid for one in setup.target.attempts] == ["uid-1"]


async def test_timer_that_waits_for_a_place_survives_the_stop(setup):
    engine = setup.start(limits=replace(QUICK, in_flight=1, place_seconds=30))
    gate = setup.target.hanging["Job"] = asyncio.Event()
    await engine.set([setup.timer(), setup.timer("uid-2")])
    await until(lambda: setup.target.attempts and len(setup.server.dispatches) == 2, "the delivery")
    await asyncio.sleep(0.1)
    closing = asyncio.create_task(engine.close())
    await until(lambda: 503 in [one.status for one in setup.server.dispatches], "the answer of the one that waits")
    gate.set()
    await closing
    setup.start()
    await setup.arrival(2)
    assert len({one.timer.ref.uid for one in setup.target.arrived}) == 2


async def test_timer_without_a_place_is_put_off_for_longer_the_longer_it_waits(setup):
    timer = setup.timer()
    waits = [put_off_seconds(timer, timer.due_at + timedelta(seconds=age), 0.0) for age in (-5, 0, 3, 10, 3600)]
    assert waits == [2, 2, 3, 10, 60]
    assert put_off_seconds(timer, timer.due_at, 1.0) == 1.5


# Calls without an answer


async def test_cancel_deletes_a_task_whose_creation_was_not_answered(setup):
    engine, timer = setup.start(), setup.timer(seconds=3600)
    await engine.set([timer.model_copy(update={"due_at": timer.due_at + timedelta(hours=1)})])
    setup.server.lost["CreateTask"] = 1
    with pytest.raises(TryLaterError, match="lost"):
        await engine.set([timer])
    assert len(setup.server.names()) == 2
    await engine.cancel([timer.key])
    assert setup.server.names() == []


async def test_set_replaces_a_task_whose_creation_was_not_answered(setup):
    engine, timer = setup.start(), setup.timer(seconds=3600)
    setup.server.lost["CreateTask"] = 1
    with pytest.raises(TryLaterError, match="lost"):
        await engine.set([timer])
    new = setup.timer(seconds=7200)
    await engine.set([new])
    assert setup.server.names() == [next(names_of(new))]


async def test_set_that_was_refused_and_comes_again_replaces_the_old_task(setup):
    engine, new = setup.start(), setup.timer(seconds=7200)
    await engine.set([setup.timer(seconds=3600)])
    setup.server.refuse("CreateTask", STATUS.INTERNAL)
    with pytest.raises(TryLaterError):
        await engine.set([new])
    await engine.set([new])
    assert setup.server.names() == [next(names_of(new))]


@pytest.mark.parametrize("comes_again", [False, True])
async def test_cancel_deletes_a_retry_whose_creation_was_not_answered(setup, comes_again):
    setup.server.state = tasks_v2.Queue.State.PAUSED
    engine, timer = setup.start(), setup.timer()
    await engine.set([timer])
    setup.target.errors["Job"] = TryLaterError("away")
    fired = FiredTask(timer, setup.server.names()[0], timer.due_at)
    setup.server.lost["CreateTask"] = 1
    with pytest.raises(TryLaterError, match="lost"):
        await engine.fire(fired)
    assert len(setup.server.names()) == 2
    if comes_again:
        await engine.fire(fired)
        del setup.server.tasks[f"{QUEUE}/tasks/{fired.task}"]  # it is acknowledged
    await engine.cancel([timer.key])
    assert setup.server.names() == []


# Errors


@pytest.mark.parametrize("code", [STATUS.RESOURCE_EXHAUSTED, STATUS.DEADLINE_EXCEEDED, STATUS.INTERNAL])
async def test_set_is_tried_later_and_honours_the_pause_of_the_server(setup, code):
    engine = setup.start()
    setup.server.refuse("CreateTask", code, message="Quota exceeded", retry_seconds=17)
    with pytest.raises(TryLaterError, match=r"Quota exceeded") as refused:
        await engine.set([setup.timer(seconds=60)])
    assert refused.value.retry_after_seconds == 17
    await engine.set([setup.timer(seconds=60)])


async def test_short_outage_of_the_server_is_not_noticed(setup):
    engine = setup.start()
    setup.server.refuse("CreateTask", STATUS.UNAVAILABLE, times=2)
    await engine.set([setup.timer(seconds=60)])
    assert setup.server.calls["CreateTask"] == 3


async def test_one_refused_timer_of_many_does_not_stop_the_others(setup):
    engine = setup.start()
    setup.server.refuse("CreateTask", STATUS.RESOURCE_EXHAUSTED)
    with pytest.raises(TryLaterError):
        await engine.set([setup.timer(f"uid-{n}", 60) for n in range(20)])
    assert len(setup.server.names()) == 19


async def test_missing_right_names_the_rights(setup):
    engine = setup.start()
    setup.server.refuse("CreateTask", STATUS.PERMISSION_DENIED, message="lacks IAM permission")
    with pytest.raises(TryLaterError, match=r"cloudtasks\.tasks.*actAs.*TTL_TASKS_ACCOUNT"):
        await engine.set([setup.timer(seconds=60)])


async def test_deleted_queue_names_the_queue(setup):
    engine = setup.start()
    setup.server.has_queue = False
    with pytest.raises(TryLaterError, match=f"no queue {QUEUE}"):
        await engine.set([setup.timer(seconds=60)])


async def test_timer_that_is_too_large_is_refused(setup):
    engine = setup.start()
    ref = ObjectRef("batch/v1", "Job", "ci", "n" * TASK_BYTES_MAX, "uid-1")
    with pytest.raises(EventError, match=f"at most {TASK_BYTES_MAX} bytes"):
        await engine.set([setup.timer().model_copy(update={"ref": ref})])
    assert setup.server.calls["CreateTask"] == 0


async def test_timer_that_is_set_again_counts_once_while_its_old_task_exists(setup):
    setup.server.state = tasks_v2.Queue.State.PAUSED
    engine = setup.start()
    await engine.set([setup.timer(seconds=60), setup.timer("uid-2", 60)])
    await setup.start().set([setup.timer(seconds=120)])
    assert len(setup.server.names()) == 3
    assert await engine.pending() == 2


async def test_timer_that_can_neither_be_published_nor_set_again_stays_at_the_server(setup):
    engine = setup.start()
    setup.target.errors["Job"] = TryLaterError("away")
    await engine.set([setup.timer(seconds=0.3)])
    setup.server.refuse("CreateTask", STATUS.RESOURCE_EXHAUSTED)
    await until(lambda: len(setup.server.dispatches) >= 2, "the second dispatch of the same task")
    assert setup.server.dispatches[0].status == 503
    assert setup.server.dispatches[0].name == setup.server.dispatches[1].name
    setup.target.errors.clear()
    await setup.arrival()


# The queue at the start


async def run_until_it_fails(engine: CloudTasksTimers) -> str:
    with pytest.raises(TtlError) as failed:
        await asyncio.wait_for(engine.run(), 10)
    return str(failed.value)


async def test_engine_without_its_queue_ends_with_one_error(setup):
    setup.server.has_queue = False
    assert f"no queue {QUEUE}" in await run_until_it_fails(setup.start())


async def test_engine_without_rights_ends_with_one_error(setup):
    setup.server.refuse("GetQueue", STATUS.PERMISSION_DENIED)
    assert "cloudtasks.queues.get" in await run_until_it_fails(setup.start())


async def test_engine_without_a_google_account_ends_with_one_error(setup, monkeypatch):
    async def connect() -> tasks_v2.CloudTasksAsyncClient:
        raise TtlError("no account")

    engine = CloudTasksTimers(FORM, setup.clock, setup.target, connect=connect)
    assert await run_until_it_fails(engine) == "no account"


@pytest.mark.parametrize(
    ("change", "message", "fix"),
    [
        ({"state": tasks_v2.Queue.State.PAUSED}, "queue of timers sends no tasks", "queues resume timers"),
        ({"max_attempts": 100}, "queue of timers drops tasks", "--max-attempts=unlimited"),
    ],
    ids=["paused", "attempts"],
)
async def test_queue_that_would_lose_or_hold_timers_is_reported(setup, caplog, change, message, fix):
    for name, value in change.items():
        setattr(setup.server, name, value)
    running = asyncio.create_task(setup.start().run())
    with caplog.at_level(logging.WARNING, "ttl"):
        await until(lambda: message in caplog.text, "the warning")
    assert fix in caplog.records[-1].fields["fix"]
    running.cancel()
    await asyncio.wait([running])


async def test_engine_waits_for_a_server_that_is_away_at_the_start(setup):
    setup.server.refuse("GetQueue", STATUS.RESOURCE_EXHAUSTED)
    running = asyncio.create_task(setup.start().run())
    await until(lambda: setup.server.calls["GetQueue"] == 2, "the second check")
    assert not running.done()
    running.cancel()
    await asyncio.wait([running])


# Who sends tasks


@pytest.fixture
async def issuers() -> AsyncIterator[tuple[LoopbackIssuer, LoopbackIssuer]]:
    """The issuer of the cluster, and Google's."""
    cluster, google = LoopbackIssuer(), LoopbackIssuer()
    async with answering_with(cluster.handle) as cluster.url, answering_with(google.handle) as google.url:
        yield cluster, google


@pytest.fixture
async def guarded(setup, issuers):
    """A process that admits the Trigger of the cluster, and the account of the tasks."""
    cluster, google = issuers
    callers = Callers((SUBJECT,), audience=TARGET, keys=Keys(Issuer(cluster.url)))
    tasks = Callers((ACCOUNT,), audience=TARGET, keys=Keys(Issuer(google.url)), claim="email")
    setup.start(admit=TaskCallers(callers, tasks, issuer=google.url).admit)
    setup.server.sign = lambda account, audience: google.token(
        sub="1234567890", email=account, email_verified=True, aud=audience
    )
    return setup


async def test_task_is_admitted_by_its_google_token(guarded):
    await guarded._engines[0].set([guarded.timer()])
    await guarded.arrival()
    assert guarded.server.dispatches[0].headers["authorization"].startswith("Bearer ey")


@pytest.mark.parametrize(
    ("claims", "status"),
    [
        ({"email": "other@p.iam.gserviceaccount.com"}, 403),
        ({"email_verified": False}, 403),
        ({"email_verified": None}, 403),
        ({"email": None}, 403),
        ({"aud": "another"}, 401),
        ({"exp": 1_000}, 401),
    ],
    ids=["account", "unverified", "unknown", "no-email", "audience", "expired"],
)
async def test_task_of_a_stranger_is_refused(guarded, issuers, claims, status):
    claims = {"sub": "1", "email": ACCOUNT, "email_verified": True, "aud": TARGET, **claims}
    guarded.server.sign = lambda *_: issuers[1].token(**claims)
    await guarded._engines[0].set([guarded.timer()])
    await until(lambda: guarded.server.dispatches and guarded.server.dispatches[0].status, "the answer")
    assert guarded.server.dispatches[0].status == status
    assert guarded.target.attempts == []


async def test_subject_of_the_cluster_is_no_account_of_google(guarded, issuers):
    """Each issuer speaks for its own subjects only."""
    cluster, _ = issuers
    guarded.server.sign = lambda *_: cluster.token(sub="1", email=ACCOUNT, email_verified=True, aud=TARGET)
    await guarded._engines[0].set([guarded.timer()])
    await until(lambda: guarded.server.dispatches and guarded.server.dispatches[0].status, "the answer")
    assert guarded.server.dispatches[0].status == 403


async def post(setup: Setup, headers: dict[str, str], body: bytes) -> int:
    """Send an event to the function, as a stranger."""
    connector = aiohttp.UnixConnector(str(setup.function.socket))
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        session.post(TARGET, data=body, headers=headers) as response,
    ):
        return response.status


async def test_fired_timer_of_the_broker_is_refused_so_that_no_loop_starts(setup):
    setup.start()
    assert await post(setup, *to_http(event_of(setup.timer(), source="/broker"))) == 422
    assert setup.target.attempts == []


@pytest.mark.parametrize(("seconds", "status"), [(1800, 422), (-1, 204)], ids=["early", "due"])
async def test_forged_task_costs_one_event_and_leaves_no_task(setup, seconds, status):
    engine = setup.start()
    await engine.set([setup.timer(seconds=3600)])
    headers, body = to_http(event_of(setup.timer(seconds=seconds), source="/stranger"))
    forged = f"{next(names_of(setup.timer())).partition('-')[0]}-1-0"
    own = {"ce-task": forged, "ce-scheduledat": setup.clock.now().isoformat()}
    assert await post(setup, {**headers, **own}, body) == status
    assert len(setup.target.attempts) == (seconds < 0)
    setup.target.errors["Job"] = TryLaterError("away")
    assert await post(setup, {**headers, **own}, body) == 422
    assert len(setup.server.names()) == 1


@pytest.mark.parametrize("seconds", [1800, 0.5, -1])
async def test_forged_task_does_not_get_the_task_of_another_timer_deleted(setup, seconds):
    engine, victim, mine = setup.start(), setup.timer(seconds=3600), setup.timer("mine", seconds)
    await engine.set([victim])
    with pytest.raises(EventError, match="task"):
        await engine.fire(FiredTask(mine, next(names_of(victim)), setup.clock.now()))
    await engine.set([setup.timer("mine", 7200)])
    await engine.cancel([mine.key])
    assert setup.server.names() == [next(names_of(victim))]
    assert setup.target.attempts == []


@pytest.mark.parametrize("name", ["{}-1-0", "{}", "{}-1-0-x", "{}-1-0/../x", "{}-1-0\n", "{}-1-0" + "1" * 1_000, "x"])
async def test_forged_task_is_not_remembered(setup, name):
    """Else the memory holds 50,000 of them."""
    engine, timer = setup.start(), setup.timer(seconds=3600)
    task = name.format(next(names_of(timer)).partition("-")[0])
    with pytest.raises(EventError, match="task"):
        await engine.fire(FiredTask(timer, task, setup.clock.now()))
    await engine.cancel([timer.key])
    assert setup.server.calls["DeleteTask"] == 0


async def test_task_without_its_schedule_is_refused(setup):
    setup.start()
    headers, body = to_http(event_of(setup.timer(), source="/stranger"))
    assert await post(setup, {**headers, "ce-task": "forged"}, body) == 422


async def test_settings_admit_the_account_of_the_tasks():
    settings = read_settings(
        environment={
            "TTL_CALLERS": SUBJECT,
            "TTL_CALLERS_AUDIENCE": "ttl-after-finished",
            "TTL_TIMERS": f"cloudtasks:{QUEUE}",
            "TTL_TASKS_ACCOUNT": ACCOUNT,
        }
    )
    admit = not_none(build_admission(settings))
    assert isinstance(getattr(admit, "__self__", None), TaskCallers)
    with pytest.raises(EventError) as refused:
        await admit("Bearer x")
    assert refused.value.status == 401


# Restart


async def test_restart_keeps_the_timer_and_its_attempts(setup):
    setup.target.errors["Job"] = TryLaterError("away")
    first = setup.start()
    await first.set([setup.timer()])
    await until(lambda: len(setup.target.attempts) >= 2, "two attempts")
    await first.close()
    setup.target.errors.clear()
    setup.start()
    await setup.arrival()
    assert setup.target.arrived[0].timer.attempts >= 1


async def test_process_that_never_knew_a_timer_cannot_cancel_it(setup):
    """So it fires, which costs one GET."""
    timer = setup.timer(seconds=0.5)
    await setup.start().set([timer])
    await setup.start().cancel([TimerKey("uid-1", "expire")])
    await setup.arrival()
