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
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from shared.core.kinds.rule import KindRule
from shared.errors import TryLaterError
from shared.ports import Telemetry
from shared.safeguards.kind_lane import KindLane
from shared.safeguards.window import PERMITS_MAX

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
        self._lanes: dict[str, KindLane] = {}  # as many as there are kind rules
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
        entered_at = _now()
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
        lane, sent_at, has_failed = self._lane_of(rule), _now(), False
        is_answer = True
        try:
            yield
        except TryLaterError as error:
            has_failed, is_answer = True, not error.is_overload
            raise
        except asyncio.CancelledError:
            is_answer = _now() - sent_at > SLOW_SECONDS  # at the end of the process it shows nothing
            raise
        finally:
            now = _now()
            if is_answer:
                lane.window.answered(sent_at, now, is_slow=has_failed or now - sent_at > SLOW_SECONDS)
                self._report(lane)
                self._admit(lane)

    def _lane_of(self, rule: KindRule) -> KindLane:
        if rule.name not in self._lanes:
            self._lanes[rule.name] = KindLane(rule, self._permits_max)
            self._telemetry.paced(rule, self._permits_max, before=self._permits_max, most=self._permits_max)
        return self._lanes[rule.name]

    async def _wait(self, lane: KindLane, namespace: str) -> None:
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

    def _admit(self, lane: KindLane) -> None:
        if self._pause is None:
            lane.admit()

    def _refused(self, sent_at: float, retry_after_seconds: float) -> None:
        """Slow all kinds down after a 429: the API server has too many requests, whatever they are about."""
        now = _now()
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

    def _report(self, lane: KindLane) -> None:
        before, permits = lane.reported, lane.window.permits
        if permits != before:
            lane.reported = permits
            self._telemetry.paced(lane.rule, permits, before=before, most=self._permits_max)


def _now() -> float:
    return asyncio.get_running_loop().time()
