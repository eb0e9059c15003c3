"""Keep the timers, and fire them when they are due."""

import functions_framework.aio

from shared.adapters.events.answers import answering
from shared.adapters.events.cloudevents import Event, parse_message
from shared.bootstrap.process import start
from shared.bootstrap.world import World, world
from shared.messages import TimersSet

# The framework loads this file as the process starts: what is due must not wait for a first request.
start(World.start_timers)


@functions_framework.aio.http
@answering
async def timers(event: Event) -> None:
    """`timer.set` in, acknowledged once it is durable; `timer.fired` goes to the Broker when it is due."""
    await world().set_timers(parse_message(event, TimersSet))
