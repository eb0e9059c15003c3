"""Decide which documents an archive no longer keeps, and whether a round may delete them.

A round deletes nothing if it would delete too much: a wrong clock or a wrong `keep` then costs a message, and not the
archive.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime, timedelta

PRUNE_SHARE_MAX = 0.5
"""The largest share of the stored files that one round deletes, unless an operator asks for all of them."""


@dataclass(frozen=True, slots=True)
class PruneCount:
    """What a round has found, before it deletes.

    Attributes:
        expired: The files that are older than `keep`.
        expired_bytes: Their bytes in the store.
        kept: The files that are not; at least as many as were counted.
    """

    expired: int = 0
    expired_bytes: int = 0
    kept: int = 0

    def kept_needed(self) -> int:
        """How many kept files prove that the share of the expired ones is not too large."""
        return math.ceil(self.expired * (1 - PRUNE_SHARE_MAX) / PRUNE_SHARE_MAX)


def is_expired(stored_at: datetime, keep: timedelta, now: datetime) -> bool:
    """Whether a file was stored longer ago than it is kept."""
    return stored_at + keep <= now


def select_days(days: Iterable[str], keep: timedelta, now: datetime) -> tuple[list[str], list[str]]:
    """Divide the days of keys into those that may have expired files, and those that have none.

    The day of a key is that of the finish. An object is stored after it has finished, so a file of a later day than the
    last one that expired was stored later as well. A day after now is a wrong finish time, which a user may write: its
    files may be of any age. `is_expired` decides about each file by the time at which it was stored.

    Raises:
        ValueError: A day is not a date.
    """
    last, today = (now - keep).date(), now.date()
    old, new = list[str](), list[str]()
    for day in days:
        (new if last < date.fromisoformat(day) <= today else old).append(day)
    return old, new


def find_prune_refusal(count: PruneCount, *, everything: bool) -> str:
    """Return why a round deletes nothing; empty if it may delete what has expired.

    Args:
        count: What the round has found.
        everything: Whether an operator has asked to delete all that has expired, however much it is.
    """
    if not count.expired or everything:
        return ""
    if not count.kept:
        return f"all {count.expired} files have expired; check keep and the clock, or set --all to delete all of them"
    if count.kept < count.kept_needed():
        total = count.expired + count.kept
        return (
            f"{count.expired} of {total} files have expired, which is more than {PRUNE_SHARE_MAX:.0%}; check keep and "
            "the clock, or set --all to delete them"
        )
    return ""
