"""The interface of each part of the shared state that a process counts: deletions, re-created names, kept names."""

from datetime import datetime
from typing import Protocol

from shared.safeguards.state_schema import Data


class SharedPart(Protocol):
    """One part: this process adds what it knows to the data, and reads what all processes know."""

    @property
    def has_unwritten(self) -> bool:
        """Whether this process knows something that is not in the data."""
        ...

    def merge(self, data: Data, now: datetime) -> Data:
        """Return the data with what only this process knew; may be called more than once, since others write, too."""
        ...

    def learn(self, data: Data, now: datetime, *, is_written: bool) -> None:
        """Read what all processes know.

        Args:
            data: The present data.
            now: By the wall clock.
            is_written: Whether `data` is the result of `merge`.
        """
        ...
