"""Generations: objects that a tool makes one after the other, each with a suffix of its own, for the same purpose.

`web-7fk2m5t8h9` of kustomize has a hash of its content, and `web-v12` has a number. If a newer generation is used, an
older one to which nothing refers was left behind. So it may be deleted although no pass saw it used.

Generations have the same kind, namespace and labels, and names that differ in the suffix alone. A number is a weaker
sign than a hash: `tenant-1` and `tenant-2` may have nothing to do with each other. So numbered generations need labels,
and the newest of them must be used.
"""

import json
import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from shared.core.objects import ANNOUNCED_LABEL, get_in, get_text, parse_instant

_HASH = re.compile(r"(.+)-[2456789bcdfghkmt]{10}")
"""The suffix of kustomize: ten hexadecimal digits, of which 0, 1, 3, a and e are other letters (`api/hasher`)."""

_NUMBER = re.compile(r"(.+?[-.](?:v|rev)?)([0-9]{1,9})")

_NO_LABELS = "{}"

_Family = tuple[str, str, str, str]
"""The kind, the namespace, the name without its suffix, and the labels."""


@dataclass(frozen=True, slots=True)
class Generation:
    """One object of a family.

    Attributes:
        name: Its name.
        number: The number in its suffix; None if the suffix is a hash.
        created_at: When it was created.
    """

    name: str
    number: int | None
    created_at: datetime

    def is_older_than(self, other: "Generation") -> bool:
        """Return whether it was made before another generation, by the creation and by the number.

        Objects that are made at the same time are no generations, such as one for each replica.
        """
        is_lower = self.number is None or other.number is None or self.number < other.number
        return is_lower and self.created_at < other.created_at


@dataclass(slots=True)
class Generations:
    """The generations among Secrets and ConfigMaps."""

    _families: defaultdict[_Family, list[Generation]] = field(default_factory=lambda: defaultdict(list))

    def add(self, obj: Any) -> None:
        """Add an object, if its name has the suffix of a generation."""
        if (found := _read(obj)) is not None:
            family, generation = found
            self._families[family].append(generation)

    def find(self, family: _Family) -> Sequence[Generation]:
        """The generations of a family."""
        return self._families.get(family, ())


@dataclass(frozen=True, slots=True)
class UsedGenerations:
    """The generations that a pass saw used.

    Attributes:
        generations: All generations.
        is_used: Whether the pass proves the use of an object, by its kind, namespace and name.
    """

    generations: Generations
    is_used: Callable[[str, str, str], bool]
    _oldest: dict[_Family, Generation | None] = field(default_factory=dict)

    def find_newer(self, obj: Any) -> str:
        """The name of a newer generation that is used; empty if there is none.

        The object must be older than each generation that is used. After a rollback the newest one is not used, and may
        be needed again: nothing shows that it was left behind.

        Args:
            obj: The object; its metadata is enough.
        """
        found = _read(obj)
        if found is None:
            return ""
        family, itself = found
        if family not in self._oldest:  # once for each family, which may have thousands of objects
            self._oldest[family] = self._find_oldest(family)
        oldest = self._oldest[family]
        return oldest.name if oldest is not None and itself.is_older_than(oldest) else ""

    def _find_oldest(self, family: _Family) -> Generation | None:
        """The first of the used generations, with the lowest number of all of them; None if none is used."""
        kind, namespace, *_ = family
        all_of_it = self.generations.find(family)
        used = [one for one in all_of_it if self.is_used(kind, namespace, one.name)]
        if not used:
            return None
        oldest = min(used, key=lambda one: one.created_at)
        if oldest.number is None:
            return oldest
        newest = max(all_of_it, key=lambda one: one.number or 0)
        lowest = min(one.number or 0 for one in used)
        return replace(oldest, number=lowest) if newest in used else None


def _read(obj: Any) -> tuple[_Family, Generation] | None:
    """The family of an object, and its generation; None if its name has no suffix, or if its age is unknown."""
    kind, namespace, name = (get_text(obj, path) for path in ("kind", "metadata.namespace", "metadata.name"))
    try:
        created_at = parse_instant(get_in(obj, "metadata.creationTimestamp"))
    except ValueError:
        return None
    labels = _labels_of(obj)
    if found := _HASH.fullmatch(name):
        return (kind, namespace, f"{found[1]}-#", labels), Generation(name, None, created_at)
    if labels != _NO_LABELS and (found := _NUMBER.fullmatch(name)):
        return (kind, namespace, found[1], labels), Generation(name, int(found[2]), created_at)
    return None


def _labels_of(obj: Any) -> str:
    """The canonical text of the labels, without the label of our announcement."""
    labels = get_in(obj, "metadata.labels")
    others = {key: value for key, value in labels.items() if key != ANNOUNCED_LABEL} if isinstance(labels, dict) else {}
    return json.dumps(others, sort_keys=True)
