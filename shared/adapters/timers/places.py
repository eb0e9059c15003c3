"""The places for deliveries of one purpose, shared among kinds and, within a kind, among namespaces.

A kind may hold as many places as are free, and a namespace as many as its kind then leaves. So a kind that is alone
gets half of all places, one namespace of it a third, and each further kind up to half of what is left. A share whose
last delivery failed gets few places, so what hangs for long holds few.
"""

from collections import Counter

FAILING_PLACES = 2
"""Deliveries at once of a share whose last one failed: enough to see that it works again."""

FAILING_MAX = 10_000
"""Shares remembered as failing; beyond it the oldest is forgotten, and gets its usual places."""

Share = tuple[str, str]
"""Who competes for places: `apiVersion kind`, and the namespace."""


class Places:
    """Counts what is in flight.

    Args:
        total: Deliveries at once.
    """

    def __init__(self, total: int) -> None:
        self._total = total
        self._kinds: Counter[str] = Counter()
        self._shares: Counter[Share] = Counter()
        self._failing: dict[Share, None] = {}

    @property
    def free(self) -> int:
        """The places that nothing holds."""
        return self._total - self._kinds.total()

    def may_take(self, share: Share) -> bool:
        """Whether one more delivery of the share may start."""
        left = self.free - self._kinds[share[0]]
        return self._shares[share] < (min(left, FAILING_PLACES) if share in self._failing else left)

    def take(self, share: Share) -> None:
        """Hold a place until `give`."""
        self._kinds[share[0]] += 1
        self._shares[share] += 1

    def give(self, share: Share, *, failed: bool) -> None:
        """A delivery ended, and its place is free."""
        self._kinds -= Counter((share[0],))  # which drops what comes to nothing
        self._shares -= Counter((share,))
        self._failing.pop(share, None)
        if failed:
            self._failing[share] = None
            if len(self._failing) > FAILING_MAX:
                del self._failing[next(iter(self._failing))]
