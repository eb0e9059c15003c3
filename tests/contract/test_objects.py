"""Create, read, update and patch."""

import pytest

from tests.contract.conftest import JSON_PATCH

pytestmark = pytest.mark.anyio


async def test_created_object_has_the_fields_of_the_server(api):
    job = await api.job("a")
    metadata = job["metadata"]
    assert metadata["generation"] == 1
    assert metadata["creationTimestamp"].endswith("Z")
    assert len(metadata["creationTimestamp"]) == len("2026-01-01T00:00:00Z")
    assert len(metadata["uid"]) == 36
    assert int(metadata["resourceVersion"]) > 0
    assert (job["kind"], job["apiVersion"], metadata["namespace"]) == ("Job", "batch/v1", api.namespace)
    assert (await api.get(api.jobs("a"))).body == job


async def test_server_fields_in_a_created_object_are_ignored(api):
    job = await api.job("a", uid="mine", creationTimestamp="2001-01-01T00:00:00Z", generation=7)
    assert job["metadata"]["uid"] != "mine"
    assert job["metadata"]["creationTimestamp"] > "2001-01-01T00:00:00Z"
    assert job["metadata"]["generation"] == 1


async def test_second_object_of_a_name_is_a_conflict(api):
    body = {"metadata": {"name": "c"}}
    await api.post(api.config_maps(), body)
    again = await api.post(api.config_maps(), body)
    assert again.is_error(409, "AlreadyExists")
    assert again.body["message"] == 'configmaps "c" already exists'
    assert again.body["details"] == {"name": "c", "kind": "configmaps"}


async def test_recreated_object_has_a_new_uid(api):
    first = await api.config_map("a")
    await api.delete(api.config_maps("a"))
    second = await api.config_map("a")
    assert first["metadata"]["uid"] != second["metadata"]["uid"]


async def test_missing_object_is_404_and_named(api):
    missing = await api.get(api.jobs("nope"))
    assert missing.is_error(404, "NotFound")
    assert missing.body["message"] == 'jobs.batch "nope" not found'
    assert missing.body["details"] == {"name": "nope", "group": "batch", "kind": "jobs"}


async def test_generate_name_gives_a_unique_name(api):
    names = {(await api.post(api.config_maps(), {"metadata": {"generateName": "x-"}})).meta["name"] for _ in range(3)}
    assert len(names) == 3
    assert all(name.startswith("x-") and len(name) == 7 for name in names)


@pytest.mark.parametrize(
    ("metadata", "code", "reason"),
    [
        pytest.param({}, 422, "Invalid", id="no name"),
        pytest.param({"name": "a", "namespace": "elsewhere"}, 400, "BadRequest", id="another namespace"),
    ],
)
async def test_malformed_object_is_rejected(api, metadata, code, reason):
    assert (await api.post(api.config_maps(), {"metadata": metadata})).is_error(code, reason)


@pytest.mark.parametrize("body", [b"{", b"", b"[]"])
async def test_body_that_is_not_an_object_is_400(api, body):
    assert (await api.post(api.config_maps(), body)).is_error(400, "BadRequest")


async def test_body_of_another_kind_is_400(api):
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}
    assert (await api.post(api.config_maps(), body)).is_error(400, "BadRequest")


async def test_unknown_content_type_is_415(api):
    assert (await api.post(api.config_maps(), b"{}", kind="text/plain")).is_error(415, "UnsupportedMediaType")


async def test_create_in_a_missing_namespace_is_rejected(api):
    answer = await api.post(api.path("configmaps", namespace="missing"), {"metadata": {"name": "a"}})
    assert answer.is_error(404, "NotFound")
    assert answer.body["message"] == 'namespaces "missing" not found'


async def test_dry_run_creates_nothing(api):
    answer = await api.post(api.config_maps(), {"metadata": {"name": "a"}}, dryRun="All")
    assert answer.status == 201
    assert answer.meta["uid"]
    assert (await api.get(api.config_maps("a"))).status == 404
    assert (await api.post(api.config_maps(), {"metadata": {"name": "a"}}, dryRun="Some")).is_error(422, "Invalid")


async def test_resource_version_changes_only_with_the_object(api):
    before = await api.config_map("a", labels={"x": "1"})
    same = await api.patch(api.config_maps("a"), {"metadata": {"labels": {"x": "1"}}})
    other = await api.patch(api.config_maps("a"), {"metadata": {"labels": {"x": "2"}}})
    assert same.body == before
    assert int(other.meta["resourceVersion"]) > int(before["metadata"]["resourceVersion"])
    assert other.meta["uid"] == before["metadata"]["uid"]


async def test_put_with_an_old_resource_version_is_a_conflict(api):
    known = await api.config_map("a")
    newer = await api.put(api.config_maps("a"), known | {"data": {"b": "2"}})
    assert newer.status == 200
    assert newer.body["data"] == {"b": "2"}
    stale = await api.put(api.config_maps("a"), known | {"data": {"c": "3"}})
    assert stale.is_error(409, "Conflict")
    assert stale.body["message"] == (
        'Operation cannot be fulfilled on configmaps "a": the object has been modified;'
        " please apply your changes to the latest version and try again"
    )


