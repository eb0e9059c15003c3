"""The Secrets and ConfigMaps whose references are looked for: only what exists can be named."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Any

from shared.core.references.reference import ANY, Reference, TargetKind, fits
from shared.core.values.objects import ref_of

LOOKUPS_IN_WORD_MAX = 20_000
"""The most steps in which the names within one word are looked for, some milliseconds."""

TargetPlace = tuple[TargetKind, str]
"""The kind and the namespace of a Secret or a ConfigMap."""


@dataclass(frozen=True, slots=True)
class TargetNames:
    """The names of Secrets and ConfigMaps.

    A reference to an object that does not exist is not held, so memory depends on the objects that exist, and not on
    what other objects claim to refer to.

    Attributes:
        by_name: Where the objects of each name are.
        namespaces: The namespaces of all of them.
    """

    by_name: Mapping[str, frozenset[TargetPlace]]
    namespaces: frozenset[str] = field(init=False)
    _dotted: frozenset[str] = field(init=False)  # what stands before the dots of the names

    def __post_init__(self) -> None:
        places = {place for places in self.by_name.values() for _, place in places}
        object.__setattr__(self, "namespaces", frozenset(places))
        object.__setattr__(self, "_dotted", frozenset(_starts_of(name for name in self.by_name if "." in name)))

    def has(self, kind: str, namespace: str, name: str) -> bool:
        """Return whether an object is among them."""
        return (kind, namespace) in self.by_name.get(name, ())

    def find_within(self, word: str) -> Iterator[str]:
        """Yield the names that are some consecutive parts of a word with dots: `a.b` in `x.a.b.key`.

        If that takes too many steps, each name with dots that is anywhere in the word counts: more seem used.
        """
        labels, steps = word.split("."), 0
        for start in range(len(labels)):
            found = labels[start]
            for label in labels[start + 1 :]:
                if found not in self._dotted:
                    break
                steps += 1
                if steps > LOOKUPS_IN_WORD_MAX:
                    yield from (name for name in self.by_name if "." in name and name in word)
                    return
                found += f".{label}"
                if found in self.by_name:
                    yield found

    def find_in(self, name: str, namespaces: AbstractSet[str]) -> frozenset[TargetPlace]:
        """Where the objects of a name are, in these namespaces."""
        return frozenset(place for place in self.by_name.get(name, ()) if place[1] in namespaces)

    def find_named(self, one: Reference) -> Iterator[Reference]:
        """Yield a reference for each of these objects that a field names; a template or a selector is kept as it is."""
        if ANY not in one.namespace and one.namespace not in self.namespaces:
            return
        if one.problem or one.selector is not None or ANY in one.name:
            yield one
        elif ANY not in one.namespace:
            if self.has(one.kind, one.namespace, one.name):
                yield one
        else:
            for kind, namespace in sorted(self.by_name.get(one.name, ())):
                if kind == one.kind and fits(one.namespace, namespace):
                    yield replace(one, namespace=namespace)


def _starts_of(names: Iterable[str]) -> Iterator[str]:
    for name in names:
        yield from (name[:place] for place, character in enumerate(name) if character == ".")


def names_of(objects: Iterable[Any]) -> TargetNames:
    """The names of Secrets and ConfigMaps; their metadata is enough."""
    refs = map(ref_of, objects)
    return name_targets((TargetKind(ref.kind), ref.namespace, ref.name) for ref in refs)


def name_targets(targets: Iterable[tuple[TargetKind, str, str]]) -> TargetNames:
    """The names of objects, each given by its kind, namespace and name."""
    by_name: defaultdict[str, set[TargetPlace]] = defaultdict(set)
    for kind, namespace, name in targets:
        by_name[name].add((kind, namespace))
    return TargetNames({name: frozenset(places) for name, places in by_name.items()})
