"""Find the references to one Secret or ConfigMap among those of all objects of a cluster."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from shared.core.references.reference import ANY, Reference

REFERENCES_OF_ONE_MAX = 100
"""The most references that are kept to one object: whether it is used does not depend on their number."""


class ReferenceIndex:
    """The references of all objects, found by the object that they name.

    Args:
        references: The first references.
    """

    def __init__(self, references: Iterable[Reference] = ()) -> None:
        self._exact: defaultdict[tuple[str, str, str], list[Reference]] = defaultdict(list)
        # By kind and namespace; the namespace is a pattern if several are possible.
        self._broad: defaultdict[tuple[str, str], dict[Any, Reference]] = defaultdict(dict)
        self._spanning: dict[Any, Reference] = {}
        self.add(references)

    def add(self, references: Iterable[Reference]) -> None:
        """Add the references of further objects."""
        for one in references:
            if one.is_exact:
                kept = self._exact[one.kind, one.namespace, one.name]
                if len(kept) < REFERENCES_OF_ONE_MAX:
                    kept.append(one)
            else:
                # Of equal patterns one is enough, but a field that can be read counts beside one that cannot.
                key = (one.kind, one.namespace, one.name, one.selector, bool(one.problem))
                spans = ANY in one.namespace
                (self._spanning if spans else self._broad[one.kind, one.namespace]).setdefault(key, one)

    def find(self, kind: str, namespace: str, name: str, labels: Any = None) -> tuple[Reference, ...]:
        """The references that may name an object; those with a problem come last.

        Args:
            kind: Secret or ConfigMap.
            namespace: Its namespace.
            name: Its name.
            labels: Its labels.
        """
        broad = (*self._broad.get((kind, namespace), {}).values(), *self._spanning.values())
        found = [*self._exact.get((kind, namespace, name), ())]
        found += [one for one in broad if one.names(kind, namespace, name, labels)]
        return tuple(sorted(found, key=lambda one: bool(one.problem)))
