"""How the API says no: a Kubernetes Status, in the real server's words.

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
        reason: The machine's word for it.
        message: The people's.
        details: What it is about, as in Status.details.
        metadata: Status.metadata; only an expired LIST says something there.
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
        """The Status object that the response carries."""
        status: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "metadata": self.metadata, "status": "Failure"}
        status |= {"message": self.message, "reason": self.reason, "code": self.code}
        return status if self.details is None else status | {"details": self.details}


def bad_request(message: str) -> StatusError:
    """The request cannot be understood."""
    return StatusError(400, "BadRequest", message)


def not_found(resource: Resource, name: str) -> StatusError:
    """There is no object of this name."""
    return StatusError(404, "NotFound", f'{resource.name} "{name}" not found', details=_about(resource, name))


def already_exists(resource: Resource, name: str) -> StatusError:
    """There is one already."""
    message = f'{resource.name} "{name}" already exists'
    return StatusError(409, "AlreadyExists", message, details=_about(resource, name))


def conflict(resource: Resource, name: str, why: str) -> StatusError:
    """A writer holds an outdated version."""
    message = f'Operation cannot be fulfilled on {resource.name} "{name}": {why}'
    return StatusError(409, "Conflict", message, details=_about(resource, name))


def failed_precondition(resource: Resource, name: str, why: str) -> StatusError:
    """A DELETE meant another object; the real server names the kind here, not the resource."""
    message = f'Operation cannot be fulfilled on {resource.qualified_kind} "{name}": {why}'
    return StatusError(409, "Conflict", message, details=_about(resource, name) | {"kind": resource.kind})


def invalid(kind: str, name: str, field: str, problem: str) -> StatusError:
    """A field's value is not allowed; `kind` as in `Job.batch`, `problem` as in `Forbidden: because ...`."""
    bare, _, group = kind.partition(".")
    cause = {"reason": _FIELD_REASONS[problem.partition(":")[0]], "message": problem, "field": field}
    details = {"name": name, "group": group, "kind": bare, "causes": [cause]}
    message = f'{kind} "{name}" is invalid: {field}: {problem}'
    return StatusError(422, "Invalid", message, details={k: v for k, v in details.items() if v})


def expired(message: str, continue_token: str = "") -> StatusError:
    """The history that was asked for is compacted."""
    return StatusError(410, "Expired", message, metadata={"continue": continue_token} if continue_token else None)


def too_large_revision(asked: int, current: int) -> StatusError:
    """The resourceVersion lies in the future."""
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    message = f"Timeout: Too large resource version: {asked}, current: {current}"
    return StatusError(504, "Timeout", message, details={"causes": [cause]})


def no_such_resource() -> StatusError:
    """The group and version are served, this resource of theirs is not."""
    message = "the server could not find the requested resource"
    return StatusError(404, "NotFound", message, details={})


def method_not_allowed() -> StatusError:
    """The resource has no such verb."""
    message = "the server does not allow this method on the requested resource"
    return StatusError(405, "MethodNotAllowed", message, details={})


def unsupported_media_type(accepted: str) -> StatusError:
    """The body's content type is unknown here."""
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
