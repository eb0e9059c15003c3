"""The breaker: so many deletions in so short a time are more likely a mistake than a wish.

It counts what this process deletes, by kind, in a sliding window. One trip stops all kinds, not only the one that
tripped it: what is wrong then is what decides (a policy, a rule, a clock), and nothing says that it is wrong about one
kind only. What is kept by mistake goes after the release; what is deleted by mistake does not come back.
"""

from collections import Counter, deque
from collections.abc import Awaitable, Callable

from shared.core.durations import format_duration
from shared.core.kinds import KindRule
from shared.core.limits import BreakerLimits

PARTS = 60
"""Of a window: a deletion counts for up to one part longer than the window."""

CountObjects = Callable[[KindRule], Awaitable[int]]
"""How many objects of a kind there are now; may raise TryLaterError or PermanentError."""


class Breaker:
    """Counts deletions, and says when there were too many.

    Args:
        limits: What trips it.
        count_objects: Asked once a window for a kind of which more than `at_least` were deleted in it.
    """

    def __init__(self, limits: BreakerLimits, count_objects: CountObjects) -> None:
        self._limits = limits
        self._count_objects = count_objects
        self._seconds = max(1.0, limits.window.total_seconds())
        self._parts: deque[tuple[int, Counter[str]]] = deque()
        self._deletions: Counter[str] = Counter()
        self._objects: dict[str, tuple[float, int]] = {}

    @property
    def is_asked_for(self) -> bool:
        """Whether there is any limit."""
        return self._limits.count is not None or self._limits.share is not None

    async def get_ready(self, rule: KindRule, now: float) -> None:
        """Find out what `admit` has to know: how many objects of the kind there were.

        Raises:
            TryLaterError: It cannot be told now.
            PermanentError: It may not be known; without it nothing can be said about a share.
        """
        self._move(now)
        kind = _key(rule)
        if self._limits.share is None or self._deletions[kind] < self._limits.at_least:
            return
        counted_at, _ = self._objects.get(kind, (0.0, 0))
        if kind not in self._objects or now - counted_at > self._seconds:
            # What was deleted within the window was there at its start.
            before = self._deletions[kind]
            self._objects[kind] = now, before + await self._count_objects(rule)

    def admit(self, rule: KindRule, now: float) -> str:
        """Count one more deletion, or say in a few words why it would be one too many; then it is not counted."""
        self._move(now)
        kind = _key(rule)
        why = self._why_not(rule, kind)
        if not why:
            self._count(kind, now, 1)
        return why

    def give_back(self, rule: KindRule, now: float) -> None:
        """A deletion that was counted did not happen."""
        self._move(now)
        if self._deletions[_key(rule)] > 0:
            self._count(_key(rule), now, -1)

    def forget(self) -> None:
        """Begin anew: somebody has looked at what was counted, and released the breaker."""
        self._parts.clear()
        self._deletions.clear()
        self._objects.clear()

    def _why_not(self, rule: KindRule, kind: str) -> str:
        limits, window = self._limits, format_duration(self._limits.window)
        total, ofkind = self._deletions.total(), self._deletions[kind]
        if limits.count is not None and total >= limits.count:
            return f"{total} objects were deleted within {window}, and the limit is {limits.count}"
        _, objects = self._objects.get(kind, (0.0, 0))
        if limits.share is None or ofkind < limits.at_least or ofkind + 1 <= limits.share * objects:
            return ""
        share = f"{limits.share:.0%}"
        return f"{ofkind} of {objects} {rule.name} were deleted within {window}, and the limit is {share}"

    def _count(self, kind: str, now: float, number: int) -> None:
        part = int(now / self._seconds * PARTS)
        if not self._parts or self._parts[-1][0] != part:
            self._parts.append((part, Counter()))
        self._parts[-1][1][kind] += number
        self._deletions[kind] += number

    def _move(self, now: float) -> None:
        oldest = int(now / self._seconds * PARTS) - PARTS
        while self._parts and self._parts[0][0] < oldest:
            self._deletions.subtract(self._parts.popleft()[1])


def _key(rule: KindRule) -> str:
    return f"{rule.api_version.rpartition('/')[0]}/{rule.kind}"
