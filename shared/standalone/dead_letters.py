"""Dead letters of the local broker: events that a subscriber did not accept."""

import base64
import dataclasses
from collections import Counter, deque
from typing import Protocol

from shared.adapters.events.cloudevents import Event
from shared.ports import Telemetry

_ERROR_DATA_CHARACTERS_MAX = 1024
_NEWEST = 100


@dataclasses.dataclass(frozen=True, slots=True)
class Undelivered:
    """The result of a delivery that failed at one Trigger.

    Attributes:
        trigger: The name of the Trigger; empty if the broker itself rejected the event.
        destination: The URL of the subscriber.
        status: The status of the last answer; 500 if there was none, as with Knative.
        detail: The body of the last answer, or why there was none.
        retryable: Whether a later delivery may succeed; the retries of the Trigger are exhausted.
        retry_after_seconds: The Retry-After of the last answer; 0 if it had none.
    """

    trigger: str
    destination: str
    status: int
    detail: str
    retryable: bool
    retry_after_seconds: float = 0.0


class DeadLetterSink(Protocol):
    """The receiver of dead letters."""

    def report(self, event: Event, undelivered: Undelivered) -> None:
        """Report an event, which has the extensions knativeerrordest, knativeerrorcode and knativeerrordata."""
        ...


class ReportedDeadLetters:
    """Reports each dead letter as a problem, counts the dead letters, and keeps the newest.

    Attributes:
        counts: The number of dead letters by Trigger.
        newest: The newest dead letters, with their error extensions.
    """

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry
        self.counts: Counter[str] = Counter()
        self.newest: deque[Event] = deque(maxlen=_NEWEST)

    def report(self, event: Event, undelivered: Undelivered) -> None:
        """Report, count and keep a dead letter."""
        self.counts[undelivered.trigger] += 1
        self.newest.append(event)
        self._telemetry.dead_letter(
            event.type,
            undelivered.status,
            trigger=undelivered.trigger,
            id=event.id,
            detail=undelivered.detail,
        )


def as_dead_letter(event: Event, undelivered: Undelivered) -> Event:
    """Make the event that Knative sends to a dead letter sink; the error data is base64 and cut off."""
    data = base64.b64encode(undelivered.detail.encode()).decode()
    errors = {
        "knativeerrordest": undelivered.destination,
        "knativeerrorcode": str(undelivered.status),
        "knativeerrordata": data[:_ERROR_DATA_CHARACTERS_MAX],
    }
    return dataclasses.replace(event, extensions={**event.extensions, **errors})
