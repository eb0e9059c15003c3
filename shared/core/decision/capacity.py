"""The facts of limits by count and by quota: how many objects a group has, and how full a ResourceQuota is.

A ResourceQuota limits `count/PLURAL.GROUP`, or `count/PLURAL` for a kind of the core group. Under that name the API
server counts every object of the kind, finished or not. Under `pods` it counts no finished Pod, so the deletion of one
does not change that number. A quota with scopes counts no kind under `count/...`. So only `count/...` without scopes
matters.
"""

import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from shared.core.kinds.rule import KindRule
from shared.core.values.objects import get_in, get_text

RESOURCE_QUOTAS = KindRule(
    api_versions=("v1",),
    kind="ResourceQuota",
    plural="resourcequotas",
    never_finishes="it is a setting of a namespace",
)
"""The kind rule by which ResourceQuotas are listed; they never finish."""

_QUANTITY = re.compile(r"(\d{1,18}(?:\.\d{1,9})?)(k|M|G|T|Ki|Mi|Gi|Ti)?")
_FACTORS = {
    None: 1,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
}


@dataclass(frozen=True, slots=True)
class Counted:
    """The place of one object in the group that `maxCount` limits.

    Attributes:
        newer: How many objects of the group finished later.
        total: How many objects the group has.
        since: When the object was first beyond the limit: the finish time of the object that pushed it there. None if
            it is within the limit.
    """

    newer: int
    total: int
    since: datetime | None = None


@dataclass(frozen=True, slots=True)
class QuotaUsage:
    """How far a ResourceQuota is used.

    Attributes:
        name: The name of the ResourceQuota.
        resource: What it limits, such as `count/jobs.batch`.
        hard: The limit.
        used: The usage by its status.
    """

    name: str
    resource: str
    hard: int
    used: int

    def excess(self, percent: int, live: int | None = None) -> int:
        """How many objects must be deleted until at most this percentage is used.

        Args:
            percent: The percentage.
            live: How many objects a LIST shows that are not being deleted, if one was made. The status follows a
                deletion later, and the objects to delete are chosen from the LIST, so this number counts. But if the
                status shows room, no object must be deleted.
        """
        allowed = self.hard * percent // 100
        if self.used <= allowed:
            return 0
        return max((self.used if live is None else live) - allowed, 0)


@dataclass(frozen=True, slots=True)
class QuotaPressure:
    """What is known about the quotas that limit the number of objects of a kind in a namespace.

    Attributes:
        quotas: The usage of each quota.
        older: How many objects that the rule may delete finished before this object; None if they were not counted, or
            if the rule may not delete this object.
        live: How many objects of the kind a LIST shows that are not being deleted; None without a LIST.
        read_at: When the quotas were read.
    """

    quotas: tuple[QuotaUsage, ...] = ()
    older: int | None = None
    live: int | None = None
    read_at: datetime | None = None

    def fullest(self, percent: int) -> QuotaUsage | None:
        """The quota that requires the most deletions; None if no quota is used above the percentage."""
        above = [one for one in self.quotas if one.excess(percent, self.live)]
        return max(above, key=lambda one: one.excess(percent, self.live), default=None)

    def excess(self, percent: int) -> int:
        """How many objects must be deleted until no quota is used above the percentage."""
        fullest = self.fullest(percent)
        return fullest.excess(percent, self.live) if fullest else 0

    def is_over(self, percent: int) -> bool:
        """Return whether the object is one of those that must be deleted."""
        return self.older is not None and self.older < self.excess(percent)


WITHIN_COUNT = Counted(0, 0)
BEYOND_COUNT = Counted(sys.maxsize, sys.maxsize)
NO_PRESSURE = QuotaPressure()
FULL_PRESSURE = QuotaPressure((QuotaUsage("", "", hard=1, used=sys.maxsize),), older=0)
"""Assumptions about an object, by which its results are found before the facts are known."""


def usages_of(quotas: Iterable[Any], rule: KindRule) -> tuple[QuotaUsage, ...]:
    """The usage of each quota that limits the number of objects of a kind; a quota that cannot be read is left out.

    A quota with scopes counts none of them. A quota of 0 is left out, because no deletion makes room in it.
    """
    return tuple(_usages(quotas, f"count/{rule.name}"))


def _usages(quotas: Iterable[Any], resource: str) -> Iterator[QuotaUsage]:
    for quota in quotas:
        if get_in(quota, "spec.scopes") or get_in(quota, "spec.scopeSelector"):
            continue
        hard, used = (_read_count(get_in(quota, f"status.{field}"), resource) for field in ("hard", "used"))
        if hard and used is not None:
            yield QuotaUsage(get_text(quota, "metadata.name"), resource, hard, used)


def _read_count(amounts: Any, resource: str) -> int | None:
    """A number of objects, which the API server writes as a Kubernetes quantity; None if it cannot be read."""
    amount = amounts.get(resource) if isinstance(amounts, dict) else None
    found = _QUANTITY.fullmatch(str(amount)) if isinstance(amount, str | int) else None
    if found is None:
        return None
    number = Decimal(found[1]) * _FACTORS[found[2]]
    return int(number) if number == int(number) else None
