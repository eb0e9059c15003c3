"""Which steps of a sweep this process has returned, and what they found: only these continue a sweep of all kinds.

A message says of itself that its sweep began with all kinds, and any sender may claim that. So the process remembers
the steps that it returned. A step that it does not know is swept too, but reports nothing about the whole.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Generic, TypeVar

from shared.core.decision.forecast import Forecast
from shared.messages import SweepStep
from shared.usecases.impatient import Outage

SWEEPS_MAX = 4
"""Sweeps of which a process holds what they found at one time; one more, and the oldest is forgotten."""

_T = TypeVar("_T")


@dataclass(slots=True)
class SweepMemory(Generic[_T]):
    """What each sweep has found so far.

    Attributes:
        new: Makes what a sweep has found before its first step.
    """

    new: Callable[[], _T]
    _sweeps: OrderedDict[str, tuple[int, _T]] = field(default_factory=OrderedDict)

    def find(self, step: SweepStep) -> _T | None:
        """Return what the sweep of a step has found so far, for this step to add to.

        Returns:
            None if the sweep does not concern all kinds, if another process ran a step of it, or if a step is repeated,
            which would count twice. From then on, it is None for all later steps of this sweep.
        """
        if not step.whole:
            return None
        expected, found = self._sweeps.pop(step.sweep_id, (-1, None)) if step.step else (0, self.new())
        if expected != step.step or found is None:
            return None
        self._sweeps[step.sweep_id] = step.step + 1, found
        if len(self._sweeps) > SWEEPS_MAX:
            self._sweeps.popitem(last=False)
        return found

    def end(self, step: SweepStep) -> _T | None:
        """Return what the sweep has found that ends with this step, and forget it; None as `find` returns it."""
        _, found = self._sweeps.pop(step.sweep_id, (0, None)) if step.whole else (0, None)
        return found


SWEEP_CHAINS_MAX = 8
"""Sweeps of which a process remembers steps: a long one is not over when the next ones start."""

STEPS_REMEMBERED = 4
"""Steps of each sweep that a process remembers: the Broker delivers a step again if its answer was lost."""


@dataclass(slots=True)
class SweepChains:
    """The steps that this process has returned; after a restart it knows none, and a sweep from before is not whole.

    Attributes:
        forecasts: How many objects each sweep has found to be due, by hour.
    """

    forecasts: SweepMemory[Forecast] = field(default_factory=lambda: SweepMemory(Forecast))
    _outages: OrderedDict[str, dict[str, Outage]] = field(default_factory=OrderedDict)
    _returned: OrderedDict[str, deque[SweepStep]] = field(default_factory=OrderedDict)

    def start(self, step: SweepStep, kinds: Iterable[str], now: datetime) -> SweepStep:
        """Give a step its kinds, and the first one an id; all steps of one sweep have the same id.

        A forged first step is a sweep of all kinds only if it names none. Then nothing else in it counts, so it never
        has the id of another sweep, and begins with the first page.

        Args:
            step: The step, as it came.
            kinds: The kinds that it names, or all.
            now: The instant; it is the id of a new sweep.
        """
        names = tuple(dict.fromkeys(kinds))  # each once, even if the event repeats one
        if step.step == 0 and not step.kinds:
            return SweepStep(kinds=names, sweep_id=now.isoformat(), whole=True)
        is_known = step in self._returned.get(step.sweep_id, ())
        return step.model_copy(
            update={"kinds": names, "sweep_id": step.sweep_id or now.isoformat(), "whole": step.whole and is_known}
        )

    def outages(self, step: SweepStep) -> dict[str, Outage]:
        """Return the outages that the steps of a sweep have found, for this step to add to; a new sweep has none."""
        found = {} if step.step == 0 else self._outages.get(step.sweep_id, {})
        self._outages[step.sweep_id] = found
        if len(self._outages) > SWEEP_CHAINS_MAX:
            self._outages.popitem(last=False)
        return found

    def note(self, step: SweepStep) -> SweepStep:
        """Remember a step that is returned, if its sweep began with all kinds; return it."""
        if step.whole:
            self._returned.setdefault(step.sweep_id, deque(maxlen=STEPS_REMEMBERED)).append(step)
            if len(self._returned) > SWEEP_CHAINS_MAX:
                self._returned.popitem(last=False)
        return step

    def end(self, step: SweepStep) -> Forecast | None:
        """Forget a sweep of all kinds that this step ends, so that no repeated step ends it again.

        Returns:
            What all steps have found, without the kinds that the sweep passed over; None if this process did not run
            each step once.
        """
        self._outages.pop(step.sweep_id, None)
        if step.whole:
            self._returned.pop(step.sweep_id, None)
        forecast = self.forecasts.end(step)
        if forecast is not None:
            forecast.forget(step.passed_over)
        return forecast
