"""Objects of shapes that no operator writes: copies of fixtures with parts taken out, or of another type."""

from collections.abc import Iterator
from random import Random
from typing import Any

from tests.builders import copied

_OTHERS: tuple[Any, ...] = (None, {}, [], "", "x", 0, 3, True, {"a": 1}, ["a"], [{"type": 1}], {"type": {}})


def mutated(obj: dict[str, Any], random: Random) -> dict[str, Any]:
    """A copy in which one or two parts of spec and status are missing, or are something else."""
    mutant: dict[str, Any] = copied(obj)
    for _ in range(random.choice([1, 2])):
        places = [place for part in ("spec", "status") for place in _places_in(mutant, part)]
        holder, key = random.choice(places)
        if random.random() < 0.4:
            del holder[key]
        elif isinstance(holder, list) and random.random() < 0.4:
            holder.insert(0, copied(random.choice(_OTHERS)))
        else:
            holder[key] = copied(random.choice(_OTHERS))
        if not any(part in mutant for part in ("spec", "status")):
            break
    return mutant


def _places_in(holder: Any, key: Any) -> Iterator[tuple[Any, Any]]:
    """Each value below a key, by what holds it and its key there."""
    if isinstance(holder, dict) and key not in holder:
        return
    yield holder, key
    below = holder[key]
    keys = list(below) if isinstance(below, dict) else range(len(below)) if isinstance(below, list) else ()
    for one in keys:
        yield from _places_in(below, one)
