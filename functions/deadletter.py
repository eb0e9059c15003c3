"""The dead letter sink of the Triggers: log and count undelivered events, and write a Kubernetes Event."""

from functools import partial

import functions_framework.aio

from shared.adapters.events.cloudevents import Event
from shared.adapters.events.dead_letter_events import letter_of, read_letter
from shared.bootstrap.start import start

process = start()


@functions_framework.aio.http
@partial(process.answering, read=read_letter)
async def deadletter(event: Event) -> None:
    """Accept any event, malformed or not, with Knative's error extensions; always answer 204."""
    await process.dead_letters.report(letter_of(event))
