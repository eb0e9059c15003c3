"""The API without HTTP: a synchronous in-memory store with the rules of Kubernetes.

    store = Store(clock.now)
    job = store.create(JOBS, "default", {"metadata": {"name": "hello"}, "spec": {}})
    store.patch(JOBS, "default", "hello", merge_patch({"status": {...}}), WriteOptions(subresource="status"))
    store.delete(JOBS, "default", "hello", DeleteOptions(uid=job["metadata"]["uid"], propagation="Background"))

The store copies each object that it gets. It shares each object that it returns: do not change it.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from datetime import datetime
from uuid import uuid4

from shared.devserver.apiserver.deletion import DeleteOptions, GarbageCollector, success
from shared.devserver.apiserver.errors import already_exists, bad_request, expired, invalid, not_found
from shared.devserver.apiserver.listing import Change, Key, ListPage, Query, Table, list_page
from shared.devserver.apiserver.resources import (
    CUSTOM_RESOURCE_DEFINITIONS,
    NAMESPACES,
    Object,
    Registry,
    Resource,
    custom_resources,
)
from shared.devserver.apiserver.writes import (
    Patch,
    WriteOptions,
    check_sent,
    copied,
    first_version,
    format_time,
    marked,
    merge_patch,
    next_version,
    numbered,
    stamped,
)

__all__ = ["ListPage", "Query", "Store", "WriteOptions"]

_NAMESPACES_OF_A_CLUSTER = ("default", "kube-system")
_GENERATED_NAME_MAX = 58  # leaves room for the suffix
_PLAIN_WRITE = WriteOptions()
_PLAIN_DELETE = DeleteOptions()

Listener = Callable[[Resource, Change], None]


class Store:
    """All objects of a small cluster.

    Attributes:
        clock: Returns the time of the cluster.
        resources: The resources that can be stored.
        revision: The newest resourceVersion.
        listeners: Called after every change, in the order of the changes.
    """

    def __init__(
        self,
        clock: Callable[[], datetime],
        *,
        new_uid: Callable[[], str] = lambda: str(uuid4()),
        collect_garbage: bool = True,
        history: int = 20_000,
    ) -> None:
        """Make an empty cluster.

        Args:
            clock: Returns the time of the cluster.
            new_uid: Makes uids; the end of a uid is the suffix of a generated name.
            collect_garbage: Whether to apply owner references at once; a kube-apiserver alone does not.
            history: The least number of changes of a resource that are kept for watches and older pages.
        """
        self.clock = clock
        self.resources = Registry()
        self.revision = 0
        self.listeners: list[Listener] = [Definitions(self)]
        if collect_garbage:
            self.listeners.append(GarbageCollector(self))
        self._new_uid = new_uid
        self._tables: defaultdict[str, Table] = defaultdict(lambda: Table(history))
        self._announcements: deque[tuple[Resource, Change]] = deque()
        for name in _NAMESPACES_OF_A_CLUSTER:
            self.create(NAMESPACES, "", {"metadata": {"name": name}})

    def create(self, resource: Resource, namespace: str, obj: Object, options: WriteOptions = _PLAIN_WRITE) -> Object:
        """Create an object; its name may be generated.

        Raises:
            StatusError: 409 AlreadyExists, 404 for a missing namespace, 400 or 422 for a malformed object.
        """
        self._check_new(resource, namespace, obj)
        system = self._identity(resource, namespace, obj["metadata"])
        if (namespace, system["name"]) in self.table(resource).objects:
            raise already_exists(resource, system["name"])
        new = first_version(resource, copied(obj), system, options)
        return new if options.dry_run else self._commit(resource, "ADDED", new, None)

    def restore(self, resource: Resource, obj: Object) -> Object:
        """Store an object as a backup has it, with its uid, times and status; only its resourceVersion is new."""
        key: Key = (obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
        previous = self.table(resource).objects.get(key)
        return self._commit(resource, "MODIFIED" if previous else "ADDED", copied(obj), previous)

    def get(self, resource: Resource, namespace: str, name: str) -> Object:
        """Return one object.

        Raises:
            StatusError: 404.
        """
        obj = self.table(resource).objects.get((namespace, name))
        if obj is None:
            raise not_found(resource, name)
        return obj

    def update(self, resource: Resource, namespace: str, obj: Object, options: WriteOptions = _PLAIN_WRITE) -> Object:
        """Replace an object; if it has a resourceVersion, this must be the newest.

        Raises:
            StatusError: 404; 409 Conflict; 422.
        """
        current = self.get(resource, namespace, obj["metadata"].get("name", ""))
        check_sent(resource, current, obj)
        new = next_version(resource, current, copied(obj), options)
        if new == current:
            return current  # nothing changed: no new resourceVersion, as in Kubernetes
        new = stamped(new, current, format_time(self.clock()), options)
        if options.dry_run:
            return new
        if "deletionTimestamp" in new["metadata"] and not new["metadata"].get("finalizers"):
            self._commit(resource, "DELETED", new, current)
            return new
        return self._commit(resource, "MODIFIED", new, current)

    def patch(
        self, resource: Resource, namespace: str, name: str, patch: Patch, options: WriteOptions = _PLAIN_WRITE
    ) -> Object:
        """Change an object by a patch of `writes`, or by any function from object to object.

        Raises:
            StatusError: As update.
        """
        sent = patch(self.get(resource, namespace, name))
        if sent["metadata"].get("name") != name:
            raise bad_request("the name of the object does not match the name on the URL")
        return self.update(resource, namespace, sent, options)

    def delete(self, resource: Resource, namespace: str, name: str, options: DeleteOptions = _PLAIN_DELETE) -> Object:
        """Delete an object; if it has finalizers, mark it for deletion.

        Returns:
            The marked object; if it is gone, a Status of success, or the object for some kinds.

        Raises:
            StatusError: 404; 409 for a failed precondition.
        """
        current = self.get(resource, namespace, name)
        options.check(resource, current)
        finalizers = options.finalizers(resource, current)
        options.check_removal(resource, current, finalizers)
        new = marked(resource, current, finalizers, format_time(self.clock()))
        if finalizers:
            unchanged = options.dry_run or new == current
            return new if unchanged else self._commit(resource, "MODIFIED", new, current)
        if not options.dry_run:
            self._commit(resource, "DELETED", current, current)
        return new if resource.answers_with_object else success(resource, current)

    def delete_collection(self, resource: Resource, query: Query, options: DeleteOptions = _PLAIN_DELETE) -> ListPage:
        """Delete each object that a query finds."""
        page = self.list(resource, query)
        for obj in page.items:
            self.delete(resource, obj["metadata"].get("namespace", ""), obj["metadata"]["name"], options)
        return page

    def list(self, resource: Resource, query: Query = Query()) -> ListPage:  # noqa: B008 - frozen
        """List the objects that a query finds, sorted by namespace and name.

        Raises:
            StatusError: 410 Expired if the token or the resourceVersion is compacted; 400, 422, 504.
        """
        return list_page(self.table(resource), self.revision, resource, query)

    def changes(self, resource: Resource, revision: int) -> Sequence[Change]:
        """Return the changes of a resource after a revision, the oldest first.

        Raises:
            StatusError: 410 Expired, the revision is compacted.
        """
        table = self.table(resource)
        if revision < table.compacted:
            raise expired(f"too old resource version: {revision} ({table.compacted})")
        return table.since(revision)

    def compact(self) -> None:
        """Drop the history: older watches, pages and snapshots get 410 Expired."""
        for resource in self.resources:
            self.table(resource).compact(self.revision)

    def drop(self, resource: Resource, namespace: str = "") -> None:
        """Remove all objects of a resource, or those in a namespace, even if they have finalizers."""
        gone = [obj for (where, _), obj in self.table(resource).objects.items() if namespace in ("", where)]
        for obj in gone:
            self._commit(resource, "DELETED", obj, obj)

    def table(self, resource: Resource) -> Table:
        """Return the objects of a resource by key; read-only."""
        return self._tables[resource.name]

    def _check_new(self, resource: Resource, namespace: str, obj: Object) -> None:
        for field, expected in (("kind", resource.kind), ("apiVersion", resource.api_version)):
            if obj.get(field, expected) != expected:
                raise bad_request(f"{obj[field]} cannot be handled as {resource.kind} of {resource.api_version}")
        metadata = obj.get("metadata") or {}
        if metadata.get("namespace", namespace) != namespace:
            raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
        if not (metadata.get("name") or metadata.get("generateName")):
            problem = "Required value: name or generateName is required"
            raise invalid(resource.qualified_kind, "", "metadata.name", problem)
        if resource.namespaced:
            self.get(NAMESPACES, "", namespace)
        if resource is CUSTOM_RESOURCE_DEFINITIONS:
            check_definition(metadata.get("name", ""), obj)

    def _identity(self, resource: Resource, namespace: str, metadata: Object) -> Object:
        uid = self._new_uid()
        name = metadata.get("name") or metadata["generateName"][:_GENERATED_NAME_MAX] + uid[-5:]
        where = {"namespace": namespace} if resource.namespaced else {}
        return {"name": name} | where | {"uid": uid, "creationTimestamp": format_time(self.clock())}

    def _commit(self, resource: Resource, change: str, new: Object, previous: Object | None) -> Object:
        self.revision += 1
        obj = numbered(new, self.revision)
        key: Key = (obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
        self._announce(resource, Change(self.revision, change, key, obj, previous))
        return obj

    def _announce(self, resource: Resource, change: Change) -> None:
        """Call the listeners. Changes that a listener makes are queued, so that all listeners see the same order."""
        self.table(resource).apply(change)
        self._announcements.append((resource, change))
        if len(self._announcements) > 1:
            return
        try:
            while self._announcements:
                for listener in self.listeners:
                    listener(*self._announcements[0])
                self._announcements.popleft()
        finally:
            self._announcements.clear()  # after an exception in a listener, later changes must still be announced


_STATUS = WriteOptions(manager="kube-apiserver", subresource="status")


def check_definition(name: str, definition: Object) -> None:
    """Check that the name of a definition is its plural and group.

    Raises:
        StatusError: 422, another name was expected.
    """
    spec = definition["spec"]
    if name != f"{spec['names']['plural']}.{spec['group']}":
        problem = f'Invalid value: "{name}": must be spec.names.plural+"."+spec.group'
        raise invalid(CUSTOM_RESOURCE_DEFINITIONS.qualified_kind, name, "metadata.name", problem)


class Definitions:
    """A listener of a store that serves the kinds of each CustomResourceDefinition, until it is deleted."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __call__(self, resource: Resource, change: Change) -> None:
        """Handle a change of any object."""
        if resource is not CUSTOM_RESOURCE_DEFINITIONS:
            return
        if change.type == "DELETED":
            self._retire(custom_resources(change.obj))
        else:
            self._serve(change)

    def _serve(self, change: Change) -> None:
        served = custom_resources(change.obj)
        before = custom_resources(change.previous) if change.previous else []
        for resource in before:
            if resource not in served:
                self._store.resources.remove(resource)
        for resource in served:
            self._store.resources.add(resource)
        if not change.obj["status"]:
            status = {"status": self._established(change.obj)}
            self._store.patch(CUSTOM_RESOURCE_DEFINITIONS, "", change.key[1], merge_patch(status), _STATUS)

    def _retire(self, resources: list[Resource]) -> None:
        for resource in resources:
            self._store.drop(resource)
            self._store.resources.remove(resource)

    def _established(self, definition: Object) -> Object:
        at = format_time(self._store.clock())
        spec = definition["spec"]
        conditions = [
            {"type": name, "status": "True", "lastTransitionTime": at, "reason": reason, "message": message}
            for name, reason, message in (
                ("NamesAccepted", "NoConflicts", "no conflicts found"),
                ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
            )
        ]
        stored = [version["name"] for version in spec["versions"] if version.get("storage")]
        return {"conditions": conditions, "acceptedNames": spec["names"], "storedVersions": stored}
