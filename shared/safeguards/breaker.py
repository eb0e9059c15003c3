"""The breaker: so many deletions in so short a time are more likely a mistake than a wish.

It counts what all processes of an installation delete, by kind, in a sliding window. One trip stops all kinds, not
only the one that tripped it: what is wrong then is what decides (a policy, a rule, a clock), and nothing says that it
is wrong about one kind only. What is kept by mistake goes after the release; what is deleted by mistake does not come
back.
"""

from collections.abc import Awaitable, Callable
from datetime import datetime

from shared.core.kinds.rule import KindRule
from shared.core.policy.limits import BreakerLimits
from shared.core.ttl.durations import format_duration
from shared.safeguards.deletion_counts import DeletionCounts

CountObjects = Callable[[KindRule], Awaitable[int]]
"""How many objects of a kind there are now; may raise TryLaterError or PermanentError."""


class Breaker:
    """Counts deletions, and says when there were too many.

    Args:
        limits: What trips it.
        count_objects: Asked once a window for a kind of which more than `at_least` were deleted in it.

    Attributes:
        tally: What it counted.
    """

    def __init__(self, limits: BreakerLimits, count_objects: CountObjects) -> None:
        self._limits = limits
        self._count_objects = count_objects
        self.deletion_counts = DeletionCounts(limits)
        self._objects: dict[str, tuple[datetime, int]] = {}

    @property
    def is_asked_for(self) -> bool:
        """Whether there is any limit."""
        return self._limits.count is not None or self._limits.share is not None

    async def get_ready(self, rule: KindRule, now: datetime) -> None:
        """Find out what `admit` has to know: how many objects of the kind there were.

        Raises:
            TryLaterError: It cannot be told now.
            PermanentError: It may not be known; without it nothing can be said about a share.
        """
        if self._limits.share is None:
            return
        kind = _key(rule)
        deleted = self.deletion_counts.of(kind, now)
        if deleted < self._limits.at_least:
            return
        counted = self._objects.get(kind)
        if counted is None or abs(now - counted[0]) > self._limits.window:
            # What was deleted within the window was there at its start.
            self._objects[kind] = now, deleted + await self._count_objects(rule)

    def admit(self, rule: KindRule, now: datetime) -> str:
        """Count one more deletion, or say in a few words why it would be one too many; then it is not counted."""
        if not self.is_asked_for:
            return ""
        why = self._why_not(rule, now)
        if not why:
            self.deletion_counts.count(_key(rule), now)
        return why

    def give_back(self, rule: KindRule, now: datetime) -> None:
        """A deletion that was counted did not happen."""
        self.deletion_counts.take_back(_key(rule), now)

    def forget(self) -> None:
        """Count the objects anew: the breaker was open, and much may have changed."""
        self._objects.clear()

    def _why_not(self, rule: KindRule, now: datetime) -> str:
        limits, window = self._limits, format_duration(self._limits.window)
        total, ofkind = self.deletion_counts.total(now), self.deletion_counts.of(_key(rule), now)
        if limits.count is not None and total >= limits.count:
            return f"{total} objects were deleted within {window}, and the limit is {limits.count}"
        _, objects = self._objects.get(_key(rule), (now, 0))
        if limits.share is None or ofkind < limits.at_least or ofkind + 1 <= limits.share * objects:
            return ""
        share = f"{limits.share:.0%}"
        return f"{ofkind} of {objects} {rule.name} were deleted within {window}, and the limit is {share}"


def _key(rule: KindRule) -> str:
    group = rule.api_version.rpartition("/")[0]
    return f"{rule.kind}.{group}" if group else rule.kind
