"""A reference: one field of one object that names a Secret or a ConfigMap, or selects some by label.

A name or a namespace may have `*` for any text: the value may be a template (`${pvc.name}`), and the namespace may not
be known. A reference with a `problem` stands for a field that cannot be read: it may name any object.

A text that cannot be the key or the value of a label, such as `{{env}}` or `team-*`, is a template or a wildcard: it
may become any text.

Only what exists can be named, so references are looked for by the names of all Secrets and ConfigMaps.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from shared.core.values.objects import ObjectRef, quote, ref_of

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
