"""A timer fired: get its object, evaluate it, and carry out the decision; try again if the object changes meanwhile."""

import asyncio
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from typing import ClassVar

from shared.core.archive.gate import CHILD_REASONS, find_propagation
from shared.core.decision.decide import Ignore, Wait
from shared.core.kinds.rule import KindRule
from shared.core.values.objects import ObjectRef
from shared.errors import AbsentKindError, ConflictError, OutdatedError, PermanentError, TryLaterError
from shared.evaluation.evaluator import AnyEvaluation
from shared.evaluation.served import find_served
from shared.messages import Timer, TimersSet
from shared.ports import HandlingReason, Snapshot, Verdict
from shared.usecases.counted_writes import REFUSALS_MAX, UnchangedError, refused_for_good
from shared.usecases.next_timers import retry_of
from shared.usecases.object_handler import Handled, ObjectHandler

DECISIONS_MAX = 5
"""Reads and decisions for one timer while other clients keep writing the object; then a timer retries it later."""

ATTEMPT_SECONDS_MAX = 20.0
"""For one timer, well below the 30 s of the Trigger's delivery: if a webhook hangs, the answer is a retry."""


@dataclass(frozen=True, slots=True)
class TimerHandler(ObjectHandler):
    """Handles the timers of one purpose, one object at a time.

    Attributes:
        attempt_seconds: How long one attempt may take.
    """

    attempt_seconds: ClassVar[float] = ATTEMPT_SECONDS_MAX

    async def handle(self, timer: Timer) -> Handled | None:
        """Act on the timer's object if it is due; answer with what happened.

        While the API server is busy or away, the answer is a timer for the next attempt, not an error. After a 503, a
        Broker would retry the event: that blocks a slot of the timer engine, and the event is dropped in the end.

        Returns:
            What was done; TimersSet if the object is due later or the attempt has to be repeated; otherwise None.

        Raises:
            PermanentError: The API server refuses for good.
        """
        try:
            async with asyncio.timeout(self.attempt_seconds):
                return await self._handle_enabled(timer)
        except TryLaterError as error:
            return self._retry(timer, str(error), least=error.retry_after_seconds)
        except TimeoutError:
            return self._retry(timer, f"no decision within {self.attempt_seconds:g} s")

    async def _handle_enabled(self, timer: Timer) -> Handled | None:
        if not self.catalogue.of(timer.ref.group, timer.ref.kind):
            self._record(Verdict.KEPT, timer.ref, HandlingReason.KIND_NOT_ENABLED)
            return None
        if self.namespace not in ("", timer.ref.namespace):
            self._record(Verdict.KEPT, timer.ref, HandlingReason.NAMESPACE_NOT_ENABLED)
            return None
        try:
            rule = await find_served(timer.ref.group, timer.ref.kind, cluster=self.cluster, kinds=self.catalogue)
            async with self._permit(rule, timer.ref):  # before the read, so that no decision becomes old in the wait
                return await self._attempt(rule, timer)
        except AbsentKindError as error:
            self._record(Verdict.KEPT, timer.ref, HandlingReason.KIND_NOT_SERVED, detail=str(error))
            return None
        except PermanentError as error:
            self.report(timer.ref, error)
            raise

    def _permit(self, rule: KindRule, ref: ObjectRef) -> AbstractAsyncContextManager[object]:  # noqa: ARG002 - of subclasses
        """Hold what limits how many objects of a kind are handled at once; here there is no limit."""
        return nullcontext()

    async def _attempt(self, rule: KindRule, timer: Timer) -> Handled | None:
        ref, refusals = timer.ref, 0
        for attempt in range(DECISIONS_MAX):
            found = await self._get_evaluated(rule, ref, timer if attempt == 0 else None)
            if found is None:
                self._record(Verdict.ALREADY_GONE, ref)
                return None
            snapshot, evaluation = found
            try:
                return await self._carry_out(evaluation, rule, snapshot, fired_at=timer.due_at)
            except UnchangedError as error:
                refusals += 1
                if refusals == REFUSALS_MAX:
                    propagation = find_propagation(evaluation.decision.facts, rule)
                    raise refused_for_good(snapshot.obj, error, propagation=propagation) from None
            except (ConflictError, OutdatedError):
                continue
        raise TryLaterError(f"{ref}: the facts of the decision changed {DECISIONS_MAX} times, or took too long to read")

    async def _get_evaluated(
        self, rule: KindRule, ref: ObjectRef, fired: Timer | None
    ) -> tuple[Snapshot, AnyEvaluation] | None:
        """Get the object and evaluate it; None if the object is gone.

        A proven decision or a cached object may be outdated. It only counts if the object is due, since the
        preconditions of the write prove it; for any other decision the object is read from the API server.

        Args:
            rule: The kind.
            ref: The object.
            fired: The timer, to try its proof and a cached object first; None to read the object.
        """
        if fired and (proven := await self._find_proven(rule, fired)):
            return proven
        snapshot = await self.cluster.get_cached(ref, due_at=fired.due_at) if fired else None
        evaluation = await self._evaluate(snapshot, rule) if snapshot else None
        # An object that its children keep is kept anyway, and they are not read twice.
        has_read_children = evaluation is not None and evaluation.decision.reason in CHILD_REASONS
        if evaluation is None or (isinstance(evaluation.decision, Ignore | Wait) and not has_read_children):
            snapshot = await self.cluster.get(rule, ref)
            evaluation = await self._evaluate(snapshot, rule) if snapshot else None
        if snapshot is None or evaluation is None or not ref.is_same(snapshot.ref):
            return None
        return snapshot, evaluation

    async def _find_proven(self, rule: KindRule, timer: Timer) -> tuple[Snapshot, AnyEvaluation] | None:  # noqa: ARG002
        """The decision to act on the timer's object by the proof of the timer; None to read the object."""
        return None

    def _retry(self, timer: Timer, problem: str, *, least: float = 0.0) -> TimersSet:
        retry = retry_of(timer, least=least, now=self.clock.now())
        self._record(Verdict.TIMER_SET, timer.ref, HandlingReason.TRY_LATER, detail=problem, due_at=retry.due_at)
        return TimersSet(timers=(retry,))
