"""A reference: one field of one object that names a Secret or a ConfigMap, or selects some by label.

A name or a namespace may have `*` for any text: the value may be a template (`${pvc.name}`), and the namespace may not
be known. A reference with a `problem` stands for a field that cannot be read: it may name any object.

A text that cannot be the key or the value of a label, such as `{{env}}` or `team-*`, is a template or a wildcard: it
may become any text.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from shared.core.values.objects import ObjectRef, quote

VALUES_MAX = 100
"""The most values of a requirement that is kept; one with more is left out, so that the selector selects more."""

REQUIREMENTS_MAX = 50
"""The most requirements of a selector that are kept; the others are left out, so that it selects more."""

_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
_VALUE = re.compile(r"[-A-Za-z0-9_.]*")
_KEY = re.compile(r"[-A-Za-z0-9_.]+(?:/[-A-Za-z0-9_.]+)?")


@dataclass(frozen=True, slots=True)
class Requires:
    """One requirement of a label selector."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def holds(self, labels: dict[str, Any]) -> bool:
        """Return whether labels meet the requirement, by the rules of Kubernetes."""
        match self.operator:
            case "In":
                return self.key in labels and labels[self.key] in self.values
            case "NotIn":
                return labels.get(self.key) not in self.values
            case "Exists":
                return self.key in labels
            case _:
                return self.key not in labels


@dataclass(frozen=True, slots=True)
class Selector:
    """A label selector. Without a requirement it selects every object.

    Attributes:
        requirements: All of them must hold. A requirement that cannot be read is left out, so that the selector
            selects more objects and never fewer.
    """

    requirements: tuple[Requires, ...] = ()

    def may_select(self, labels: Any) -> bool:
        """Return whether the selector may select an object with these labels; labels of any other shape are unknown."""
        if labels is None:
            labels = {}
        if not isinstance(labels, dict):
            return True
        return all(one.holds(labels) for one in self.requirements)


def read_selector(value: Any) -> Selector:
    """Read a label selector of an object. Total: each part that cannot be read is left out."""
    selector = value if isinstance(value, dict) else {}
    labels = selector.get("matchLabels")
    pairs = labels.items() if isinstance(labels, dict) else ()
    equal = [{"key": key, "operator": "In", "values": [text]} for key, text in pairs]
    expressions = selector.get("matchExpressions")
    read = map(_read_expression, [*equal, *(expressions if isinstance(expressions, list) else ())])
    return Selector(tuple(one for one in read if one is not None)[:REQUIREMENTS_MAX])


def _read_expression(value: Any) -> Requires | None:
    if not isinstance(value, dict):
        return None
    key, operator, values = value.get("key"), value.get("operator"), value.get("values")
    if not isinstance(key, str) or not _KEY.fullmatch(key) or operator not in _OPERATORS:
        return None
    if operator in ("Exists", "DoesNotExist"):
        return Requires(key, operator)
    if not isinstance(values, list) or not all(isinstance(one, str) for one in values) or len(values) > VALUES_MAX:
        return None
    if not all(map(_VALUE.fullmatch, values)):
        return Requires(key, "Exists") if operator == "In" else None
    return Requires(key, operator, tuple(values))


ANY = "*"
"""Any name, or any namespace."""

OBJECT_NAME_CHARACTERS_MAX = 253
"""The longest name of an object."""

TEMPLATE = re.compile(r"\$\{[^{}]*\}|\$\([^()]*\)|\{\{[^{}]*\}\}")
TEMPLATE_IN_TEXT = re.compile(rf"{TEMPLATE.pattern}|\$[A-Za-z0-9_]+", re.ASCII)
"""In a text, which may be a script, the variables of a shell are templates as well."""
TEMPLATE_STARTS = ("${", "$(", "{{")
"""How a template starts."""


class TargetKind(StrEnum):
    """The kinds whose objects are referred to."""

    SECRET = "Secret"  # noqa: S105 - the name of a kind
    CONFIG_MAP = "ConfigMap"


BOTH = (TargetKind.SECRET, TargetKind.CONFIG_MAP)


@dataclass(frozen=True, slots=True)
class Reference:
    """One field that names a Secret or a ConfigMap.

    Attributes:
        kind: The kind that is named.
        namespace: Its namespace; with `*` for any text.
        name: Its name; with `*` for any text.
        path: The field, with the places in lists: `spec.volumes[0].secret.secretName`.
        source: The object that has the field.
        selector: The labels that a named object must have; None if the field does not select by labels.
        problem: What cannot be read, and what was expected; empty if the field can be read.
        is_field: Whether a carrier rule names the field, so that its value is nothing but a reference.
    """

    kind: TargetKind
    namespace: str
    name: str
    path: str
    source: ObjectRef
    selector: Selector | None = None
    problem: str = ""
    is_field: bool = False

    @property
    def is_exact(self) -> bool:
        """Return whether it names one object."""
        return ANY not in self.namespace and ANY not in self.name and self.selector is None

    @property
    def proves_use(self) -> bool:
        """Return whether it proves that the object is used, and does not only keep it.

        A word in a text may name an object by accident, and a user of another namespace may write the name into a
        field. So only a field that a carrier rule names proves a use, with the whole name in it, in an object of the
        same namespace or of the cluster.
        """
        is_home = self.source.namespace in ("", self.namespace)
        return self.is_field and self.is_exact and is_home and not self.problem

    def seen_from(self, namespace: str) -> "Reference":
        """What it means for the objects of a namespace.

        A template or a selector shows a use only in the namespace of the object that has it. In any other namespace it
        has a problem: what it may name is unknown. So no object can have the marks of another namespace removed by it.
        """
        is_foreign = self.source.namespace not in ("", namespace)
        if not is_foreign or self.problem or (ANY not in self.name and self.selector is None):
            return self
        what = "selector" if self.selector is not None else f"template {quote(self.name)}"
        return replace(self, problem=f"{self.path}: the {what} may name objects of another namespace")

    def names(self, kind: str, namespace: str, name: str, labels: Any) -> bool:
        """Return whether it may name an object."""
        return (
            self.kind == kind
            and fits(self.namespace, namespace)
            and fits(self.name, name)
            and (self.selector is None or self.selector.may_select(labels))
        )


def as_pattern(text: str) -> str:
    """A name in which each template is replaced by `*`: `${pvc.name}-key` becomes `*-key`."""
    if not any(start in text for start in TEMPLATE_STARTS):
        return text
    if len(text) > OBJECT_NAME_CHARACTERS_MAX:
        return ANY
    pattern = TEMPLATE.sub(ANY, text)
    # A template that is nested, or not closed, may become any text.
    return ANY if any(start in pattern for start in TEMPLATE_STARTS) else pattern


def fits(pattern: str, text: str) -> bool:
    """Return whether a text has the form of a pattern, in which `*` stands for any text; in linear time."""
    first, *others = pattern.split(ANY)
    if not others:
        return pattern == text
    last = others.pop()
    if not text.startswith(first) or not text.endswith(last) or len(text) < len(first) + len(last):
        return False
    place, end = len(first), len(text) - len(last)
    for part in others:
        found = text.find(part, place, end)
        if found < 0:
            return False
        place = found + len(part)
    return True


def labels_of(metadata: Any) -> Mapping[str, Any]:
    """The labels in the metadata of an object; empty for any other JSON."""
    labels = metadata.get("labels") if isinstance(metadata, dict) else None
    return labels if isinstance(labels, dict) else {}
