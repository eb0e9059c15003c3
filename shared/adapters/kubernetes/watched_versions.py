"""The last version of objects that a watch received: a due object is deleted without reading it again."""

from collections import OrderedDict

BYTES_MAX = 64 * 1024 * 1024
"""Maximum total size of the JSON; the objects received longest ago are dropped first."""


class Memory:
    """A bounded map from uid to an object's JSON."""

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self._objects: OrderedDict[str, bytes] = OrderedDict()
        self._bytes_max = bytes_max
        self._bytes = 0

    def remember(self, uid: str, obj: bytes) -> None:
        """Store a version of an object, and drop an earlier one."""
        self.forget(uid)
        self._objects[uid] = obj
        self._bytes += len(obj)
        while self._bytes > self._bytes_max:
            _, oldest = self._objects.popitem(last=False)
            self._bytes -= len(oldest)

    def forget(self, uid: str) -> None:
        """Drop an object that is deleted, or that has a new version that need not be stored."""
        self._bytes -= len(self._objects.pop(uid, b""))

    def get(self, uid: str) -> bytes | None:
        """Return the JSON of the last received version, or None."""
        return self._objects.get(uid)
