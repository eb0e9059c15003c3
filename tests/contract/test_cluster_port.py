"""The methods of `shared.ports.Cluster`, of the adapter and of the double that the other tests use."""

from dataclasses import replace
from datetime import timedelta
from functools import partial

import pytest

from shared.adapters.clock import SystemClock
from shared.adapters.kubernetes.cluster import KubernetesCluster
from shared.adapters.kubernetes.journal_events import Sum, event_of, event_of_sum, key_of
from shared.adapters.kubernetes.journal_reading import parse_event
from shared.core.values.objects import ref_of
from shared.errors import AbsentKindError, ConflictError, PermanentError
from tests.builders import JOB, NOW, having, not_none, without
from tests.journals import entry
from tests.store_cluster import StoreCluster

pytestmark = pytest.mark.anyio

SECRET = JOB.model_copy(update={"api_versions": ("v1",), "kind": "Secret", "plural": "secrets"})


@pytest.fixture
async def secrets(api):
    """Secrets `a` to `e`; the real API server lists them without its watch cache."""
    return [await api.secret(name) for name in "abcde"]


def pages_of_two(cluster, namespace):
    """`list_page` of the secrets in the namespace, two on a page."""
    if isinstance(cluster, StoreCluster):
        cluster.page_size = 2
        return partial(cluster.list_page, SECRET, namespace=namespace)
    return partial(cluster.list_page, SECRET, namespace=namespace, limit=2)


def names(page):
    return [obj["metadata"]["name"] for obj in page.items]


# Reads


async def test_get_returns_the_object_and_the_time_of_the_read(api, cluster):
    ref = ref_of(await api.job("a"))

    snapshot = await cluster.get(JOB, ref)

    assert snapshot.obj == (await api.get(api.jobs("a"))).body
    assert snapshot.read_at <= SystemClock().now() < snapshot.read_at + timedelta(seconds=10)
    assert snapshot.read_at.microsecond == 0
    assert await cluster.get(JOB, replace(ref, name="missing")) is None


async def test_object_that_a_reader_changes_is_unchanged_on_the_server(api, cluster):
    ref = ref_of(await api.job("a"))

    (await cluster.get(JOB, ref)).obj["metadata"]["labels"] = {"a": "b"}
    (await cluster.list_page(JOB, namespace=api.namespace)).items[0]["spec"].clear()

    obj = (await cluster.get(JOB, ref)).obj
    assert "a" not in obj["metadata"].get("labels", {})
    assert obj["spec"]


@pytest.mark.parametrize("name", ["", ".", ".."])
async def test_name_that_no_object_can_have_is_refused(api, cluster, name):
    job = await api.job("a")
    with pytest.raises(PermanentError):
        await cluster.get(JOB, replace(ref_of(job), name=name))
    with pytest.raises(PermanentError):
        await cluster.delete(JOB, having(job, "metadata.name", name))


async def test_kind_that_is_not_served_raises(api, cluster):
    absent = JOB.model_copy(update={"plural": "jobz", "kind": "Jobz"})
    job = await api.job("a")
    for call in (cluster.get(absent, ref_of(job)), cluster.list_page(absent), cluster.delete(absent, job)):
        with pytest.raises(AbsentKindError):
            await call


async def test_object_of_no_watch_is_not_cached(api, cluster):
    job = await api.job("a")
    await cluster.get(JOB, ref_of(job))
    assert await cluster.get_cached(ref_of(job), due_at=NOW) is None


async def test_group_of_the_api_server_itself_is_not_aggregated(cluster, crds):
    assert await cluster.is_aggregated(JOB) is False
    assert await cluster.is_aggregated(crds.rule("Run", "runs", "v1")) is False


# LISTs


async def test_pages_show_one_state(api, cluster, secrets):
    list_page = pages_of_two(cluster, api.namespace)
    first = await list_page()
    await api.delete(api.secrets("d"))
    await api.secret("cc")

    second = await list_page(continue_token=first.continue_token)
    last = await list_page(continue_token=second.continue_token)

    assert [names(page) for page in (first, second, last)] == [["a", "b"], ["c", "d"], ["e"]]
    assert (first.resource_version, last.continue_token) == (last.resource_version, "")


async def test_list_continues_in_the_present_state_after_a_compaction(api, server, cluster, secrets):
    list_page = pages_of_two(cluster, api.namespace)
    first = await list_page()
    await api.delete(api.secrets("c"))
    server.compact()

    assert names(await list_page(continue_token=first.continue_token)) == ["d", "e"]


