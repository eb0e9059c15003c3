"""The object that a restore creates."""

import json
from typing import Any

import pytest

from shared.core.archive.draft import HOLD_REASON, Draft, find_dropped, make_draft, merged, reverse_of
from shared.core.deadlines.deadline import is_merged
from shared.core.kinds.rule import KindRule
from shared.core.ttl.edits import release
from shared.core.values.objects import get_annotations, get_in
from tests.builders import JOB, POD, annotated, having, job, kind_rule, kind_rules, owned_by, pod

HOLD = "ttlafterfinished.dev/hold"
WORKFLOW = kind_rule("workflows.argoproj.io")
WITH_TTL = sorted(name for name, rule in kind_rules().items() if rule.ttl)
CAN_SUSPEND = sorted(name for name, rule in kind_rules().items() if rule.create_suspended)


def draft_of(obj: dict[str, Any], rule: KindRule | None = JOB, *, stores_status: bool = False, **owners: Any) -> Draft:
    return make_draft(obj, rule, stores_status=stores_status, **owners)


def test_finished_job_would_run_again() -> None:
    draft = draft_of(job(complete="2026-01-02T03:04:05Z"))
    assert (draft.runs, draft.is_suspended) == (True, False)


def test_suspended_job_does_not_run_and_can_be_resumed() -> None:
    draft = draft_of(job(complete="2026-01-02T03:04:05Z")).suspended()
    assert draft.obj["spec"]["suspend"] is True
    assert (draft.runs, draft.is_suspended, draft.resume) == (False, True, {"spec": {"suspend": None}})


def test_job_that_was_archived_suspended_does_not_run() -> None:
    draft = draft_of(having(job(), "spec.suspend", True))
    assert (draft.runs, draft.is_suspended, draft.resume) == (False, True, {"spec": {"suspend": None}})


