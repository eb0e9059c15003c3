"""DELETE: preconditions, options, propagation, and responses."""

import pytest

from shared.installation.kubernetes_versions import parse_version
from tests.builders import not_none

pytestmark = pytest.mark.anyio

KEEP = ["example.dev/keep"]


async def test_delete_removes_the_object_and_returns_a_status(api):
    uid = (await api.config_map("a"))["metadata"]["uid"]
    answer = await api.delete(api.config_maps("a"))
    assert (answer.status, answer.body["kind"], answer.body["status"]) == (200, "Status", "Success")
    assert answer.body["details"] == {"name": "a", "kind": "configmaps", "uid": uid}
    assert (await api.get(api.config_maps("a"))).is_error(404, "NotFound")
    assert (await api.delete(api.config_maps("a"))).is_error(404, "NotFound")


@pytest.mark.parametrize(
    ("precondition", "word", "happened"),
    [("uid", "UID", "deleted and then recreated"), ("resourceVersion", "ResourceVersion", "modified")],
)
async def test_failed_precondition_is_a_conflict_and_deletes_nothing(api, precondition, word, happened):
    job = await api.job("a")
    answer = await api.delete(api.jobs("a"), {"preconditions": {precondition: "1"}, "propagationPolicy": "Background"})
    assert answer.is_error(409, "Conflict")
    assert answer.body["message"] == (
        f'Operation cannot be fulfilled on Job.batch "a": the {word} in the precondition (1) does not match the {word}'
        f" in record ({job['metadata'][precondition]}). The object might have been {happened}"
    )
    assert (await api.get(api.jobs("a"))).body == job


async def test_uid_precondition_is_checked_first(api):
    await api.config_map("a")
    answer = await api.delete(api.config_maps("a"), {"preconditions": {"uid": "1", "resourceVersion": "1"}})
    assert "the UID in the precondition" in answer.body["message"]


async def test_outdated_resource_version_keeps_a_changed_object(api):
    job = await api.job("a")
    await api.patch(api.jobs("a"), {"metadata": {"annotations": {"ttl": "never"}}})
    metadata = job["metadata"]
    preconditions = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
    assert (await api.delete(api.jobs("a"), {"preconditions": preconditions})).is_error(409, "Conflict")


async def test_matching_preconditions_delete_the_object(api):
    metadata = (await api.job("a"))["metadata"]
    preconditions = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
    answer = await api.delete(api.jobs("a"), {"preconditions": preconditions, "propagationPolicy": "Background"})
    assert (answer.status, answer.body["kind"]) == (200, "Status")
    assert (await api.get(api.jobs("a"))).status == 404


async def test_dry_run_of_a_delete_checks_everything_and_deletes_nothing(api):
    before = await api.config_map("a")
    assert (await api.delete(api.config_maps("a"), {"dryRun": ["All"]})).body["status"] == "Success"
    failed = await api.delete(api.config_maps("a"), {"dryRun": ["All"], "preconditions": {"uid": "1"}})
    assert failed.is_error(409, "Conflict")
    assert (await api.get(api.config_maps("a"))).body == before
    assert (await api.delete(api.config_maps("a"), dryRun="All")).status == 200
    assert (await api.get(api.config_maps("a"))).body == before


async def test_dry_run_of_a_delete_returns_the_deletion_timestamp_without_storing_it(api):
    before = await api.job("a")
    answer = await api.delete(api.jobs("a"), {"dryRun": ["All"], "propagationPolicy": "Foreground"})
    assert answer.meta["finalizers"] == ["foregroundDeletion"]
    assert answer.meta["resourceVersion"] == before["metadata"]["resourceVersion"]
    assert (await api.get(api.jobs("a"))).body == before


async def test_query_of_a_delete_with_a_body_is_ignored(api):
    """A dry run asked for in the query, next to a body, really deletes."""
    await api.config_map("a")
    assert (await api.delete(api.config_maps("a"), {"propagationPolicy": "Background"}, dryRun="All")).status == 200
    assert (await api.get(api.config_maps("a"))).status == 404


@pytest.mark.parametrize(
    ("options", "code", "reason"),
    [
        pytest.param({"propagationPolicy": "Never"}, 422, "Invalid", id="policy"),
        pytest.param({"propagationPolicy": "Orphan", "orphanDependents": True}, 422, "Invalid", id="both policies"),
        pytest.param({"dryRun": ["Some"]}, 422, "Invalid", id="dry run"),
        pytest.param({"dryRun": "All"}, 400, "BadRequest", id="dry run of a wrong type"),
        pytest.param({"gracePeriodSeconds": "1"}, 400, "BadRequest", id="grace period of a wrong type"),
        pytest.param({"kind": "Job", "apiVersion": "batch/v1"}, 400, "BadRequest", id="kind"),
    ],
)
async def test_invalid_delete_options_delete_nothing(api, options, code, reason):
    before = await api.job("a")
    assert await is_refused(api, await api.delete(api.jobs("a"), options), code, reason)
    assert (await api.get(api.jobs("a"))).body == before


