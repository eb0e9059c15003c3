"""Find the references to one Secret or ConfigMap among those of all objects of a cluster."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from shared.core.references.reference import ANY, Reference

TEMPLATES_OF_NAMESPACE_MAX = 500
"""The most different templates and selectors that are kept for a namespace. More make the answer unknown there."""

REFERENCES_OF_ONE_MAX = 100
"""The most references that are kept to one object: whether it is used does not depend on their number."""

REFERENCES_MAX = 200_000
"""The references that are kept, about 50 MB, after which only one to each further object is kept."""


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
        self._count = 0
        self.add(references)

    def add(self, references: Iterable[Reference]) -> None:
        """Add the references of further objects."""
        for one in references:
            if not one.is_exact:
                self._add_broad(one)
            else:
                self._add_exact(one)

    def _add_exact(self, one: Reference) -> None:
        kept = self._exact[one.kind, one.namespace, one.name]
        if len(kept) < (REFERENCES_OF_ONE_MAX if self._count < REFERENCES_MAX else 1):
            kept.append(one)
            self._count += 1
        elif one.proves_use and not any(other.proves_use for other in kept):
            kept[-1] = one  # many mentions do not hide the one field that proves the use
        elif not one.problem and all(other.problem for other in kept):
            kept[-1] = one  # nor do those that may mean another object hide one that does not

    def _add_broad(self, one: Reference) -> None:
        """Add one that may name several objects; further ones than the most make the answer unknown."""
        kept = self._spanning if ANY in one.namespace else self._broad[one.kind, one.namespace]
        if len(kept) < TEMPLATES_OF_NAMESPACE_MAX:
            # Of equal patterns one is enough, but a field that can be read counts beside one that cannot.
            kept.setdefault((one.kind, one.namespace, one.name, one.selector, bool(one.problem)), one)
        else:
            kept.setdefault(one.kind, _too_many(one, kept))

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
        found += [one.seen_from(namespace) for one in broad if one.names(kind, namespace, name, labels)]
        return tuple(sorted(found, key=lambda one: bool(one.problem)))

    def list_unknown(self) -> Iterator[Reference]:
        """Yield each reference that makes it unknown which objects of a kind are used, in one namespace or in all."""
        for kept in (self._spanning, *self._broad.values()):
            yield from (one for one in kept.values() if one.problem and one.name == ANY and one.selector is None)


def _too_many(one: Reference, kept: Mapping[Any, Reference]) -> Reference:
    """A reference that stands for those that are not kept. Its source is the object that has most of the others."""
    (source, count), *_ = Counter(other.source for other in kept.values()).most_common(1)
    problem = (
        f"expected at most {TEMPLATES_OF_NAMESPACE_MAX} templates and selectors for a namespace, "
        f"got more; {count} of them are in this object"
    )
    namespace = ANY if ANY in one.namespace else one.namespace
    return Reference(one.kind, namespace, ANY, one.path, source, problem=problem)
