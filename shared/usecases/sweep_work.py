"""What one step of a sweep works with."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from shared.core.forecast import Forecast
from shared.core.objects import ObjectRef
from shared.errors import TryLaterError, TtlError
from shared.messages import Purpose, SweepStep, Timer
from shared.usecases.enforce import Enforcement
from shared.usecases.expire import Expiry
from shared.usecases.impatient import ImpatientPublisher
from shared.usecases.sweep_counts import SweepCounts
from shared.usecases.sweep_pages import OnePause
from shared.usecases.sweep_timers import WantedTimers


@dataclass(slots=True)
class StepWork:
    """What one step works with, and what it has found so far.

    Attributes:
        started_at: When the step started; the hours of the forecast begin then.
        ends_at: When the step stops to list.
        due_before: An object that is due at this instant or later gets no timer.
        missed_before: An object that was due before this instant was missed by the events.
        expiry: Deletes due objects.
        enforcement: Finds the timers of deadlines.
        counts: Counts the verdicts.
        publisher: Publishes deletions and timers; an outage of their receivers delays few of them.
        timers: The timers that the objects need.
        tail_of: The kind that is listed from a continue token of an unknown step, and so not from its first page.
        failures: The errors of kinds that could not be listed.
        passed_over: These kinds.
        pause: The pause after a 429.
        forecast: Receives when the deletion of each object is due; None if the sweep does not concern all kinds.
    """

    started_at: datetime
    ends_at: datetime
    due_before: datetime
    missed_before: datetime
    expiry: Expiry
    enforcement: Enforcement
    counts: SweepCounts
    publisher: ImpatientPublisher
    timers: WantedTimers = field(default_factory=WantedTimers)
    tail_of: str = ""
    failures: list[TtlError] = field(default_factory=list)
    passed_over: list[str] = field(default_factory=list)
    pause: OnePause = field(default_factory=OnePause)
    forecast: Forecast | None = None

    def check_failures(self, step: SweepStep) -> None:
        """Check that the step need not be repeated as a whole.

        If every kind of a step failed, and no object was listed, the step is repeated: the first step of a sweep after
        any error that may pass, a later step only after a 429. Otherwise each failed kind is passed over until the next
        sweep. So the sweep reaches the kinds after one that fails slowly, and ends even if its last kinds answer 5xx.

        Args:
            step: The step, with all kinds that it began with.

        Raises:
            TryLaterError: The step is to be repeated; with the longest time that an error asks for.
        """
        later = [error for error in self.failures if isinstance(error, TryLaterError)]
        nothing_listed = len(self.failures) == len(step.kinds) and not self.counts.looked_at
        if later and nothing_listed and (step.step == 0 or any(error.is_overload for error in later)):
            raise TryLaterError(
                f"no kind could be listed: {later[0]}",
                retry_after_seconds=max(error.retry_after_seconds for error in later),
            )

    def add_timers(self, ref: ObjectRef, timers: Sequence[Timer]) -> None:
        """Take the timers of an object that fire before the next sweeps; of its own deletion, take the due time."""
        self.timers.add(ref, [timer for timer in timers if timer.due_at < self.due_before])
        if self.forecast is None:
            return
        for timer in timers:
            if timer.purpose is Purpose.EXPIRE and timer.ref.is_same(ref):  # the others are of objects of its group
                self.forecast.add(ref.group, ref.kind, timer.due_at, self.started_at)
