"""The fields that a restore and a diff leave out."""

from typing import Any

from shared.core.archive.server_fields import without_server_fields
from tests.builders import copied, having, job, pod

UID_LABELS = {"batch.kubernetes.io/controller-uid": "u", "controller-uid": "u"}
JOB_LABELS = {**UID_LABELS, "batch.kubernetes.io/job-name": "build-42", "job-name": "build-42"}


def of_server(obj: dict[str, Any]) -> dict[str, Any]:
    obj = having(obj, "metadata.managedFields", [{"manager": "kubectl"}])
    obj = having(obj, "metadata.generation", 2)
    obj = having(obj, "metadata.selfLink", "/apis/x")
    return having(obj, "metadata.deletionTimestamp", "2026-01-02T03:04:05Z")


def test_metadata_of_the_server_and_the_status_are_left_out() -> None:
    before = of_server(job(complete="2026-01-02T03:04:05Z", name="a", ttl=60))
    unchanged = copied(before)

    after = without_server_fields(before)

    assert before == unchanged
    assert after == {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "a", "namespace": "ci"},
        "spec": before["spec"],
    }


def test_status_stays_if_asked() -> None:
    before = job(complete="2026-01-02T03:04:05Z")
    assert without_server_fields(before, with_status=True)["status"] == before["status"]


def test_generated_selector_of_a_job_is_left_out_with_its_labels() -> None:
    before = having(job(), "metadata.labels", {**JOB_LABELS, "app": "shop"})
    before = having(before, "spec.template", {"metadata": {"labels": JOB_LABELS}, "spec": {}})
    before = having(before, "spec.selector", {"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}})

    after = without_server_fields(before)

    names = {"batch.kubernetes.io/job-name": "build-42", "job-name": "build-42"}
    assert after["metadata"]["labels"] == {**names, "app": "shop"}
    assert after["spec"]["template"]["metadata"]["labels"] == names
    assert "selector" not in after["spec"]


def test_selector_that_a_person_wrote_stays() -> None:
    before = having(job(), "spec.manualSelector", True)
    before = having(before, "spec.selector", {"matchLabels": {"app": "shop"}})
    assert without_server_fields(before)["spec"]["selector"] == {"matchLabels": {"app": "shop"}}


def test_pod_loses_its_node_and_its_token() -> None:
    token = {"name": "kube-api-access-x2x4k", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}
    before = having(pod(), "spec.nodeName", "node-1")
    before = having(before, "spec.volumes", [{"name": "data"}, {"name": "kube-api-access-x2x4k", "projected": {}}])
    before = having(before, "spec.containers", [{"name": "main", "volumeMounts": [{"name": "data"}, token]}])
    before = having(before, "spec.initContainers", [{"name": "first", "volumeMounts": [token]}])

    spec = without_server_fields(before)["spec"]

    assert "nodeName" not in spec
    assert spec["volumes"] == [{"name": "data"}]
    assert spec["containers"] == [{"name": "main", "volumeMounts": [{"name": "data"}]}]
    assert spec["initContainers"] == [{"name": "first"}]


def test_pod_of_a_job_keeps_no_label_by_which_another_job_adopts_it() -> None:
    before = having(pod(), "metadata.labels", JOB_LABELS)
    assert not UID_LABELS.keys() & without_server_fields(before)["metadata"]["labels"].keys()


def test_finalizers_of_kubernetes_are_left_out_and_others_stay() -> None:
    before = having(pod(), "metadata.finalizers", ["batch.kubernetes.io/job-tracking", "example.com/data"])
    assert without_server_fields(before)["metadata"]["finalizers"] == ["example.com/data"]
    before = having(pod(), "metadata.finalizers", ["foregroundDeletion"])
    assert "finalizers" not in without_server_fields(before)["metadata"]


def test_malformed_objects_are_no_error() -> None:
    for path, value in (
        ("spec", None),
        ("spec.template", "x"),
        ("metadata.labels", 3),
        ("spec.volumes", {}),
        ("metadata", "x"),
        ("spec.containers", [3, None]),
        ("metadata.finalizers", "x"),
    ):
        for obj in (job(), pod()):
            assert isinstance(without_server_fields(having(obj, path, value)), dict)


def test_pod_loses_what_admission_plugins_compute_again() -> None:
    before = having(pod(), "spec.priorityClassName", "high")
    for name, value in {"priority": 1000, "preemptionPolicy": "Never", "overhead": {"cpu": "250m"}}.items():
        before = having(before, f"spec.{name}", value)
    computed = having(before, "spec.tolerations", [{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}])

    after = without_server_fields(computed)

    left = {"priorityClassName", "tolerations"}
    assert set(after["spec"]) - set(without_server_fields(pod())["spec"]) == left


def test_pod_loses_the_secret_of_a_legacy_token_and_no_other_volume() -> None:
    legacy = {"name": "builder-token-x2x4k", "secret": {"secretName": "builder-token-x2x4k"}}
    own = [
        {"name": "builder-token-cache", "emptyDir": {}},
        {"name": "tokens", "secret": {"secretName": "builder-token-a"}},
    ]
    mounts = [{"name": one["name"], "mountPath": f"/{one['name']}"} for one in (legacy, *own)]
    before = having(pod(), "spec.serviceAccountName", "builder")
    before = having(before, "spec.volumes", [legacy, *own])
    before = having(before, "spec.containers", [{"name": "c", "volumeMounts": mounts}])

    spec = without_server_fields(before)["spec"]

    assert spec["volumes"] == own
    assert spec["containers"] == [{"name": "c", "volumeMounts": mounts[1:]}]


def claim(annotations: dict[str, str]) -> dict[str, Any]:
    metadata = {"name": "data", "annotations": annotations}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": {"volumeName": "pv-1"}}


def test_claim_loses_the_volume_that_kubernetes_chose() -> None:
    binding = {"pv.kubernetes.io/bind-completed": "yes", "pv.kubernetes.io/bound-by-controller": "yes"}
    after = without_server_fields(claim(binding))
    assert (after["metadata"], after["spec"]) == ({"name": "data"}, {})


def test_claim_keeps_the_volume_that_a_person_chose() -> None:
    after = without_server_fields(claim({"pv.kubernetes.io/bind-completed": "yes", "team": "a"}))
    assert (after["metadata"]["annotations"], after["spec"]) == ({"team": "a"}, {"volumeName": "pv-1"})
