"""The fields of an object that the API server, the scheduler or a controller sets, and a new object does not need.

`archive restore` creates an object without them, and `archive diff` compares two objects without them.

An admission plugin computes some fields again, and refuses a Pod that has another value than the computed one:

| field of a Pod | computed by | left out |
| --- | --- | --- |
| `priority`, `preemptionPolicy` | Priority, from the PriorityClass as it is now | yes |
| `overhead` | RuntimeClass, from the RuntimeClass as it is now | yes |
| the volume with the token of the service account | ServiceAccount; a legacy token is a Secret that may be gone | yes |
| `tolerations` of not-ready and unreachable | DefaultTolerationSeconds, only if absent | no: any are accepted |
| `nodeName` | the scheduler | yes |

Velero leaves out `nodeName`, `priority` and the volume of a legacy token too, and of a claim the same marks of its
binding. It also removes all finalizers and owners, which a restore keeps if their controller or owner exists.

Sources: kubernetes/kubernetes plugin/pkg/admission/priority, runtimeclass, serviceaccount, defaulttolerationseconds;
vmware-tanzu/velero pkg/restore/actions (pod_action.go, pvc_action.go).

By marks in its metadata, a controller would start an object that is created suspended:

| controller | what it does to a suspended object | in a restored object |
| --- | --- | --- |
| Kueue | starts it once its queue admits it; the label may come from an admission webhook | the marks are left out |
| MultiKueue | as Kueue, by a Workload that another cluster made | the marks are left out |
| Tekton's integration of Kueue | starts a pending PipelineRun, by the label of Kueue | the marks are left out |
| Pipelines as Code | starts a pending PipelineRun in the state `queued`, in no other | the state is left out |
| Volcano | removes only its own scheduling gate of a Pod; its Job cannot be created suspended | nothing |
| Argo CD, Flux | apply their manifest, or delete the object | a note |
| dispatchers, such as Karmada | apply the manifest of another cluster | a note |

The API server binds no Pod that has a scheduling gate, so no scheduler starts a Pod with the gate of a restore.

Sources: kubernetes-sigs/kueue pkg/controller/jobframework (reconciler.go, defaults.go) and pkg/controller/constants;
openshift-pipelines/pipelines-as-code pkg/reconciler/reconciler.go; the design of the queue allocation gate of
volcano-sh/volcano; `assignPod` in kubernetes/kubernetes pkg/registry/core/pod/storage/storage.go.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from shared.core.decision.makers import find_dispatcher
from shared.core.values.objects import get_in, get_text, list_mappings

METADATA = (
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "generation",
    "managedFields",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "selfLink",
)
"""The fields of the metadata that the API server sets."""

FINALIZERS = ("foregroundDeletion", "orphan", "batch.kubernetes.io/job-tracking")
"""Finalizers of Kubernetes itself: they are about one deletion, or about the Pods of one Job."""

JOB_LABELS = ("controller-uid", "batch.kubernetes.io/controller-uid")
"""Labels with the uid of a Job: the API server generates them, together with the Job's selector."""

TOKEN_VOLUME = "kube-api-access-"  # noqa: S105 - the prefix of a name
"""The prefix of the volume with the token of a service account, which an admission plugin adds to each Pod."""

POD_FIELDS = ("nodeName", "ephemeralContainers", "priority", "preemptionPolicy", "overhead")
"""Fields of the spec of a Pod that the scheduler or an admission plugin sets, or that a new Pod cannot have."""

BOUND = "pv.kubernetes.io/bound-by-controller"
"""The annotation of a claim whose volume Kubernetes chose; without it, a person wrote `volumeName`."""

CLAIM_ANNOTATIONS = (
    "pv.kubernetes.io/bind-completed",
    BOUND,
    "volume.kubernetes.io/selected-node",
    "volume.kubernetes.io/storage-provisioner",
    "volume.beta.kubernetes.io/storage-provisioner",
)
"""Annotations about the binding of one claim: with them and without its volume, a new claim counts as lost."""

_CONTAINERS = ("initContainers", "containers", "ephemeralContainers")


