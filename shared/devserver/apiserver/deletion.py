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
