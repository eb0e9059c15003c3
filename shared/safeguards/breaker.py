"""The breaker: too many deletions in a short time open it, and then nothing is deleted until a person releases it.

The breaker counts the deletions of all processes of an installation by kind, in a sliding window. One trip stops all
kinds: the cause is probably a wrong policy, kind rule or clock, which may concern other kinds as well. An object that
is kept by mistake is deleted after the release; an object that is deleted by mistake is lost. The first names that an
open breaker keeps are stored for the person who decides whether to release it.
"""

from collections import defaultdict, deque
from collections.abc import Awaitable, Callable
from datetime import datetime

from shared.core.kinds.rule import KindRule
from shared.core.policy.limits import BreakerLimits
from shared.core.ttl.durations import format_duration
from shared.ports import EventReason, State, WriteEvent
from shared.safeguards.deletion_counts import DeletionCounts
from shared.safeguards.state_schema import BREAKER, KEPT, Data, Trip, compact, parse_kept, parse_state, without_trip

KEPT_NAMES_MAX = 20
"""Names in the shared state, of all processes: at most about 8 kB."""

CountObjects = Callable[[KindRule], Awaitable[int]]
"""Counts the present objects of a kind; may raise TryLaterError or PermanentError."""


class Breaker:
    """Counts deletions, and denies those beyond the limits.

    Args:
        limits: The limits that trip it.
        count_objects: Called once a window for each kind with at least `at_least` deletions in it.

    Attributes:
        deletion_counts: The deletions of all processes.
    """

    def __init__(self, limits: BreakerLimits, count_objects: CountObjects) -> None:
        self._limits = limits
        self._count_objects = count_objects
        self.deletion_counts = DeletionCounts(limits)
        self._objects: dict[str, tuple[datetime, int]] = {}
        self._stops: defaultdict[str, deque[datetime]] = defaultdict(deque)

    @property
    def is_asked_for(self) -> bool:
        """Return whether any limit is set."""
        return self._limits.count is not None or self._limits.share is not None

    async def get_ready(self, rule: KindRule, now: datetime) -> None:
        """Count the objects of the kind for `admit`, if a limit is a share of them.

        Raises:
            TryLaterError: They cannot be counted now.
            PermanentError: The right to count them is missing, so a share cannot be checked.
        """
        if self._limits.share is None:
            return
        kind = _key(rule)
        deleted = self.deletion_counts.of(kind, now)
        if deleted < self._limits.at_least:
            return
        counted = self._objects.get(kind)
        if counted is None or abs(now - counted[0]) > self._limits.window:
            # The objects that were deleted within the window existed at its start; those that were stopped still exist.
            gone = max(deleted - self._count_stops(kind, now), 0)
            self._objects[kind] = now, gone + await self._count_objects(rule)

    def stopped(self, rule: KindRule, now: datetime) -> None:
        """Note that the object that was counted was stopped, so that it still exists."""
        if self._limits.share is not None:
            self._stops[_key(rule)].append(now)
            self._count_stops(_key(rule), now)

    def _count_stops(self, kind: str, now: datetime) -> int:
        """Count the stops of this process within the window."""
        stops = self._stops[kind]
        while stops and now - stops[0] > self._limits.window:
            stops.popleft()
        return len(stops)

    def admit(self, rule: KindRule, now: datetime) -> str:
        """Count one more deletion and return an empty text; or return why it exceeds a limit, and do not count it."""
        if not self.is_asked_for:
            return ""
        excess = self._find_excess(rule, now)
        if not excess:
            self.deletion_counts.count(_key(rule), now)
        return excess

    def give_back(self, rule: KindRule, now: datetime) -> None:
        """Take back a deletion that was counted and did not happen."""
        self.deletion_counts.take_back(_key(rule), now)

    def forget(self) -> None:
        """Count the objects again, since their number may have changed while the breaker was open."""
        self._objects.clear()
        self._stops.clear()

    def _find_excess(self, rule: KindRule, now: datetime) -> str:
        limits, window = self._limits, format_duration(self._limits.window)
        total, of_kind = self.deletion_counts.total(now), self.deletion_counts.of(_key(rule), now)
        if limits.count is not None and total >= limits.count:
            deleted = "1 object was" if total == 1 else f"{total} objects were"
            return f"{deleted} deleted within {window}, and the limit is {limits.count}"
        _, objects = self._objects.get(_key(rule), (now, 0))
        if limits.share is None or of_kind < limits.at_least or of_kind + 1 <= limits.share * objects:
            return ""
        share = f"{limits.share:.0%}"
        were = "was" if of_kind == 1 else "were"
        return f"{of_kind} of {objects} {rule.name} {were} deleted within {window}, and the limit is {share}"


class KeptNames:
    """The first names that the open breaker keeps; see `StatePart`."""

    def __init__(self) -> None:
        self._known: dict[str, None] = {}
        self._new: dict[str, None] = {}

    def add(self, name: str) -> None:
        """Note the name of an object that was kept; only the first names are stored."""
        if name not in self._known and len(self._known) + len(self._new) < KEPT_NAMES_MAX:
            self._new[name] = None

    @property
    def has_unwritten(self) -> bool:
        """See `StatePart`."""
        return bool(self._new)

    def merge(self, data: Data, now: datetime) -> Data:  # noqa: ARG002 - of the protocol
        """See `StatePart`; while the breaker is closed, no name is written."""
        if BREAKER not in data:
            return data
        names = dict.fromkeys((*parse_kept(data), *self._new))
        return {**data, KEPT: compact(list(names)[:KEPT_NAMES_MAX])}

    def learn(self, data: Data, now: datetime, *, is_written: bool) -> None:  # noqa: ARG002 - as above
        """See `StatePart`."""
        if is_written or BREAKER not in data:
            self._new.clear()
        self._known = dict.fromkeys(parse_kept(data)) if BREAKER in data else {}


async def release_breaker(state: State, write_event: WriteEvent) -> Trip | None:
    """Close the breaker; every process deletes again within seconds, and counts from zero.

    Args:
        state: The shared state.
        write_event: Writes a Kubernetes Event about the installation.

    Returns:
        The trip that was released; None if the breaker was closed.

    Raises:
        TtlError: The state cannot be read or written.
    """
    trip = parse_state(await state.read()).trip
    if trip is None:
        return None
    await state.write(without_trip)
    await write_event(EventReason.BREAKER_RELEASED, f"deletes again; nothing was deleted {trip}", "Normal")
    return trip


def _key(rule: KindRule) -> str:
    group = rule.api_version.rpartition("/")[0]
    return f"{rule.kind}.{group}" if group else rule.kind
