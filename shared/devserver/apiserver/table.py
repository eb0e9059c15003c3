"""The objects of one resource, now and as they were: what makes LIST pages consistent and a watch resumable.

Objects here are never changed, only replaced, so that a snapshot costs its keys and not its objects.
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
    """One write.

    Attributes:
        revision: The resourceVersion it made.
        type: ADDED, MODIFIED or DELETED.
        key: Of the object.
        obj: The object after it; a deleted one as it was, but with the resourceVersion of its deletion.
        previous: The object before it.
    """

    revision: int
    type: str
    key: Key
    obj: Object
    previous: Object | None


class Table:
    """All objects of one resource.

    Attributes:
        objects: Those that exist.
        compacted: What was before this revision is forgotten.
    """

    def __init__(self, history: int) -> None:
        self.objects: dict[Key, Object] = {}
        self.compacted = 0
        self._history = history
        self._keys: list[Key] = []  # sorted
        self._changes: list[Change] = []  # by revision

    def apply(self, change: Change) -> None:
        """Make the change, and remember it."""
        if change.type == "ADDED":
            insort(self._keys, change.key)
        if change.type == "DELETED":
            del self._keys[bisect_left(self._keys, change.key)]
            del self.objects[change.key]
        else:
            self.objects[change.key] = change.obj
        self._changes.append(change)
        if len(self._changes) >= 2 * self._history:  # half at once: not a copy of the list for every write
            self.compact(self._changes[self._history - 1].revision)

    def compact(self, revision: int) -> None:
        """Forget what was before a revision."""
        self.compacted = max(self.compacted, revision)
        del self._changes[: bisect_right(self._changes, revision, key=attrgetter("revision"))]

    def since(self, revision: int) -> Sequence[Change]:
        """The changes after a revision that is not compacted."""
        return self._changes[bisect_right(self._changes, revision, key=attrgetter("revision")) :]

    def snapshot(self, revision: int, lower: Key, upper: Key) -> tuple[list[Key], Mapping[Key, Object | None]]:
        """The table as it was at a revision.

        Returns:
            The sorted keys from `lower` up to, not including, `upper`; and where to find their objects.
        """
        keys = self._keys[bisect_left(self._keys, lower) : bisect_left(self._keys, upper)]
        # Undone from the newest on, so that the oldest change has the last word.
        past = {change.key: change.previous for change in reversed(self.since(revision))}
        if past:
            candidates = {*keys, *(key for key in past if lower <= key < upper)}
            keys = sorted(key for key in candidates if key not in past or past[key] is not None)
        present: dict[Key, Object | None] = self.objects  # type: ignore[assignment]  # only read
        return keys, ChainMap(past, present)
