"""The objects of one resource and their history, for consistent LIST pages and for watches that resume.

An object is never changed, only replaced, so a snapshot copies only the keys.
"""

from bisect import bisect_left, bisect_right, insort
from collections import ChainMap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from shared.devserver.apiserver.resources import Object

Key = tuple[str, str]  # namespace, name


@dataclass(frozen=True, slots=True)
class Change:
    """One change of an object.

    Attributes:
        revision: The resourceVersion of the change.
        type: ADDED, MODIFIED or DELETED.
        key: The key of the object.
        obj: The object after the change; a deleted object has the resourceVersion of its deletion.
        previous: The object before the change; None if it was created.
    """

    revision: int
    type: str
    key: Key
    obj: Object
    previous: Object | None


class Table:
    """All objects of one resource.

    Attributes:
        objects: The existing objects.
        compacted: The revision before which the history is dropped.
    """

    def __init__(self, history: int) -> None:
        self.objects: dict[Key, Object] = {}
        self.compacted = 0
        self._history = history
        self._keys: list[Key] = []  # sorted
        self._changes: list[Change] = []  # by revision

    def apply(self, change: Change) -> None:
        """Apply a change, and add it to the history."""
        if change.type == "ADDED":
            insort(self._keys, change.key)
        if change.type == "DELETED":
            del self._keys[bisect_left(self._keys, change.key)]
            del self.objects[change.key]
        else:
            self.objects[change.key] = change.obj
        self._changes.append(change)
        if len(self._changes) >= 2 * self._history:  # drop half at once, to avoid a copy of the list for each write
            self.compact(self._changes[self._history - 1].revision)

    def compact(self, revision: int) -> None:
        """Drop the history before a revision."""
        self.compacted = max(self.compacted, revision)
        del self._changes[: bisect_right(self._changes, revision, key=attrgetter("revision"))]

    def since(self, revision: int) -> Sequence[Change]:
        """Return the changes after a revision that is not compacted."""
        return self._changes[bisect_right(self._changes, revision, key=attrgetter("revision")) :]

    def snapshot(self, revision: int, lower: Key, upper: Key) -> tuple[list[Key], Mapping[Key, Object | None]]:
        """Return the table at a revision.

        Returns:
            The sorted keys from `lower` up to, not including, `upper`; and a mapping with their objects.
        """
        keys = self._keys[bisect_left(self._keys, lower) : bisect_left(self._keys, upper)]
        # Changes are undone from the newest to the oldest, so that the oldest state remains.
        past = {change.key: change.previous for change in reversed(self.since(revision))}
        if past:
            candidates = {*keys, *(key for key in past if lower <= key < upper)}
            keys = sorted(key for key in candidates if key not in past or past[key] is not None)
        present: dict[Key, Object | None] = self.objects  # type: ignore[assignment]  # only read
        return keys, ChainMap(past, present)
