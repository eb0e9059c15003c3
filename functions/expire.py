"""A timer fired: read its object again, and delete exactly that object if it is due."""

import functions_framework.aio

from shared.adapters.events.cloudevents import Event, parse_message
from shared.bootstrap.process import Process
from shared.bootstrap.start import start
from shared.messages import Message, Timer

process = start(Process.access)


@functions_framework.aio.http
@process.answering
async def expire(event: Event) -> Message | None:
    """Accept `timer.fired`; answer with `object.deleted`, `timer.set` if the object is due later, or nothing."""
    return await process.expire(parse_message(event, Timer))
