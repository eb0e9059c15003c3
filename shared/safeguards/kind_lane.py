"""The deletions of one kind: those in flight, and those that wait for a permit, by namespace."""

import asyncio
from collections import Counter, deque

from shared.core.kinds.rule import KindRule
from shared.errors import TryLaterError
from shared.safeguards.window import Window


class KindLane:
    """Gives the permits of one kind to namespaces in turn; within a namespace, first come is first served.

    One namespace holds at most half of the permits, rounded up. So if a webhook with a `namespaceSelector` hangs the
    DELETEs of one namespace, the other namespaces still find permits. The share does not apply while all permits are
    there and no other namespace has deletions, so it does not slow down the healthy sweep of a single namespace. While
    the API server is slow, the share also applies to a single namespace: hanging DELETEs would otherwise hold all
    permits when the next namespace comes. Cluster-scoped objects share the empty namespace, and may hold all permits.

    If a wait was in vain, other deletions do not wait, so a hanging webhook does not hold the workers of a sweep. If
    the namespace had its share, this applies to the namespace until one of its permits is returned. Otherwise it
    applies to the kind until any permit is returned.

    A namespace with no deletions in flight and none that wait takes no memory.

    Attributes:
        rule: The kind.
        window: The number of permits.
        reported: The number of permits that was reported last.
    """

    def __init__(self, rule: KindRule, permits_max: int) -> None:
        self.rule = rule
        self.window = Window(permits_max)
        self.reported = permits_max
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}  # the next turn first
        self._in_flight: Counter[str] = Counter()
        self._stuck: set[str] = set()  # of those with deletions in flight
        self._is_stuck = False

    def may_enter(self, namespace: str) -> bool:
        """Whether a permit is free for a namespace."""
        return self.window.has_free and not self._has_share(namespace)

    def enter(self, namespace: str) -> None:
        """Take a permit."""
        self.window.enter()
        self._in_flight[namespace] += 1

    def leave(self, namespace: str) -> None:
        """Return a permit."""
        self.window.leave()
        self._in_flight[namespace] -= 1
        if not self._in_flight[namespace]:
            del self._in_flight[namespace]

    def is_waiting(self, namespace: str) -> bool:
        """Whether deletions of a namespace wait."""
        return namespace in self._waiting

    def is_stuck(self, namespace: str) -> bool:
        """Whether a deletion would wait in vain."""
        return self._is_stuck or namespace in self._stuck

    def wait(self, namespace: str) -> asyncio.Future[None]:
        """Line up; the result is set with the permit taken."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(namespace, deque()).append(waiter)
        return waiter

    def give_up(self, namespace: str, waiter: asyncio.Future[None]) -> None:
        """Leave the line, if the waiter is still in it."""
        line = self._waiting.get(namespace, deque())
        if waiter in line:
            line.remove(waiter)
            if not line:
                del self._waiting[namespace]

    def waited_in_vain(self, namespace: str) -> None:
        """Let other deletions not wait, until a permit is returned."""
        if self._has_share(namespace):
            self._stuck.add(namespace)
        else:
            self._is_stuck = True

    def went_on(self, namespace: str) -> None:
        """Let deletions wait again, since a permit of a namespace was returned after the work."""
        self._is_stuck = False
        self._stuck.discard(namespace)

    def admit(self) -> None:
        """Give the free permits to those who wait."""
        while self.window.has_free:
            namespace = next((one for one in self._waiting if not self._has_share(one)), None)
            if namespace is None:
                return
            line = self._waiting.pop(namespace)
            waiter = line.popleft()
            if line:
                self._waiting[namespace] = line  # behind the other namespaces
            if not waiter.done():
                self.enter(namespace)
                waiter.set_result(None)

    def refusal(self, *, retry_after_seconds: float) -> TryLaterError:
        """Return the error for a deletion that gets no permit."""
        permits, rest = self.window.permits, sum(map(len, self._waiting.values()))
        problem = f"the API server is slow: {permits} deletions of {self.rule.name} may be in flight"
        share = f"at most {_half(permits)} of them in one namespace"
        return TryLaterError(f"{problem}, {share}; {rest} wait", retry_after_seconds=retry_after_seconds)

    def _has_share(self, namespace: str) -> bool:
        """Whether a namespace holds as many permits as it may."""
        if not namespace or (self.window.is_full_size and self._is_alone(namespace)):
            return False
        return self._in_flight[namespace] >= _half(self.window.permits)

    def _is_alone(self, namespace: str) -> bool:
        return all(len(ones) == (namespace in ones) for ones in (self._in_flight, self._waiting))


def _half(permits: int) -> int:
    return (permits + 1) // 2
