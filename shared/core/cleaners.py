"""Who else deletes an object, makes it anew, or keeps it from going: told by `explain`, acted on by nobody here.

What belongs to one kind is said by its rule; what may happen to objects of any kind is the data below.
"""

import json
from collections.abc import Iterator
from typing import Any

from shared.core.dispatchers import find_dispatcher
from shared.core.kinds.predicates import Predicate, UnknownShapeError, holds
from shared.core.kinds.rule import Cleaner, KindRule
from shared.core.objects import get_in
from shared.core.ttl.native import InvalidFieldError, is_left_to_controller, read_native_ttl

_HELM = Predicate(
    any=(
        Predicate(annotation="meta.helm.sh/release-name"),
        Predicate(label="app.kubernetes.io/managed-by", values=("Helm",)),
    )
)
_ARGO_CD = Predicate(
    any=(Predicate(annotation="argocd.argoproj.io/tracking-id"), Predicate(label="argocd.argoproj.io/instance"))
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
        does="owns it by a release: an upgrade or a rollback makes it anew, an uninstall deletes it",
    ),
    Cleaner(
        name="Helm's hooks",
        when=Predicate(annotation="helm.sh/hook"),
        does="deletes it as helm.sh/hook-delete-policy says, left out: before the hook runs again; while the hook "
        "runs, Helm waits for its end",
    ),
    Cleaner(
        name="Argo CD",
        when=_ARGO_CD,
        does="makes it anew where its Application heals itself, and prunes it once it is not in Git any more",
    ),
    Cleaner(
        name="Argo CD's hooks",
        when=Predicate(annotation="argocd.argoproj.io/hook"),
        does="deletes it as argocd.argoproj.io/hook-delete-policy says, left out: before the hook runs again",
    ),
    Cleaner(
        name="Flux",
        when=Predicate(label="kustomize.toolkit.fluxcd.io/name"),
        does="makes it anew at its Kustomization's next interval, and prunes it once it is not in the source any more",
    ),
    Cleaner(
        name="Flux's Helm releases",
        when=Predicate(label="helm.toolkit.fluxcd.io/name"),
        does="owns it by a HelmRelease, which makes it anew where it detects drift, or at the next upgrade",
    ),
    Cleaner(
        name="OLM",
        when=Predicate(any=(Predicate(label="olm.owner"), Predicate(label="olm.managed", values=("true",)))),
        does="owns it by an operator's installation, which makes it anew",
    ),
    Cleaner(
        name="kubectl apply --prune",
        when=Predicate(label="applyset.kubernetes.io/part-of"),
        does="deletes it once it is not in its ApplySet any more",
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
"""For objects of every kind."""

FINALIZERS = {
    "foregroundDeletion": "the garbage collector deletes what it owns first",
    "orphan": "the garbage collector lets go of what it owns first",
    "kubernetes.io/pvc-protection": "it waits until no Pod uses it",
    "batch.kubernetes.io/job-tracking": "the Job controller counts its end first",
    "resources-finalizer.argocd.argoproj.io": "Argo CD deletes what it deployed first",
    "finalizers.fluxcd.io": "Flux deletes what it deployed first",
}
"""Of objects of every kind, and of what happens between a DELETE and their end."""

UNKNOWN_FINALIZER = "unknown here: after a DELETE the object stays until whoever set this takes it away"


def _marks(test: Predicate | None) -> frozenset[str]:
    """Labels and annotations, of which an object has one if the test holds; empty where it may hold without any."""
    if test is None:
        return frozenset()
    if parts := [_marks(one) for one in (*test.all, *test.any)]:
        return frozenset().union(*parts) if all(parts) else frozenset()
    return frozenset(one for one in (test.label, test.annotation) if one)


_MARKED = tuple((one, _marks(one.when)) for one in CLEANERS)


def find_cleaners(obj: Any, rule: KindRule) -> Iterator[tuple[str, str]]:
    """Who else cleans up this object, and what it does; the kind's own controller first."""
    yield from _native_controller(obj, rule)
    if (dispatcher := find_dispatcher(obj)) is not None:
        does = f"sent it here, and deletes it once it has read its end; if it is gone before, {dispatcher.does}"
        yield dispatcher.name, does
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
    """What keeps the object after a DELETE, and what it waits for."""
    finalizers = get_in(obj, "metadata.finalizers")
    for name in finalizers if isinstance(finalizers, list) else ():
        if isinstance(name, str):
            yield name, rule.finalizers.get(name) or FINALIZERS.get(name) or UNKNOWN_FINALIZER


def _native_controller(obj: Any, rule: KindRule) -> Iterator[tuple[str, str]]:
    """Who acts on the kind's own TTL field of this very object."""
    if rule.ttl is None or rule.ttl.honoured_by is None:
        return
    try:
        spoken = read_native_ttl(obj, rule.ttl)
    except InvalidFieldError:
        return
    if spoken is not None and spoken[1] is not None:
        left = ", which is left to it here" if is_left_to_controller(obj, rule.ttl) else ""
        does = f"acts on {spoken[0]}: {json.dumps(get_in(obj, spoken[0]))} by itself{left}"
        yield rule.ttl.honoured_by, does
