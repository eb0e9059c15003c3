"""Find what made an object and would make it again: a controller that applies it, or another cluster that sent it.

If a policy deletes such an object, its work is done again after each deletion: a Job that migrates a database runs
every hour. So a TTL that comes from a policy or a namespace does not delete it.

A mark of an object can only keep it. A mark may be a copy: Tekton copies the labels and annotations of a Pipeline to
its PipelineRuns. So an annotation that names another object does not count, and a label counts only if the controller
is among the field managers of the object, or if the object has no `managedFields`.

A dispatcher creates a copy of an object on this cluster, watches the status of the copy, and deletes the copy itself.
If the copy is deleted before the dispatcher has read its result, the work is run again or reported as lost. The copy
has the annotations of the original, so no annotation on it is about this cluster: only a policy rule can allow the
DELETE.

`explain` also lists the other tools that delete or keep an object of any kind. No decision depends on these. Kind rules
list the cleaners and finalizers of one kind.
"""

import json
import re
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

from shared.core.kinds.predicates import Predicate, UnknownShapeError, holds
from shared.core.kinds.rule import Cleaner, KindRule
from shared.core.ttl.ttl import InvalidTtlError, is_left_to_controller, native_ttl
from shared.core.values.objects import get_controller, get_in, get_text, list_mappings


@dataclass(frozen=True, slots=True)
class Applier:
    """A controller that applies objects.

    Attributes:
        name: Its name.
        does: What it does if the object is deleted.
        managers: The field managers under which it writes.
        label: A label that it sets; empty if none identifies its objects.
        annotation: An annotation that it sets; empty if none identifies its objects.
        named: What matches the kind and the name of the object in that annotation; empty if it names no object.
        hooks: The annotations of hooks: these it runs at certain times, and does not create again.
    """

    name: str
    does: str
    managers: tuple[str, ...] = ()
    label: str = ""
    annotation: str = ""
    named: str = ""
    hooks: tuple[str, ...] = ()


_HELM_HOOK = "helm.sh/hook"

_NO_HOOKS = ("crd-install",)
"""Values with which an object is applied as any other: gitops-engine pkg/sync/hook/helm."""

APPLIERS = (
    # argoproj/argo-cd common/common.go (the annotation, the label, ArgoCDSSAManager), util/argo/resource_tracking.go,
    # gitops-engine pkg/sync/hook. Its other label, app.kubernetes.io/instance, is set by Helm and others, too.
    Applier(
        "Argo CD",
        "creates it again if its Application has selfHeal, else at the next sync, and prunes it once it is no longer "
        "in Git",
        managers=("argocd-controller", "argocd-application-controller"),
        label="argocd.argoproj.io/instance",
        annotation="argocd.argoproj.io/tracking-id",
        named=r"[^:]+:[^/:]*/([^:]+):[^/]*/(.+)",
        hooks=("argocd.argoproj.io/hook", _HELM_HOOK),
    ),
    # fluxcd/kustomize-controller internal/controller/kustomization_controller.go; fluxcd/pkg ssa/manager.go.
    Applier(
        "Flux",
        "creates it again at its Kustomization's next interval, and prunes it once it is no longer in the source",
        managers=("kustomize-controller",),
        label="kustomize.toolkit.fluxcd.io/name",
    ),
    # fluxcd/helm-controller internal/postrender/build.go, internal/reconcile/correct_cluster_drift.go.
    Applier(
        "Flux's Helm releases",
        "owns it by a HelmRelease, which creates it again if it detects drift, or at the next upgrade",
        managers=("helm-controller",),
        label="helm.toolkit.fluxcd.io/name",
        hooks=(_HELM_HOOK,),
    ),
    # GoogleContainerTools/kpt-config-sync pkg/metadata/annotations.go, pkg/core/id.go.
    Applier(
        "Config Sync",
        "creates it again, and deletes it once it is no longer in the source",
        annotation="configsync.gke.io/resource-id",
        named=r"[^_]*_([^_]+)_(?:[^_]*_)?([^_]+)",
    ),
    # carvel-dev/kapp pkg/kapp/resources/identity_annotation.go.
    Applier(
        "kapp",
        "creates it again at the next deploy, or at the next sync of kapp-controller, and deletes it once it is no "
        "longer in the source",
        annotation="kapp.k14s.io/identity",
        named=r"v1;[^/]*/[^/]*/([^/]+)/([^;]+);.*",
    ),
    # rancher/fleet: its agent deploys bundles as Helm releases.
    Applier(
        "Fleet",
        "creates it again if its bundle has correctDrift, else at the next change of the bundle",
        managers=("fleetagent",),
        hooks=(_HELM_HOOK,),
    ),
    # projectsveltos/libsveltos lib/deployer/utils.go.
    Applier(
        "Sveltos",
        "creates it again if its profile detects drift, else at the next change of the profile",
        annotation="projectsveltos.io/owner-name",
    ),
    # kubernetes/kubernetes cluster/addons/addon-manager/README.md, both modes.
    Applier("The addon manager", "creates it again within a minute", label="addonmanager.kubernetes.io/mode"),
)
"""The known appliers; their marks were found in their source code and on objects that they applied."""