def without_server_fields(obj: dict[str, Any], *, with_status: bool = False) -> dict[str, Any]:
    """The object without what the API server and the controllers of Kubernetes set; the argument is not changed.

    Args:
        obj: The object.
        with_status: Whether the status stays.
    """
    kept = {key: value for key, value in obj.items() if with_status or key != "status"}
    metadata = obj.get("metadata")
    if isinstance(metadata, dict):
        kept["metadata"] = _without(metadata, METADATA)
        _drop_listed(kept["metadata"], "finalizers", FINALIZERS)
    match obj.get("apiVersion"), obj.get("kind"):
        case "batch/v1", "Job":
            return _without_job_fields(kept)
        case "v1", "Pod":
            return _without_pod_fields(kept)
        case "v1", "PersistentVolumeClaim":
            return _without_binding(kept)
    return kept


def _without_job_fields(job: dict[str, Any]) -> dict[str, Any]:
    """A Job without its generated selector and without the labels of that selector.

    A Job with `manualSelector` keeps its selector, because the person who created the Job wrote it.
    """
    spec = job.get("spec")
    if not isinstance(spec, dict) or spec.get("manualSelector") is True:
        return job
    spec = _without(spec, ("selector",))
    template = spec.get("template")
    if isinstance(template, dict):
        spec["template"] = _without_labels(template)
    return {**_without_labels(job), "spec": spec}


def _without_labels(part: dict[str, Any]) -> dict[str, Any]:
    labels = get_in(part, "metadata.labels")
    if not isinstance(labels, dict):
        return part
    return {**part, "metadata": {**part["metadata"], "labels": _without(labels, JOB_LABELS)}}


def _without_pod_fields(pod: dict[str, Any]) -> dict[str, Any]:
    """A Pod without `POD_FIELDS`, and without the volume of its token."""
    pod, spec = _without_labels(pod), pod.get("spec")
    if not isinstance(spec, dict):
        return pod
    spec = _without(spec, POD_FIELDS)
    tokens = {name for name in _named(spec.get("volumes")) if name.startswith(TOKEN_VOLUME)} | _legacy_tokens(spec)
    if not tokens:
        return {**pod, "spec": spec}
    _drop_named(spec, "volumes", tokens)
    for key in _CONTAINERS:
        if isinstance(spec.get(key), list):
            spec[key] = [_without_mount(one, tokens) if isinstance(one, dict) else one for one in spec[key]]
    return {**pod, "spec": spec}


def _legacy_tokens(spec: dict[str, Any]) -> set[str]:
    """The names of the volumes with a token that is a Secret, as Kubernetes added them before 1.22."""
    prefix = f"{spec.get('serviceAccountName') or 'default'}-token-"
    volumes = list_mappings({"volumes": spec.get("volumes")}, "volumes")
    return {
        name
        for one in volumes
        if (name := get_text(one, "name")).startswith(prefix) and get_text(one, "secret.secretName").startswith(prefix)
    }


def _without_binding(claim: dict[str, Any]) -> dict[str, Any]:
    """A claim without the marks of its binding, and without the volume that Kubernetes chose."""
    annotations, spec = get_in(claim, "metadata.annotations"), claim.get("spec")
    if not isinstance(annotations, dict):
        return claim
    metadata = dict(claim["metadata"])
    _put(metadata, "annotations", _without(annotations, CLAIM_ANNOTATIONS))
    if BOUND in annotations and isinstance(spec, dict):
        claim = {**claim, "spec": _without(spec, ("volumeName",))}
    return {**claim, "metadata": metadata}


def _without_mount(container: dict[str, Any], tokens: set[str]) -> dict[str, Any]:
    container = dict(container)
    _drop_named(container, "volumeMounts", tokens)
    return container


def _named(values: Any) -> list[str]:
    """The names of the mappings in a list."""
    if not isinstance(values, list):
        return []
    return [name for one in values if isinstance(one, dict) and isinstance(name := one.get("name"), str)]


def _drop_named(parent: dict[str, Any], key: str, names: set[str]) -> None:
    """Remove the elements with these names from a list, and the list if none is left."""
    values = parent.get(key)
    if isinstance(values, list):
        _put(parent, key, [one for one in values if not (isinstance(one, dict) and one.get("name") in names)])


def _drop_listed(parent: dict[str, Any], key: str, words: tuple[str, ...]) -> None:
    values = parent.get(key)
    if isinstance(values, list):
        _put(parent, key, [one for one in values if one not in words])


