"""Serve the kinds of a CustomResourceDefinition; if it is deleted, remove its kinds with all their objects."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.devserver.apiserver.errors import invalid
from shared.devserver.apiserver.patches import merge_patch
from shared.devserver.apiserver.resources import CUSTOM_RESOURCE_DEFINITIONS, Object, Resource, custom_resources
from shared.devserver.apiserver.versions import WriteOptions, format_time

if TYPE_CHECKING:
    from shared.devserver.apiserver.store import Store
    from shared.devserver.apiserver.table import Change

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
    """A listener of a store that updates its registry from its CustomResourceDefinitions."""

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
