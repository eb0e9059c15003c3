"""Label selectors in objects of the API server, which may have any shape.

A text that cannot be the key or the value of a label, such as `{{env}}` or `team-*`, is a template or a wildcard: it
may become any text.
"""

import re
from dataclasses import dataclass
from typing import Any

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
