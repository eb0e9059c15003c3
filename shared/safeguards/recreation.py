"""Who came back: a name that we deleted again and again, each time under a new uid, has a parent that re-creates it.

To delete it once more would help nobody and go on for ever, so the name is left alone until the window has passed.

A process remembers many names; those that tell the most are a value of the shared state (see `contents`), since a
process may come and go between two rounds of a loop. It is compact JSON, of each name a mark of each uid and when:

    names    {"Job.batch/ci/build-42": {"1f0b3c55": 1767323045, "9a31d07e": 1767323110}}
"""

import re
import zlib
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from shared.core.objects import ObjectRef, get_text
from shared.core.policy.limits import RecreationLimits
from shared.safeguards.state_schema import AHEAD_MAX, NAMES, Data, compact, read_json

NAMES_MAX = 10_000
"""Names that were deleted and are remembered; those deleted the longest ago are forgotten first."""

SHARED_MAX = 200
"""Names that are shared. On an idle cluster, where processes come and go, these are all; on a busy one they live."""

LENGTH_MAX = 30_000
"""Of what is shared, in characters."""

_RANDOM = re.compile("[bcdfghjklmnpqrstvwxz2456789]{5}")  # what the API server appends to a generateName
_PREFIX_MAX = 58  # of which it takes no more

_Marks = dict[str, datetime]  # of a uid -> when it was deleted


def name_of(ref: ObjectRef) -> str:
    """`Job.batch/ci/build-42`: what stays the same when an object is re-created; its version does not count."""
    group = ref.api_version.rpartition("/")[0]
    kind = f"{ref.kind}.{group}" if group else ref.kind
    return f"{kind}/{ref.namespace}/{ref.name}"


def may_recur(obj: Any) -> bool:
    """Whether another object may come by the same name. A Pod of a StatefulSet has a generateName, too, and returns."""
    name, prefix = get_text(obj, "metadata.name"), get_text(obj, "metadata.generateName")
    return not (prefix and name[:-5] == prefix[:_PREFIX_MAX] and _RANDOM.fullmatch(name[-5:]))


class Recreations:
    """Remembers what was deleted lately, by name.

    Args:
        limits: What is a loop.
    """

    def __init__(self, limits: RecreationLimits) -> None:
        self._limits = limits
        self._deleted: OrderedDict[str, _Marks] = OrderedDict()
        self._unwritten: dict[str, datetime] = {}
        self._sent: dict[str, datetime] = {}

    def deleted(self, ref: ObjectRef, now: datetime, *, recurs: bool = True) -> None:
        """We deleted this object.

        Args:
            ref: The object.
            now: When.
            recurs: Whether its name may come again; one that the API server made up need not be shared.
        """
        if not self._limits.times:
            return
        name = name_of(ref)
        self._remember(name, {_mark(ref): now}, now)
        self._deleted.move_to_end(name)
        if recurs:
            self._unwritten[name] = now

    def is_loop(self, ref: ObjectRef, now: datetime) -> bool:
        """Whether this object is back once too often: so many others of its name were deleted within the window."""
        if not self._limits.times:
            return False
        recent = self._newest(self._deleted.get(name_of(ref), {}), now)
        return len(recent.keys() - {_mark(ref)}) >= self._limits.times

    def left_alone_until(self, now: datetime) -> datetime:
        """When a name that is a loop now may be deleted again."""
        return now + self._limits.window

    @property
    def has_unwritten(self) -> bool:
        """See `shared.safeguards.shared_state.Shared`."""
        return bool(self._unwritten)

    def merge(self, data: Data, now: datetime) -> Data:
        """See `shared.safeguards.shared_state.Shared`."""
        self._sent = dict(self._unwritten)
        if not self._sent:
            return data
        names = self._parse(data, now)
        for name in self._sent:
            names[name] = self._newest({**names.get(name, {}), **self._deleted[name]}, now)
        return {**data, NAMES: _bounded(names)}

    def learn(self, data: Data, now: datetime, *, is_written: bool) -> None:
        """See `shared.safeguards.shared_state.Shared`."""
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
        """Those that count, and no more than it takes for a loop."""
        counting = [(at, mark) for mark, at in marks.items() if -AHEAD_MAX <= now - at <= self._limits.window]
        return {mark: at for at, mark in sorted(counting)[-self._limits.times :]}

    def _parse(self, data: Data, now: datetime) -> dict[str, _Marks]:
        """What counts; never raises, since anybody may have edited it."""
        if not self._limits.times:
            return {}
        told = _items(read_json(data.get(NAMES, "")))
        return dict(_most_telling({name: self._newest(_parse_marks(marks), now) for name, marks in told}))


def _most_telling(names: Mapping[str, _Marks]) -> list[tuple[str, _Marks]]:
    """Those deleted the most often first, then those deleted last."""
    telling = [(name, marks) for name, marks in names.items() if marks]
    return sorted(telling, key=lambda one: (len(one[1]), max(one[1].values())), reverse=True)[:SHARED_MAX]


def _bounded(names: Mapping[str, _Marks]) -> str:
    shared: dict[str, dict[str, int]] = {}
    length = 0
    for name, marks in _most_telling(names):
        seconds = {mark: int(at.timestamp()) for mark, at in marks.items()}
        more = len(compact({name: seconds}))
        if length + more <= LENGTH_MAX:
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
    """A uid, shortened: among the few of one name it is as good."""
    uid = ref.uid.encode(errors="backslashreplace")
    return f"{zlib.crc32(uid):08x}"
