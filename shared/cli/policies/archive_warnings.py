"""Warnings about the archives of a new policy: archived children that go with an owner that has no archive."""

from collections import Counter
from collections.abc import Iterator

from shared.cli.policies.comparison import Comparison
from shared.core.decide import Decision, Ignore
from shared.core.kinds.rule import KindRule
from shared.core.policy.policy import Policy
from shared.evaluation.batch import BatchResult


def describe_archives(comparison: Comparison, policy: Policy) -> Iterator[str]:
    """Say for which kinds the garbage collector would delete children that the new policy has archived.

    If an owner is deleted, its dependents follow. The gate of an archive keeps an object only from our own DELETE.
    """
    kinds = {(one.rule.group, one.rule.kind): one.rule for one in comparison.objects}
    counts: Counter[tuple[str, str]] = Counter()
    for one in comparison.objects:
        if _goes_unarchived(one.decisions[1], one):
            for child in _archived_children(one.rule, kinds, policy):
                counts[one.rule.name, child.name] += 1
    for (owner, name), count in counts.items():
        yield (
            f"{count:,} {owner} are deleted without an archive, and the garbage collector deletes their {name} with"
            f" them, which a rule has archived: set `archive` in a rule that matches {owner}"
        )


def _goes_unarchived(decision: Decision, one: BatchResult) -> bool:
    """Return whether an object is due, now or later, without an archive, and its dependents follow it."""
    facts = decision.facts
    propagation = (facts.policy_rule.propagation if facts.policy_rule else None) or one.rule.propagation
    return not isinstance(decision, Ignore) and facts.archiving is None and propagation != "Orphan"


def _archived_children(rule: KindRule, kinds: dict[tuple[str, str], KindRule], policy: Policy) -> Iterator[KindRule]:
    for child in rule.children:
        known = kinds.get((child.group, child.kind))
        if known is not None and policy.archives_kind(known):
            yield known
