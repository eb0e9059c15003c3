"""Deletions without a read, on a real API server: one DELETE and no GET of the object where all conditions hold."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from shared.adapters.config.settings import read_settings
from shared.adapters.events.cloudevents import Event, parse_event, parse_object, parse_proof, to_http
from shared.adapters.kubernetes.cluster import KubernetesCluster
from shared.bootstrap.build import build
from shared.bootstrap.config import read_config
from shared.bootstrap.process import Process
from shared.core.values.objects import parse_instant, ref_of
from shared.installation.guards import guard, guard_name
from shared.messages import ObjectDeleted, Proof, Purpose, Timer, TimersSet
from shared.source.watches import KindWatches
from shared.usecases.expire import DELETION
from tests.builders import JOB, not_none
from tests.contract.guarded import BINDINGS, User, connected_as, guarded, make_job
from tests.fakes import FakeTelemetry
from tests.guarded_kinds import NAMESPACE

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

SECONDS = 5
"""The TTL of the Jobs: long enough for a proof, since a Date has whole seconds."""

SETTINGS = {"TTL_KINDS": "jobs", "TTL_NAMESPACE": NAMESPACE, "TTL_PROOF_KEY": "k" * 32}


@pytest.fixture(scope="module")
def admin(real):
    with guarded(real, {JOB.name: [JOB]}, is_shared=True) as admin:
        yield admin


@pytest.fixture
def namespace(admin):
    return admin.make("/api/v1/namespaces", {"metadata": {"generateName": "proven-"}})["metadata"]["name"]


async def admitted(_authorization: str) -> None:
    """A check of callers that has passed them: the wire has its own tests."""


@asynccontextmanager
async def expiring(admin: User, **options: Any) -> AsyncIterator[tuple[Any, list[str]]]:
    """The use case of a new process, and its requests about Jobs."""
    async with process_of(admin, **options) as (process, requests):
        yield await process.handler(DELETION, "expire"), requests


@asynccontextmanager
async def process_of(
    admin: User, *, admit: Any = admitted, with_cluster: Callable[[Any], None] = lambda _: None, **settings: str
) -> AsyncIterator[tuple[Process, list[str]]]:
    async with connected_as(admin, "expire") as cluster:
        requests: list[str] = []
        send = cluster._transport.send

        async def record(method: str, path: str, *rest: Any, **options: Any) -> Any:
            requests.extend([method] if "/jobs/" in path else [])
            return await send(method, path, *rest, **options)

        cluster._transport.send = record  # type: ignore[method-assign]
        with_cluster(cluster)
        config = read_config(read_settings(SETTINGS | settings, {}), telemetry=FakeTelemetry())
        process = build(replace(config, cluster=cluster, admit=admit))
        yield process, requests
        await process.end()


async def timer_of(admin: User, namespace: str, ttl: int = SECONDS, **metadata: Any) -> tuple[str, Timer]:
    """A finished Job that is due soon, and the timer that `expire` answers with."""
    annotations = {"ttlafterfinished.dev/ttl": f"{ttl}s"}
    path, job = make_job(admin, namespace, annotations=annotations, **metadata)
    ref = ref_of({**job, "apiVersion": "batch/v1", "kind": "Job"})
    async with expiring(admin) as (expiry, requests):
        answer = await expiry.handle(Timer(ref=ref, purpose=Purpose.EXPIRE, due_at=datetime.now(UTC)))
        assert requests == ["GET"]
    assert isinstance(answer, TimersSet)
    due_at = parse_instant(job["status"]["completionTime"]) + timedelta(seconds=ttl)
    assert answer.timers[0].due_at == due_at
    return path, answer.timers[0]


async def fire(admin: User, timer: Timer, **options: Any) -> tuple[Any, list[str]]:
    await asyncio.sleep(max(0.0, (timer.due_at - datetime.now(UTC)).total_seconds()) + 0.01)
    async with expiring(admin, **options) as (expiry, requests):
        return await expiry.handle(timer), requests


async def test_due_object_is_deleted_by_one_call(admin, namespace):
    path, timer = await timer_of(admin, namespace)
    assert isinstance(timer.proof, Proof)

    answer, requests = await fire(admin, timer)

    assert requests == ["DELETE"]
    assert isinstance(answer, ObjectDeleted)
    assert admin.ask("GET", path)[0] == 404


async def test_object_of_an_event_of_our_watch_is_deleted_by_one_call(admin, namespace):
    """From the watch through the bytes of the event and `schedule` to `expire`: no process reads the object."""
    events: asyncio.Queue[Event] = asyncio.Queue()

    async def publish(_message: Any) -> None:
        """No sweep."""

    async with process_of(admin) as (process, requests):
        config, evaluator = process.config, await process.evaluator()
        cluster = cast("KubernetesCluster", await process.cluster())
        watch = asyncio.create_task(KindWatches(config, cluster, evaluator, send=events.put, publish=publish).run())
        await asyncio.sleep(1)
        annotations = {"ttlafterfinished.dev/ttl": f"{SECONDS}s"}
        make_job(admin, namespace, annotations=annotations)
        while (proof := parse_proof(event := await events.get())) is None:
            """The Job is not finished in the first events."""
        watch.cancel()
        headers, body = to_http(event)
        event = parse_event(headers, body)
        answer = await process.schedule(parse_object(event), parse_proof(event))
        assert requests == []
    (timer,) = not_none(answer).timers
    assert (timer.proof, timer.due_at) == (proof, proof.due_at)

    deleted, requests = await fire(admin, timer)

    assert requests == ["DELETE"]
    assert isinstance(deleted, ObjectDeleted)


async def test_object_is_read_without_verified_callers(admin, namespace):
    _, timer = await timer_of(admin, namespace)

    assert (await fire(admin, timer, admit=None))[1] == ["GET", "DELETE"]


async def test_object_is_read_without_the_delete_guard(admin, namespace):
    _, timer = await timer_of(admin, namespace)
    assert admin.ask("DELETE", f"{BINDINGS}/{guard_name(JOB)}")[0] == 200
    try:
        assert (await fire(admin, timer))[1] == ["GET", "DELETE"]
    finally:
        admin.make(BINDINGS, guard([JOB], NAMESPACE)[1])


async def test_object_is_read_if_the_guard_does_not_bind_the_namespace_of_the_process(admin, namespace):
    _, timer = await timer_of(admin, namespace)

    assert (await fire(admin, timer, TTL_NAMESPACE="elsewhere"))[1] == ["GET", "DELETE"]


async def test_object_is_read_if_its_namespace_changed(admin, namespace):
    _, timer = await timer_of(admin, namespace)
    admin.patch(f"/api/v1/namespaces/{namespace}", {"metadata": {"labels": {"team": "a"}}})

    assert (await fire(admin, timer))[1] == ["GET", "DELETE"]


async def test_object_is_read_if_it_has_an_owner(admin, namespace):
    made = admin.make(f"/api/v1/namespaces/{namespace}/configmaps", {"metadata": {"name": "owner"}})
    uid = made["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid, "controller": True}
    _, timer = await timer_of(admin, namespace, ownerReferences=[owner])

    assert timer.proof is None
    assert (await fire(admin, timer))[1][0] == "GET"


async def test_object_is_read_if_its_group_is_aggregated(admin, namespace):
    async def is_aggregated(_rule: Any) -> bool:
        return True

    _, timer = await timer_of(admin, namespace)

    _, requests = await fire(admin, timer, with_cluster=lambda one: setattr(one, "is_aggregated", is_aggregated))

    assert requests[0] == "GET"


async def test_object_is_read_without_the_key(admin, namespace):
    _, timer = await timer_of(admin, namespace)

    assert (await fire(admin, timer, TTL_PROOF_KEY="x" * 32))[1] == ["GET", "DELETE"]


async def test_changed_object_is_read_again_and_deleted_if_it_is_still_due(admin, namespace):
    path, timer = await timer_of(admin, namespace)
    admin.patch(path, {"metadata": {"labels": {"touched": "yes"}}})

    answer, requests = await fire(admin, timer)

    assert requests == ["DELETE", "GET", "GET", "DELETE"]
    assert isinstance(answer, ObjectDeleted)


async def test_changed_object_is_read_again_and_kept_if_it_is_held(admin, namespace):
    path, timer = await timer_of(admin, namespace)
    admin.patch(path, {"metadata": {"annotations": {"ttlafterfinished.dev/hold": "mine"}}})

    answer, requests = await fire(admin, timer)

    assert answer is None
    assert requests == ["DELETE", "GET", "GET"]
    assert admin.ask("GET", path)[0] == 200


@pytest.mark.smoke
async def test_early_timer_reads_and_deletes_nothing(admin, namespace):
    path, timer = await timer_of(admin, namespace, ttl=3600)

    async with expiring(admin) as (expiry, requests):
        answer = await expiry.handle(timer.model_copy(update={"due_at": datetime.now(UTC) - timedelta(hours=1)}))

    assert isinstance(answer, TimersSet)
    assert requests == ["GET"]
    assert admin.ask("GET", path)[0] == 200
