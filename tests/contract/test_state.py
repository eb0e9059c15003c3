"""The shared state on an API server: one process trips, the others stop, and only a release ends it."""

import asyncio
import functools
import json
import shutil
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from types import SimpleNamespace

import pytest

from shared.adapters.config.settings import read_settings
from shared.adapters.kubernetes.connect import connect
from shared.adapters.kubernetes.requests import count_objects
from shared.adapters.kubernetes.state_configmap import ConfigMapState
from shared.bootstrap.build import build_safeguards
from shared.bootstrap.config import ProcessConfig
from shared.cli.deleters.brakes import shared_state
from shared.core.policy.limits import BreakerLimits, Limits, RecreationLimits
from shared.ports import EventReason
from shared.safeguards.denials import release_breaker
from shared.safeguards.safeguards import Safeguard, Safeguards
from shared.safeguards.shared_state import CACHED_SECONDS
from shared.safeguards.state_schema import NAME, Trip, parse_state, with_loop, with_trip
from tests.builders import JOB, NOW, ROOT, not_none, shipped_kinds
from tests.counts import counts
from tests.fakes import FakeTelemetry

pytestmark = pytest.mark.anyio

KUBECTL = shutil.which("kubectl")


@dataclass
class Seconds:
    """A clock that is moved by hand, so that nothing has to wait for a cache."""

    at: float = 0.0

    def __call__(self) -> float:
        return self.at


@dataclass
class Process:
    """A deleting process with its own connection."""

    cluster: object
    safeguards: Safeguards
    seconds: Seconds
    message: list = field(default_factory=list)

    async def ask(self, job):
        return await self.safeguards.ask(JOB, job, by="expire")


@pytest.fixture
async def start(api):
    """Starts processes of one installation."""
    async with AsyncExitStack() as stack:

        async def start(**limits):
            cluster = await connect(kubeconfig=str(api.server.kubeconfig))
            stack.push_async_callback(cluster.close)
            seconds, reported = Seconds(), []

            async def write_event(reason, message, level):
                reported.append((reason, message, level))

            config = ProcessConfig(
                settings=read_settings(environment={}),
                kinds=shipped_kinds(),
                catalogue=shipped_kinds(),
                policies=SimpleNamespace(policy=lambda: SimpleNamespace(limits=Limits(**limits))),
                telemetry=FakeTelemetry(),
                namespace=api.namespace,
                home_namespace=api.namespace,
            )
            safeguards = build_safeguards(config, cluster, write_event, monotonic=seconds)
            return Process(cluster, safeguards, seconds, reported)

        yield start


@pytest.fixture
async def state(api, start):
    return ConfigMapState((await start()).cluster, api.namespace)


async def test_state_without_a_config_map_is_empty_and_the_first_write_creates_it(api, state):
    assert await state.read() == {}
    await state.write(lambda data: {**data, "a": "1"})
    await state.write(lambda data: {**data, "b": "2"})
    assert await state.read() == {"a": "1", "b": "2"}
    assert (await api.get(api.config_maps(NAME))).body["data"] == {"a": "1", "b": "2"}


async def test_state_keeps_the_metadata_of_other_clients(api, state):
    await api.post(api.config_maps(), {"metadata": {"name": NAME, "labels": {"mine": "yes"}}})
    assert await state.read() == {}
    await state.write(lambda data: {**data, "a": "1"})
    assert (await api.get(api.config_maps(NAME))).meta["labels"] == {"mine": "yes"}


async def test_concurrent_writes_of_state_lose_no_key(start, state):
    others = [ConfigMapState((await start()).cluster, state._collection.split("/")[4]) for _ in range(8)]
    await state.write(lambda data: {"there": "yes"})
    await asyncio.gather(*(one.write(functools.partial(_with, name=str(number))) for number, one in enumerate(others)))
    assert await state.read() == {"there": "yes"} | {str(number): "yes" for number in range(len(others))}


def _with(data, *, name):
    return {**data, name: "yes"}


async def test_state_without_a_change_is_not_written(api, state):
    await state.write(lambda data: {"a": "1"})
    before = (await api.get(api.config_maps(NAME))).meta["resourceVersion"]
    await state.write(dict)
    assert (await api.get(api.config_maps(NAME))).meta["resourceVersion"] == before


async def test_breaker_tripped_by_one_process_stops_the_other_until_a_release(api, start):
    jobs = [await api.job(name) for name in "abcd"]
    one, other = await start(breaker=BreakerLimits(count=2)), await start(breaker=BreakerLimits(count=100))
    assert [await other.ask(jobs[0]), await one.ask(jobs[0]), await one.ask(jobs[1])] == [None] * 3

    assert (await one.ask(jobs[2])).reason is Safeguard.BREAKER_OPEN
    assert [(reason, level) for reason, _, level in one.message] == [(EventReason.BREAKER_OPEN, "Warning")]
    assert await other.ask(jobs[2]) is None  # it has not looked since
    other.seconds.at += CACHED_SECONDS
    kept = await other.ask(jobs[2])
    assert (kept.reason, other.message) == (Safeguard.BREAKER_OPEN, [])
    assert "2 objects were deleted within 10m, and the limit is 2" in kept.detail

    restarted = await start(breaker=BreakerLimits(count=2))
    assert (await restarted.ask(jobs[2])).reason is Safeguard.BREAKER_OPEN

    assert not_none(await release_breaker(*shared_state(one.cluster, api.namespace))).by == "expire"
    assert await release_breaker(*shared_state(one.cluster, api.namespace)) is None
    events = (await api.get(api.path("events"))).body["items"]
    assert [(event["reason"], event["type"]) for event in events] == [(EventReason.BREAKER_RELEASED, "Normal")]
    for process in (one, other, restarted):
        process.seconds.at += CACHED_SECONDS
        assert await process.ask(jobs[3]) is None


