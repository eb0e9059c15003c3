"""Store the timers, and fire them when they are due."""

import functions_framework.aio

from shared.adapters.events.cloudevents import Event, parse_message
from shared.bootstrap.process import Process
from shared.bootstrap.start import start
from shared.messages import TimersSet

# The framework loads this file when the process starts, so due timers do not wait for a first request.
process = start(Process.start_timers)


@functions_framework.aio.http
@process.answering
async def timers(event: Event) -> None:
    """Accept `timer.set`, and acknowledge it once it is durable; publish `timer.fired` to the Broker when it is due."""
    await process.set_timers(parse_message(event, TimersSet))
