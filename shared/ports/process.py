"""What a process has beside the API server: a clock, a timer engine, the shared state and the Broker."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Protocol, runtime_checkable

from shared.messages import Message, Timer


class Clock(Protocol):
    """This process's wall clock."""

    def now(self) -> datetime:
        """Return the current instant, aware."""
        ...


class Timers(Protocol):
    """The timer engine: it holds delayed CloudEvents."""

    async def set(self, timers: Sequence[Timer]) -> None:
        """Set timers, and return once they are durable; each replaces the pending timer of its uid and purpose.

        Raises:
            TryLaterError: The timers cannot be stored now; none of them is certain.
        """
        ...


@runtime_checkable
class CountedTimers(Protocol):
    """A timer engine that can count its timers."""

    async def pending(self) -> int:
        """Return how many timers are pending."""
        ...

    async def next_due(self) -> datetime | None:
        """Return when the next timer fires; None if no timer is pending."""
        ...


class State(Protocol):
    """What the processes of an installation share: a few named texts."""

    async def read(self) -> Mapping[str, str]:
        """Return all texts; an empty mapping if none was ever written.

        Raises:
            TryLaterError: The API server is busy or away.
            PermanentError: The right to read them is missing.
        """
        ...

    async def write(self, change: Callable[[Mapping[str, str]], Mapping[str, str]]) -> Mapping[str, str]:
        """Replace the present texts by what `change` returns for them; `change` may be called more than once.

        Returns:
            The texts after the write.

        Raises:
            TryLaterError: The API server is busy or away.
            ConflictError: Other processes keep writing.
            PermanentError: The right to write them is missing.
        """
        ...


class Publisher(Protocol):
    """Publishes to the Broker."""

    async def publish(self, message: Message) -> None:
        """Publish a message; return once the Broker accepted it.

        Raises:
            TryLaterError: The Broker did not accept it.
        """
        ...
