"""The dead letter sink of the Triggers: log and count undelivered events, and write a Kubernetes Event."""

import functions_framework.aio

from shared.adapters.events.cloudevents import Event
from shared.adapters.events.dead_letter_events import answering_letter, letter_of
from shared.bootstrap.process import start
from shared.bootstrap.world import world

start()


@functions_framework.aio.http
@answering_letter
async def deadletter(event: Event) -> None:
    """Accept any event, malformed or not, with Knative's error extensions; always answer 204."""
    await world().dead_letters.report(letter_of(event))
