"""Passes over all carriers, and what each of them observed about one Secret or ConfigMap.

No watch can tell that nothing refers to an object any more. A pass lists each kind that may refer to it. It is complete
if each kind was listed as a whole at one resourceVersion.

A pass has to prove something only about the namespaces of which a policy rule has unused objects deleted. In any other
namespace, the decision about each object is to keep it, whatever refers to it.

Generations are objects that a tool makes one after the other, each with another suffix, for the same purpose.
`web-7fk2m5t8h9` of kustomize has a hash of its content, and `web-v12` has a number. If a newer generation is used, or
was seen used, an older one to which nothing refers was left behind. So it may be deleted although no pass saw it used.

Generations have the same kind, namespace and labels, and names that differ in the suffix alone. A number is a weaker
sign than a hash: `tenant-1` and `tenant-2` may have nothing to do with each other. So numbered generations need labels,
and the newest of them must have been used. Secrets with numbers are no generations: an old key still opens what it has
closed.
"""

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any

from shared.core.decision.namespaces import Namespace
from shared.core.policy.matching import Subject
from shared.core.policy.policy_rule import PolicyRule
from shared.core.policy.usage import is_opted_in
from shared.core.references.reference import Reference
from shared.core.usage.mark import read_used_at
from shared.core.usage.never_collected import SYSTEM_NAMESPACES
from shared.core.values.objects import ANNOUNCED_LABEL, get_in, get_text, parse_instant

VERSION_DIGITS_MAX = 40


@dataclass(frozen=True, slots=True)
class Pass:
    """One LIST of each carrier.

    Attributes:
        started_at: The API server's time before the first LIST.
        completed_at: The API server's time after the last LIST.
        versions: The resourceVersion of each LIST, by carrier: `pods`, `jobs.batch`. It has each kind that the API
            server serves and that may refer to a Secret or a ConfigMap.
        problem: Why the pass is not complete; empty if it is.
    """

    started_at: datetime
    completed_at: datetime
    versions: Mapping[str, str]
    problem: str = ""

    def find_problem(self) -> str:
        """Why the pass proves nothing; empty if it proves that an object without a reference is unused."""
        if self.problem:
            return self.problem
        if not self.versions:
            return "no carrier was listed"
        without = sorted(name for name, version in self.versions.items() if not version)
        if without:
            return f"the list of {without[0]} has no resourceVersion"
        return "" if self.started_at <= self.completed_at else "the pass ended before it started"


@dataclass(frozen=True, slots=True)
class Observation:
    """What one pass observed about one object.

    Attributes:
        of: The pass.
        references: The references that may name the object, those that cannot be read included.
        used_newer: The name of a newer generation of the object that is or was used; empty if there is none.
    """

    of: Pass
    references: tuple[Reference, ...] = ()
    used_newer: str = ""

    @property
    def is_used(self) -> bool:
        """Return whether a reference that can be read names the object."""
        return any(not one.problem for one in self.references)

    @property
    def is_named(self) -> bool:
        """Return whether a reference names exactly this object; it may be about something else."""
        return any(one.is_exact for one in self.references)

    @property
    def proves_use(self) -> bool:
        """Return whether the pass is complete, and a reference proves that the object is used."""
        return not self.of.find_problem() and any(one.proves_use for one in self.references)

    def find_problem(self) -> str:
        """Why it is unknown whether an object without a known reference is used; empty if that is known."""
        unreadable = next((f"{one.source}: {one.problem}" for one in self.references if one.problem), "")
        return self.of.find_problem() or unreadable

    @property
    def is_unused(self) -> bool:
        """Return whether the pass proves that nothing refers to the object."""
        return not self.references and not self.of.find_problem()


def is_confirmed(observations: Sequence[Observation], since: datetime) -> bool:
    """Return whether the last two of some passes, which started after an instant, prove that an object is unused.

    The second pass starts after the end of the first one, lists the same carriers, and lists none at an older version.

    Args:
        observations: What the passes observed, the oldest first.
        since: The instant from which on the object may be deleted.
    """
    if len(observations) < 2:  # noqa: PLR2004 - two passes
        return False
    first, second = observations[-2:]
    return (
        first.is_unused
        and second.is_unused
        and since <= first.of.started_at
        and first.of.completed_at <= second.of.started_at
        and are_consistent(first.of, second.of)
    )


def are_consistent(first: Pass, second: Pass) -> bool:
    """Return whether a later pass lists the same carriers as an earlier one, and none of them at an older version."""
    if first.versions.keys() != second.versions.keys():
        return False
    return not any(_is_older(second.versions[name], version) for name, version in first.versions.items())


def _is_older(version: str, other: str) -> bool:
    """Return whether a resourceVersion is known to be older; versions that are no numbers cannot be compared."""
    numbers = [
        int(one) for one in (version, other) if one.isascii() and one.isdigit() and len(one) <= VERSION_DIGITS_MAX
    ]
    return len(numbers) == 2 and numbers[0] < numbers[1]  # noqa: PLR2004 - both


