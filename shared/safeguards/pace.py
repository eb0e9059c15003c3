"""The pace of deletions: how many of one kind may be in flight at once.

Each handling of an object takes a permit before the object is read, and returns it after the DELETE. While the API
server is well, there are as many permits as connections. When its DELETEs become slow, the permits of their kind
halve; round by round they come back. The namespaces of a kind take turns. After a 429 the permits of all kinds halve,
and none is given until Retry-After has passed. The reasons are in docs/decisions/0035-pace-by-permits.md.

The pace only lets deletions wait. It never makes an object due, and the budget of the policy is asked after it.
Instants are seconds of the running loop's clock.
"""

import asyncio
import math
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from shared.core.kinds.rule import KindRule
from shared.errors import TryLaterError
from shared.ports import Telemetry, loop_now

PERMITS_MAX = 100
"""Permits of a kind while the API server is well: as many as a process has connections to it."""

PERMITS_MIN = 5
"""Permits of a kind at the least, so that its deletions go on: Kubernetes' own TTL controller has five workers."""

SLOW_COUNT_MIN = 3
"""Slow DELETEs of a round before the permits halve: one or two say little, however few DELETEs are in flight."""

ROUND_MIN = 2 * SLOW_COUNT_MIN - 1
"""DELETEs of a round at the least, so that more than half of it is at least `SLOW_COUNT_MIN`."""


