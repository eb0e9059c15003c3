"""Take what could not be delivered: log it, count it, and say it once where people look. Nothing is sent again."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from shared.errors import TtlError
from shared.ports import Clock, EventReason, Telemetry

REASON = EventReason.DEAD_LETTER
"""Of the Kubernetes Event."""

TOLD_EVERY = timedelta(hours=1)
"""The same trouble is told once in this time, as long as the API server keeps an Event; every letter is logged."""

AGAIN_AFTER = timedelta(minutes=1)
"""Where it could not be told, a letter after this time tells it."""

TROUBLES_MAX = 50
"""Different troubles told in that time: whoever posts rubbish fills the log, not etcd."""

TELL_SECONDS_MAX = 5.0
"""The sender waits for the answer, and an API server that is away may be why there are letters at all."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """An event that came to nothing; what cannot be read of it is empty.

    Attributes:
        function: Who would not take it.
        status: The last answer's HTTP status.
        detail: The last answer's body.
    """

    type: str
    id: str
    source: str
    subject: str
    function: str
    status: str
    detail: str


@dataclass
class DeadLetters:
    """Reports dead letters.

    Attributes:
        write_event: Writes a Kubernetes Event of a reason and a message about the installation.
    """

    clock: Clock
    telemetry: Telemetry
    write_event: Callable[[str, str], Awaitable[None]]
    _quiet_until: dict[tuple[str, str, str], datetime] = field(default_factory=dict)

    async def report(self, letter: DeadLetter) -> None:
        """Report a letter. It always succeeds: a dead letter has nowhere else to go."""
        self.telemetry.dead_letter(
            letter.type,
            letter.status,
            function=letter.function,
            id=letter.id,
            source=letter.source,
            subject=letter.subject,
            detail=letter.detail,
        )
        if not self._is_news(letter):
            return
        # Noted before it is told: of many letters at once, one tells.
        self._quiet_until[_trouble(letter)] = self.clock.now() + TOLD_EVERY
        try:
            async with asyncio.timeout(TELL_SECONDS_MAX):
                await self.write_event(REASON, _sentence(letter))
        except (TtlError, TimeoutError) as error:
            self._quiet_until[_trouble(letter)] = self.clock.now() + AGAIN_AFTER
            self.telemetry.problem("could not write an Event", error=str(error) or type(error).__name__)

    def _is_news(self, letter: DeadLetter) -> bool:
        now = self.clock.now()
        self._quiet_until = {trouble: until for trouble, until in self._quiet_until.items() if now < until}
        return _trouble(letter) not in self._quiet_until and len(self._quiet_until) < TROUBLES_MAX


def _trouble(letter: DeadLetter) -> tuple[str, str, str]:
    return letter.function, letter.status, letter.type


def _sentence(letter: DeadLetter) -> str:
    what = f"{letter.type or 'an event'} {letter.id}".strip()
    return f"{letter.function or 'a function'} did not take {what}: {letter.status or 'no status'} {letter.detail}"
