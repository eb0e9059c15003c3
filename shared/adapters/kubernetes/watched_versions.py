"""The last version of objects that a watch brought, so that a due one can be deleted without reading it again."""

from collections import OrderedDict

BYTES_MAX = 64 * 1024 * 1024
"""What is remembered at the most, as JSON; what was brought the longest ago goes first."""


class Memory:
    """A bounded map from uid to an object's JSON."""

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self._objects: OrderedDict[str, bytes] = OrderedDict()
        self._bytes_max = bytes_max
        self._bytes = 0

    def remember(self, uid: str, obj: bytes) -> None:
        """Keep this version in place of an earlier one."""
        self.forget(uid)
        self._objects[uid] = obj
        self._bytes += len(obj)
        while self._bytes > self._bytes_max:
            _, oldest = self._objects.popitem(last=False)
            self._bytes -= len(oldest)

    def forget(self, uid: str) -> None:
        """Drop an object that is gone, or that changed to a version that is not worth remembering."""
        self._bytes -= len(self._objects.pop(uid, b""))

    def get(self, uid: str) -> bytes | None:
        """The JSON of the last version that was brought, or None."""
        return self._objects.get(uid)
