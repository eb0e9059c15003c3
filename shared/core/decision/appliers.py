"""Detect objects that a controller applies from a source such as Git, and creates again once they are deleted.

If a policy deletes such an object, its work is done again after each deletion: a Job that migrates a database runs
every hour. So a TTL that comes from a policy or a namespace does not delete it.

A mark of an object can only keep it. A mark may be a copy: Tekton copies the labels and annotations of a Pipeline to
its PipelineRuns. So an annotation that names another object does not count, and a label counts only if the controller
is among the field managers of the object, or if the object has no `managedFields`.
"""

import re
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

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
