"""A finished object's timer fired: read the object, and store it in its archive, unless it is stored already."""

import functions_framework.aio

from shared.adapters.events.cloudevents import Event, parse_archive_timer
from shared.bootstrap.process import Process
from shared.bootstrap.start import start
from shared.messages import Message

process = start(Process.access)


@functions_framework.aio.http
@process.answering
async def archive(event: Event) -> Message | None:
    """Accept `timer.fired` or `archive.done`; answer with `object.archived`, `timer.set` for a retry, or nothing."""
    return await process.archive(parse_archive_timer(event))
