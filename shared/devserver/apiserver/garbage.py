"""The garbage collector: it applies owner references and propagation policies at once.

The real garbage collector works in the background; the result is the same. One difference is intended: an object whose
owner never existed is kept, and the real garbage collector would delete it.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from shared.devserver.apiserver.deletion import FOREGROUND, ORPHAN, DeleteOptions
from shared.devserver.apiserver.patches import merge_patch
from shared.devserver.apiserver.resources import NAMESPACES, Object, Resource
from shared.devserver.apiserver.versions import WriteOptions

if TYPE_CHECKING:
    from shared.devserver.apiserver.store import Store
    from shared.devserver.apiserver.table import Change, Key

_WRITE = WriteOptions(manager="kube-controller-manager")
_BACKGROUND = DeleteOptions(propagation="Background")


class GarbageCollector:
    """A listener of a store that deletes objects without remaining owners."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._dependents: defaultdict[str, dict[tuple[str, Key], Resource]] = defaultdict(dict)  # by owner uid

    def __call__(self, resource: Resource, change: Change) -> None:
        """Handle a change of any object."""
        self._index(resource, change)
        if change.type == "DELETED":
            self._after_deletion(resource, change)
        elif "deletionTimestamp" in change.obj["metadata"]:
            self._release(resource, change.key)

    def _index(self, resource: Resource, change: Change) -> None:
        place = (resource.name, change.key)
        for reference in _references(change.previous):
            self._dependents[reference["uid"]].pop(place, None)
        if change.type != "DELETED":
            for reference in _references(change.obj):
                self._dependents[reference["uid"]][place] = resource

    def _after_deletion(self, resource: Resource, change: Change) -> None:
        if resource is NAMESPACES:
            self._empty(change.key[1])
        for kind, key, _ in self._dependents_of(change.obj):
            self._abandon(kind, key)
        self._dependents.pop(change.obj["metadata"]["uid"], None)
        for reference in _references(change.obj):  # the deletion of an owner may have waited for this object
            owner = self._owner(change.obj, reference)
            if owner is not None:
                self._release(*owner)

    def _empty(self, namespace: str) -> None:
        for resource in self._store.resources:
            if resource.namespaced:
                self._store.drop(resource, namespace)

    def _abandon(self, resource: Resource, key: Key) -> None:
        """Delete a dependent whose owner is gone, unless it has another owner."""
        obj = self._store.table(resource).objects[key]
        alive = [r for r in _references(obj) if self._owner(obj, r) is not None]
        if alive:
            self._store.patch(resource, *key, merge_patch({"metadata": {"ownerReferences": alive}}), _WRITE)
        else:
            self._store.delete(resource, *key, _BACKGROUND)

    def _release(self, resource: Resource, key: Key) -> None:
        """Do the work of the finalizers of an object that is being deleted, and remove them."""
        obj = self._store.table(resource).objects.get(key)
        finalizers = obj["metadata"].get("finalizers", ()) if obj else ()
        if obj is None or "deletionTimestamp" not in obj["metadata"]:
            return
        if ORPHAN in finalizers:
            self._orphan_dependents(obj)
            self._take_off(resource, key, ORPHAN)
        elif FOREGROUND in finalizers and not self._delete_blocking(obj):
            self._take_off(resource, key, FOREGROUND)

    def _orphan_dependents(self, owner: Object) -> None:
        for resource, key, obj in self._dependents_of(owner):
            others = [r for r in _references(obj) if r["uid"] != owner["metadata"]["uid"]]
            self._store.patch(resource, *key, merge_patch({"metadata": {"ownerReferences": others}}), _WRITE)

    def _delete_blocking(self, owner: Object) -> bool:
        """Delete the dependents that a foreground deletion waits for; return whether one still exists."""
        uid = owner["metadata"]["uid"]
        for resource, key, obj in self._blocking(owner):
            others = [r for r in _references(obj) if r["uid"] != uid and self._owner(obj, r) is not None]
            if others:
                self._store.patch(resource, *key, merge_patch({"metadata": {"ownerReferences": others}}), _WRITE)
            elif "deletionTimestamp" not in obj["metadata"]:
                self._store.delete(resource, *key, _BACKGROUND)
        return bool(self._blocking(owner))

    def _blocking(self, owner: Object) -> list[tuple[Resource, Key, Object]]:
        uid = owner["metadata"]["uid"]
        return [
            (resource, key, obj)
            for resource, key, obj in self._dependents_of(owner)
            if any(r["uid"] == uid and r.get("blockOwnerDeletion") for r in _references(obj))
        ]

    def _dependents_of(self, owner: Object) -> list[tuple[Resource, Key, Object]]:
        """Return the dependents that still exist: the table may be ahead of the index, which follows the changes."""
        uid = owner["metadata"]["uid"]
        places = self._dependents.get(uid, {}).items()
        found = [(resource, key, self._store.table(resource).objects.get(key)) for (_, key), resource in places]
        return [(r, k, obj) for r, k, obj in found if obj and any(o["uid"] == uid for o in _references(obj))]

    def _owner(self, obj: Object, reference: Object) -> tuple[Resource, Key] | None:
        resource = self._store.resources.find_kind(reference["apiVersion"], reference["kind"])
        if resource is None:
            return None
        key = (obj["metadata"].get("namespace", "") if resource.namespaced else "", reference["name"])
        owner = self._store.table(resource).objects.get(key)
        return (resource, key) if owner and owner["metadata"]["uid"] == reference["uid"] else None

    def _take_off(self, resource: Resource, key: Key, finalizer: str) -> None:
        obj = self._store.table(resource).objects.get(key)
        if obj is not None and finalizer in obj["metadata"].get("finalizers", ()):
            rest = [f for f in obj["metadata"]["finalizers"] if f != finalizer]
            self._store.patch(resource, *key, merge_patch({"metadata": {"finalizers": rest}}), _WRITE)


def _references(obj: Object | None) -> list[Object]:
    return (obj["metadata"].get("ownerReferences") or []) if obj else []
