"""Deletion counts of processes, and what they write."""

import json
from collections import Counter

from shared.core.policy.limits import BreakerLimits
from shared.safeguards.deletion_counts import DeletionCounts
from shared.safeguards.state_schema import DELETIONS
from tests.builders import NOW


def counting(number, limits: BreakerLimits, *, kind="Pod", now=NOW):
    """The counts of a process that deleted so many objects."""
    deletion_counts = DeletionCounts(limits)
    for _ in range(number):
        deletion_counts.count(kind, now)
    return deletion_counts


def keys_of(data):
    """The keys with deletions."""
    return [name for name in data if name.startswith(DELETIONS)]


def counts(data):
    """The deletions that all processes wrote, by kind."""
    counted: Counter[str] = Counter()
    for name in keys_of(data):
        for kind, parts in json.loads(data[name])["kinds"].items():
            counted[kind] += sum(parts.values())
    return counted
