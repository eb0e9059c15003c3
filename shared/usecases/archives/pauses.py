"""Pauses between the versions of one object that are stored, so that a client that keeps writing it fills no archive.

An object is archived when it finishes, and once more when it has changed since: a deletion needs the very version that
is stored. Without pauses each write of a finished object would store a document of up to 1.5 MiB.
"""

from collections import OrderedDict
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

from shared.core.values.timing import format_duration
from shared.ports import EventReason

PAUSE_MAX = timedelta(minutes=10)
"""The longest pause: a due object that was written often is deleted within the default interval of the sweep."""

REMEMBERED = timedelta(hours=1)
"""How long the versions of an object are counted after the end of its last pause."""

PAUSES_MAX = 20_000
"""Objects that are remembered, about 350 bytes each; the one that was stored first is forgotten first."""

REPORTED_FROM = 8
"""From this number of versions on, an Event on the object says that they wait: the pause is four minutes then."""


class Pause(NamedTuple):
    """The pause before a version.

    Attributes:
        until: When the version may be stored.
        versions: How many versions this process has stored before, or has tried to store.
    """

    until: datetime
    versions: int


class _Last(NamedTuple):
    version: str
    at: datetime
    pause: timedelta
    versions: int


@dataclass(slots=True)
class VersionPauses:
    """Counts the versions of each object that this process stores, or tries to store.

    The pause after the first version is 2 seconds, and each further one is twice as long, up to `PAUSE_MAX`. It is at
    least as long as the time since the finish of the object. So a process that starts, and knows no counts, makes no
    shorter pauses than the one before it. Another attempt on the same version has no pause.
    """

    _last: OrderedDict[str, _Last] = field(default_factory=OrderedDict)

    def begin(self, uid: str, version: str, *, finished_at: datetime | None, now: datetime) -> Pause | None:
        """Count a version that is about to be stored; or return its pause, and count nothing.

        Args:
            uid: The uid of the object.
            version: Its resourceVersion.
            finished_at: When the object finished; None if that is unknown.
            now: The present, by the clock of this process.
        """
        last = self._last.get(uid)
        if last is not None and last.version == version:
            return None
        if last is not None and last.at <= now < last.at + last.pause:  # a clock that was set back makes none longer
            return Pause(last.at + last.pause, last.versions)
        versions = (last.versions if last is not None else 0) + 1
        since = now - finished_at if finished_at is not None else timedelta(0)
        pause = min(PAUSE_MAX, max(timedelta(seconds=2 ** min(versions, 10)), since))
        self._last[uid] = _Last(version, now, pause, versions)
        self._last.move_to_end(uid)
        self._forget(now)
        return None

    def _forget(self, now: datetime) -> None:
        while self._last:
            first = next(iter(self._last.values()))
            if len(self._last) <= PAUSES_MAX and now < first.at + first.pause + REMEMBERED:
                return
            self._last.popitem(last=False)


def describe_pause(pause: Pause) -> tuple[EventReason, str]:
    """The Event about an object that a client keeps writing; its message is another one only after a version more."""
    sent = f"{pause.versions} versions of the object were sent to its archive, since a client keeps writing it"
    waits = f"the next version is sent after a pause of up to {format_duration(PAUSE_MAX)}"
    return EventReason.ARCHIVED_OFTEN, f"{sent}; {waits}, and the object is not deleted before"
