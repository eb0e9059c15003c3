"""Take what no function would: log it, count it, and write a Kubernetes Event. It has no Trigger; Triggers name it."""

import functions_framework.aio

from shared.adapters.events.cloudevents import Event
from shared.adapters.events.dead_letter_events import answering_letter, letter_of
from shared.bootstrap.process import start
from shared.bootstrap.world import world

start()


@functions_framework.aio.http
@answering_letter
async def deadletter(event: Event) -> None:
    """Any event in, malformed or not, with Knative's error extensions; never anything but done out."""
    await world().dead_letters.report(letter_of(event))
