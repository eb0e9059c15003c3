"""An object changed: answer with the timer that it needs. No API rights, no Kubernetes client."""

import functions_framework.aio

from shared.adapters.events.cloudevents import Event, parse_object, parse_proof
from shared.bootstrap.start import start
from shared.messages import Message

process = start()


@functions_framework.aio.http
@process.answering
async def schedule(event: Event) -> Message | None:
    """Accept an object as its source reported it; answer with `timer.set`, or with nothing."""
    return await process.schedule(parse_object(event), parse_proof(event))
