"""Passes over all carriers, and what each of them observed about one Secret or ConfigMap.

No watch can tell that nothing refers to an object any more. A pass lists each kind that may refer to it. It is complete
if each kind was listed as a whole at one resourceVersion.

A pass has to prove something only about the objects of these. In any other namespace, the decision about each object is
to keep it, whatever refers to it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from shared.core.decision.namespaces import Namespace
from shared.core.policy.matching import Subject
from shared.core.policy.policy_rule import PolicyRule
from shared.core.policy.usage import is_opted_in
from shared.core.references.reference import Reference
from shared.core.usage.never_collected import SYSTEM_NAMESPACES

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