_LABELS = frozenset(one.label for one in APPLIERS)
_ANNOTATIONS = frozenset(one.annotation for one in APPLIERS)
_MANAGERS = frozenset(name for one in APPLIERS for name in one.managers)


def find_applier(obj: Any) -> Applier | None:
    """The controller that creates the object again once it is deleted; None for other objects. Total.

    An object with a controller owner is created by that owner, and has the marks only as copies.
    """
    labels, annotations = _mapping(obj, "metadata.labels"), _mapping(obj, "metadata.annotations")
    managers = {
        name for one in list_mappings(obj, "metadata.managedFields") if isinstance(name := one.get("manager"), str)
    }
    # Few objects have a mark, and each decision about a finished object looks for one.
    if _LABELS.isdisjoint(labels) and _ANNOTATIONS.isdisjoint(annotations) and _MANAGERS.isdisjoint(managers):
        return None
    return None if get_controller(obj) is not None else next(_find(obj, labels, annotations, managers), None)


def _find(
    obj: Any, labels: dict[Any, Any], annotations: dict[Any, Any], managers: AbstractSet[str]
) -> Iterator[Applier]:
    for one in APPLIERS:
        if any(name in annotations and annotations[name] not in _NO_HOOKS for name in one.hooks):
            continue
        is_writer = any(name in managers for name in one.managers)
        may_be_labelled = bool(one.label) and one.label in labels and not (managers and one.managers)
        if is_writer or may_be_labelled or _is_annotated(one, annotations, obj):
            yield one


def _is_annotated(one: Applier, annotations: dict[Any, Any], obj: Any) -> bool:
    if not one.annotation or one.annotation not in annotations:
        return False
    names = re.fullmatch(one.named, str(annotations[one.annotation])) if one.named else None
    if names is None:  # of another form, so that it is unknown whether it is a copy
        return True
    kind, name = names.groups()
    return kind.lower() == get_text(obj, "kind").lower() and name == get_text(obj, "metadata.name")


def _mapping(obj: Any, path: str) -> dict[Any, Any]:
    value = get_in(obj, path)
    return value if isinstance(value, dict) else {}


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


_HELM = Predicate(
    any=(
        Predicate(annotation="meta.helm.sh/release-name"),
        Predicate(label="app.kubernetes.io/managed-by", values=("Helm",)),
    )
)

CLEANERS = (
    Cleaner(
        name="The garbage collector",
        when=Predicate(field="metadata.ownerReferences[*].uid"),
        does="deletes it once none of its owners is left",
    ),
    Cleaner(
        name="Helm",
        when=_HELM,
        does="owns it by a release: an upgrade or a rollback creates it again, an uninstall deletes it",
    ),
    Cleaner(
        name="Helm's hooks",
        when=Predicate(annotation="helm.sh/hook"),
        does="deletes it as helm.sh/hook-delete-policy says, by default before the hook runs again; while the hook "
        "runs, Helm waits for its end",
    ),
    Cleaner(
        name="Argo CD's hooks",
        when=Predicate(annotation="argocd.argoproj.io/hook"),
        does="deletes it as argocd.argoproj.io/hook-delete-policy says, by default before the hook runs again",
    ),
    Cleaner(
        name="OLM",
        when=Predicate(any=(Predicate(label="olm.owner"), Predicate(label="olm.managed", values=("true",)))),
        does="owns it by an operator's installation, which creates it again",
    ),
    Cleaner(
        name="kubectl apply --prune",
        when=Predicate(label="applyset.kubernetes.io/part-of"),
        does="deletes it once it is no longer in its ApplySet",
    ),
    Cleaner(
        name="Kyverno",
        when=Predicate(label="cleanup.kyverno.io/ttl"),
        does="deletes it by the label cleanup.kyverno.io/ttl, counted from its creation, finished or not",
    ),
    Cleaner(
        name="kube-janitor",
        when=Predicate(any=(Predicate(annotation="janitor/ttl"), Predicate(annotation="janitor/expires"))),
        does="deletes it by its own annotations, counted from its creation, finished or not",
    ),
    Cleaner(
        name="k8s-ttl-controller",
        when=Predicate(annotation="k8s-ttl-controller.twin.sh/ttl"),
        does="deletes it by its own annotation, counted from its creation, finished or not",
    ),
)
"""Cleaners for objects of every kind."""

