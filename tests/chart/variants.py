"""One object in several variants, merged into one tree whose branches have conditions."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from operator import itemgetter
from typing import Any

from tests.chart.conditions import Combination, Term, effort, minimal

ABSENT = object()

Variants = Mapping[Combination, Any]
"""A value for each combination of components; ABSENT if there is none."""


@dataclass(frozen=True)
class Leaf:
    """A value that is the same in all combinations."""

    value: Any


@dataclass(frozen=True)
class Branch:
    """A mapping, or a list where the keys are None; `when` is None for an entry that is always there."""

    entries: tuple[tuple[str | None, list[Term] | None, Any], ...]


@dataclass(frozen=True)
class Choice:
    """Alternatives, in order; the last one has no condition."""

    cases: tuple[tuple[list[Term] | None, Any], ...]

    @property
    def conditions(self) -> list[list[Term] | None]:
        """The condition of each alternative."""
        return [when for when, _ in self.cases]


def merge(variants: Variants) -> Any:
    """The tree of a value that is there in all combinations."""
    values = list(variants.values())
    if all(value == values[0] for value in values):
        return Leaf(values[0])
    for kind, merged in ((dict, _mapping), (list, _list)):
        if all(isinstance(value, kind) for value in values):
            return merged(variants) if all(values) else _choice(variants, bool)
    return _choice(variants, _text)


def presence(variants: Variants) -> list[Term] | None:
    """When a value is there; None if it always is."""
    absent = [on for on, value in variants.items() if value is ABSENT]
    return minimal([on for on in variants if on not in absent], absent) if absent else None


def present(variants: Variants) -> Variants:
    """Without the combinations in which there is no value."""
    return {on: value for on, value in variants.items() if value is not ABSENT}


def _mapping(variants: Variants) -> Any:
    keys = _order([list(value) for value in variants.values()])
    if keys is None:
        return _choice(variants, _text)
    entries = [_entry(key, {on: value.get(key, ABSENT) for on, value in variants.items()}) for key in keys]
    entries.sort(key=lambda entry: entry[1] is not None)  # an item of a list begins with what is always there
    return Branch(tuple(entries)) if entries[0][1] is None else _either(Branch(tuple(entries)), variants)


def _list(variants: Variants) -> Any:
    """Items are the same by their names; a single one is the same by its place, and others are by all they have."""
    key_of: Callable[[Any], str] = _text
    if all(isinstance(one, dict) and "name" in one for value in variants.values() for one in value):
        key_of = itemgetter("name")
    elif all(len(value) == 1 for value in variants.values()):
        key_of = _only
    keyed = {on: [(key_of(one), one) for one in value] for on, value in variants.items()}
    keys = _order([[key for key, _ in items] for items in keyed.values()])
    if keys is None:
        return _choice(variants, _text)
    found = {on: dict(items) for on, items in keyed.items()}
    entries = [_entry(key, {on: items.get(key, ABSENT) for on, items in found.items()}) for key in keys]
    return Branch(tuple((None, when, node) for _, when, node in entries))


def _either(branch: Branch, variants: Variants) -> Any:
    return branch if all(variants.values()) else _choice(variants, _text)


def _entry(key: str, variants: Variants) -> tuple[str, list[Term] | None, Any]:
    return key, presence(variants), merge(present(variants))


def _choice(variants: Variants, sort_of: Any) -> Choice:
    """One case for each sort of value: first the one whose condition is read most easily; the last one has none."""
    left: dict[Any, dict[Combination, Any]] = {}
    for on, value in variants.items():
        left.setdefault(sort_of(value), {})[on] = value
    cases: list[tuple[list[Term] | None, Any]] = []
    while len(left) > 1:
        when, sort = min(((_apart(sort, left), sort) for sort in left), key=lambda case: effort(case[0]))
        cases.append((when, merge(left.pop(sort))))
    (other,) = left.values()
    return Choice((*cases, (None, merge(other))))


def _apart(sort: Any, groups: Mapping[Any, Variants]) -> list[Term]:
    """The condition of a group against all others."""
    return minimal(groups[sort], [on for other, group in groups.items() if other != sort for on in group])


def _order(sequences: list[list[str]]) -> list[str] | None:
    """One order that agrees with all; None if there is none, or if a key is there twice."""
    if any(len(set(keys)) < len(keys) for keys in sequences):
        return None
    before: dict[str, set[str]] = {key: set() for keys in sequences for key in keys}
    for keys in sequences:
        for first, second in pairwise(keys):
            before[second].add(first)
    try:
        return list(TopologicalSorter(before).static_order())
    except CycleError:
        return None


def _only(_: Any) -> str:
    return ""


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
