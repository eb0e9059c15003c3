"""DELETE: its options, its preconditions, and the finalizers that its propagation policy sets."""

from dataclasses import dataclass
from typing import Self

from shared.devserver.apiserver.errors import bad_request, conflict, failed_precondition, invalid
from shared.devserver.apiserver.resources import Object, Resource

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
    """What a DELETE asks for.

    Attributes:
        uid: Delete only the object of this uid.
        resource_version: Delete only this version of it.
        propagation: Background, Foreground, Orphan; empty for the resource's default.
        dry_run: Check everything, change nothing.
    """

    uid: str | None = None
    resource_version: str | None = None
    propagation: str = ""
    dry_run: bool = False

    @classmethod
    def parse(cls, body: Object) -> Self:
        """Read a DeleteOptions object.

        Raises:
            StatusError: 400 where a field has the wrong type, 422 where it has a wrong value.
        """
        _check_types(body)
        _check_values(body)
        preconditions = body.get("preconditions") or {}
        propagation = body.get("propagationPolicy") or ("Orphan" if body.get("orphanDependents") else "")
        return cls(
            preconditions.get("uid"), preconditions.get("resourceVersion"), propagation, bool(body.get("dryRun"))
        )

    def check(self, resource: Resource, obj: Object) -> None:
        """Whether this is the very object that was meant.

        Raises:
            StatusError: 409, it is not.
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
        """The object's finalizers once this DELETE is accepted; none of them: it goes at once."""
        present: list[str] = obj["metadata"].get("finalizers") or []
        others = [f for f in present if f not in (FOREGROUND, ORPHAN)]
        if not self.propagation and len(others) < len(present):
            return present  # an earlier DELETE's policy stands
        added = _FINALIZER_OF[self.propagation or resource.default_propagation]
        if added is None:
            return others
        return present if added in present else [*others, added]

    def check_removal(self, resource: Resource, obj: Object, finalizers: list[str]) -> None:
        """Refuse what kube-apiserver refuses: it loses the resourceVersion while it drops an object's last finalizers.

        Raises:
            StatusError: 409, whatever the resourceVersion is.
        """
        metadata = obj["metadata"]
        if self.resource_version is not None and metadata.get("finalizers") and not finalizers:
            why = "Precondition failed: ResourceVersion in precondition: , ResourceVersion in object meta: "
            raise conflict(resource, metadata["name"], why + metadata["resourceVersion"])


def success(resource: Resource, obj: Object) -> Object:
    """The Status that answers a DELETE of an object that is gone now."""
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
    """Whether the only value of dryRun is `All`.

    Raises:
        StatusError: 422, it is not.
    """
    if any(value != "All" for value in values):
        shown = ", ".join(f'"{value}"' for value in values)
        raise invalid(kind, "", "dryRun", f'Unsupported value: [{shown}]: supported values: "All"')