def _put(parent: dict[str, Any], key: str, values: list[Any] | dict[str, Any]) -> None:
    if values:
        parent[key] = values
    else:
        parent.pop(key)


def _without(mapping: dict[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    return {key: value for key, value in mapping.items() if key not in keys}


QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
"""The label with the LocalQueue of an object."""


@dataclass(frozen=True, slots=True)
class ControllerMark:
    """A part of the metadata by which a controller knows its objects.

    Attributes:
        controller: The name of the controller.
        place: Where in the metadata the mark is.
        name: The name of the label, the annotation or the finalizer.
        value: The value; in a table, empty for any value.
    """

    controller: str
    place: Literal["labels", "annotations", "finalizers"]
    name: str
    value: str = ""

    def __str__(self) -> str:
        """The mark as a message names it: `label a.example/b=c`."""
        return f"{self.place.removesuffix('s')} {self.name}{'=' if self.value else ''}{self.value}"


_RESUMING = (
    ControllerMark("Kueue", "labels", QUEUE_LABEL),
    # The name of the queue before the label: Kueue reads it if the label is absent.
    ControllerMark("Kueue", "annotations", QUEUE_LABEL),
    # The Workload that MultiKueue made; its own queue admits it.
    ControllerMark("Kueue", "labels", "kueue.x-k8s.io/prebuilt-workload-name"),
    # Versions before 0.8 suspend and resume a Job as the Workload of its parent is admitted.
    ControllerMark("Kueue", "annotations", "kueue.x-k8s.io/parent-workload"),
    # On Pods. Kueue removes the finalizer only of Pods with the label.
    ControllerMark("Kueue", "labels", "kueue.x-k8s.io/managed", "true"),
    ControllerMark("Kueue", "finalizers", "kueue.x-k8s.io/managed"),
    ControllerMark("Pipelines as Code", "labels", "pipelinesascode.tekton.dev/state", "queued"),
    ControllerMark("Pipelines as Code", "annotations", "pipelinesascode.tekton.dev/state", "queued"),
)

_APPLYING = (
    ControllerMark("Argo CD", "annotations", "argocd.argoproj.io/tracking-id"),
    ControllerMark("Argo CD", "annotations", "argocd.argoproj.io/hook"),
    ControllerMark("Argo CD", "labels", "argocd.argoproj.io/instance"),
    ControllerMark("Flux", "labels", "kustomize.toolkit.fluxcd.io/name"),
    ControllerMark("Flux", "labels", "helm.toolkit.fluxcd.io/name"),
)


def find_resuming(obj: Any) -> list[ControllerMark]:
    """The marks by which a controller starts an object although it is suspended, with their values. Total."""
    return list(_find(obj, _RESUMING))


def find_applying(obj: Any) -> list[str]:
    """The controllers that may apply a manifest of their own to an object, in sentences. Total."""
    found = {mark.controller: str(mark) for mark in reversed(list(_find(obj, _APPLYING)))}
    if dispatcher := find_dispatcher(obj):
        found[dispatcher.name] = "its label or its owner"
    return [
        f"{name} manages it, by {mark}: when {name} syncs, it may let the object run, or delete it"
        for name, mark in found.items()
    ]


def without_marks(obj: dict[str, Any], marks: Iterable[ControllerMark]) -> dict[str, Any]:
    """The object without marks that it has; the argument is not changed."""
    metadata = dict(obj["metadata"])
    for mark in marks:
        values = metadata[mark.place]
        left: Any
        if isinstance(values, dict):
            left = {name: value for name, value in values.items() if name != mark.name}
        else:
            left = [name for name in values if name != mark.name]
        metadata[mark.place] = left
        if not left:
            del metadata[mark.place]
    return {**obj, "metadata": metadata}


def _find(obj: Any, table: Iterable[ControllerMark]) -> Iterator[ControllerMark]:
    for mark in table:
        values = get_in(obj, f"metadata.{mark.place}")
        if isinstance(values, list) and mark.place == "finalizers":
            if mark.name in values:
                yield mark
        elif isinstance(values, dict) and mark.place != "finalizers":
            value = values.get(mark.name)
            if isinstance(value, str) and value and mark.value in ("", value):
                yield ControllerMark(mark.controller, mark.place, mark.name, value)
