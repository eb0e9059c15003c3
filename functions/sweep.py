"""List all objects page by page: delete what the events missed, and set timers for what is due soon."""

import functions_framework.aio

from shared.adapters.events.cloudevents import Event, parse_sweep
from shared.bootstrap.process import Process
from shared.bootstrap.start import start
from shared.messages import Message

process = start(Process.access, Process.published)


@functions_framework.aio.http
@process.answering
async def sweep(event: Event) -> Message | None:
    """Accept a tick or `sweep.continue`; answer with the next `sweep.continue` until all pages are listed."""
    return await (await process.sweeper()).sweep(parse_sweep(event))
