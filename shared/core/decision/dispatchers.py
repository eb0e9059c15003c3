"""Detect objects that another cluster sent to this cluster, and whose result it still has to read.

A dispatcher creates a copy of an object on this cluster, watches the status of the copy, and deletes the copy itself.
If the copy is deleted before the dispatcher has read its result, the work is run again or reported as lost. The copy
has the annotations of the original, so no annotation on it is about this cluster: only a policy rule can allow the
DELETE.
"""

from dataclasses import dataclass
from typing import Any

from shared.core.values.objects import get_in, list_mappings


@dataclass(frozen=True, slots=True)
class Dispatcher:
    """A system that sends objects to this cluster.

    Attributes:
        name: Its name.
        does: What it does if the object is deleted before its result was read.
        label: The label that it sets on the object.
        value: The label's value; empty for any value.
        owner: The kind and group of an owner that it creates on this cluster, such as `Work.example.com`.
    """

    name: str
    does: str
    label: str = ""
    value: str = ""
    owner: str = ""


DISPATCHERS = (
    # kubernetes-sigs/kueue pkg/controller/jobframework/utils.go (SetMultiKueueMeta),
    # pkg/controller/admissionchecks/multikueue/workload.go, and the adapters of LeaderWorkerSet and StatefulSet.
    Dispatcher("MultiKueue", "runs it again", label="kueue.x-k8s.io/multikueue-origin"),
    # karmada-io/karmada pkg/controllers/ctrlutil/work.go, pkg/controllers/execution/execution_controller.go.
    Dispatcher("Karmada", "creates it again when it syncs the Work", label="karmada.io/managed", value="true"),
    # armadaproject/armada internal/executor/util/kubernetes_object.go, internal/executor/service/pod_issue_handler.go.
    Dispatcher("Armada", "reports the job as failed", label="armada_job_id"),
    # liqotech/liqo pkg/virtualKubelet/forge/meta.go,
    # pkg/liqo-controller-manager/offloading/shadowpod-controller/shadowpod_controller.go.
    Dispatcher("Liqo", "creates it again from its ShadowPod", label="offloading.liqo.io/origin"),
    # admiraltyio/admiralty pkg/controller/controller.go, pkg/controllers/chaperon/controller.go.
    Dispatcher("Admiralty", "creates it again from its PodChaperon", label="multicluster.admiralty.io/parent-uid"),
    # open-cluster-management-io/ocm, its work agent: NewAppliedManifestWorkOwner in helpers.go.
    Dispatcher(
        "Open Cluster Management",
        "creates it again when it applies the ManifestWork",
        owner="AppliedManifestWork.work.open-cluster-management.io",
    ),
)
"""The known dispatchers; their labels and owners were found in their source code."""

_BY_LABEL = {one.label: one for one in DISPATCHERS if one.label}
_BY_OWNER = {one.owner: one for one in DISPATCHERS if one.owner}


def find_dispatcher(obj: Any) -> Dispatcher | None:
    """The dispatcher that sent the object to this cluster, by its labels and owners; None for other objects. Total."""
    labels = get_in(obj, "metadata.labels")
    if isinstance(labels, dict):
        for label, dispatcher in _BY_LABEL.items():
            if label in labels and dispatcher.value in ("", labels[label]):
                return dispatcher
    for owner in list_mappings(obj, "metadata.ownerReferences"):
        group = str(owner.get("apiVersion", "")).rpartition("/")[0]
        if (found := _BY_OWNER.get(f"{owner.get('kind')}.{group}")) is not None:
            return found
    return None
