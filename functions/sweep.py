"""Look at all objects, page by page: delete what events missed, set timers for what is due soon."""

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
    """A tick, or `sweep.continue`, in; the next `sweep.continue` out until everything was seen."""
    return await (await world().sweeper()).sweep(parse_sweep(event))
