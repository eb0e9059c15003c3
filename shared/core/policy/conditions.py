"""Read and evaluate the CEL expressions of policy rules: the `when` of a rule, and the groups of `keepLastBy`.

The types of an expression are checked when the policy is loaded. It is evaluated for one object at a time.
"""

import re
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import PlainValidator, WithJsonSchema

from shared.core.decision.namespaces import TEXT_MAX
from shared.core.policy.matching import NamespaceUnreadError, Subject
from shared.core.values.expressions import Expression, ExpressionError, Returns, compile_expression
from shared.core.values.objects import get_controller, get_in, quote

_NAMESPACE = "namespaceObject"
"""The name that Kubernetes' admission policies use: `namespace` is a reserved word of CEL."""

_WITHOUT_ANNOTATIONS = re.compile(rf"\b{_NAMESPACE}\.metadata\.(labels|name)\b")
"""References that read no annotation; any other reference to the namespace may read one."""

VARIABLES = ("object", _NAMESPACE, "outcome")
"""The variables of an expression. The time is none of them: a decision must not change only because time passes."""

_CEL = {
    "type": "string",
    "minLength": 1,
    "description": "A CEL expression over object, namespaceObject (metadata: name, labels, annotations) and outcome.",
}


@dataclass(frozen=True, slots=True)
class PolicyExpression:
    """A CEL expression of a policy.

    Attributes:
        text: The text in the policy.
        expression: The compiled expression.
    """

    text: str
    expression: Expression

    def of(self, subject: Subject) -> Any:
        """The value for one object.

        Raises:
            ExpressionError: The expression has no value for this object.
            NamespaceUnreadError: The expression may read the namespace, which was not read.
        """
        namespace = subject.namespace
        if namespace is None and _NAMESPACE in self.text:
            raise NamespaceUnreadError
        metadata = {
            "name": subject.place,
            "labels": dict(namespace.labels) if namespace else {},
            "annotations": dict(namespace.annotations) if namespace else {},
        }
        if namespace and namespace.is_cut and _NAMESPACE in _WITHOUT_ANNOTATIONS.sub("", self.text):
            problem = f"the annotations of namespace {subject.place} have more than {TEXT_MAX} characters"
            expected = f"expected an expression that reads only name and labels of {_NAMESPACE}.metadata"
            raise ExpressionError(f"CEL {self.text!r}: {problem}; {expected}")
        outcome = str(subject.outcome or "")
        return self.expression.evaluate(object=subject.obj, namespaceObject={"metadata": metadata}, outcome=outcome)


def _read_expression(value: Any, returns: Returns = "bool") -> PolicyExpression:
    if isinstance(value, PolicyExpression):
        return value
    if not isinstance(value, str):
        raise ValueError(f"expected a CEL expression, got {quote(value)}")  # noqa: TRY004 - pydantic takes ValueError
    return PolicyExpression(value, compile_expression(value, returns=returns, variables=VARIABLES))


AnyCondition = Annotated[PolicyExpression, PlainValidator(_read_expression), WithJsonSchema(_CEL)]
"""A field of a policy: an expression that returns true or false."""


@dataclass(frozen=True, slots=True)
class Grouping:
    """How the objects of one kind in one namespace are divided into groups for keepLast.

    Attributes:
        by: `namespace`, `owner`, `label` or `cel`.
        label: The key of the label, for `label`.
        expression: The expression, for `cel`.
    """

    by: str
    label: str = ""
    expression: PolicyExpression | None = None

    def key(self, subject: Subject) -> str:
        """The name of an object's group; the objects without an owner, or without the label, are one group.

        Raises:
            ExpressionError: The expression has no value for this object.
            NamespaceUnreadError: The expression may read the namespace, which was not read.
        """
        if self.by == "owner":
            owner = get_controller(subject.obj)
            return owner.uid if owner else ""
        if self.by == "label":
            labels = get_in(subject.obj, "metadata.labels")
            return quote(labels.get(self.label)) if isinstance(labels, dict) else quote(None)
        return str(self.expression.of(subject)) if self.expression else ""


def _read_grouping(value: Any) -> Grouping:
    if isinstance(value, Grouping):
        return value
    if value in ("owner", "namespace"):
        return Grouping(value)
    if isinstance(value, dict) and set(value) == {"label"} and isinstance(value["label"], str) and value["label"]:
        return Grouping("label", label=value["label"])
    if isinstance(value, dict) and set(value) == {"cel"}:
        return Grouping("cel", expression=_read_expression(value["cel"], "string"))
    raise ValueError(f'expected owner, namespace, {{label: app}} or {{cel: "..."}}, got {quote(value)}')


_GROUPING = {
    "anyOf": [
        {"enum": ["owner", "namespace"]},
        {"type": "object", "properties": {"label": {"type": "string"}}, "required": ["label"]},
        {"type": "object", "properties": {"cel": _CEL}, "required": ["cel"]},
    ]
}

AnyGrouping = Annotated[Grouping, PlainValidator(_read_grouping), WithJsonSchema(_GROUPING)]
"""A field of a policy: a grouping."""

NAMESPACE = Grouping("namespace")
