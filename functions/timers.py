"""Store the timers, and fire them when they are due."""

import functions_framework.aio

from shared.adapters.events.cloudevents import Event, parse_timers
from shared.bootstrap.process import Process
from shared.bootstrap.start import start

# The framework loads this file when the process starts, so due timers do not wait for a first request.
process = start(Process.start_timers)


@functions_framework.aio.http
@process.answering
async def timers(event: Event) -> None:
    """Accept `timer.set` and `object.archived`; acknowledge them once durable; publish `timer.fired` when due.

    With Cloud Tasks, accept its tasks too: each is a `timer.fired` event with the name of its task.
    """
    await process.set_timers(parse_timers(event))
