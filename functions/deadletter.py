"""Take what no function would: log it, count it, and write a Kubernetes Event. It has no Trigger; Triggers name it."""

import functions_framework.aio

from shared.adapters.bootstrap import world
from shared.adapters.events import Event
from shared.adapters.letters import answering_letter, letter_of
from shared.adapters.process import start

start()


@functions_framework.aio.http
@answering_letter
async def deadletter(event: Event) -> None:
    """Any event in, malformed or not, with Knative's error extensions; never anything but done out."""
    await world().dead_letters.bury(letter_of(event))
