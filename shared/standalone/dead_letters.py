"""Dead letters of the local broker: events that a subscriber did not accept."""

import base64
import dataclasses
from typing import Protocol

from shared.adapters.events.cloudevents import Event
from shared.ports import Telemetry

_ERROR_DATA_CHARACTERS_MAX = 1024


@dataclasses.dataclass(frozen=True, slots=True)
class Undelivered:
    """The result of a delivery that failed at one Trigger.

    Attributes:
        trigger: The name of the Trigger; empty if the broker itself rejected the event.
        destination: The function, or `broker`.
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


@dataclasses.dataclass(frozen=True, slots=True)
class ReportedDeadLetters:
    """Reports each dead letter as a problem."""

    telemetry: Telemetry

    def report(self, event: Event, undelivered: Undelivered) -> None:
        """Report a dead letter."""
        self.telemetry.dead_letter(
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