async def test_name_in_a_loop_is_known_after_a_restart(api, start):
    limits = RecreationLimits(times=2)
    before = await start(recreation=limits)
    for _ in range(2):
        job = await api.job("again")
        assert await before.ask(job) is None
        await before.cluster.delete(JOB, job)
        before.safeguards.deleted(job)
        await api.becomes(api.jobs("again"), lambda answer: answer.status == 404)
    job = await api.job("again")
    assert (await before.ask(job)).reason is Safeguard.RECREATE_LOOP
    assert (await (await start(recreation=limits)).ask(job)).reason is Safeguard.RECREATE_LOOP
    assert await (await start(recreation=limits)).ask(await api.job("another")) is None


async def test_breaker_trips_at_the_sum_of_the_deletions_of_two_processes(api, start):
    limits = BreakerLimits(count=4)
    jobs = [await api.job(f"job-{number}") for number in range(6)]
    one, other = await start(breaker=limits), await start(breaker=limits)
    assert [await process.ask(job) for process in (one, other) for job in jobs[:2]] == [None] * 4
    await asyncio.gather(one.safeguards.flush(), other.safeguards.flush())  # at once: one of them has to read again

    for process in (one, other, await start(breaker=limits)):
        process.seconds.at += CACHED_SECONDS
        assert (await process.ask(jobs[4])).reason is Safeguard.BREAKER_OPEN

    await release_breaker(*shared_state(one.cluster, api.namespace))
    one.seconds.at += CACHED_SECONDS
    assert await one.ask(jobs[4]) is None
    assert await (await start(breaker=limits)).ask(jobs[5]) is None


async def test_loop_is_found_by_processes_that_never_see_two_rounds(api, start):
    limits = RecreationLimits(times=3)
    for _ in range(limits.times):
        process, job = await start(recreation=limits), await api.job("again")
        assert await process.ask(job) is None
        await process.cluster.delete(JOB, job)
        process.safeguards.deleted(job)
        await process.safeguards.flush()
        await api.becomes(api.jobs("again"), lambda answer: answer.status == 404)
    assert (await (await start(recreation=limits)).ask(await api.job("again"))).reason is Safeguard.RECREATE_LOOP


async def test_malformed_state_is_overwritten(api, start, state):
    nonsense = {"deletions.other.5f0c91aa": "[" * 50_000, "names": "\u0001", "recreation": "5", "other": "x" * 500_000}
    await state.write(lambda data: nonsense)
    process = await start(breaker=BreakerLimits(count=9))
    job = await api.job("a")
    assert await process.ask(job) is None
    process.safeguards.deleted(job)
    await process.safeguards.flush()
    data = await state.read()
    assert list(json.loads(data["names"])) == [f"Job.batch/{api.namespace}/a"]
    assert counts(data) == {"Job.batch": 1}
    assert data["other"] == nonsense["other"]


async def test_objects_are_counted_without_a_full_list(api, start):
    cluster = (await start()).cluster
    assert await count_objects(cluster, JOB, api.namespace) == 0
    for number in range(3):
        await api.job(f"job-{number}")
        assert await count_objects(cluster, JOB, api.namespace) == number + 1
    assert await count_objects(cluster, JOB) >= 3


@pytest.mark.skipif(KUBECTL is None, reason="no kubectl in PATH")
@pytest.mark.parametrize("options", [(), ("--server-side",)])
async def test_breaker_stays_open_after_the_manifests_are_applied_again(api, state, options):
    if options and api.server.id == "embedded":
        pytest.skip("it has no server-side apply")
    shipped = (ROOT / "knative/namespace/state.yaml").read_text().partition("\n---\n")[0]
    shipped = shipped.replace("namespace: ttl-after-finished\n", f"namespace: {api.namespace}\n")

    async def apply(text):
        child = await asyncio.create_subprocess_exec(
            not_none(KUBECTL), f"--kubeconfig={api.server.kubeconfig}", "apply", *options, "-f", "-",
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        _, errors = await child.communicate(text.encode())
        assert child.returncode == 0, errors.decode()

    await apply(shipped)
    await state.write(lambda data: with_trip(with_loop(data, "a", NOW + timedelta(days=9), NOW), Trip(NOW, "too many")))
    await apply(shipped)
    await apply(shipped.replace("labels:\n", "labels:\n    app.kubernetes.io/version: 9.9.9\n"))

    contents = parse_state(await state.read())
    assert contents.trip == Trip(NOW, "too many")
    assert list(contents.loops) == ["a"]
    assert (await api.get(api.config_maps(NAME))).meta["labels"]["app.kubernetes.io/version"] == "9.9.9"
