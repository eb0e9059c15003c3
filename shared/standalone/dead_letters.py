"""What becomes of an event that a subscriber would not take."""

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
    """An event that came to nothing at one Trigger.

    Attributes:
        trigger: Its name; empty where the broker itself refused the event.
        destination: The subscriber's URL.
        status: The last answer's; 500 where there was none, as Knative says it.
        detail: The last answer's body, or why there was none.
        retryable: Whether it may work later; the Trigger's own retries are over.
        retry_after_seconds: What the last answer asked for.
    """

    trigger: str
    destination: str
    status: int
    detail: str
    retryable: bool
    retry_after_seconds: float = 0.0


class DeadLetter(Protocol):
    """Where such events go."""

    def report(self, event: Event, undelivered: Undelivered) -> None:
        """Take the event, which carries the extensions knativeerrordest, knativeerrorcode and knativeerrordata."""
        ...


class ReportedDeadLetters:
    """Reports each as a problem, counts them, and keeps the newest at hand.

    Attributes:
        counts: By Trigger.
        newest: With their error extensions.
    """

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry
        self.counts: Counter[str] = Counter()
        self.newest: deque[Event] = deque(maxlen=_NEWEST)

    def report(self, event: Event, undelivered: Undelivered) -> None:
        """Report, count and keep it."""
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
    """The event as Knative hands it to a dead letter sink; the error data is base64, cut off."""
    data = base64.b64encode(undelivered.detail.encode()).decode()
    errors = {
        "knativeerrordest": undelivered.destination,
        "knativeerrorcode": str(undelivered.status),
        "knativeerrordata": data[:_ERROR_DATA_CHARACTERS_MAX],
    }
    return dataclasses.replace(event, extensions={**event.extensions, **errors})
