"""Pauses between the versions of one object that are stored, so that a client that keeps writing it fills no archive.

An object is archived when it finishes, and once more when it has changed since: a deletion needs the very version that
is stored. Without pauses each write of a finished object would store a document of up to 1.5 MiB.
"""

from collections import OrderedDict
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

PAUSE_MAX = timedelta(hours=1)
"""The longest pause: after 12 versions."""

PAUSES_MAX = 100_000
"""Objects that are remembered; the one that was stored first is forgotten, and has no pause then."""

REPORTED_FROM = 8
"""From this number of versions on, an Event on the object says that they wait: the pause is four minutes then."""


class Pause(NamedTuple):
    """The pause before a version.

    Attributes:
        until: When the version may be stored.
        versions: How many versions were stored before, or tried.
    """

    until: datetime
    versions: int


class _Last(NamedTuple):
    version: str
    at: datetime
    versions: int


@dataclass(slots=True)
class VersionPauses:
    """Counts the versions of each object that this process stores, or tries to store.

    The pause after the first version is 2 seconds, and each further one is twice as long, up to `PAUSE_MAX`. Another
    attempt on the same version has no pause. The counts are in memory: they end with the process.
    """

    _last: OrderedDict[str, _Last] = field(default_factory=OrderedDict)

    def begin(self, uid: str, version: str, *, now: datetime) -> Pause | None:
        """Count a version that is about to be stored; or return its pause, and count nothing.

        Args:
            uid: The uid of the object.
            version: Its resourceVersion.
            now: The present, by the clock of this process.
        """
        last = self._last.get(uid)
        if last is not None and last.version == version:
            return None
        versions = last.versions if last is not None else 0
        if last is not None:
            until = last.at + min(timedelta(seconds=2 ** min(versions, 12)), PAUSE_MAX)
            if now < until and last.at <= now:  # a clock that was set back makes no pause longer
                return Pause(until, versions)
        self._last[uid] = _Last(version, now, versions + 1)
        self._last.move_to_end(uid)
        if len(self._last) > PAUSES_MAX:
            self._last.popitem(last=False)
        return None
