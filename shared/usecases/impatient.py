"""Publish what a sweep or a tick of `usage` sends, without waiting again for a Broker or a timer engine that is away.

The next sweep finds each object again, and sets its timer. So what needs neither of them, the deletions, must not wait
for them: neither for each object nor for each step of a sweep. No later sweep finds a deleted object: a message about
it is tried in any case, but not for long while an outage is known.
"""

import asyncio
from dataclasses import dataclass, field

from shared.errors import PermanentError, TryLaterError
from shared.messages import Message, TimersSet
from shared.ports import Publisher

SWEEP_PUBLISH_SECONDS_MAX = 10.0
"""How long an attempt lasts: as long as one delivery to `timers` may take, by its Trigger.

A Broker may answer only after its subscribers have answered, with all their retries: that takes up to a minute.
"""

OUTAGE_AFTER_SECONDS = 1.0
"""A failure that takes at least so long is an outage; so long an attempt lasts while an outage is known."""

OUTAGE_SECONDS = 60.0
"""How long no timers are tried after an outage was found. Then one message is tried, and the others do not wait."""


@dataclass(slots=True)
class Outage:
    """Why messages of a type are not published.

    Attributes:
        reason: The error of the last attempt.
        ends_at: When the next attempt is made, by the clock of the event loop.
    """

    reason: str
    ends_at: float


@dataclass(slots=True)
class ImpatientPublisher:
    """A Publisher whose attempts are bounded, and that tries no timers while an outage is known.

    Each type of event has its own outage, since each has its own subscribers: those of `object.deleted` may be away
    while the timers are well.

    Attributes:
        publisher: Publishes.
        outages: The known outages by type of event; all steps of a sweep share them.
    """

    publisher: Publisher
    outages: dict[str, Outage] = field(default_factory=dict)
    _accepted_at: dict[str, float] = field(default_factory=dict)

    async def publish(self, message: Message) -> None:
        """Publish a message.

        Raises:
            TryLaterError: It was not published, or, after a time-out, that is unknown.
            PermanentError: The Broker refused it.
        """
        now = asyncio.get_running_loop().time
        outage, started, seconds = self.outages.get(message.type), now(), SWEEP_PUBLISH_SECONDS_MAX
        if outage and started < outage.ends_at:
            if isinstance(message, TimersSet):
                raise TryLaterError(outage.reason)
            seconds = OUTAGE_AFTER_SECONDS
        elif outage:
            outage.ends_at = started + OUTAGE_SECONDS
        try:
            async with asyncio.timeout(seconds):
                await self.publisher.publish(message)
        except (TimeoutError, TryLaterError) as error:
            reason = str(error) or _reason_of(error, message, seconds)
            was_accepted = self._accepted_at.get(message.type, -1.0) >= started  # another one, meanwhile
            if now() - started >= OUTAGE_AFTER_SECONDS and not was_accepted:
                self.outages[message.type] = Outage(reason, now() + OUTAGE_SECONDS)
            raise TryLaterError(reason) from error
        except PermanentError:
            self._answered(message, now())
            raise
        self._answered(message, now())

    def _answered(self, message: Message, at: float) -> None:
        """The Broker answers for a type of event: an outage is over."""
        self._accepted_at[message.type] = at
        self.outages.pop(message.type, None)


def _reason_of(error: BaseException, message: Message, seconds: float) -> str:
    """Say why a message was not accepted in time: with the last answer, if the Broker of this process noted one."""
    notes: list[str] = getattr(error.__cause__, "__notes__", [])
    return f"{message.type}: not accepted within {seconds:g} s: {', '.join(notes) or 'no answer'}"
