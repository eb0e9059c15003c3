"""Find which controllers would start an object that is created suspended, by the marks in its metadata; pure.

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
from shared.core.values.objects import get_in

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