def test_resume_restores_the_value_before_the_suspension() -> None:
    run = kind_rule("pipelineruns.tekton.dev")
    obj = {"apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "metadata": {}, "spec": {"status": "Other"}}
    assert draft_of(obj, run).suspended().resume == {"spec": {"status": "Other"}}


@pytest.mark.parametrize("name", CAN_SUSPEND)
def test_kinds_that_can_be_suspended_have_their_patch(name: str) -> None:
    rule = kind_rule(name)
    obj = {"apiVersion": rule.api_version, "kind": rule.kind, "metadata": {"name": "a"}, "spec": {}}
    draft = draft_of(obj, rule)
    assert draft.runs
    suspended = draft.suspended()
    assert is_merged(suspended.obj, rule.create_suspended or {})
    assert merged(suspended.obj, suspended.resume)["metadata"] in ({"name": "a"}, {"name": "a", "annotations": {}})


def test_status_that_is_stored_keeps_the_object_finished() -> None:
    metadata = {"labels": {"workflows.argoproj.io/completed": "true"}}
    status = {"phase": "Failed"}
    obj = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": metadata, "status": status}
    draft = draft_of(obj, WORKFLOW, stores_status=True)
    assert draft.obj["status"] == {"phase": "Failed"}
    assert not draft.runs
    assert draft_of(obj, WORKFLOW).runs


def test_secret_runs_nothing() -> None:
    assert not draft_of({"apiVersion": "v1", "kind": "Secret", "metadata": {}}, None).runs


def test_kind_without_a_rule_would_run() -> None:
    assert draft_of({"apiVersion": "example.com/v1", "kind": "Render", "metadata": {}}, None).runs


def test_hold_saves_the_field_of_the_own_controller() -> None:
    draft = draft_of(job(ttl=60)).held()
    assert get_annotations(draft.obj)["hold"] == HOLD_REASON
    assert json.loads(get_annotations(draft.obj)["held-ttl"]) == {"spec.ttlSecondsAfterFinished": 60}
    assert "ttlSecondsAfterFinished" not in draft.obj["spec"]
    assert len(draft.notes) == 1


@pytest.mark.parametrize("name", WITH_TTL)
def test_hold_removes_each_ttl_field_of_the_kind(name: str) -> None:
    rule = kind_rule(name)
    paths = [one.path for one in rule.ttl.fields] if rule.ttl else []
    obj: dict[str, Any] = {"apiVersion": rule.api_version, "kind": rule.kind, "metadata": {"name": "a"}, "spec": {}}
    for path in paths:
        obj = having(obj, path, 60)
    draft = draft_of(obj, rule, stores_status=True).held()
    assert {path: get_in(draft.obj, path) for path in paths} == dict.fromkeys(paths)
    assert [note.partition(":")[0] for note in draft.notes] == paths
    edit = release(draft.obj, rule)
    assert edit is not None
    assert edit.fields == dict.fromkeys(paths, 60)


def test_object_that_was_held_when_it_was_archived_loses_its_ttl_field_too() -> None:
    draft = draft_of(job(hold="mine", ttl=60)).held()
    assert get_annotations(draft.obj)["hold"] == "mine"
    assert "ttlSecondsAfterFinished" not in draft.obj["spec"]


def test_saved_ttl_that_cannot_be_read_is_left_out() -> None:
    draft = draft_of(job(ttl=60, held_ttl="no JSON")).held()
    assert get_annotations(draft.obj)["hold"] == HOLD_REASON
    assert json.loads(get_annotations(draft.obj)["held-ttl"]) == {"spec.ttlSecondsAfterFinished": 60}
    assert len(draft.notes) == 2


def test_hold_of_the_archived_object_stays() -> None:
    draft = draft_of(job(hold="mine")).held()
    assert get_annotations(draft.obj) == {"hold": "mine"}


def test_object_that_is_deleted_is_held_as_a_new_one() -> None:
    draft = draft_of(having(job(), "metadata.deletionTimestamp", "2026-01-02T03:04:05Z")).held()
    assert get_annotations(draft.obj)["hold"] == HOLD_REASON


def test_kind_that_never_finishes_gets_no_hold() -> None:
    rule = kind_rule("deployments.apps")
    obj = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {}}
    assert draft_of(obj, rule).held().obj == obj


def test_lost_owner_is_left_out_with_a_note_and_others_stay() -> None:
    obj = owned_by(job(), "CronJob")
    obj["metadata"]["ownerReferences"].append({"kind": "Other", "name": "kept", "uid": "2"})
    draft = draft_of(obj, lost_owners={"owner-uid"})
    assert draft.obj["metadata"]["ownerReferences"] == [{"kind": "Other", "name": "kept", "uid": "2"}]
    (note,) = draft.notes
    assert note.startswith("its owner CronJob owner, uid owner-uid, no longer exists or is being deleted: ")
    assert "ownerReferences" not in draft_of(owned_by(job(), "X"), lost_owners={"owner-uid"}).obj["metadata"]


def test_mark_of_a_stop_is_left_out() -> None:
    draft = draft_of(job(deadline_exceeded="2026-01-02T03:04:05Z", stops="1", ttl_failed="1h"))
    assert get_annotations(draft.obj) == {"ttl-failed": "1h"}
    assert len(draft.notes) == 1


STOPS = [(rule, stop.patch) for rule in kind_rules().values() if rule.deadline for stop in rule.deadline.patches]


