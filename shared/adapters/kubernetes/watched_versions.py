"""The last version of objects that a watch received: a due object is deleted without reading it again."""

from contextlib import suppress

from cachetools import FIFOCache

WATCHED_BYTES_MAX = 64 * 1024 * 1024
"""Maximum total size of the JSON; the objects received longest ago are dropped first."""


class Memory:
    """A bounded map from uid to an object's JSON."""

    def __init__(self, bytes_max: int = WATCHED_BYTES_MAX) -> None:
        self._objects: FIFOCache[str, bytes] = FIFOCache(bytes_max, getsizeof=len)

    def remember(self, uid: str, obj: bytes) -> None:
        """Store a version of an object, and drop an earlier one."""
        self.forget(uid)
        with suppress(ValueError):  # one object is larger than the bound
            self._objects[uid] = obj

    def forget(self, uid: str) -> None:
        """Drop an object that is deleted, or that has a new version that need not be stored."""
        self._objects.pop(uid, None)

    def get(self, uid: str) -> bytes | None:
        """Return the JSON of the last received version, or None."""
        return self._objects.get(uid)
