"""What a process has beside the API server: a clock, the shared state and the Broker."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Protocol

from shared.messages import Message


class Clock(Protocol):
    """This process's wall clock."""

    def now(self) -> datetime:
        """Return the current instant, aware."""
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