async def test_put_checks_the_uid_and_the_name(api):
    known = await api.config_map("a")
    another = known | {"metadata": known["metadata"] | {"uid": "another", "resourceVersion": ""}}
    assert (await api.put(api.config_maps("a"), another)).is_error(409, "Conflict")
    assert (await api.put(api.config_maps("b"), known)).is_error(400, "BadRequest")
    assert (await api.put(api.config_maps("b"), {"metadata": {"name": "b"}})).is_error(404, "NotFound")


async def test_put_without_a_resource_version_always_replaces(api):
    await api.config_map("a")
    answer = await api.put(api.config_maps("a"), {"metadata": {"name": "a"}, "data": {"z": "9"}})
    assert (answer.status, answer.body["data"]) == (200, {"z": "9"})


async def test_merge_patch_sets_merges_and_removes(api):
    await api.config_map("a", annotations={"keep": "1", "drop": "2"})
    patch = {"metadata": {"annotations": {"drop": None, "new": "3"}}, "data": {"b": "2"}}
    answer = await api.patch(api.config_maps("a"), patch)
    assert answer.meta["annotations"] == {"keep": "1", "new": "3"}
    assert answer.body["data"] == {"a": "1", "b": "2"}


async def test_patch_with_an_old_resource_version_is_a_conflict(api):
    await api.config_map("a")
    answer = await api.patch(api.config_maps("a"), {"metadata": {"resourceVersion": "1"}, "data": {"b": "2"}})
    assert answer.is_error(409, "Conflict")


async def test_json_patch_applies_and_its_failed_test_is_422(api):
    uid = (await api.config_map("a"))["metadata"]["uid"]
    path = api.config_maps("a")
    operations = [{"op": "test", "path": "/metadata/uid", "value": uid}, {"op": "add", "path": "/data/b", "value": "2"}]
    assert (await api.patch(path, operations, JSON_PATCH)).body["data"] == {"a": "1", "b": "2"}
    wrong = [{"op": "test", "path": "/metadata/uid", "value": "another"}]
    assert (await api.patch(path, wrong, JSON_PATCH)).is_error(422, "Invalid")
    assert (await api.patch(path, {"op": "test"}, JSON_PATCH)).is_error(400, "BadRequest")


async def test_patch_of_an_unknown_type_is_415(api):
    await api.config_map("a")
    assert (await api.patch(api.config_maps("a"), {}, "application/json")).is_error(415, "UnsupportedMediaType")


async def test_dry_run_of_a_patch_changes_nothing(api):
    before = await api.config_map("a")
    answer = await api.patch(api.config_maps("a"), {"data": {"b": "2"}}, dryRun="All")
    assert answer.body["data"] == {"a": "1", "b": "2"}
    assert (await api.get(api.config_maps("a"))).body == before


async def test_status_subresource_writes_the_status_only(api):
    job = await api.job("a")
    status = await api.patch(api.jobs("a") + "/status", {"status": {"active": 1}, "spec": {"suspend": True}})
    assert status.body["status"]["active"] == 1
    assert status.body["spec"] == job["spec"]
    main = await api.patch(api.jobs("a"), {"status": {"active": 7}, "metadata": {"labels": {"x": "y"}}})
    assert main.body["status"]["active"] == 1
    assert main.meta["labels"]["x"] == "y"
    assert (await api.get(api.jobs("a") + "/status")).body == main.body


async def test_status_at_creation_is_dropped(api):
    answer = await api.post(api.pods(), {
        "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}, "status": {"phase": "Failed"},
    })  # fmt: skip
    assert answer.body["status"]["phase"] == "Pending"


async def test_managed_fields_record_the_manager_and_time_of_the_status(api):
    await api.job("a")
    answer = await api.patch(api.jobs("a") + "/status", {"status": {"active": 1}})
    entries = [e for e in answer.meta["managedFields"] if e.get("subresource") == "status"]
    assert [(e["manager"], e["operation"], e["apiVersion"]) for e in entries] == [("contract", "Update", "batch/v1")]
    assert entries[0]["time"] >= answer.meta["creationTimestamp"]
    assert [e["manager"] for e in answer.meta["managedFields"] if "subresource" not in e] == ["contract"]


async def test_generation_is_raised_by_a_change_of_the_spec_only(api):
    await api.job("a")
    assert (await api.patch(api.jobs("a"), {"metadata": {"labels": {"x": "y"}}})).meta["generation"] == 1
    assert (await api.patch(api.jobs("a") + "/status", {"status": {"active": 1}})).meta["generation"] == 1
    assert (await api.patch(api.jobs("a"), {"spec": {"ttlSecondsAfterFinished": 9}})).meta["generation"] == 2
