"""WATCH: changes in order, from where the client was."""

import asyncio

import pytest

pytestmark = pytest.mark.anyio


def reported(events):
    return [(event["type"], event["object"]["metadata"]["name"]) for event in events]


@pytest.fixture
async def start(api):
    """The resourceVersion that a watch of nothing yet starts from."""
    return (await api.get(api.secrets())).meta["resourceVersion"]


async def test_watch_sends_events_since_its_resource_version(api, start):
    created = await api.secret("a")
    changed = await api.patch(api.secrets("a"), {"metadata": {"labels": {"x": "y"}}})
    await api.delete(api.secrets("a"))
    events = await api.watch(api.secrets(), resourceVersion=start)
    assert reported(events) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]
    assert [events[0]["object"], events[1]["object"]] == [created, changed.body]
    last = events[2]["object"]["metadata"]
    assert int(last["resourceVersion"]) > int(changed.meta["resourceVersion"])  # of the deletion itself
    assert last["uid"] == created["metadata"]["uid"]


async def test_watch_resumes_after_its_last_event(api, start):
    first = await api.secret("a")
    await api.secret("b")
    assert reported(await api.watch(api.secrets(), resourceVersion=first["metadata"]["resourceVersion"])) == [
        ("ADDED", "b")
    ]


async def test_watch_sends_events_while_it_is_open(api, start):
    watch = asyncio.create_task(api.watch(api.secrets(), seconds=2, resourceVersion=start))
    await asyncio.sleep(0.3)
    await api.secret("a")
    await api.delete(api.secrets("a"))
    assert reported(await watch) == [("ADDED", "a"), ("DELETED", "a")]


async def test_watch_of_a_namespace_sends_its_events_only(api, start):
    await api.post("/api/v1/namespaces", {"metadata": {"name": f"{api.namespace}-other"}})
    await api.post(api.path("secrets", namespace=f"{api.namespace}-other"), {"metadata": {"name": "far"}})
    await api.secret("near")
    assert reported(await api.watch(api.secrets(), resourceVersion=start)) == [("ADDED", "near")]


@pytest.mark.parametrize("query", [{}, {"resourceVersion": "0"}])
async def test_watch_without_a_resource_version_starts_with_all_objects(api, query):
    await api.secret("a")
    await api.secret("b")
    assert reported(await api.watch(api.secrets(), **query)) == [("ADDED", "a"), ("ADDED", "b")]


async def test_watch_with_a_selector_sends_added_and_deleted_as_labels_change(api, start):
    for labels in ({"x": "no"}, {"x": "yes"}, {"x": "yes", "more": "1"}, {"x": "no"}):
        if labels == {"x": "no"} and (await api.get(api.secrets("a"))).status == 404:
            await api.secret("a", labels=labels)
        else:
            await api.patch(api.secrets("a"), {"metadata": {"labels": labels}})
    events = await api.watch(api.secrets(), resourceVersion=start, labelSelector="x=yes")
    assert reported(events) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]


async def test_watch_of_one_object_sends_its_events_only(api, start):
    await api.secret("a")
    await api.secret("b")
    events = await api.watch(api.secrets(), resourceVersion=start, fieldSelector="metadata.name=b")
    assert reported(events) == [("ADDED", "b")]


async def test_bookmark_gives_a_quiet_watch_its_resource_version(api):
    """The last one comes two seconds before the end, when there is news that the watch does not select."""
    await api.config_map("a")
    version = (await api.get(api.config_maps())).meta["resourceVersion"]
    query = {"resourceVersion": version, "allowWatchBookmarks": "true", "labelSelector": "no=such"}
    watch = asyncio.create_task(api.watch(api.config_maps(), seconds=5, **query))
    await asyncio.sleep(0.5)
    newer = (await api.config_map("b"))["metadata"]["resourceVersion"]
    events = await watch
    assert {event["type"] for event in events} == {"BOOKMARK"}
    mark = events[-1]["object"]
    assert (mark["kind"], mark["apiVersion"]) == ("ConfigMap", "v1")
    assert int(mark["metadata"]["resourceVersion"]) >= int(newer)
    assert "name" not in mark["metadata"]


async def test_initial_events_end_with_a_bookmark(api):
    await api.config_map("a", labels={"x": "y"})
    query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
    events = await api.watch(api.config_maps(), labelSelector="x=y", **query)
    assert [event["type"] for event in events] == ["ADDED", "BOOKMARK"]
    assert events[1]["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


async def test_initial_events_require_resource_version_match(api):
    answer = await api.get(api.config_maps(), watch="true", sendInitialEvents="true", timeoutSeconds=1)
    assert answer.is_error(422, "Invalid")


async def test_watch_of_a_compacted_resource_version_sends_an_error_event(api, start):
    await api.secret("a")
    await api.secret("b")
    api.server.compact()
    events = await api.watch(api.secrets(), resourceVersion=start)
    assert [event["type"] for event in events] == ["ERROR"]
    status = events[0]["object"]
    assert (status["kind"], status["code"], status["reason"]) == ("Status", 410, "Expired")


async def test_watch_of_metadata_sends_metadata_only(api, start):
    await api.secret("a")
    accept = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
    events = await api.watch(api.secrets(), resourceVersion=start, accept=accept)
    assert [event["object"]["kind"] for event in events] == ["PartialObjectMetadata"]
