"""DELETE: its options, its preconditions, the finalizers that its propagation policy sets, and the garbage collector.

The garbage collector applies owner references and propagation policies at once. The real one works in the background;
the result is the same. One difference is intended: an object whose owner never existed is kept, and the real garbage
collector would delete it.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from shared.devserver.apiserver.errors import bad_request, conflict, failed_precondition, invalid
from shared.devserver.apiserver.resources import NAMESPACES, Object, Resource
from shared.devserver.apiserver.writes import WriteOptions, merge_patch

if TYPE_CHECKING:
    from shared.devserver.apiserver.listing import Change, Key
    from shared.devserver.apiserver.store import Store


FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"
_FINALIZER_OF = {"Background": None, "Foreground": FOREGROUND, "Orphan": ORPHAN}
_KIND = "DeleteOptions.meta.k8s.io"
_TYPES = {
    "gracePeriodSeconds": (int, "int64"),
    "propagationPolicy": (str, "v1.DeletionPropagation"),
    "orphanDependents": (bool, "bool"),
    "dryRun": (list, "[]string"),
    "preconditions": (dict, "v1.Preconditions"),
}


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """The options of a DELETE.

    Attributes:
        uid: The uid that the object must have; None for any.
        resource_version: The resourceVersion that the object must have; None for any.
        propagation: Background, Foreground, Orphan; empty for the resource's default.
        dry_run: Whether to check everything, but change nothing.
    """

    uid: str | None = None
    resource_version: str | None = None
    propagation: str = ""
    dry_run: bool = False

    @classmethod
    def parse(cls, body: Object) -> Self:
        """Read a DeleteOptions object.

        Raises:
            StatusError: 400 if a field has the wrong type, 422 if it has an invalid value.
        """
        _check_types(body)
        _check_values(body)
        preconditions = body.get("preconditions") or {}
        propagation = body.get("propagationPolicy") or ("Orphan" if body.get("orphanDependents") else "")
        return cls(
            preconditions.get("uid"), preconditions.get("resourceVersion"), propagation, bool(body.get("dryRun"))
        )

    def check(self, resource: Resource, obj: Object) -> None:
        """Check the preconditions on an object.

        Raises:
            StatusError: 409, a precondition failed.
        """
        metadata = obj["metadata"]
        for word, key, wanted, what_happened in (
            ("UID", "uid", self.uid, "deleted and then recreated"),
            ("ResourceVersion", "resourceVersion", self.resource_version, "modified"),
        ):
            if wanted is not None and wanted != metadata[key]:
                why = (
                    f"the {word} in the precondition ({wanted}) does not match the {word} in record"
                    f" ({metadata[key]}). The object might have been {what_happened}"
                )
                raise failed_precondition(resource, metadata["name"], why)

    def finalizers(self, resource: Resource, obj: Object) -> list[str]:
        """Return the finalizers of the object after this DELETE; if there are none, the object is removed at once."""
        present: list[str] = obj["metadata"].get("finalizers") or []
        others = [f for f in present if f not in (FOREGROUND, ORPHAN)]
        if not self.propagation and len(others) < len(present):
            return present  # the policy of an earlier DELETE stays in force
        added = _FINALIZER_OF[self.propagation or resource.default_propagation]
        if added is None:
            return others
        return present if added in present else [*others, added]

    def check_removal(self, resource: Resource, obj: Object, finalizers: list[str]) -> None:
        """Reject a DELETE with resourceVersion that drops the last finalizers: kube-apiserver loses the precondition.

        Raises:
            StatusError: 409, for any resourceVersion.
        """
        metadata = obj["metadata"]
        if self.resource_version is not None and metadata.get("finalizers") and not finalizers:
            why = "Precondition failed: ResourceVersion in precondition: , ResourceVersion in object meta: "
            raise conflict(resource, metadata["name"], why + metadata["resourceVersion"])


def success(resource: Resource, obj: Object) -> Object:
    """Make the Status that answers a DELETE after which the object is gone."""
    details = {"name": obj["metadata"]["name"], "kind": resource.plural, "uid": obj["metadata"]["uid"]}
    details |= {"group": resource.group} if resource.group else {}
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}


def _check_types(body: Object) -> None:
    if body.get("kind", "DeleteOptions") != "DeleteOptions":
        raise bad_request(f'no kind "{body["kind"]}" is registered for version "{body.get("apiVersion")}"')
    for field, (wanted, name) in _TYPES.items():
        if body.get(field) is not None and type(body[field]) is not wanted:
            found = type(body[field]).__name__
            raise bad_request(
                f"json: cannot unmarshal {found} into Go struct field DeleteOptions.{field} of type {name}"
            )


def _check_values(body: Object) -> None:
    policy = body.get("propagationPolicy")
    if policy is not None and body.get("orphanDependents") is not None:
        problem = f'Invalid value: "{policy}": orphanDependents and deletionPropagation cannot be both set'
        raise invalid(_KIND, "", "propagationPolicy", problem)
    if policy is not None and policy not in _FINALIZER_OF:
        supported = 'supported values: "Foreground", "Background", "Orphan", "nil"'
        raise invalid(_KIND, "", "propagationPolicy", f'Unsupported value: "{policy}": {supported}')
    check_dry_run(_KIND, body.get("dryRun") or [])


def check_dry_run(kind: str, values: list[str]) -> None:
    """Check that the only value of dryRun is `All`.

    Raises:
        StatusError: 422, another value was given.
    """
    if any(value != "All" for value in values):
        shown = ", ".join(f'"{value}"' for value in values)
        raise invalid(kind, "", "dryRun", f'Unsupported value: [{shown}]: supported values: "All"')


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
