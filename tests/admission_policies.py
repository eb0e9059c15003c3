"""Evaluate a ValidatingAdmissionPolicy of Kubernetes in this process, with the CEL implementation of kind rules.

It evaluates in the order of the API server: match constraints, match conditions, variables, validations. The messages
of errors differ from those of the API server. `tests/contract` proves for each kind that both verdicts are equal.

Not evaluated: parameters, selectors, `messageExpression`, audit annotations, `authorizer`, and the API server's limits
on the cost of CEL. A policy that has one of the first three is a NotImplementedError.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.server_cel import CelError, value_of

Object = Mapping[str, Any]

_STATUS = {"Unauthorized": 401, "Forbidden": 403, "Invalid": 422, "RequestEntityTooLarge": 413}


@dataclass(frozen=True)
class Request:
    """What the API server asks an admission policy.

    Attributes:
        operation: `CREATE`, `UPDATE` or `DELETE`.
        resource: The group, the version and the plural of the resource.
        username: The user of the request.
        object: The object after the request; None for a DELETE.
        old_object: The object before the request; None for a CREATE or a DELETE of a collection.
        name: The name of the object; empty for a DELETE of a collection.
        options: The options of the request, such as the preconditions of a DELETE.
        namespace: The Namespace of the object; None for a cluster-scoped object.
    """

    operation: str
    resource: tuple[str, str, str]
    username: str
    object: Object | None = None
    old_object: Object | None = None
    name: str = ""
    options: Object = field(default_factory=dict)
    namespace: Object | None = None

    def as_variables(self) -> dict[str, Any]:
        """The CEL variables of the request; an empty name is absent, as in an AdmissionRequest."""
        request: dict[str, Any] = {"operation": self.operation, "userInfo": {"username": self.username}}
        request |= {"options": self.options, **({"name": self.name} if self.name else {})}
        return {
            "object": self.object,
            "oldObject": self.old_object,
            "request": request,
            "namespaceObject": self.namespace,
        }


@dataclass(frozen=True)
class Verdict:
    """Whether the API server admits a request: 200, or the status of its refusal.

    Attributes:
        status: 200; 403 or another status if a validation is false; 422 if an expression is an error.
        message: The message of the first validation that is not true, or what the error is.
        is_error: Whether that validation is an error.
    """

    status: int = 200
    message: str = ""
    is_error: bool = False

    @property
    def is_admitted(self) -> bool:
        return self.status == 200


def evaluate(policy: Object, request: Request) -> Verdict:
    """Evaluate a policy that is in force by a binding with the action Deny."""
    spec = policy["spec"]
    _check_supported(spec)
    if not _is_constrained(spec["matchConstraints"], request):
        return Verdict()
    data = request.as_variables()
    on_error = spec.get("failurePolicy", "Fail")
    matches = [value_of(one["expression"], data) for one in spec.get("matchConditions", ())]
    if False in matches:
        return Verdict()
    if errors := [one for one in matches if isinstance(one, CelError)]:
        return _verdict_of(errors[0], on_error)
    # A variable that is an error is absent: an expression that reads it is an error, as on the API server.
    variables: dict[str, Any] = {}
    for variable in spec.get("variables", ()):
        value = value_of(variable["expression"], data | {"variables": variables})
        variables |= {} if isinstance(value, CelError) else {variable["name"]: value}
    for validation in spec["validations"]:
        value = value_of(validation["expression"], data | {"variables": variables})
        if isinstance(value, CelError) and on_error == "Fail":
            return _verdict_of(value, on_error)
        if value is not True and not isinstance(value, CelError):
            message = validation.get("message") or f"failed expression: {validation['expression']}"
            return Verdict(_STATUS[validation.get("reason", "Invalid")], message)
    return Verdict()


def _verdict_of(error: CelError, on_error: str) -> Verdict:
    return Verdict(422, error.message, is_error=True) if on_error == "Fail" else Verdict()


def _check_supported(spec: Object) -> None:
    constraints = spec["matchConstraints"]
    parts = {
        "paramKind": spec.get("paramKind"),
        "messageExpression": any("messageExpression" in one for one in spec["validations"]),
        **{name: constraints.get(name) for name in ("namespaceSelector", "objectSelector", "excludeResourceRules")},
    }
    if unsupported := [name for name, value in parts.items() if value]:
        raise NotImplementedError(f"admission policy with {', '.join(unsupported)}")


def _is_constrained(constraints: Object, request: Request) -> bool:
    """Whether a resource rule matches the request."""
    group, version, plural = request.resource
    asked = {"apiGroups": group, "apiVersions": version, "resources": plural, "operations": request.operation}
    return any(
        all({value, "*"} & set(rule[name]) for name, value in asked.items()) for rule in constraints["resourceRules"]
    )
