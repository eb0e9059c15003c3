"""Start and end the process of a single function."""

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
    """Prepare the process when a function's file is loaded: a wrong setting ends the process now, not a request later.

    Args:
        needs: The adapters that the function needs from the start.
    """
    is_own_process = not is_in_use()  # otherwise the program that set the World reports errors and ends the process
    try:
        built = world()
        for need in needs:
            need(built)
        if is_own_process:
            guard(built.admission())
    except TtlError as error:
        if is_own_process:
            _log_last(error)
        raise
    if is_own_process:
        _end_world_on_sigterm(built)
    if is_own_process and built.timers:
        _end_process_with_engine(built)


def _log_last(error: TtlError) -> None:
    """Write the error as the last line of the log, in place of uvicorn's stack trace."""
    trace = logging.getLogger("uvicorn.error")
    trace.addFilter(lambda record: not record.exc_info or record.exc_info[1] is not error)
    log = logging.getLogger("ttl")
    atexit.register(log.critical, "%s", error) if is_json() else atexit.register(sys.stderr.write, f"{error}\n")


def _end_world_on_sigterm(world: World) -> None:
    """On SIGTERM, end the World before the process: uvicorn waits for requests, but not for timers.

    If a request in flight deletes an object after that, the shared state does not contain the deletion. Knative ends
    all requests before it sends SIGTERM.
    """
    loop = asyncio.get_running_loop()
    previous = signal.getsignal(signal.SIGTERM)

    async def stop() -> None:
        try:
            await world.end()
        finally:
            signal.raise_signal(signal.SIGTERM)

    def on_signal(*_: object) -> None:
        signal.signal(signal.SIGTERM, previous)  # a second SIGTERM does not wait
        loop.call_soon_threadsafe(lambda: _tasks.append(loop.create_task(stop())))

    signal.signal(signal.SIGTERM, on_signal)


def _end_process_with_engine(world: World) -> None:
    """End the process if the timer engine fails, so that Kubernetes restarts it: without the engine no timer fires."""

    async def watch() -> None:
        try:
            await world.timers_ended()
        except Exception:
            logging.getLogger("ttl").critical("the timer engine failed", exc_info=True)
            signal.raise_signal(signal.SIGTERM)

    _tasks.append(asyncio.get_running_loop().create_task(watch(), name="timers-watch"))


_tasks: list[asyncio.Task[None]] = []
"""References to running tasks, because the event loop keeps only weak references."""
