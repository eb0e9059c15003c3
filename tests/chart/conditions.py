"""Shortest conditions: on which components something depends, as the text of a Helm template."""

from collections.abc import Iterable, Mapping
from itertools import combinations, product

Combination = frozenset[str]
"""The components that are on, of those that are looked at."""

Term = Mapping[str, bool]
"""Components that must be on (True) or off (False)."""


def minimal(wanted: Iterable[Combination], refused: Iterable[Combination]) -> list[Term]:
    """Return terms of which one holds in each wanted combination, and none in a refused one; others may go either way.

    Each term is as short as possible, and the greedy choice takes the one first that holds most often. No term at all
    means never; one empty term means always.
    """
    left, refused = set(wanted), set(refused)
    names = sorted(frozenset().union(*left, *refused))
    chosen: list[Term] = []
    while left:
        best = max(_terms(names, refused), key=lambda term: (sum(holds(term, one) for one in left), -len(term)))
        chosen.append(best)
        left = {one for one in left if not holds(best, one)}
    return chosen


def _terms(names: list[str], refused: set[Combination]) -> list[Term]:
    """The terms of the smallest sizes that hold in no refused combination, up to all names."""
    found: list[Term] = []
    for size in range(len(names) + 1):
        for some in combinations(names, size):
            for values in product((True, False), repeat=size):
                term = dict(zip(some, values, strict=True))
                extends = any(known.items() <= term.items() for known in found)
                if not extends and not any(holds(term, one) for one in refused):
                    found.append(term)
    return found


def holds(term: Term, combination: Combination) -> bool:
    """Whether the components of a term are on and off as it says."""
    return all((name in combination) is value for name, value in term.items())


def effort(terms: list[Term]) -> tuple[int, int]:
    """How hard a condition is to read: how often it says `not`, and on how many components it depends."""
    literals = [on for term in terms for on in term.values()]
    return literals.count(False), len(literals)


def expression(terms: list[Term]) -> str:
    """The terms as an expression of a Helm template, in which `$on` lists the components that are on."""
    return _joined("or", [_joined("and", [_literal(name, on) for name, on in term.items()]) for term in terms])


def _literal(name: str, on: bool) -> str:
    has = f'has "{name}" $on'
    return has if on else f"not ({has})"


def _joined(word: str, parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else " ".join([word, *(f"({part})" for part in parts)])