@pytest.mark.parametrize(("rule", "patch"), STOPS, ids=lambda one: getattr(one, "name", ""))
def test_restored_object_is_not_stopped_again_by_what_stopped_the_archived_one(rule, patch) -> None:
    """A Job fails one second after its start, and a PipelineRun is cancelled, unless the field is left out."""
    metadata = {"name": "a", "namespace": "ci", "uid": "1"}
    obj = merged({"apiVersion": rule.api_version, "kind": rule.kind, "metadata": metadata, "spec": {"a": "b"}}, patch)
    stopped = annotated(obj, deadline_exceeded="2026-01-02T03:04:05Z")
    suspends = is_merged(rule.create_suspended, patch)
    restored = make_draft(stopped, rule, stores_status=True)
    assert (is_merged(restored.obj, patch), restored.is_suspended) == (suspends, suspends)
    by_a_client = make_draft(obj, rule, stores_status=True)
    assert is_merged(by_a_client.obj, patch)
    for draft in (restored, by_a_client) if rule.create_suspended else ():
        suspended = draft if draft.is_suspended else draft.suspended()
        assert not is_merged(suspended.resume, patch)


def test_annotations_of_tekton_results_are_left_out_with_a_note() -> None:
    """They say that the archived run is stored, and in which record; the new run is not."""
    annotations = {"results.tekton.dev/stored": "true", "results.tekton.dev/record": "ci/results/1", "team": "a"}
    run = {"apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "metadata": {"name": "r", "annotations": annotations}}
    draft = draft_of(run, kind_rule("pipelineruns.tekton.dev"))
    assert draft.obj["metadata"]["annotations"] == {"team": "a"}
    (note,) = draft.notes
    assert "results.tekton.dev/record, results.tekton.dev/stored" in note


def test_annotations_of_tekton_chains_are_left_out_but_for_what_a_person_asked() -> None:
    """Chains signs no run that has them."""
    asked = {"chains.tekton.dev/transparency-upload": "true"}
    annotations = {"chains.tekton.dev/signed": "true", "chains.tekton.dev/signature-pipelinerun-u": "eA==", **asked}
    run = {"apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "metadata": {"name": "r", "annotations": annotations}}
    draft = draft_of(run, kind_rule("pipelineruns.tekton.dev"))
    assert draft.obj["metadata"]["annotations"] == asked
    (note,) = draft.notes
    assert "as Tekton Chains has not signed the new object: chains.tekton.dev/signature-pipelinerun-u, chains" in note


QUEUE, PREBUILT = "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/prebuilt-workload-name"
PAC = "pipelinesascode.tekton.dev/state"
RESUMING = [
    ("labels", {QUEUE: "team-a", "app": "shop"}, {QUEUE}),
    ("annotations", {QUEUE: "team-a"}, {QUEUE}),
    ("annotations", {"kueue.x-k8s.io/parent-workload": "w"}, {"kueue.x-k8s.io/parent-workload"}),
    ("labels", {QUEUE: "team-a", PREBUILT: "w", "kueue.x-k8s.io/multikueue-origin": "hub"}, {QUEUE, PREBUILT}),
    ("labels", {PAC: "queued"}, {PAC}),
    ("annotations", {PAC: "queued"}, {PAC}),
    ("annotations", {PAC: "completed"}, set()),
    ("labels", {"kueue.x-k8s.io/priority-class": "high", QUEUE: ""}, set()),
]
"""What a controller starts although it is suspended: the metadata, and the names that are left out."""


@pytest.mark.parametrize(("place", "values", "left_out"), RESUMING)
def test_suspended_object_has_no_mark_by_which_a_controller_starts_it(
    place: str, values: dict[str, str], left_out: set[str]
) -> None:
    draft = draft_of(having(job(), f"metadata.{place}", values)).suspended()
    left = draft.obj["metadata"].get(place, {})
    assert {key for key in values if key not in left} == left_out
    noted = {key for key in values for note in draft.notes if f" {key}={values[key]} is left out" in note}
    assert noted == left_out
    assert draft.queue == (values[QUEUE] if QUEUE in left_out else "")


@pytest.mark.parametrize("name", CAN_SUSPEND)
def test_suspended_object_of_each_kind_has_no_queue(name: str) -> None:
    rule = kind_rule(name)
    metadata = {"name": "a", "labels": {QUEUE: "team-a", "app": "shop"}}
    obj = {"apiVersion": rule.api_version, "kind": rule.kind, "metadata": metadata, "spec": {}}
    draft = draft_of(obj, rule).suspended()
    assert (draft.obj["metadata"]["labels"], draft.queue) == ({"app": "shop"}, "team-a")


def test_object_that_runs_again_keeps_its_queue() -> None:
    draft = draft_of(having(job(), "metadata.labels", {QUEUE: "team-a"}))
    assert (draft.obj["metadata"]["labels"], draft.queue) == ({QUEUE: "team-a"}, "")


def test_object_that_was_archived_suspended_loses_its_queue() -> None:
    draft = draft_of(having(having(job(), "spec.suspend", True), "metadata.labels", {QUEUE: "team-a"}))
    assert (draft.is_suspended, draft.queue) == (True, "team-a")
    assert "labels" not in draft.obj["metadata"]


def test_pod_loses_the_finalizer_that_only_kueue_removes() -> None:
    obj = having(pod(), "metadata.labels", {QUEUE: "a", "kueue.x-k8s.io/managed": "true"})
    obj = having(obj, "metadata.finalizers", ["kueue.x-k8s.io/managed", "example.com/mine"])
    metadata = draft_of(obj, POD).suspended().obj["metadata"]
    assert "labels" not in metadata
    assert metadata["finalizers"] == ["example.com/mine"]


@pytest.mark.parametrize(
    ("place", "values", "name"),
    [
        ("annotations", {"argocd.argoproj.io/hook": "Sync", "argocd.argoproj.io/tracking-id": "x"}, "Argo CD"),
        ("labels", {"kustomize.toolkit.fluxcd.io/name": "apps"}, "Flux"),
        ("labels", {"karmada.io/managed": "true"}, "Karmada"),
    ],
)
def test_controller_that_applies_a_manifest_is_a_note(place: str, values: dict[str, str], name: str) -> None:
    draft = draft_of(having(job(), f"metadata.{place}", values)).suspended()
    assert draft.obj["metadata"][place] == values
    (note,) = draft.notes
    assert note.startswith(f"{name} manages it, by ")


@pytest.mark.parametrize("place", ["labels", "annotations", "finalizers"])
@pytest.mark.parametrize("values", ["text", 1, [1, {}], [QUEUE], {QUEUE: 1}])
def test_metadata_of_any_form_has_marks_or_none(place: str, values: Any) -> None:
    assert draft_of(having(job(), f"metadata.{place}", values)).suspended().obj["metadata"][place] == values


def test_ephemeral_containers_are_left_out_with_a_note() -> None:
    draft = draft_of(having(pod(), "spec.ephemeralContainers", [{"name": "debug"}]), POD)
    assert "ephemeralContainers" not in draft.obj["spec"]
    assert len(draft.notes) == 1


def test_merge_patch_is_that_of_rfc_7396() -> None:
    assert merged({"a": "b", "c": {"d": "e", "f": "g"}}, {"a": "z", "c": {"f": None}}) == {"a": "z", "c": {"d": "e"}}
    assert merged({"a": ["b"]}, {"a": {"b": 1}}) == {"a": {"b": 1}}
    assert merged("text", {"a": 1}) == {"a": 1}


def test_reverse_undoes_only_what_the_patch_changes() -> None:
    patch = {"spec": {"suspend": True, "shutdown": True}}
    assert reverse_of(patch, {"spec": {"shutdown": True}}) == {"spec": {"suspend": None}}


def test_dropped_fields_have_their_paths() -> None:
    sent = {"spec": {"a": 1, "b": {"c": 2}, "list": [{"x": 1, "y": 2}], "empty": {}, "null": None}}
    stored = {"spec": {"a": 1, "b": {}, "list": [{"x": 1}]}, "status": {}}
    assert find_dropped(sent, stored) == ["spec.b.c", "spec.list[0].y"]
