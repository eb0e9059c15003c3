"""What only the engine on Cloud Tasks does: hops, blocked names, quotas, tokens, and forged requests."""

import asyncio
import logging
import random
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp
import grpc
import pytest
from google.cloud import tasks_v2

from shared.adapters.auth.callers import Callers, Issuer, Keys, TaskCallers
from shared.adapters.config.settings import read_settings
from shared.adapters.events.cloudevents import event_of, to_http
from shared.adapters.timers.cloudtasks.engine import AHEAD_MAX, CloudTasksTimers
from shared.adapters.timers.cloudtasks.tasks import free_name_of, name_of, read_timer
from shared.adapters.timers.delivery import EngineLimits
from shared.bootstrap.start import build_admission
from shared.core.values.objects import ObjectRef
from shared.errors import EventError, PermanentError, TryLaterError, TtlError
from shared.messages import Purpose, Timer
from shared.ports import FiredTask
from shared.usecases.timers import retry_of
from tests.builders import NOW, not_none
from tests.contract.timers.cloudtasks_world import ACCOUNT, FORM, TARGET, TimersFunction, tasks_and_function
from tests.contract.timers.worlds import QUICK, ShiftedClock, Target, until
from tests.issuers import SUBJECT, LoopbackIssuer
from tests.loopback import answering_with
from tests.tasks_server import QUEUE, TASK_BYTES_MAX, TasksServer

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]

STATUS = grpc.StatusCode


