"""Publish what a sweep or a tick of `usage` sends, without waiting again for a Broker or a timer engine that is away.

The next sweep finds each object again, and sets its timer. So what needs neither of them, the deletions, must not wait
for them: neither for each object nor for each step of a sweep.
"""

import asyncio
from dataclasses import dataclass, field

from shared.errors import TryLaterError
from shared.messages import Message
from shared.ports import Publisher

SWEEP_PUBLISH_SECONDS_MAX = 10.0
"""How long an attempt lasts: as long as one delivery to `timers` may take, by its Trigger.

A Broker may answer only after its subscribers have answered, with all their retries: that takes up to a minute.
"""

OUTAGE_AFTER_SECONDS = 1.0
"""A failure that takes at least so long is an outage; after a faster one, the next message is tried."""

OUTAGE_SECONDS = 60.0
"""How long nothing is tried after an outage was found. Then one message is tried, and the others do not wait for it."""


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
    """A Publisher whose attempts are bounded, and that tries nothing while an outage is known.

    Each type of event has its own outage, since each has its own subscribers: those of `object.deleted` may be away
    while the timers are well.

    Attributes:
        publisher: Publishes.
        outages: The known outages by type of event; all steps of a sweep share them.
    """

    publisher: Publisher
    outages: dict[str, Outage] = field(default_factory=dict)

    async def publish(self, message: Message) -> None:
        """Publish a message.

        Raises:
            TryLaterError: It was not published, or, after a time-out, that is unknown.
            PermanentError: The Broker refused it.
        """
        now = asyncio.get_running_loop().time
        outage, started = self.outages.get(message.type), now()
        if outage:
            if started < outage.ends_at:
                raise TryLaterError(outage.reason)
            outage.ends_at = started + OUTAGE_SECONDS
        try:
            async with asyncio.timeout(SWEEP_PUBLISH_SECONDS_MAX):
                await self.publisher.publish(message)
        except (TimeoutError, TryLaterError) as error:
            reason = str(error) or _reason_of(error, message)
            if now() - started >= OUTAGE_AFTER_SECONDS:
                self.outages[message.type] = Outage(reason, now() + OUTAGE_SECONDS)
            raise TryLaterError(reason) from error
        self.outages.pop(message.type, None)


def _reason_of(error: BaseException, message: Message) -> str:
    """Say why a message was not accepted in time: with the last answer, if the Broker of this process noted one."""
    notes: list[str] = getattr(error.__cause__, "__notes__", [])
    return f"{message.type}: not accepted within {SWEEP_PUBLISH_SECONDS_MAX:g} s: {', '.join(notes) or 'no answer'}"
