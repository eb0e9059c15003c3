"""The message about a sweep."""

from typing import Annotated, ClassVar

from pydantic import Field

from shared.messages.message import Message, Name

SWEEP_COUNT_MAX = 10**12
"""Objects that a sweep counts; without a bound, a forged number could be too long for the log."""

STEPS_MAX = 1_000_000
"""Steps of one sweep: months of listing. Without a bound, a forged number could be too long to write."""


class SweepStep(Message):
    """The next step of a sweep.

    Published by: sweep and watch.

    Attributes:
        kinds: `apiVersion/Kind` of the kinds that are still to sweep, the present one first; empty for all kinds.
        continue_token: The continue token of the LIST; empty for the first page.
        sweep_id: The id of the sweep, the same in all its steps.
        step: The number of the step, from 0.
        whole: Whether the sweep began with all kinds; counts only in the process that sent the step.
        passed_over: The kinds that the sweep could not list.
        counts: How many objects the steps before handled, for the log.
    """

    type: ClassVar[str] = "dev.ttlafterfinished.sweep.continue"
    kinds: tuple[Name, ...] = Field(default=(), max_length=1_000)
    continue_token: str = ""
    sweep_id: Name = ""
    step: int = Field(default=0, ge=0, le=STEPS_MAX)
    whole: bool = False
    passed_over: tuple[Name, ...] = Field(default=(), max_length=1_000)
    counts: dict[str, Annotated[int, Field(ge=0, le=SWEEP_COUNT_MAX)]] = Field(default={}, max_length=10)

    @property
    def id(self) -> str:
        """The id of the sweep, and the number of the step."""
        return f"{self.sweep_id}/{self.step}"
