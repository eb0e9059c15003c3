"""Recreate loops: a name was deleted again and again, each time with a new uid, so a controller recreates it.

Another deletion would not help, and the loop would never end. So the object of that name is kept until the window ends.

A process remembers many names. The most relevant names are a value of the shared state (see `state_schema`), since a
process may end between two rounds of a loop. The value is compact JSON: for each name, a checksum of each uid and the
time of its deletion:

    names    {"Job.batch/ci/build-42": {"1f0b3c55": 1767323045, "9a31d07e": 1767323110}}
"""

import re
import zlib
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from shared.core.policy.limits import RecreationLimits
from shared.core.values.objects import ObjectRef, get_text
from shared.safeguards.state_schema import NAMES, PROCESS_AHEAD_MAX, Data, compact, read_json

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
