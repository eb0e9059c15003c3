"""How a function's own process starts and ends."""

import asyncio
import atexit
import logging
import signal
import sys
from collections.abc import Callable

from shared.adapters.events.answers import guard
from shared.adapters.telemetry.logs import is_json
from shared.bootstrap.world import World, is_in_use, world
from shared.errors import TtlError


def start(*needs: Callable[[World], object]) -> None:
    """Called as a function's file is loaded: what cannot work ends the process now, not its first request.

    Args:
        needs: What the function needs from the start, beside settings that can be read.
    """
    is_alone = not is_in_use()  # otherwise the process is another's, who tells of errors and ends it in his own way
    try:
        mine = world()
        for need in needs:
            need(mine)
        if is_alone:
            guard(mine.admission())
    except TtlError as error:
        if is_alone:
            _end_with(error)
        raise
    if is_alone:
        _stop_before_end(world())
    if is_alone and world().timers:
        _end_with_the_engine(world())


def _end_with(error: TtlError) -> None:
    """Write one sentence as the last line of the log, in place of uvicorn's stack trace."""
    trace = logging.getLogger("uvicorn.error")
    trace.addFilter(lambda record: not record.exc_info or record.exc_info[1] is not error)
    log = logging.getLogger("ttl")
    atexit.register(log.critical, "%s", error) if is_json() else atexit.register(sys.stderr.write, f"{error}\n")


def _stop_before_end(world: World) -> None:
    """Have SIGTERM stop what works beside requests before it ends the process: uvicorn waits for requests alone.

    What a request in flight deletes after that no other process hears of; Knative lets all requests end first.
    """
    loop = asyncio.get_running_loop()
    then = signal.getsignal(signal.SIGTERM)

    async def stop() -> None:
        try:
            await world.end()
        finally:
            signal.raise_signal(signal.SIGTERM)

    def on_signal(*_: object) -> None:
        signal.signal(signal.SIGTERM, then)  # a second one does not wait
        loop.call_soon_threadsafe(lambda: _tasks.append(loop.create_task(stop())))

    signal.signal(signal.SIGTERM, on_signal)


def _end_with_the_engine(world: World) -> None:
    """A process that keeps timers and fires none would be worse than none: whoever started it starts it again."""

    async def watch() -> None:
        try:
            await world.timers_ended()
        except Exception:
            logging.getLogger("ttl").critical("the timer engine failed", exc_info=True)
            signal.raise_signal(signal.SIGTERM)

    _tasks.append(asyncio.get_running_loop().create_task(watch(), name="timers-watch"))


_tasks: list[asyncio.Task[None]] = []
"""Held, because the event loop holds its tasks only weakly."""
