"""The safeguards that every due object has to pass before its DELETE: brake, breaker, recreation check, budget.

A safeguard can only deny or delay a deletion. It never makes an object due. docs/reference/reasons.md is made from
`Safeguard`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from shared.core.kinds.rule import KindRule
from shared.core.policy.limits import Limits
from shared.core.values.objects import ObjectRef, get_controller, ref_of
from shared.core.values.timing import format_duration
from shared.errors import PermanentError
from shared.safeguards.budget import Budget
from shared.safeguards.denials import Breaker, CountObjects, KeptNames, Recreations, may_recur, name_of
from shared.safeguards.shared_state import Runtime, SharedState
from shared.safeguards.state_schema import NAME, StateContents, Trip


class Safeguard(StrEnum):
    """Why a safeguard does not let a due object be deleted now; used beside `Reason`, in the same places."""

    STOPPED = "stopped"
    """A person stopped all deletions with `kubectl ttl stop`.

    To start them again, run `kubectl ttl start`.
    """
    STOP_UNREAD = "stop-unread"
    """The process cannot read ConfigMap `ttl-after-finished-state`, so it is unknown whether deletions are stopped.

    Allow `get` on this ConfigMap to the process. The log line names the error of the API server.
    """
    BUDGET = "budget"
    """The budget is exhausted. The object gets a slot and a timer. If the deletion backlog exceeds two sweep intervals,
    the object is left to a later sweep.

    Wait, or raise `budget` in the policy.
    """
    BREAKER_OPEN = "breaker-open"
    """The breaker is open, because too many deletions, or too large a share of one kind, were due within its window.

    See what is due with `kubectl ttl plan`, then run `kubectl ttl release --breaker`.
    """
    BREAKER_UNREAD = "breaker-unread"
    """The objects of the kind cannot be counted, so the breaker cannot check its limit by share.

    Allow `list` on the kind. The log line names the error of the API server.
    """
    RECREATE_LOOP = "recreate-loop"
    """A controller recreates the object under the same name after each deletion. It is kept until the window ends.

    Correct the controller that the Event `RecreateLoop` names, or set `recreation` in the policy.
    """


MAYBE_DELETED_MAX = 10_000
"""Objects that are remembered because their DELETE had no answer; a forgotten object is counted again."""


@dataclass(frozen=True, slots=True)
class Denied:
    """The object is kept; the next sweep asks again.

    Attributes:
        detail: For the log.
        event: The message of an Event on the object; empty for no Event.
    """

    reason: Safeguard
    detail: str = ""
    event: str = ""


@dataclass(frozen=True, slots=True)
class Delayed:
    """The object has a slot of the budget.

    Attributes:
        seconds: Time from now until the slot.
    """

    seconds: float


class Safeguards:
    """Decides before each DELETE, and notes its result; all deletions of a process share one instance.

    Args:
        limits: Returns the present limits; after a change the safeguards are built again.
        shared_state: Brake, breaker, and the deletions of all processes.
        runtime: Clocks and telemetry.
        count_objects: Counts the objects of a kind.
        horizon: How far ahead a slot of the budget may be: twice the time between two sweeps.

    Attributes:
        shared_state: The shared state.
    """

    def __init__(
        self,
        limits: Callable[[], Limits],
        shared_state: SharedState,
        runtime: Runtime,
        *,
        count_objects: CountObjects,
        horizon: timedelta,
    ) -> None:
        self._limits, self.shared_state = limits, shared_state
        self._clock, self._monotonic = runtime.clock, runtime.monotonic
        self._telemetry = runtime.telemetry
        self._count_objects, self._horizon = count_objects, horizon.total_seconds()
        self._was_open = False
        self._kept = KeptNames()
        self._maybe_deleted: dict[str, datetime] = {}
        self._uncounted: set[str] = set()
        self._build(limits())

    async def report(self) -> None:
        """Read the shared state and report it, also if nothing is to be deleted."""
        await self.shared_state.read_for_report()

    async def releases(self) -> int:
        """Count the times that this process has seen a release of the breaker or a start of the deletions."""
        await self.shared_state.read_for_report()
        return self.shared_state.releases

    async def ask_brake(self) -> Denied | None:
        """Deny the DELETE if a person stopped the deletions; call it last, right before the DELETE.

        Raises:
            TryLaterError: The shared state cannot be read now.
        """
        contents = await self.shared_state.read()
        return self._denied_by_brake(contents)

    async def ask(self, rule: KindRule, obj: dict[str, Any], *, by: str) -> Denied | Delayed | None:
        """Ask whether this object may be deleted now; None counts it as deleted, so call `not_deleted` if it was not.

        Args:
            rule: The object's kind.
            obj: The object, which is due.
            by: The function that would delete it.

        Raises:
            TryLaterError: The shared state cannot be read now, or the objects of the kind cannot be counted.
        """
        self._follow_limits()
        ref = ref_of(obj)
        denied = await self._deny(rule, ref, obj)
        if denied:
            return denied
        # From here on nothing is awaited before the object is counted, so that no other deletion comes between.
        later = self._budget.ask(ref.uid, ref.namespace, self._monotonic())
        if later is not None:
            return self._delay(ref, later.at)
        if self._is_counted(ref):
            return None
        if excess := self._breaker.admit(rule, self._clock.now()):
            self._was_open = True
            await self.shared_state.trip(excess, by=by)
            self._kept.add(name_of(ref))
            return Denied(Safeguard.BREAKER_OPEN, excess)
        return None

    def deleted(self, obj: dict[str, Any]) -> None:
        """Note that the object that passed was deleted."""
        ref = ref_of(obj)
        self._maybe_deleted.pop(ref.uid, None)
        self._recreations.deleted(ref, self._clock.now(), recurs=may_recur(obj))

    def stopped(self, rule: KindRule, ref: ObjectRef) -> None:
        """Note that the object that passed was stopped; its later deletion counts again."""
        self._breaker.stopped(rule, self._clock.now())
        self._maybe_deleted.pop(ref.uid, None)

    def not_deleted(self, rule: KindRule, ref: ObjectRef) -> None:
        """Note that the object that passed was not deleted; an earlier DELETE without an answer still counts."""
        if not self._is_counted(ref):
            self._breaker.give_back(rule, self._clock.now())
        self._budget.give_back(ref.namespace, self._monotonic())

    def maybe_deleted(self, ref: ObjectRef) -> None:
        """Note that the DELETE of the object that passed had no answer: it counts, and its repetitions do not."""
        self._maybe_deleted.setdefault(ref.uid, self._clock.now())
        if len(self._maybe_deleted) > MAYBE_DELETED_MAX:
            del self._maybe_deleted[next(iter(self._maybe_deleted))]

    def _is_counted(self, ref: ObjectRef) -> bool:
        """Return whether an earlier DELETE of the object had no answer, and still counts."""
        at = self._maybe_deleted.get(ref.uid)
        if at is None:
            return False
        if self._clock.now() - at < self._built_from.breaker.window:
            return True
        del self._maybe_deleted[ref.uid]
        return False

    async def flush(self) -> None:
        """Write the deletions of this process to the shared state; call it when the process ends."""
        await self.shared_state.flush()

    async def _deny(self, rule: KindRule, ref: ObjectRef, obj: dict[str, Any]) -> Denied | None:
        contents = await self.shared_state.read()
        if contents is None or contents.stop:
            return self._denied_by_brake(contents)
        if contents.trip:
            return self._denied_by_breaker(ref, contents.trip)
        if self._was_open:
            self._was_open = False
            self._breaker.forget()
            self._maybe_deleted.clear()
        if loop := await self._find_loop(ref, obj, contents.loops.get(name_of(ref))):
            return loop
        try:
            await self._breaker.get_ready(rule, self._clock.now())
        except PermanentError as error:
            if rule.name not in self._uncounted:
                self._uncounted.add(rule.name)
                self._telemetry.problem("could not count the objects of a kind", kind=rule.name, error=str(error))
            return Denied(Safeguard.BREAKER_UNREAD, f"{rule.name} cannot be counted: {error}")
        contents = await self.shared_state.read()  # the breaker may have tripped during the count
        if contents is not None and contents.stop is None and contents.trip:
            return self._denied_by_breaker(ref, contents.trip)
        return self._denied_by_brake(contents)

    def _denied_by_brake(self, contents: StateContents | None) -> Denied | None:
        if contents is None:
            return Denied(Safeguard.STOP_UNREAD, f"could not read whether deletions are stopped: ConfigMap {NAME}")
        if contents.stop is None:
            return None
        return Denied(Safeguard.STOPPED, f"{contents.stop}; {self.shared_state.how_to_start}")

    def _denied_by_breaker(self, ref: ObjectRef, trip: Trip) -> Denied:
        self._was_open = True
        self._kept.add(name_of(ref))
        return Denied(Safeguard.BREAKER_OPEN, f"{trip}; {self.shared_state.how_to_release}")

    async def _find_loop(self, ref: ObjectRef, obj: dict[str, Any], until: datetime | None) -> Denied | None:
        now = self._clock.now()
        if not self._built_from.recreation.times:
            return None
        is_known = until is not None and now < until
        if not is_known and not self._recreations.is_loop(ref, now):
            return None
        if until is None or not is_known:
            until = self._recreations.kept_until(now)
            self._telemetry.recreate_loop(ref)
            await self.shared_state.keep_name(name_of(ref), until)
        return self._loop(get_controller(obj), until)

    def _loop(self, parent: ObjectRef | None, until: datetime) -> Denied:
        limits = self._built_from.recreation
        cause = f"{parent.kind} {parent.name} recreates it" if parent else "something recreates it"
        often = f"{limits.times} times within {format_duration(limits.window)}"
        detail = f"kept until {until:%Y-%m-%dT%H:%M:%SZ}: deleted {often} and back each time; {cause}"
        return Denied(Safeguard.RECREATE_LOOP, detail, event=detail)

    def _delay(self, ref: ObjectRef, at: float | None) -> Denied | Delayed:
        if at is None:
            return Denied(Safeguard.BUDGET, "the deletion backlog exceeds two sweep intervals")
        seconds = max(0.0, at - self._monotonic())
        self._telemetry.delayed(ref, seconds)
        return Delayed(seconds)

    def _follow_limits(self) -> None:
        if (limits := self._limits()) != self._built_from:
            self._build(limits)

    def _build(self, limits: Limits) -> None:
        self._built_from = limits
        self._budget = Budget(limits.everywhere, limits.per_namespace, horizon=self._horizon)
        self._breaker = Breaker(limits.breaker, self._count_objects)
        self._maybe_deleted.clear()
        self._recreations = Recreations(limits.recreation)
        self.shared_state.share(self._breaker.deletion_counts, self._recreations, self._kept)
