"""What denies deletions: a recreate loop keeps one name, and the breaker and the brake stop all deletions.

A recreate loop: a name was deleted again and again, each time with a new uid, so a controller recreates it. Another
deletion would not help, and the loop would never end. So the object of that name is kept until the window ends. A
process remembers many names. The most relevant names are a value of the shared state (see `state_schema`), since a
process may end between two rounds of a loop. The value is compact JSON: for each name, a checksum of each uid and the
time of its deletion:

    names    {"Job.batch/ci/build-42": {"1f0b3c55": 1767323045, "9a31d07e": 1767323110}}

The breaker: too many deletions in a short time open it, and then nothing is deleted until a person releases it. It
counts the deletions of all processes of an installation by kind, in a sliding window. One trip stops all kinds: the
cause is probably a wrong policy, kind rule or clock, which may concern other kinds as well. An object that is kept by
mistake is deleted after the release; an object that is deleted by mistake is lost. The first names that an open breaker
keeps are stored for the person who decides whether to release it.

The brake: a person stops all deletions of an installation, and starts them again. It is a key of the shared state. The
last check of a DELETE uses a read that is at most `CACHED_SECONDS` old, and the DELETE leaves the process within
`LEAVE_SECONDS_MAX` after that check.
"""

import re
import zlib
from collections import OrderedDict, defaultdict, deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from shared.core.kinds.rule import KindRule
from shared.core.policy.limits import BreakerLimits, RecreationLimits
from shared.core.values.objects import ObjectRef, get_text
from shared.core.values.timing import format_duration
from shared.errors import TtlError
from shared.ports import EventReason, State, WriteEvent
from shared.safeguards.deletion_counts import DeletionCounts
from shared.safeguards.state_schema import (
    BREAKER,
    KEPT,
    NAMES,
    PROCESS_AHEAD_MAX,
    BrakeStop,
    Data,
    Trip,
    compact,
    parse_kept,
    parse_state,
    read_json,
    with_stop,
    without_stop,
    without_trip,
)

NAMES_MAX = 10_000
"""Names that a process remembers; the name that was deleted the longest ago is forgotten first."""

SHARED_MAX = 200
"""Names in the shared state. On an idle cluster, where processes come and go, that is every name."""

SHARED_CHARACTERS_MAX = 30_000
"""Characters of the value in the shared state."""

_RANDOM = re.compile("[bcdfghjklmnpqrstvwxz2456789]{5}")  # the suffix that the API server appends to a generateName
_PREFIX_MAX = 58  # characters of a generateName that the API server uses

_Marks = dict[str, datetime]  # of a uid -> when it was deleted


def name_of(ref: ObjectRef) -> str:
    """`Job.batch/ci/build-42`: the identity that a recreated object has again; the API version is not part of it."""
    group = ref.api_version.rpartition("/")[0]
    kind = f"{ref.kind}.{group}" if group else ref.kind
    return f"{kind}/{ref.namespace}/{ref.name}"


def may_recur(obj: Any) -> bool:
    """Return whether another object may get the name, as a Pod of a StatefulSet does although it has a generateName."""
    name, prefix = get_text(obj, "metadata.name"), get_text(obj, "metadata.generateName")
    return not (prefix and name[:-5] == prefix[:_PREFIX_MAX] and _RANDOM.fullmatch(name[-5:]))


