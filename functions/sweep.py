"""List all objects page by page: delete what the events missed, and set timers for what is due soon."""

import functions_framework.aio

from shared.adapters.events.answers import answering
from shared.adapters.events.cloudevents import Event, parse_sweep
from shared.bootstrap.process import start
from shared.bootstrap.world import World, world
from shared.messages import Message

start(World.access, World.published)


@functions_framework.aio.http
@answering
async def sweep(event: Event) -> Message | None:
    """Accept a tick or `sweep.continue`; answer with the next `sweep.continue` until all pages are listed."""
    return await (await world().sweeper()).sweep(parse_sweep(event))