class Setup:
    """The server, the function, and processes that can be started on it."""

    def __init__(self, server: TasksServer, function: TimersFunction) -> None:
        self.server, self.function = server, function
        self.clock = ShiftedClock()
        self.target = Target(self.clock)
        self._engines: list[CloudTasksTimers] = []

    def start(
        self, *, limits: EngineLimits = QUICK, jitter: Callable[[], float] = lambda: 0.0, **config: Any
    ) -> CloudTasksTimers:
        """A new process; the function is its own from now on."""
        engine = CloudTasksTimers(
            FORM, self.clock, self.target, connect=self.server.connect, limits=limits, jitter=jitter
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


async def test_overdue_timer_that_is_set_again_needs_one_call_each(setup):
    engine, timer = setup.start(), setup.timer(seconds=-3600)
    for times in range(1, 4):
        await engine.set([timer])
        await setup.arrival(times)
        setup.pass_time(timedelta(seconds=2))
    assert setup.server.calls == {"CreateTask": 3}


async def test_same_timer_is_one_task_across_processes(setup):
    timer = setup.timer(seconds=60)
    await setup.start().set([timer])
    await setup.start().set([timer])
    assert setup.server.names() == [name_of(timer, timer.due_at)]


async def test_timers_of_one_object_in_one_second_are_one_task_that_no_timer_is_due_after(setup):
    second = setup.clock.now().replace(microsecond=0) + timedelta(seconds=2)
    engine = setup.start()
    for milliseconds in (300, 700, 1, 1000):
        await engine.set([setup.timer().model_copy(update={"due_at": second + timedelta(milliseconds=milliseconds)})])
    (task,) = setup.server.tasks.values()
    assert task.at == second + timedelta(seconds=1)
    await setup.arrival()


async def test_task_name_has_allowed_characters_and_no_common_prefix(setup):
    timers = [setup.timer(f"uid-{n}", purpose=purpose) for n in range(50) for purpose in Purpose]
    names = [name_of(timer, timer.due_at) for timer in timers]
    assert len({name[:8] for name in names}) == len(timers)
    assert all(name.replace("-", "").isalnum() and len(name) <= 500 for name in names)


@pytest.mark.parametrize("seconds", [-3600, 0.2], ids=["overdue", "future"])
async def test_timer_that_fired_can_be_set_again_within_the_hour(setup, seconds):
    engine, timer = setup.start(), setup.timer(seconds=seconds)
    for times in range(1, 7):
        await engine.set([timer])
        await setup.arrival(times)
        await setup.silence()
    assert len(setup.server.tombstones) == 6


async def test_timer_that_is_set_while_it_is_delivered_fires_again(setup):
    """The delivery may have begun before the object changed."""
    engine, timer = setup.start(), setup.timer()
    gate = setup.target.hanging["Job"] = asyncio.Event()
    await engine.set([timer])
    await until(lambda: setup.target.attempts, "the delivery")
    await engine.set([timer])
    gate.set()
    await setup.arrival(2)


async def test_timer_that_fired_by_a_clock_that_was_ahead_fires_again_at_its_due_time(setup):
    setup.clock.shift = setup.server.shift = timedelta(seconds=30)
    engine, timer = setup.start(), setup.timer(seconds=-28)
    await engine.set([timer])
    await setup.arrival()
    setup.clock.shift = setup.server.shift = timedelta()
    setup.target.arrived.clear()
    await engine.set([timer])
    await engine.set([timer])
    await setup.arrival()


@pytest.mark.parametrize("refusing", ["broker", "function", "function-pause", "crowd"])
@pytest.mark.parametrize("pause", [0.0, 1.7], ids=["now", "later"])
async def test_sweeps_add_no_tasks_to_a_timer_that_always_fails(setup, pause, refusing):
    """Else each sweep would add a chain of retries that only ends with the failure: no due time occurs twice."""
    setup.server.state = tasks_v2.Queue.State.PAUSED  # this test sends the tasks, without HTTP
    limits = replace(QUICK, permit_seconds=0, in_flight=0 if refusing == "crowd" else 1)
    engine = setup.start(limits=limits, jitter=random.Random(1).random)
    setup.target.errors["Job"] = TryLaterError("away")
    if refusing.startswith("function"):  # the Broker accepts the timer, and the function answers with the next attempt

        async def answer(timer: Timer) -> None:
            least = 60.0 if refusing == "function-pause" else 0.0
            await engine.set([retry_of(timer, least=least, now=setup.clock.now())])

        setup.target.publish = answer
    most, swept_at = 0, setup.clock.now()
    ends_at = swept_at + timedelta(hours=6)
    while setup.clock.now() < ends_at:
        if setup.clock.now() >= swept_at:
            await engine.set([setup.timer(seconds=pause)])
            swept_at += timedelta(minutes=10)
        most = max(most, len(setup.server.tasks))
        first = min(setup.server.tasks.values(), key=lambda one: one.at)
        setup.pass_time(max(timedelta(), min(first.at, swept_at) - setup.clock.now()))
        if first.at <= setup.clock.now():
            first.attempts += 1
            await engine.fire(FiredTask(read_timer(first.task), first.task.name.rpartition("/")[2], first.at))
            setup.server._end(first.task.name)
    assert most <= 5


async def test_older_version_accepts_the_names_of_this_one(setup):
    """After a rollback, the tasks in the queue have to fire: this is what an older version checks, and the same key."""
    older = re.compile(r"[0-9a-f]{32}-(-?[0-9]{1,20})-[0-9]{1,9}(-[0-9a-f]{1,16})?")
    for at in (datetime(1, 1, 1, tzinfo=UTC), NOW, datetime.max.replace(tzinfo=UTC)):
        name = name_of(setup.timer(), at)
        assert older.fullmatch(name)
        assert older.fullmatch(free_name_of(name))


async def test_task_of_an_older_version_fires(setup):
    """Its name has the attempts, and up to 16 more digits; its request is the same."""
    timer, parts = setup.timer(seconds=0.3), name_of(setup.timer(seconds=0.3), NOW).split("-")
    key, due = parts[0], (timer.due_at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    setup.start()
    client = await setup.server.connect()
    for suffix in ("", "-1", f"-{16 * 'f'}"):
        await client.create_task(parent=QUEUE, task=FORM.make(timer, f"{key}-{due}-0{suffix}", timer.due_at, 30))
    await setup.arrival(3)
    assert {one.timer for one in setup.target.arrived} == {timer}


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
    assert first == [name_of(timer, timer.due_at)]


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


async def test_server_clock_that_is_ahead_makes_few_hops(setup):
    """A loop of early tasks would cost a call each."""
    setup.server.shift = timedelta(seconds=3)
    await setup.start().set([timer := setup.timer(seconds=1.5)])
    await setup.arrival()
    assert [one.timer for one in setup.target.arrived] == [timer]
    assert len(setup.server.dispatches) <= 4


# Failures


async def test_server_clock_that_is_ahead_causes_few_attempts(setup):
    """Each attempt is scheduled after the one before, until the server's clock is reached."""
    setup.server.shift = timedelta(seconds=90)
    setup.target.errors["Job"] = TryLaterError("away", retry_after_seconds=60)
    await setup.start().set([setup.timer(seconds=0.5)])
    await until(lambda: any(one.status == 204 for one in setup.server.dispatches), "the first answer")
    await asyncio.sleep(2)
    assert len(setup.target.attempts) == 2


async def test_task_that_arrives_twice_has_one_successor(setup):
    engine = setup.start()
    setup.target.errors["Job"] = PermanentError("no right")
    gate = setup.target.hanging["Job"] = asyncio.Event()
    await engine.set([timer := setup.timer()])
    await until(lambda: setup.target.attempts, "the delivery")
    again = asyncio.create_task(engine.fire(FiredTask(timer, setup.server.names()[0], timer.due_at)))
    await until(lambda: len(setup.target.attempts) == 2, "the second delivery")
    gate.set()
    await again
    await until(lambda: setup.server.dispatches[0].status, "the answer")
    assert [one.attempts for one in (await engine.page()).timers] == [1]


async def test_crowd_waits_for_permits_and_nothing_counts_as_failed(setup, caplog):
    gate = setup.target.hanging["Job"] = asyncio.Event()
    await setup.start(limits=replace(QUICK, permit_seconds=30)).set([setup.timer(f"uid-{n}") for n in range(300)])
    await until(lambda: len(setup.server.dispatches) == 300, "all tasks")
    gate.set()
    await setup.arrival(300)
    assert [one.timer.attempts for one in setup.target.arrived] == [0] * 300
    assert setup.server.calls["CreateTask"] == 300
    assert caplog.messages == []


async def test_timer_without_a_place_is_set_again_with_the_same_attempts(setup, caplog):
    engine = setup.start(limits=replace(QUICK, permit_seconds=0.1, in_flight=1))
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


async def test_forged_schedule_of_a_task_in_flight_puts_nothing_off_for_years(setup):
    engine = setup.start(limits=replace(QUICK, permit_seconds=0.1, in_flight=1))
    gate = setup.target.hanging["Job"] = asyncio.Event()
    timer = setup.timer()
    await engine.set([timer])
    await until(lambda: setup.target.attempts, "the delivery")
    (name,) = setup.server.names()
    forged = [FiredTask(timer, name, datetime(9000, day, 1, tzinfo=UTC)) for day in (1, 2)]
    await asyncio.gather(*map(engine.fire, forged))
    assert {task.at < setup.clock.now() + timedelta(minutes=1) for task in setup.server.tasks.values()} == {True}
    gate.set()
    await setup.arrival(2)


async def test_timer_without_a_place_waits_longer_the_longer_it_is_overdue(setup):
    engine = setup.start(limits=replace(QUICK, permit_seconds=0, in_flight=0))
    for age, wait in ((0, 2), (10, 10), (3600, 60)):
        setup.server.tasks.clear()
        setup.server.dispatches.clear()
        await engine.set([setup.timer(f"uid-{age}", -age)])
        await until(lambda: setup.server.dispatches and setup.server.dispatches[0].status, "the answer")
        (task,) = setup.server.tasks.values()
        assert wait - 1 <= (task.at - setup.clock.now()).total_seconds() <= wait + min(wait, 16) + 1


async def test_set_whose_creation_was_not_answered_can_be_repeated(setup):
    engine, timer = setup.start(), setup.timer(seconds=3600)
    setup.server.lost["CreateTask"] = 1
    with pytest.raises(TryLaterError, match="lost"):
        await engine.set([timer])
    await engine.set([timer])
    assert setup.server.names() == [name_of(timer, timer.due_at)]


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
    with pytest.raises(EventError, match="Task size too large"):
        await engine.set([setup.timer().model_copy(update={"ref": ref})])


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
        (
            {"state": tasks_v2.Queue.State.PAUSED},
            "the queue of timers is paused or disabled, so no timer fires",
            "queues resume timers",
        ),
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
    setup.start()
    timer = setup.timer(seconds=seconds)
    headers, body = to_http(event_of(timer, source="/stranger"))
    headers |= {"ce-task": name_of(timer, timer.due_at), "ce-scheduledat": setup.clock.now().isoformat()}
    assert await post(setup, headers, body) == status
    assert len(setup.target.attempts) == (seconds < 0)
    setup.target.errors["Job"] = TryLaterError("away")
    assert await post(setup, headers, body) == 422
    assert setup.server.names() == []


async def test_forged_task_with_the_name_of_one_that_waits_leaves_no_task(setup):
    engine, timer = setup.start(), setup.timer(seconds=3600)
    await engine.set([timer])
    with pytest.raises(EventError, match="task"):
        await engine.fire(FiredTask(timer, name_of(timer, timer.due_at), timer.due_at))
    assert len(setup.server.names()) == 1


@pytest.mark.parametrize(
    "name", ["{}", "{}-1-0-x", "{}-1/../x", "{}-1\n", "{}-1" + "1" * 1_000, "x", "{}-1-" + "f" * 17]
)
@pytest.mark.parametrize("seconds", [1800, 0.5, -1])
async def test_task_of_another_name_is_refused(setup, name, seconds):
    engine, timer = setup.start(), setup.timer(seconds=seconds)
    stem = name_of(timer, timer.due_at).rpartition("-")[0]
    earlier = name_of(timer, timer.due_at - timedelta(seconds=2))
    with pytest.raises(EventError, match="name of a task"):
        await engine.fire(FiredTask(timer, name.format(stem), timer.due_at))
    for other in (name_of(setup.timer("uid-2"), timer.due_at), earlier):
        with pytest.raises(EventError, match="name of a task"):
            await engine.fire(FiredTask(timer, other, timer.due_at))
    assert setup.target.attempts == []
    assert setup.server.calls["GetTask"] == 0


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
