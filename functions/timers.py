"""Keep the timers, and fire them when they are due."""

import functions_framework.aio

from shared.adapters.answers import answering
from shared.adapters.bootstrap import World, world
from shared.adapters.events import Event, parse_message
from shared.adapters.process import start
from shared.messages import TimersSet

# The framework loads this file as the process starts: what is due must not wait for a first request.
start(World.start_timers)


@functions_framework.aio.http
@answering
async def timers(event: Event) -> None:
    """`timer.set` in, acknowledged once it is durable; `timer.fired` goes to the Broker when it is due."""
    await world().set_timers(parse_message(event, TimersSet))
