"""A tick: mark Secrets and ConfigMaps that nothing uses any more, and delete those that are unused for their TTL."""

import functions_framework.aio

from shared.adapters.events.cloudevents import Event, check_tick
from shared.bootstrap.process import Process
from shared.bootstrap.start import start

process = start(Process.access, Process.published)


@functions_framework.aio.http
@process.answering
async def usage(event: Event) -> None:
    """Accept a tick; publish `object.deleted` for each deletion, and answer with nothing."""
    check_tick(event)
    await (await process.usage()).tick()