def collected_by(policy_rules: Iterable[PolicyRule]) -> Callable[[Namespace], bool]:
    """Return a test whether one of some policy rules may have unused objects of a namespace marked or deleted.

    What else a rule matches, such as labels of the objects, is not considered.
    """
    rules = [
        (rule.match, tuple(rule.match.namespaces.tests()) if rule.match.namespaces else ())
        for rule in policy_rules
        if rule.unused is not None
    ]

    def is_collected(namespace: Namespace) -> bool:
        name = namespace.ref.name
        if name in SYSTEM_NAMESPACES or namespace.problem or namespace.is_exempt:
            return False
        subject = Subject({}, None, namespace, name)
        return any(is_opted_in(match, namespace) and all(test(subject) for test in tests) for match, tests in rules)

    return is_collected


GAP = timedelta(minutes=1)
"""The least time between the creations of two generations: an installation makes several objects within seconds."""

_HASH = re.compile(r"(.+)-(?=[0-9]*[a-z])[2456789bcdfghkmt]{10}")
"""The suffix of kustomize: ten hexadecimal digits, of which 0, 1, 3, a and e are other letters (`api/hasher`).

A suffix of digits alone is more likely the number of a tenant or of a ticket.
"""

_NUMBER = re.compile(r"(.*[^-.0-9]-|.+[-.](?:v|rev-?))([0-9]{1,9})")
"""A number after `-`, `-v`, `.v`, `-rev` or `-rev-`, but not as the last of several: `web-1-2` may be a version."""

_HASH_DIGITS = 32

_Family = tuple[str, str, str, str]
"""The kind, the namespace, the name without its suffix, and a hash of the labels."""


@dataclass(frozen=True, slots=True)
class Generation:
    """One object of a family.

    Attributes:
        name: Its name.
        number: The number in its suffix; None if the suffix is a hash.
        created_at: When it was created.
        was_used: Whether its use is recorded.
    """

    name: str
    number: int | None
    created_at: datetime
    was_used: bool = False

    def is_older_than(self, other: "Generation") -> bool:
        """Return whether it was made before another generation, by the creation and by the number."""
        is_lower = self.number is None or other.number is None or self.number < other.number
        return is_lower and self.created_at + GAP <= other.created_at


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
    """The generations that a pass saw used, and those whose use is recorded.

    Attributes:
        generations: All generations.
        is_used: Whether the pass proves the use of an object, by its kind, namespace and name.
    """

    generations: Generations
    is_used: Callable[[str, str, str], bool]
    _bounds: dict[_Family, tuple[Generation, Generation | None] | None] = field(default_factory=dict)

    def find_newer(self, obj: Any) -> str:
        """The name of a newer generation that is or was used; empty if there is none.

        The object must also be older than each generation that is used now. After a rollback the newest one is not
        used, and may be needed again: nothing shows that it was left behind.

        Args:
            obj: The object; its metadata is enough.
        """
        found = _read(obj)
        if found is None:
            return ""
        family, itself = found
        if family not in self._bounds:  # once for each family, which may have thousands of objects
            self._bounds[family] = self._find_bounds(family)
        if (bounds := self._bounds[family]) is None:
            return ""
        newest, oldest_now = bounds
        is_older = itself.is_older_than(newest) and (oldest_now is None or itself.is_older_than(oldest_now))
        return newest.name if is_older else ""

    def _find_bounds(self, family: _Family) -> tuple[Generation, Generation | None] | None:
        """The newest generation that is or was used, and the oldest one that is used now, with the lowest number."""
        kind, namespace, *_ = family
        members = self.generations.find(family)
        now = [one for one in members if self.is_used(kind, namespace, one.name)]
        seen = [*now, *(one for one in members if one.was_used)]
        if not seen:
            return None
        newest = max(seen, key=lambda one: (one.number or 0, one.created_at))
        if newest.number is not None and newest.number < max(one.number or 0 for one in members):
            return None
        if not now:
            return newest, None
        lowest = min((one.number for one in now if one.number is not None), default=None)
        return newest, replace(min(now, key=lambda one: one.created_at), number=lowest)


def _read(obj: Any) -> tuple[_Family, Generation] | None:
    """The family of an object, and its generation; None if its name has no suffix, or if its age is unknown."""
    kind, namespace, name = (get_text(obj, path) for path in ("kind", "metadata.namespace", "metadata.name"))
    if found := _HASH.fullmatch(name):
        stem, number = f"{found[1]}-#", None
    elif kind == "ConfigMap" and (found := _NUMBER.fullmatch(name)):
        stem, number = found[1], int(found[2])
    else:
        return None
    try:
        created_at = parse_instant(get_in(obj, "metadata.creationTimestamp"))
    except ValueError:
        return None
    if not (labels := _hash_labels(obj)) and number is not None:
        return None
    return (kind, namespace, stem, labels), Generation(name, number, created_at, read_used_at(obj) is not None)


def _hash_labels(obj: Any) -> str:
    """A hash of the labels, without the label of our announcement; empty if there are none."""
    labels = get_in(obj, "metadata.labels")
    others = {key: value for key, value in labels.items() if key != ANNOUNCED_LABEL} if isinstance(labels, dict) else {}
    return sha256(json.dumps(others, sort_keys=True).encode()).hexdigest()[:_HASH_DIGITS] if others else ""