FINALIZERS = {
    "foregroundDeletion": "the garbage collector deletes its dependents first",
    "orphan": "the garbage collector removes it as owner of its dependents first",
    "kubernetes.io/pvc-protection": "it waits until no Pod uses it",
    "batch.kubernetes.io/job-tracking": "the Job controller counts its result first",
    "resources-finalizer.argocd.argoproj.io": "Argo CD deletes what it deployed first",
    "finalizers.fluxcd.io": "Flux deletes what it deployed first",
}
"""Finalizers of objects of every kind, and what happens after a DELETE before the object is gone."""

UNKNOWN_FINALIZER = "unknown finalizer: after a DELETE the object stays until the controller that set it removes it"


def _marks(test: Predicate | None) -> frozenset[str]:
    """Labels and annotations of which an object has one if the test holds; empty if the test may hold without them."""
    if test is None:
        return frozenset()
    if parts := [_marks(one) for one in (*test.all, *test.any)]:
        return frozenset().union(*parts) if all(parts) else frozenset()
    return frozenset(one for one in (test.label, test.annotation) if one)


_MARKED = tuple((one, _marks(one.when)) for one in CLEANERS)


def find_cleaners(obj: Any, rule: KindRule) -> Iterator[tuple[str, str]]:
    """The name of each other tool that cleans up the object, and what it does; the kind's own controller first."""
    yield from _native_controller(obj, rule)
    if (dispatcher := find_dispatcher(obj)) is not None:
        does = f"sent it here, and deletes it once it has read its result; if it is gone before, {dispatcher.does}"
        yield dispatcher.name, does
    if (applier := find_applier(obj)) is not None:
        yield applier.name, applier.does
    present = _present(obj)
    about_all = (one for one, marks in _MARKED if not (marks and marks.isdisjoint(present)))
    for cleaner in (*rule.cleaners, *about_all):
        try:
            if cleaner.when is None or holds(cleaner.when, obj):
                yield cleaner.name, cleaner.does
        except UnknownShapeError:
            continue


def _present(obj: Any) -> set[Any]:
    """The names of all labels and annotations of an object."""
    entries = (get_in(obj, path) for path in ("metadata.labels", "metadata.annotations"))
    return {name for one in entries if isinstance(one, dict) for name in one}


def find_finalizers(obj: Any, rule: KindRule) -> Iterator[tuple[str, str]]:
    """The finalizers that keep the object after a DELETE, and what each waits for."""
    finalizers = get_in(obj, "metadata.finalizers")
    for name in finalizers if isinstance(finalizers, list) else ():
        if isinstance(name, str):
            yield name, rule.finalizers.get(name) or FINALIZERS.get(name) or UNKNOWN_FINALIZER


def _native_controller(obj: Any, rule: KindRule) -> Iterator[tuple[str, str]]:
    """The controller that acts on the kind's own TTL field, if the field of this object sets a TTL."""
    if rule.ttl is None or rule.ttl.honoured_by is None:
        return
    try:
        native = native_ttl(obj, rule.ttl)
    except InvalidTtlError:
        return
    if native is not None and not native.is_never:
        only = ", and only that controller does" if is_left_to_controller(obj, rule.ttl) else ""
        does = f"acts on {native.source}: {json.dumps(get_in(obj, native.source))} itself{only}"
        yield rule.ttl.honoured_by, does
