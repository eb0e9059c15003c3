"""List the other tools that delete, recreate or keep an object, for `explain`.

No decision depends on them, except on dispatchers and appliers. Kind rules list the cleaners and finalizers of one
kind. This module lists those of any kind.
"""

import json
from collections.abc import Iterator
from typing import Any

from shared.core.decision.makers import find_applier, find_dispatcher
from shared.core.kinds.predicates import Predicate, UnknownShapeError, holds
from shared.core.kinds.rule import Cleaner, KindRule
from shared.core.ttl.ttl import InvalidTtlError, is_left_to_controller, native_ttl
from shared.core.values.objects import get_in

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
