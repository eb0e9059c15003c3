"""A timer fired: read its object again, and stop exactly that object if its active deadline is over."""

import functions_framework.aio

from shared.adapters.events.cloudevents import Event, parse_message
from shared.bootstrap.process import Process
from shared.bootstrap.start import start
from shared.messages import Message, Timer

process = start(Process.access)


@functions_framework.aio.http
@process.answering
async def enforce(event: Event) -> Message | None:
    """Accept `timer.fired`; answer with `object.stopped`, `timer.set` if the deadline is later, or nothing."""
    return await process.enforce(parse_message(event, Timer))