async def is_refused(api, answer, code, reason):
    """Before Kubernetes 1.35, options that cannot be decoded are a 500 without a reason."""
    version = not_none(parse_version((await api.get("/version")).body))
    if code == 400 and version < (1, 35):
        return answer.status == 500
    return answer.is_error(code, reason)


async def test_invalid_delete_options_in_the_query_are_rejected(api):
    await api.config_map("a")
    assert (await api.delete(api.config_maps("a"), propagationPolicy="Never")).is_error(422, "Invalid")
    assert await is_refused(api, await api.delete(api.config_maps("a"), b"{"), 400, "BadRequest")


async def test_finalizer_keeps_the_deleted_object_terminating(api):
    before = await api.job("a", finalizers=KEEP)
    answer = await api.delete(api.jobs("a"), {"propagationPolicy": "Background"})
    assert answer.status == 200
    assert answer.meta["deletionTimestamp"] >= before["metadata"]["creationTimestamp"]
    assert answer.meta["deletionGracePeriodSeconds"] == 0
    assert answer.meta["generation"] == before["metadata"]["generation"] + 1
    assert answer.meta["finalizers"] == KEEP
    assert int(answer.meta["resourceVersion"]) > int(before["metadata"]["resourceVersion"])
    assert (await api.get(api.jobs("a"))).body == answer.body


async def test_second_delete_of_a_terminating_object_changes_nothing(api):
    await api.config_map("a", finalizers=KEEP)
    first = await api.delete(api.config_maps("a"))
    second = await api.delete(api.config_maps("a"))
    assert (second.status, second.body) == (200, first.body)


async def test_object_is_deleted_when_its_last_finalizer_is_removed(api):
    await api.config_map("a", finalizers=KEEP)
    await api.delete(api.config_maps("a"))
    added = await api.patch(api.config_maps("a"), {"metadata": {"finalizers": [*KEEP, "example.dev/more"]}})
    assert added.is_error(422, "Invalid")
    freed = await api.patch(api.config_maps("a"), {"metadata": {"finalizers": None}})
    assert "deletionTimestamp" in freed.meta
    assert (await api.get(api.config_maps("a"))).status == 404


async def test_job_orphans_its_dependents_by_default(api):
    await api.job("a")
    answer = await api.delete(api.jobs("a"))
    assert answer.meta["finalizers"] == ["orphan"]


@pytest.mark.parametrize(
    ("policy", "finalizers"),
    [("Foreground", [*KEEP, "foregroundDeletion"]), ("Orphan", [*KEEP, "orphan"]), ("Background", KEEP)],
)
async def test_propagation_policy_adds_a_finalizer_to_the_others(api, policy, finalizers):
    await api.config_map("a", finalizers=KEEP)
    answer = await api.delete(api.config_maps("a"), {"propagationPolicy": policy})
    assert answer.meta["finalizers"] == finalizers


@pytest.mark.parametrize("finalizer", ["orphan", "foregroundDeletion"])
async def test_background_delete_with_a_resource_version_keeps_the_collectors_finalizer(api, finalizer):
    """What a DELETE with all preconditions meets, however often it comes; every other propagation passes."""
    job = await api.job("a", finalizers=[finalizer])
    preconditions = {key: job["metadata"][key] for key in ("uid", "resourceVersion")}
    for _ in range(3):
        answer = await api.delete(api.jobs("a"), {"preconditions": preconditions, "propagationPolicy": "Background"})
        assert answer.is_error(409, "Conflict")
        assert "ResourceVersion in precondition: ," in answer.body["message"]
    assert (await api.get(api.jobs("a"))).body == job
    answer = await api.delete(api.jobs("a"), {"preconditions": preconditions, "propagationPolicy": "Foreground"})
    assert answer.status == 200


async def test_propagation_policy_is_read_from_the_query(api):
    await api.job("a")
    answer = await api.delete(api.jobs("a"), propagationPolicy="Foreground")
    assert answer.meta["finalizers"] == ["foregroundDeletion"]


async def test_finished_pod_is_deleted_at_once_and_returned(api):
    await api.pod("p")
    await api.patch(api.pods("p") + "/status", {"status": {"phase": "Succeeded"}})
    answer = await api.delete(api.pods("p"), {"propagationPolicy": "Background"})
    assert (answer.status, answer.body["kind"]) == (200, "Pod")
    assert "deletionTimestamp" in answer.meta
    assert (await api.get(api.pods("p"))).status == 404


async def test_collection_is_deleted_by_selector(api):
    for name, label in (("a", "x"), ("b", "x"), ("c", "y")):
        await api.config_map(name, labels={"group": label})
    answer = await api.delete(api.config_maps(), labelSelector="group=x")
    assert (answer.status, answer.names) == (200, ["a", "b"])
    assert "c" in (await api.get(api.config_maps())).names
    assert (await api.get(api.config_maps("a"))).status == 404
