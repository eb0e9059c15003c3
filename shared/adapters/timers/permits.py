"""The permits for the deliveries of one purpose, divided among kinds and, within a kind, among namespaces.

A kind may use as many permits as are free, and a namespace as many as its kind then leaves. So a single kind gets half
of all permits, one namespace of it a third, and each further kind up to half of the remaining permits. If the last
delivery of a share failed, the share gets few permits, so deliveries that hang use few.
"""

from collections import Counter

from shared.core.values.objects import ObjectRef

Share = tuple[str, str]
"""A competitor for the permits of deliveries: `apiVersion kind`, and the namespace."""

FAILING_PERMITS = 2
"""Permits of a share whose last delivery failed: enough to notice that it works again."""

FAILING_MAX = 10_000
"""Maximum number of shares remembered as failing; beyond it the oldest is dropped and gets its usual permits."""


class Permits:
    """Counts the deliveries in flight.

    Args:
        total: The maximum number of deliveries in flight.
    """

    def __init__(self, total: int) -> None:
        self._total = total
        self._kinds: Counter[str] = Counter()
        self._shares: Counter[Share] = Counter()
        self._failing: dict[Share, None] = {}

    @property
    def free(self) -> int:
        """The number of free permits."""
        return self._total - self._kinds.total()

    def may_take(self, share: Share) -> bool:
        """Return whether the share may start one more delivery."""
        left = self.free - self._kinds[share[0]]
        return self._shares[share] < (min(left, FAILING_PERMITS) if share in self._failing else left)

    def take(self, share: Share) -> None:
        """Take a permit until `give`."""
        self._kinds[share[0]] += 1
        self._shares[share] += 1

    def give(self, share: Share, *, failed: bool | None) -> None:
        """Free the permit of a delivery that ended; `failed` is None if it never started, which says nothing."""
        self._kinds -= Counter((share[0],))  # drops zero counts
        self._shares -= Counter((share,))
        if failed is None:
            return
        self._failing.pop(share, None)
        if failed:
            self._failing[share] = None
            if len(self._failing) > FAILING_MAX:
                del self._failing[next(iter(self._failing))]


def share_of(ref: ObjectRef) -> Share:
    """Return the share whose permit a delivery takes."""
    return f"{ref.api_version} {ref.kind}", ref.namespace
