"""What this process remembers of its tasks, since Cloud Tasks cannot find a task by the key of its timer."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import TypeVar
from weakref import WeakValueDictionary

from shared.messages import TimerKey

LIVE_TASKS_MAX = 50_000
"""Maximum number of timers whose task is remembered (about 25 MiB); beyond it, the oldest is forgotten."""

ENDED_TASKS_MAX = 10_000
"""Maximum number of remembered tasks that were replaced or cancelled; they matter only while one is in flight."""

ENDED_SECONDS = 45 * 60.0
"""How long such a task is remembered: longer than one can be in flight, and shorter than its name is blocked.

Cloud Tasks waits at most 30 minutes for an answer, and blocks a name for an hour. After that, another process may set
a timer by this name.
"""

TASKS_OF_ONE_TIMER_MAX = 4
"""Maximum number of remembered tasks of a timer: it has several after a call without an answer."""

_KeyT = TypeVar("_KeyT", bound=Hashable)
_ValueT = TypeVar("_ValueT")


class LiveTasks:
    """The tasks of each timer that this process has set or received, and those that it has replaced or cancelled.

    Args:
        seconds: A clock that is never set back.
    """

    def __init__(self, seconds: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._names: OrderedDict[TimerKey, tuple[str, ...]] = OrderedDict()
        self._ended: OrderedDict[str, float] = OrderedDict()
        self._locks: WeakValueDictionary[TimerKey, asyncio.Lock] = WeakValueDictionary()

    def turn(self, key: TimerKey) -> asyncio.Lock:
        """Return the lock of a timer: sets, cancellations and retries of one timer happen one after the other."""
        return self._locks.setdefault(key, asyncio.Lock())

    def get(self, key: TimerKey) -> tuple[str, ...]:
        """Return the names of the tasks that a timer may have, the oldest first; empty if none is known."""
        return self._names.get(key, ())

    def put(self, key: TimerKey, name: str) -> None:
        """Remember the task of a timer, in place of all others."""
        _put(self._names, key, (name,), LIVE_TASKS_MAX)
        self._ended.pop(name, None)

    def add(self, key: TimerKey, name: str) -> None:
        """Remember a task before it is created: if the call is not answered, the task may exist, beside the others."""
        others = tuple(other for other in self.get(key) if other != name)
        _put(self._names, key, (*others, name)[-TASKS_OF_ONE_TIMER_MAX:], LIVE_TASKS_MAX)

    def learn(self, key: TimerKey, name: str) -> None:
        """Remember the task of a timer if none is known."""
        if key not in self._names:
            self.put(key, name)

    def forget(self, key: TimerKey, name: str) -> None:
        """Forget one task of a timer."""
        names = self.get(key)
        if name not in names:
            return
        if others := tuple(other for other in names if other != name):
            self._names[key] = others
        else:
            del self._names[key]

    def end(self, name: str) -> None:
        """Remember that a task was replaced or cancelled."""
        _put(self._ended, name, self._seconds(), ENDED_TASKS_MAX)

    def is_ended(self, name: str) -> bool:
        """Return whether this process has replaced or cancelled a task, of which a delivery may be in flight."""
        at = self._ended.get(name)
        return at is not None and self._seconds() - at < ENDED_SECONDS


def _put(within: OrderedDict[_KeyT, _ValueT], key: _KeyT, value: _ValueT, limit: int) -> None:
    within[key] = value
    within.move_to_end(key)
    if len(within) > limit:
        within.popitem(last=False)
