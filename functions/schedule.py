"""An object changed: answer with the timer that it needs. No API rights, no Kubernetes client."""

import functions_framework.aio

from shared.adapters.events.answers import answering
from shared.adapters.events.cloudevents import Event, parse_object
from shared.bootstrap.process import start
from shared.bootstrap.world import world
from shared.messages import Message

start()


@functions_framework.aio.http
@answering
async def schedule(event: Event) -> Message | None:
    """Accept an object as its source reported it; answer with `timer.set`, or with nothing."""
    return await world().schedule(parse_object(event))
