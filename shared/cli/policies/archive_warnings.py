"""Warnings about the archives of a policy: owners whose deletion waits for the archive of their children."""

from collections import Counter
from collections.abc import Iterator, Sequence

from shared.core.archive.gate import find_propagation
from shared.core.decide import Ignore
from shared.core.kinds.catalogue import Catalogue
from shared.core.kinds.rule import KindRule
from shared.core.policy.policy import Policy
from shared.evaluation.batch import BatchResult


def describe_owners(objects: Sequence[BatchResult], policy: Policy, kinds: Catalogue) -> Iterator[str]:
    """Say how many objects may be deleted later than shown: a rule has their children archived, which go with them.

    `plan` does not read the children of each object.

    Args:
        objects: The decisions about each object; the last one counts.
        policy: The policy of these decisions.
        kinds: All known kinds.
    """
    counts: Counter[tuple[str, str]] = Counter()
    for one in objects:
        if _takes_children(one):
            for child in _archived_children(one.rule, kinds, policy):
                counts[one.rule.name, child.name] += 1
    for (owner, name), count in counts.items():
        yield (
            f"{count:,} {owner} may be deleted later than shown: not before their {name} are archived, and the grace of"
            " that archive is over; `kubectl ttl explain` shows it for one of them"
        )


def _takes_children(one: BatchResult) -> bool:
    """Return whether an object is deleted now or later, by its TTL or at its deadline, and its children with it."""
    decision, stop = one.decisions[-1], one.stops[-1]
    ends = decision if not isinstance(decision, Ignore) else stop
    is_deleted = not isinstance(ends, Ignore) and (ends is decision or stop.facts.active.deletes)
    return is_deleted and find_propagation(ends.facts, one.rule) != "Orphan"


def _archived_children(rule: KindRule, kinds: Catalogue, policy: Policy) -> Iterator[KindRule]:
    for child in rule.children:
        yield from (one for one in kinds.of(child.group, child.kind)[:1] if policy.archives_kind(one))
