"""Errors of the API: a Kubernetes Status, with the messages of kube-apiserver.

StatusError
  400 BadRequest · 404 NotFound · 405 MethodNotAllowed · 406 NotAcceptable · 409 AlreadyExists, Conflict
  410 Expired · 415 UnsupportedMediaType · 422 Invalid · 504 Timeout
"""

from typing import Any

from shared.devserver.apiserver.resources import Resource


class StatusError(Exception):
    """A request that failed.

    Attributes:
        code: The HTTP status.
        reason: The reason in CamelCase.
        message: The message for people.
        details: Status.details.
        metadata: Status.metadata; only an expired LIST sets it.
    """

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: dict[str, Any] | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.code, self.reason, self.message = code, reason, message
        self.details, self.metadata = details, metadata or {}

    def as_status(self) -> dict[str, Any]:
        """Return the Status object of the response."""
        status: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "metadata": self.metadata, "status": "Failure"}
        status |= {"message": self.message, "reason": self.reason, "code": self.code}
        return status if self.details is None else status | {"details": self.details}


def bad_request(message: str) -> StatusError:
    """Make the error for a malformed request."""
    return StatusError(400, "BadRequest", message)


def not_found(resource: Resource, name: str) -> StatusError:
    """Make the error for an object that does not exist."""
    return StatusError(404, "NotFound", f'{resource.name} "{name}" not found', details=_about(resource, name))


def already_exists(resource: Resource, name: str) -> StatusError:
    """Make the error for an object that exists already."""
    message = f'{resource.name} "{name}" already exists'
    return StatusError(409, "AlreadyExists", message, details=_about(resource, name))


def conflict(resource: Resource, name: str, why: str) -> StatusError:
    """Make the error for a write of an outdated version."""
    message = f'Operation cannot be fulfilled on {resource.name} "{name}": {why}'
    return StatusError(409, "Conflict", message, details=_about(resource, name))


def failed_precondition(resource: Resource, name: str, why: str) -> StatusError:
    """Make the error for a failed precondition of a DELETE; kube-apiserver names the kind in it, not the resource."""
    message = f'Operation cannot be fulfilled on {resource.qualified_kind} "{name}": {why}'
    return StatusError(409, "Conflict", message, details=_about(resource, name) | {"kind": resource.kind})


def invalid(kind: str, name: str, field: str, problem: str) -> StatusError:
    """Make the error for an invalid field; a kind is `Job.batch`, a problem is `Forbidden: because ...`."""
    bare, _, group = kind.partition(".")
    cause = {"reason": _FIELD_REASONS[problem.partition(":")[0]], "message": problem, "field": field}
    details = {"name": name, "group": group, "kind": bare, "causes": [cause]}
    message = f'{kind} "{name}" is invalid: {field}: {problem}'
    return StatusError(422, "Invalid", message, details={k: v for k, v in details.items() if v})


def expired(message: str, continue_token: str = "") -> StatusError:
    """Make the error for a version that is compacted."""
    return StatusError(410, "Expired", message, metadata={"continue": continue_token} if continue_token else None)


def too_large_revision(asked: int, current: int) -> StatusError:
    """Make the error for a resourceVersion in the future."""
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    message = f"Timeout: Too large resource version: {asked}, current: {current}"
    return StatusError(504, "Timeout", message, details={"causes": [cause]})


def no_such_resource() -> StatusError:
    """Make the error for a resource that its group and version do not have."""
    message = "the server could not find the requested resource"
    return StatusError(404, "NotFound", message, details={})


def method_not_allowed() -> StatusError:
    """Make the error for a verb that the resource does not have."""
    message = "the server does not allow this method on the requested resource"
    return StatusError(405, "MethodNotAllowed", message, details={})


def unsupported_media_type(accepted: str) -> StatusError:
    """Make the error for an unknown content type of the body."""
    message = f"the body of the request was in an unknown format - accepted media types include: {accepted}"
    return StatusError(415, "UnsupportedMediaType", message)


_FIELD_REASONS = {
    "Forbidden": "FieldValueForbidden",
    "Invalid value": "FieldValueInvalid",
    "Required value": "FieldValueRequired",
    "Unsupported value": "FieldValueNotSupported",
}


def _about(resource: Resource, name: str) -> dict[str, Any]:
    details = {"name": name, "group": resource.group, "kind": resource.plural}
    return {key: value for key, value in details.items() if value}
