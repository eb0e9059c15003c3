"""A reference: one field of one object that names a Secret or a ConfigMap.

A name or a namespace may have `*` for any text: the value may be a template (`${pvc.name}`), and the namespace may not
be known. A reference with a `problem` stands for a field that cannot be read: it may name any object.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from shared.core.references.selectors import Selector
from shared.core.values.objects import ObjectRef, quote

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
