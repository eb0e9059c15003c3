"""Store the timers, and fire them when they are due."""

import functions_framework.aio

from shared.adapters.events.answers import answering
from shared.adapters.events.cloudevents import Event, parse_message
from shared.bootstrap.process import start
from shared.bootstrap.world import World, world
from shared.messages import TimersSet

# The framework loads this file when the process starts, so due timers do not wait for a first request.
start(World.start_timers)


@functions_framework.aio.http
@answering
async def timers(event: Event) -> None:
    """Accept `timer.set`, and acknowledge it once it is durable; publish `timer.fired` to the Broker when it is due."""
    await world().set_timers(parse_message(event, TimersSet))
