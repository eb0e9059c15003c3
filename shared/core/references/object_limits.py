"""Limit what is kept of the references of one object, so that no object fills the memory or the time of a pass."""

from typing import Any

from shared.core.references.reference import ANY, Reference
from shared.core.values.objects import ObjectRef

TEMPLATES_OF_ONE_MAX = 100
"""The most names with templates, and label selectors, that are read from one object. More make the answer unknown."""

REFERENCES_OF_OBJECT_MAX = 1_000
"""The references of one object after which only one to each further Secret or ConfigMap is kept: one shows its use."""


class ObjectLimits:
    """What was kept of the references of one object.

    Args:
        source: The object.
    """

    def __init__(self, source: ObjectRef) -> None:
        self._source = source
        self._seen: set[Any] = set()
        self._targets: set[tuple[str, str, str]] = set()
        self._exact = self._broad = 0

    @property
    def is_full(self) -> bool:
        """Return whether only the first reference to each further object is kept."""
        return self._exact >= REFERENCES_OF_OBJECT_MAX

    def take(self, one: Reference) -> Reference | None:
        """Return what is kept of a reference: itself, None, or one by which it is unknown what it may name."""
        if one.is_exact:
            return self._take_exact(one)
        key = (one.kind, one.namespace, one.name, one.selector, bool(one.problem))
        if key in self._seen:
            return None
        self._broad += 1
        if self._broad > TEMPLATES_OF_ONE_MAX:
            return self._overflow(one)
        self._seen.add(key)
        return one

    def _take_exact(self, one: Reference) -> Reference | None:
        target = (one.kind, one.namespace, one.name)
        key = (*target, one.path)
        if key in self._seen or (self.is_full and target in self._targets):
            return None
        self._seen.add(key)
        self._targets.add(target)
        self._exact += 1
        return one

    def _overflow(self, one: Reference) -> Reference | None:
        """Return once for each kind and namespace that it is unknown which of their objects are used."""
        home = self._source.namespace
        place = one.namespace if ANY not in one.namespace else ANY if one.is_field or not home else home
        key = (one.kind, place, "")
        if key in self._seen:
            return None
        self._seen.add(key)
        problem = f"expected at most {TEMPLATES_OF_ONE_MAX} templates and selectors in one object, got more"
        return Reference(one.kind, place, ANY, one.path, self._source, problem=problem)