class Recreations:
    """Remembers recent deletions by name.

    Args:
        limits: How many deletions within which window are a loop.
    """

    def __init__(self, limits: RecreationLimits) -> None:
        self._limits = limits
        self._deleted: OrderedDict[str, _Marks] = OrderedDict()
        self._unwritten: dict[str, datetime] = {}
        self._sent: dict[str, datetime] = {}

    def deleted(self, ref: ObjectRef, now: datetime, *, recurs: bool = True) -> None:
        """Note that this object was deleted.

        Args:
            ref: The object.
            now: When.
            recurs: Whether another object may get its name; a generated name is not shared.
        """
        if not self._limits.times:
            return
        name = name_of(ref)
        self._remember(name, {_mark(ref): now}, now)
        self._deleted.move_to_end(name)
        if recurs:
            self._unwritten[name] = now

    def is_loop(self, ref: ObjectRef, now: datetime) -> bool:
        """Return whether this object is in a loop: `times` others of its name were deleted within the window."""
        if not self._limits.times:
            return False
        recent = self._newest(self._deleted.get(name_of(ref), {}), now)
        return len(recent.keys() - {_mark(ref)}) >= self._limits.times

    def kept_until(self, now: datetime) -> datetime:
        """Return the instant from which a name that is in a loop now may be deleted again."""
        return now + self._limits.window

    @property
    def has_unwritten(self) -> bool:
        """See `shared.safeguards.state_schema.StatePart`."""
        return bool(self._unwritten)

    def merge(self, data: Data, now: datetime) -> Data:
        """See `shared.safeguards.state_schema.StatePart`."""
        self._sent = dict(self._unwritten)
        if not self._sent:
            return data
        names = self._parse(data, now)
        for name in self._sent:
            names[name] = self._newest({**names.get(name, {}), **self._deleted[name]}, now)
        return {**data, NAMES: _bounded(names)}

    def learn(self, data: Data, now: datetime, *, is_written: bool) -> None:
        """See `shared.safeguards.state_schema.StatePart`."""
        if is_written:
            self._unwritten = {name: at for name, at in self._unwritten.items() if self._sent.get(name) != at}
        for name, marks in self._parse(data, now).items():
            self._remember(name, marks, now)

    def _remember(self, name: str, marks: _Marks, now: datetime) -> None:
        self._deleted[name] = self._newest({**marks, **self._deleted.get(name, {})}, now)
        if len(self._deleted) > NAMES_MAX:
            forgotten, _ = self._deleted.popitem(last=False)
            self._unwritten.pop(forgotten, None)

    def _newest(self, marks: _Marks, now: datetime) -> _Marks:
        """Return the marks within the window, at most as many as make a loop."""
        counting = [(at, mark) for mark, at in marks.items() if -PROCESS_AHEAD_MAX <= now - at <= self._limits.window]
        return {mark: at for at, mark in sorted(counting)[-self._limits.times :]}

    def _parse(self, data: Data, now: datetime) -> dict[str, _Marks]:
        """Return the valid names; never raise, since a user may have edited the state."""
        if not self._limits.times:
            return {}
        names = _items(read_json(data.get(NAMES, "")))
        return dict(_most_relevant({name: self._newest(_parse_marks(marks), now) for name, marks in names}))


def _most_relevant(names: Mapping[str, _Marks]) -> list[tuple[str, _Marks]]:
    """Return the names deleted the most often first, then those deleted last."""
    marked = [(name, marks) for name, marks in names.items() if marks]
    return sorted(marked, key=lambda one: (len(one[1]), max(one[1].values())), reverse=True)[:SHARED_MAX]


def _bounded(names: Mapping[str, _Marks]) -> str:
    shared: dict[str, dict[str, int]] = {}
    length = 0
    for name, marks in _most_relevant(names):
        seconds = {mark: int(at.timestamp()) for mark, at in marks.items()}
        more = len(compact({name: seconds}))
        if length + more <= SHARED_CHARACTERS_MAX:
            shared[name] = seconds
            length += more
    return compact(shared)


def _parse_marks(marks: Any) -> _Marks:
    parsed = {}
    for mark, seconds in _items(marks):
        with suppress(ValueError, OverflowError, TypeError, OSError):
            parsed[mark] = datetime.fromtimestamp(seconds, UTC)
    return parsed


def _items(value: Any) -> Iterable[tuple[str, Any]]:
    return value.items() if isinstance(value, dict) else ()


def _mark(ref: ObjectRef) -> str:
    """A uid, shortened: it is unique enough among the few uids of one name."""
    uid = ref.uid.encode(errors="backslashreplace")
    return f"{zlib.crc32(uid):08x}"


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


REASON_CHARACTERS_MAX = 1_000
"""The rest of a longer reason is cut, so that its length never prevents a stop."""


async def stop_deletions(state: State, write_event: WriteEvent, stop: BrakeStop) -> BrakeStop | None:
    """Stop all deletions of the processes that read this state.

    Args:
        state: The shared state.
        write_event: Writes a Kubernetes Event about the installation. If it fails, the deletions are stopped anyway.
        stop: Who stops them, when and why.

    Returns:
        The stop that this one replaces; None if there was none.

    Raises:
        TtlError: The state cannot be read or written: nothing is stopped.
    """
    stop = replace(stop, why=stop.why[:REASON_CHARACTERS_MAX])
    before = await _swap(state, lambda data: with_stop(data, stop))
    with suppress(TtlError):
        await write_event(EventReason.STOPPED, f"nothing is deleted {stop}", "Warning")
    return before


async def start_deletions(state: State, write_event: WriteEvent, *, by: str) -> BrakeStop | None:
    """Start the deletions again; every process that reads this state sees it within seconds.

    Args:
        state: The shared state.
        write_event: As for `stop_deletions`.
        by: The name of the person, for the Event.

    Returns:
        The stop that has ended; None if there was none.

    Raises:
        TtlError: The state cannot be read or written.
    """
    stop = await _swap(state, without_stop)
    if stop is not None:
        with suppress(TtlError):
            await write_event(
                EventReason.STARTED, f"{by} started the deletions again; they were stopped {stop}", "Normal"
            )
    return stop


async def _swap(state: State, change: Callable[[Data], dict[str, str]]) -> BrakeStop | None:
    """Write the change; returns the stop that was there before it."""
    before: list[BrakeStop | None] = [None]

    def write(data: Data) -> dict[str, str]:
        before[0] = parse_state(data).stop
        return change(data)

    await state.write(write)
    return before[0]
