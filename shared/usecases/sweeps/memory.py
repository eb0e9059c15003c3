"""What a process finds in a sweep of all kinds, as long as it runs every step of that sweep itself, and each once."""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from shared.messages import SweepStep

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
