"""What a policy rule asks of an object: a condition in CEL, and the group in which it is counted.

Expressions are typed as they are loaded, and asked for one object at a time.
"""

import re
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import PlainValidator, WithJsonSchema

from shared.core.expressions import Expression, ExpressionError, Returns, compile_expression
from shared.core.namespaces import TEXT_MAX
from shared.core.objects import get_controller, get_in, quote
from shared.core.policy.matching import NamespaceUnreadError, Subject

_NAMESPACE = "namespaceObject"
"""As admission policies of Kubernetes call it: `namespace` is a word of CEL's own."""

_WITHOUT_ANNOTATIONS = re.compile(rf"\b{_NAMESPACE}\.metadata\.(labels|name)\b")
"""What reads no annotation; anything else may, however it names them."""

VARIABLES = ("object", _NAMESPACE, "outcome")
"""What it may speak of; never the time, or a decision would not stay as it is."""

_CEL = {
    "type": "string",
    "minLength": 1,
    "description": "A CEL expression over object, namespaceObject (metadata: name, labels, annotations) and outcome.",
}


@dataclass(frozen=True, slots=True)
class Asked:
    """An expression of a policy.

    Attributes:
        text: As it was written.
        expression: The same, compiled.
    """

    text: str
    expression: Expression

    def of(self, subject: Subject) -> Any:
        """Its value for one object.

        Raises:
            ExpressionError: It has none for this object.
            NamespaceUnreadError: It may speak of the namespace, which was not read.
        """
        namespace = subject.namespace
        if namespace is None and _NAMESPACE in self.text:
            raise NamespaceUnreadError
        about = {
            "name": subject.place,
            "labels": dict(namespace.labels) if namespace else {},
            "annotations": dict(namespace.annotations) if namespace else {},
        }
        if namespace and namespace.is_cut and _NAMESPACE in _WITHOUT_ANNOTATIONS.sub("", self.text):
            told = f"the annotations of namespace {subject.place} have more than {TEXT_MAX} characters"
            raise ExpressionError(f"CEL {self.text!r}: {told}; expected name and labels alone of {_NAMESPACE}.metadata")
        outcome = str(subject.outcome or "")
        return self.expression.evaluate(object=subject.obj, namespaceObject={"metadata": about}, outcome=outcome)


def _read_asked(value: Any, returns: Returns = "bool") -> Asked:
    if isinstance(value, Asked):
        return value
    if not isinstance(value, str):
        raise ValueError(f"expected a CEL expression, got {quote(value)}")  # noqa: TRY004 - pydantic's word
    return Asked(value, compile_expression(value, returns=returns, variables=VARIABLES))


AnyCondition = Annotated[Asked, PlainValidator(_read_asked), WithJsonSchema(_CEL)]
"""As YAML gives it: an expression that says true or false."""


@dataclass(frozen=True, slots=True)
class Grouping:
    """What makes objects of one kind in one namespace a group.

    Attributes:
        by: `namespace`, `owner`, or `label` with its key, or `cel` with the expression.
    """

    by: str
    label: str = ""
    asked: Asked | None = None

    def key(self, subject: Subject) -> str:
        """The group's name; objects without an owner, or without the label, are a group too.

        Raises:
            ExpressionError: The expression has no value for this object.
            NamespaceUnreadError: It may speak of the namespace, which was not read.
        """
        if self.by == "owner":
            owner = get_controller(subject.obj)
            return owner.uid if owner else ""
        if self.by == "label":
            labels = get_in(subject.obj, "metadata.labels")
            return quote(labels.get(self.label)) if isinstance(labels, dict) else quote(None)
        return str(self.asked.of(subject)) if self.asked else ""


def _read_grouping(value: Any) -> Grouping:
    if isinstance(value, Grouping):
        return value
    if value in ("owner", "namespace"):
        return Grouping(value)
    if isinstance(value, dict) and set(value) == {"label"} and isinstance(value["label"], str) and value["label"]:
        return Grouping("label", label=value["label"])
    if isinstance(value, dict) and set(value) == {"cel"}:
        return Grouping("cel", asked=_read_asked(value["cel"], "string"))
    raise ValueError(f'expected owner, namespace, {{label: app}} or {{cel: "..."}}, got {quote(value)}')


_GROUPING = {
    "anyOf": [
        {"enum": ["owner", "namespace"]},
        {"type": "object", "properties": {"label": {"type": "string"}}, "required": ["label"]},
        {"type": "object", "properties": {"cel": _CEL}, "required": ["cel"]},
    ]
}

AnyGrouping = Annotated[Grouping, PlainValidator(_read_grouping), WithJsonSchema(_GROUPING)]
"""As YAML gives it."""

NAMESPACE = Grouping("namespace")
