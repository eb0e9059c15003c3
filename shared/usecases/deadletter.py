"""Report dead letters: log and count each undelivered event, and write one Kubernetes Event a problem. No retries."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from shared.errors import TtlError
from shared.ports import Clock, EventReason, Telemetry

REPORTED_EVERY = timedelta(hours=1)
"""How often an Event is written for the same problem: as long as the API server keeps one. Every letter is logged."""

RETRY_AFTER = timedelta(minutes=1)
"""If the Event could not be written, the next letter after this time writes it."""

PROBLEMS_MAX = 50
"""Different problems with an Event in that time: a flood of forged events fills the log, not etcd."""

WRITE_SECONDS_MAX = 5.0
"""How long the Event may take: the sender waits for the answer, and the API server may be the cause of the letters."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """An event that could not be delivered; fields that cannot be read are empty.

    Attributes:
        function: The function that did not accept it.
        status: The HTTP status of the last answer.
        detail: The body of the last answer.
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
        write_event: Writes a Kubernetes Event about the installation: reason, message.
    """

    clock: Clock
    telemetry: Telemetry
    write_event: Callable[[str, str], Awaitable[None]]
    _quiet_until: dict[tuple[str, str, str], datetime] = field(default_factory=dict)

    async def report(self, letter: DeadLetter) -> None:
        """Report a letter. This always succeeds, since no other sink takes the letter."""
        self.telemetry.dead_letter(
            letter.type,
            letter.status,
            function=letter.function,
            id=letter.id,
            source=letter.source,
            subject=letter.subject,
            detail=letter.detail,
        )
        if not self._is_new(letter):
            return
        # Noted before the write, so that one of many simultaneous letters writes the Event.
        self._quiet_until[_problem(letter)] = self.clock.now() + REPORTED_EVERY
        try:
            async with asyncio.timeout(WRITE_SECONDS_MAX):
                await self.write_event(EventReason.DEAD_LETTER, _message(letter))
        except (TtlError, TimeoutError) as error:
            self._quiet_until[_problem(letter)] = self.clock.now() + RETRY_AFTER
            self.telemetry.problem("could not write an Event", error=str(error) or type(error).__name__)

    def _is_new(self, letter: DeadLetter) -> bool:
        now = self.clock.now()
        self._quiet_until = {problem: until for problem, until in self._quiet_until.items() if now < until}
        return _problem(letter) not in self._quiet_until and len(self._quiet_until) < PROBLEMS_MAX


def _problem(letter: DeadLetter) -> tuple[str, str, str]:
    return letter.function, letter.status, letter.type


def _message(letter: DeadLetter) -> str:
    what = f"{letter.type or 'an event'} {letter.id}".strip()
    return f"{letter.function or 'a function'} did not take {what}: {letter.status or 'no status'} {letter.detail}"
