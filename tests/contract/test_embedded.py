"""What only the embedded server does: faults on demand, a chosen clock, chosen uids, and no HTTP at all."""

import asyncio
import itertools
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import aiohttp
import pytest
from starlette.responses import Response

from shared.devserver.apiserver import DeleteOptions, EmbeddedApiServer, Query, StatusError, Store, WriteOptions, serve
from shared.devserver.apiserver.resources import CONFIG_MAPS, JOBS, PODS
from shared.devserver.apiserver.writes import merge_patch
from tests.fakes import FakeClock

START = datetime(2026, 1, 1, 12, 0, 0, 999_000, tzinfo=UTC)


@pytest.fixture
def clock():
    return FakeClock(START)


@pytest.fixture
def store(clock):
    numbers = itertools.count(1)
    return Store(clock.now, new_uid=lambda: f"00000000-0000-4000-8000-{next(numbers):012}")


def named(name, **more):
    return {"metadata": {"name": name, **more}}


def test_store_uses_the_clock_and_the_uids_of_the_caller(store, clock):
    job = store.create(JOBS, "default", named("a"))
    assert job["metadata"]["creationTimestamp"] == "2026-01-01T12:00:00Z"
    assert job["metadata"]["uid"] == "00000000-0000-4000-8000-000000000003"
    clock.advance(3_600)
    done = store.patch(
        JOBS, "default", "a", merge_patch({"status": {"x": 1}}), WriteOptions("ctl", subresource="status")
    )
    entry = done["metadata"]["managedFields"][-1]
    assert (entry["manager"], entry["subresource"], entry["time"]) == ("ctl", "status", "2026-01-01T13:00:00Z")


def test_equal_histories_make_equal_stores(clock):
    def run():
        numbers = itertools.count()
        store = Store(clock.now, new_uid=lambda: f"{next(numbers):05}")
        for _ in range(3):
            store.create(PODS, "default", {"metadata": {"generateName": "p-"}})
        return store.list(PODS)

    assert run() == run()


def test_store_copies_its_input_and_keeps_returned_objects_unchanged(store):
    sent = named("a", labels={"x": "1"})
    first = store.create(CONFIG_MAPS, "default", sent)
    sent["metadata"]["labels"]["x"] = "2"
    store.patch(CONFIG_MAPS, "default", "a", merge_patch(named("a", labels={"x": "3"})))
    assert first["metadata"]["labels"] == {"x": "1"}


def test_finalizer_stays_without_garbage_collection(clock):
    store = Store(clock.now, collect_garbage=False)
    store.create(JOBS, "default", named("a"))
    store.delete(JOBS, "default", "a", DeleteOptions(propagation="Foreground"))
    assert store.get(JOBS, "default", "a")["metadata"]["finalizers"] == ["foregroundDeletion"]


def test_deleted_namespace_removes_its_objects(store):
    store.create(CONFIG_MAPS, "kube-system", named("a", finalizers=["example.dev/keep"]))
    store.delete(store.resources.find("v1", "namespaces"), "", "kube-system")
    assert store.list(CONFIG_MAPS).items == []
    with pytest.raises(StatusError, match='namespaces "kube-system" not found'):
        store.create(CONFIG_MAPS, "kube-system", named("a"))


def test_old_history_is_dropped(clock):
    store = Store(clock.now, history=10)
    for number in range(50):
        store.create(CONFIG_MAPS, "default", named(f"c{number:02}"))
    assert len(store.changes(CONFIG_MAPS, store.revision - 10)) == 10
    with pytest.raises(StatusError) as caught:
        store.changes(CONFIG_MAPS, 1)
    assert (caught.value.code, caught.value.reason) == (410, "Expired")


def test_listeners_see_every_change_once_and_in_order(store):
    seen = []
    store.listeners.append(lambda _resource, change: seen.append((change.revision, change.type)))
    owner = store.create(JOBS, "default", named("a"))["metadata"]
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": "a", "uid": owner["uid"]}
    for name in "bc":
        store.create(PODS, "default", named(name, ownerReferences=[reference]))
    store.delete(JOBS, "default", "a", DeleteOptions(propagation="Background"))
    revisions, types = zip(*seen, strict=True)
    assert list(revisions) == sorted(set(revisions))
    assert types == ("ADDED", "ADDED", "ADDED", "DELETED", "DELETED", "DELETED")


def test_ten_thousand_objects_are_listed_by_pages(store):
    for number in range(10_000):
        store.create(CONFIG_MAPS, "default", named(f"c{number}"))
    token, names = "", []
    while True:
        page = store.list(CONFIG_MAPS, Query("default", limit=500, continue_token=token))
        names += [obj["metadata"]["name"] for obj in page.items]
        for obj in page.items:
            store.delete(CONFIG_MAPS, "default", obj["metadata"]["name"])
        token = page.continue_token
        if not token:
            break
    assert len(names) == len(set(names)) == 10_000
    assert store.list(CONFIG_MAPS).items == []


@pytest.mark.anyio
async def test_injected_fault_fails_the_request(store):
    async def intercept(request):
        if request.method == "DELETE":
            return Response("{}", 429, {"Retry-After": "1"})
        if request.url.path.endswith("/forbidden"):
            raise StatusError(403, "Forbidden", "no")
        return None

    app = EmbeddedApiServer(store, intercept=intercept)
    async with serve(app) as url, aiohttp.ClientSession(url) as session:
        path = "/api/v1/namespaces/default/configmaps"
        async with session.delete(f"{path}/a") as answer:
            assert (answer.status, answer.headers["Retry-After"]) == (429, "1")
        async with session.get(f"{path}/forbidden") as answer:
            assert (answer.status, (await answer.json())["reason"]) == (403, "Forbidden")
        async with session.get(path) as answer:
            assert answer.status == 200
        app.intercept = None
        async with session.delete(f"{path}/a") as answer:
            assert answer.status == 404


@pytest.mark.anyio
async def test_date_header_is_the_clock_of_the_store(store, clock):
    async with serve(EmbeddedApiServer(store)) as url, aiohttp.ClientSession(url) as session:
        clock.at = datetime(2031, 5, 6, 7, 8, 9, 999_999, tzinfo=UTC)
        async with session.get("/api") as answer:
            assert parsedate_to_datetime(answer.headers["Date"]) == clock.at.replace(microsecond=0)


@pytest.mark.anyio
async def test_bookmarks_follow_the_requested_interval(store):
    async with serve(EmbeddedApiServer(store, bookmark_seconds=0.05)) as url, aiohttp.ClientSession(url) as session:
        query = {"watch": "1", "allowWatchBookmarks": "true", "resourceVersion": str(store.revision)}
        async with session.get("/api/v1/pods", params=query) as answer:
            lines = [await answer.content.readline() for _ in range(3)]
    assert all(b'"BOOKMARK"' in line for line in lines)


@pytest.mark.anyio
async def test_close_ends_the_watches(store):
    async with aiohttp.ClientSession() as session:
        async with serve(EmbeddedApiServer(store)) as url:
            query = {"watch": "1", "resourceVersion": str(store.revision)}
            answer = await session.get(f"{url}/api/v1/pods", params=query)
            reading = asyncio.create_task(answer.read())
            await asyncio.sleep(0.05)
        assert await reading == b""