class Window:
    """The number of permits of one kind, by additive increase and multiplicative decrease (AIMD).

    A round is as many DELETEs as were in flight at once, and at least `ROUND_MIN`. If more than half of a round is
    slow, the permits halve. If a round ends and at most half of it was slow, there is one permit more. So one or two
    slow DELETEs have no effect, even if no other DELETE is in flight.

    Attributes:
        permits: How many deletions may be in flight.
        in_flight: How many are.
    """

    def __init__(self, permits_max: int = PERMITS_MAX) -> None:
        self.permits = self._permits_max = permits_max
        self._permits_min = min(PERMITS_MIN, permits_max)
        self.in_flight = 0
        self._peak = self._peak_before = self._answers = self._slow = 0
        self._halved_at = -math.inf

    @property
    def is_full_size(self) -> bool:
        """Whether there are as many permits as there ever are: the API server is well."""
        return self.permits == self._permits_max

    @property
    def has_free(self) -> bool:
        """Whether a permit is free."""
        return self.in_flight < self.permits

    def enter(self) -> None:
        """Take a permit."""
        self.in_flight += 1
        self._peak = max(self._peak, self.in_flight)

    def leave(self) -> None:
        """Return a permit."""
        self.in_flight -= 1

    def answered(self, sent_at: float, now: float, *, is_slow: bool) -> None:
        """Note the answer to a DELETE; those that were sent before the last decrease show nothing new.

        Args:
            sent_at: When it was sent.
            now: The present.
            is_slow: Whether it took too long, or has failed.
        """
        if sent_at < self._halved_at:
            return
        self._answers += 1
        self._slow += is_slow
        round_size = max(ROUND_MIN, min(self.permits, self._peak))
        if 2 * self._slow > round_size:
            self.halve(now)
        elif self._answers >= round_size:
            self._begin_round(min(self._permits_max, self.permits + 1))

    def halve(self, now: float) -> None:
        """Halve the permits that this round and the one before have used: only they can have slowed the API server."""
        used = min(self.permits, max(self._peak, self._peak_before)) or self.permits
        self._halved_at = now
        self._begin_round(max(self._permits_min, used // 2))

    def _begin_round(self, permits: int) -> None:
        self.permits, self._peak_before, self._peak = permits, self._peak, self.in_flight
        self._answers = self._slow = 0


class _KindLane:
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


SLOW_SECONDS = 1.0
"""A DELETE that takes longer is slow. Kubernetes aims at 99 % of the writes of single objects within this time:
https://github.com/kubernetes/community/blob/master/sig-scalability/slos/api_call_latency.md"""

PERMIT_SECONDS_MAX = 10.0
"""The longest wait for a permit: half of an attempt. Then a timer retries the object."""

PAUSE_SECONDS_MAX = 5.0
"""The longest pause after a 429, since a proxy may send any Retry-After; below the longest wait for a permit."""


class Pace:
    """Gives permits for deletions; all handlers of a process share one instance.

    Args:
        telemetry: Receives each change of the number of permits.
        permits_max: Permits of a kind while the API server is well.
    """

    def __init__(self, telemetry: Telemetry, permits_max: int = PERMITS_MAX) -> None:
        self._telemetry, self._permits_max = telemetry, permits_max
        self._lanes: dict[str, _KindLane] = {}  # as many as there are kind rules
        self._pause: asyncio.TimerHandle | None = None
        self._refused_at = -math.inf

    @asynccontextmanager
    async def permit(self, rule: KindRule, namespace: str) -> AsyncIterator[bool]:
        """Hold a permit for one object of a kind.

        Args:
            rule: The kind.
            namespace: The object's namespace; empty for a cluster-scoped object.

        Yields:
            Whether this has waited, so that a decision from before has to be made again.

        Raises:
            TryLaterError: No permit was free in time.
        """
        lane = self._lane_of(rule)
        has_waited = lane.is_waiting(namespace) or self._pause is not None or not lane.may_enter(namespace)
        if has_waited:
            await self._wait(lane, namespace)
        else:
            lane.enter(namespace)
        entered_at = loop_now()
        try:
            yield has_waited
        except TryLaterError as error:
            if error.is_overload:
                self._refused(entered_at, error.retry_after_seconds)
            raise
        finally:
            lane.leave(namespace)
            lane.went_on(namespace)
            self._admit(lane)

    @contextmanager
    def timing(self, rule: KindRule) -> Iterator[None]:
        """Measure the request in this block: a DELETE of one object, or the write that stops it."""
        lane, sent_at, has_failed = self._lane_of(rule), loop_now(), False
        is_answer = True
        try:
            yield
        except TryLaterError as error:
            has_failed, is_answer = True, not error.is_overload
            raise
        except asyncio.CancelledError:
            is_answer = loop_now() - sent_at > SLOW_SECONDS  # at the end of the process it shows nothing
            raise
        finally:
            now = loop_now()
            if is_answer:
                lane.window.answered(sent_at, now, is_slow=has_failed or now - sent_at > SLOW_SECONDS)
                self._report(lane)
                self._admit(lane)

    def _lane_of(self, rule: KindRule) -> _KindLane:
        if rule.name not in self._lanes:
            self._lanes[rule.name] = _KindLane(rule, self._permits_max)
            self._telemetry.paced(rule, self._permits_max, before=self._permits_max, most=self._permits_max)
        return self._lanes[rule.name]

    async def _wait(self, lane: _KindLane, namespace: str) -> None:
        """Wait for a permit, which is already taken when this returns."""
        if lane.is_stuck(namespace):
            raise lane.refusal(retry_after_seconds=PERMIT_SECONDS_MAX)
        waiter = lane.wait(namespace)
        try:
            async with asyncio.timeout(PERMIT_SECONDS_MAX):
                await waiter
        except BaseException as error:
            lane.give_up(namespace, waiter)
            if waiter.done() and not waiter.cancelled():  # it was given in the same moment
                lane.leave(namespace)
            self._admit(lane)  # the others may have a larger share now
            if not isinstance(error, TimeoutError):
                raise
            lane.waited_in_vain(namespace)
            raise lane.refusal(retry_after_seconds=PERMIT_SECONDS_MAX) from None

    def _admit(self, lane: _KindLane) -> None:
        if self._pause is None:
            lane.admit()

    def _refused(self, sent_at: float, retry_after_seconds: float) -> None:
        """Slow all kinds down after a 429: the API server has too many requests, whatever they are about."""
        now = loop_now()
        if sent_at >= self._refused_at:
            self._refused_at = now
            for lane in self._lanes.values():
                lane.window.halve(now)
                self._report(lane)
        until = now + min(retry_after_seconds, PAUSE_SECONDS_MAX)
        if self._pause is None or self._pause.when() < until:
            if self._pause:
                self._pause.cancel()
            self._pause = asyncio.get_running_loop().call_at(until, self._resume)

    def _resume(self) -> None:
        self._pause = None
        for lane in self._lanes.values():
            self._admit(lane)

    def _report(self, lane: _KindLane) -> None:
        before, permits = lane.reported, lane.window.permits
        if permits != before:
            lane.reported = permits
            self._telemetry.paced(lane.rule, permits, before=before, most=self._permits_max)