async def test_exact_resource_version_shows_the_state_of_another_list(api, cluster, secrets):
    version = (await cluster.list_page(SECRET, namespace=api.namespace)).resource_version
    await api.delete(api.secrets("a"))

    assert names(await cluster.list_page(SECRET, namespace=api.namespace, resource_version=version)) == list("abcde")
    assert names(await cluster.list_page(SECRET, namespace=api.namespace)) == list("bcde")


async def test_list_of_metadata_has_the_kind_of_the_objects(api, cluster):
    job = await api.job("a")
    page = await cluster.list_page(JOB, namespace=api.namespace, metadata_only=True)

    (obj,) = page.items
    assert set(obj) == {"apiVersion", "kind", "metadata"}
    assert ref_of(obj) == ref_of(job)


# DELETEs


@pytest.mark.smoke
async def test_delete_of_the_object_that_was_read_is_accepted_once(api, cluster):
    job = await api.job("a")

    assert await cluster.delete(JOB, job) is True
    assert (await api.get(api.jobs("a"))).status == 404
    assert await cluster.delete(JOB, job) is False


@pytest.mark.smoke
@pytest.mark.parametrize("field", ["uid", "resourceVersion"])
async def test_delete_with_another_precondition_is_a_conflict(api, cluster, field):
    job = await api.job("a")

    with pytest.raises(ConflictError, match="precondition"):
        await cluster.delete(JOB, having(job, f"metadata.{field}", "12345"))
    with pytest.raises(PermanentError, match=r"expected metadata\.uid and metadata\.resourceVersion"):
        await cluster.delete(JOB, without(job, f"metadata.{field}"))
    assert (await api.get(api.jobs("a"))).status == 200


@pytest.mark.parametrize(
    ("propagation", "finalizers"),
    [
        (None, ["example.com/keep"]),
        ("Background", ["example.com/keep"]),
        ("Orphan", ["example.com/keep", "orphan"]),
        ("Foreground", ["example.com/keep", "foregroundDeletion"]),
    ],
)
async def test_delete_marks_an_object_with_finalizers_and_sets_the_propagation(api, cluster, propagation, finalizers):
    configmap = await api.config_map("a", finalizers=["example.com/keep"])
    rule = JOB.model_copy(update={"api_versions": ("v1",), "kind": "ConfigMap", "plural": "configmaps"})

    assert await cluster.delete(rule, configmap, propagation=propagation) is True

    metadata = (await cluster.get(rule, ref_of(configmap))).obj["metadata"]
    assert "deletionTimestamp" in metadata
    if metadata["finalizers"] != finalizers:  # the garbage collector has removed its own in the meantime
        assert metadata["finalizers"] == ["example.com/keep"]


# Events


async def test_event_is_written_once_about_its_object(api, cluster):
    ref = ref_of(await api.job("a"))

    for message in ("why", "why", "why else"):
        await cluster.record_event(ref, "DeletionRefused", message)
    await cluster.record_event(ref, "Swept", "all", level="Normal")

    events = (await api.get(api.path("events"))).body["items"]
    written = sorted((one["type"], one["reason"], one["message"]) for one in events)
    assert written == [
        ("Normal", "Swept", "all"),
        ("Warning", "DeletionRefused", "why"),
        ("Warning", "DeletionRefused", "why else"),
    ]
    about = {"apiVersion": "batch/v1", "kind": "Job", "namespace": api.namespace, "name": "a", "uid": ref.uid}
    assert [one["involvedObject"] for one in events] == [about] * 3
    assert {one["metadata"]["namespace"] for one in events} == {api.namespace}


async def test_event_in_a_namespace_that_does_not_exist_is_refused(api, cluster):
    ref = replace(ref_of(await api.job("a")), namespace="absent")
    with pytest.raises(PermanentError):
        await cluster.record_event(ref, "DeletionRefused", "why")


async def test_event_of_the_journal_is_written_once_and_read_back(api, cluster):
    ref = ref_of(await api.job("a"))
    event = event_of(entry(ref=ref), "x")

    await cluster.create_event(event)
    await cluster.create_event(event)
    if not isinstance(cluster, KubernetesCluster):
        assert cluster.journaled == [event, event]
        return
    query = "fieldSelector=reportingController%3Dttl-after-finished"
    path = f"/apis/events.k8s.io/v1/namespaces/{api.namespace}/events?{query}"
    [stored] = not_none(await cluster.request("GET", path)).body["items"]
    assert not_none(parse_event(stored)).ref == ref


@pytest.mark.parametrize("count", [1, 2])
async def test_sum_of_the_journal_is_accepted(api, cluster, count):
    key = key_of(entry())._replace(namespace=api.namespace)
    await cluster.create_event(event_of_sum(key, Sum(count, NOW, NOW), "x", number=1))
