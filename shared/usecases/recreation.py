"""Who came back: a name that we deleted again and again, each time under a new uid, has a parent that re-creates it.

To delete it once more would help nobody and go on for ever, so the name is left alone until the window has passed.
"""

from collections import OrderedDict, deque
from datetime import datetime

from shared.core.limits import RecreationLimits
from shared.core.objects import ObjectRef

NAMES_MAX = 10_000
"""Names that were deleted and are remembered; those deleted the longest ago are forgotten first."""

LOOPS_MAX = 200
"""Names that are left alone at a time, and that outlive a restart: some 80 kB at the most, of a ConfigMap's MiB."""


def name_of(ref: ObjectRef) -> str:
    """`Job.batch/ci/build-42`: what stays the same when an object is re-created; its version does not count."""
    group = ref.api_version.rpartition("/")[0]
    kind = f"{ref.kind}.{group}" if group else ref.kind
    return f"{kind}/{ref.namespace}/{ref.name}"


class Recreations:
    """Remembers what was deleted lately, by name.

    Args:
        limits: What is a loop.
    """

    def __init__(self, limits: RecreationLimits) -> None:
        self._limits = limits
        self._deleted: OrderedDict[str, deque[tuple[datetime, str]]] = OrderedDict()

    def deleted(self, ref: ObjectRef, now: datetime) -> None:
        """We deleted this object."""
        if not self._limits.times:
            return
        name = name_of(ref)
        deletions = self._deleted.setdefault(name, deque(maxlen=self._limits.times))
        self._deleted.move_to_end(name)
        if all(uid != ref.uid for _, uid in deletions):
            deletions.append((now, ref.uid))
        if len(self._deleted) > NAMES_MAX:
            self._deleted.popitem(last=False)

    def is_loop(self, ref: ObjectRef, now: datetime) -> bool:
        """Whether this object is back once too often: so many others of its name were deleted within the window."""
        if not self._limits.times:
            return False
        deletions = self._deleted.get(name_of(ref), ())
        recent = [uid for at, uid in deletions if now - at <= self._limits.window and uid != ref.uid]
        return len(recent) >= self._limits.times

    def left_alone_until(self, now: datetime) -> datetime:
        """When a name that is a loop now may be deleted again."""
        return now + self._limits.window
