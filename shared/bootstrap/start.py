"""Give each function's file its process, check its callers, and end that process."""

import asyncio
import atexit
import logging
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from shared.adapters.config.log_form import log_form
from shared.adapters.config.settings import Settings, SettingsError, read_settings
from shared.adapters.config.timers_address import CloudTasksAddress
from shared.adapters.telemetry.log_lines import configure_logging, is_json
from shared.bootstrap.build import build
from shared.bootstrap.config import read_config
from shared.bootstrap.exports import serve_metrics, start_exports
from shared.bootstrap.garbage import collect_rarely
from shared.bootstrap.process import Process
from shared.errors import TtlError

_loading: ContextVar[Process | None] = ContextVar("loading", default=None)


@contextmanager
def loading_for(process: Process) -> Iterator[None]:
    """Let the functions that are loaded in this block use a process that is already built.

    functions-framework loads a function's file by its path, so a program cannot pass the process as an argument. Each
    function asks for its process once, when it is loaded; the variable has no effect after that.
    """
    token = _loading.set(process)
    try:
        yield
    finally:
        _loading.reset(token)


def start(*needs: Callable[[Process], object]) -> Process:
    """Return the process for the function whose file is being loaded: that of `loading_for`, else a new one.

    A new process is built from the environment. A wrong setting ends it now, not a request later.

    Args:
        needs: Called with the process now, so that a wrong setting or a missing port fails at the start.
    """
    if shared := _loading.get():  # the program that loads several functions reports errors and ends the process
        for need in needs:
            need(shared)
        return shared
    configure_logging(log_form() or "json")  # before the settings, so that an error in them is logged
    try:
        settings = read_settings()
        process = build(read_config(settings, admit=build_admission(settings)))
        serve_metrics(process)
        end_exports = start_exports(process, function=settings.function)
        for need in needs:
            need(process)
    except TtlError as error:
        _log_last(error)
        raise
    _end_on_sigterm(process, end_exports)
    if process.engine.timers:
        _end_with_engine(process)
    collect_rarely()
    return process


def _log_last(error: TtlError) -> None:
    """Write the error as the last line of the log, in place of uvicorn's stack trace."""
    trace = logging.getLogger("uvicorn.error")
    trace.addFilter(lambda record: not record.exc_info or record.exc_info[1] is not error)
    log = logging.getLogger("ttl")
    atexit.register(log.critical, "%s", error) if is_json() else atexit.register(sys.stderr.write, f"{error}\n")


def _end_on_sigterm(process: Process, end_exports: Callable[[], Awaitable[None]]) -> None:
    """On SIGTERM, end the work of the process before the process: uvicorn waits for requests, but not for timers.

    If a request in flight deletes an object after that, the shared state does not contain the deletion. Knative ends
    all requests before it sends SIGTERM.
    """
    loop = asyncio.get_running_loop()
    previous = signal.getsignal(signal.SIGTERM)

    async def stop() -> None:
        try:
            await process.end()
            await end_exports()
        finally:
            signal.raise_signal(signal.SIGTERM)

    def on_signal(*_: object) -> None:
        signal.signal(signal.SIGTERM, previous)  # a second SIGTERM does not wait
        loop.call_soon_threadsafe(lambda: _tasks.append(loop.create_task(stop())))

    signal.signal(signal.SIGTERM, on_signal)


def _end_with_engine(process: Process) -> None:
    """End the process if the timer engine fails, so that Kubernetes restarts it: without the engine no timer fires."""

    async def watch() -> None:
        try:
            await process.engine.ended()
        except Exception:
            logging.getLogger("ttl").critical("the timer engine failed", exc_info=True)
            signal.raise_signal(signal.SIGTERM)

    _tasks.append(asyncio.get_running_loop().create_task(watch(), name="timers-watch"))


_tasks: list[asyncio.Task[None]] = []
"""References to running tasks, because the event loop keeps only weak references."""


def build_admission(settings: Settings) -> Callable[[str], Awaitable[None]] | None:
    """Make the check of a request's Authorization header; None if every caller is admitted.

    Raises:
        SettingsError: The settings of the callers are incomplete.
    """
    if not settings.callers and (settings.callers_audience or settings.callers_issuer):
        raise SettingsError("TTL_CALLERS: expected the subjects that may call, got none")
    if not settings.callers:
        return None
    if not settings.callers_audience:
        raise SettingsError("TTL_CALLERS_AUDIENCE: expected the audience of the callers' tokens, got none")
    from shared.adapters.auth import callers  # noqa: PLC0415 - loads cryptography, which only this check needs

    issuer = callers.Issuer(settings.callers_issuer) if settings.callers_issuer else callers.ApiServerIssuer()
    audience = settings.callers_audience
    admitted = callers.Callers(settings.callers, audience=audience, keys=callers.Keys(issuer))
    if not isinstance(settings.timers, CloudTasksAddress):
        return admitted.admit
    from shared.adapters.auth.callers import GOOGLE_ISSUER, TaskCallers  # noqa: PLC0415 - only with Cloud Tasks

    google = callers.Keys(callers.Issuer(GOOGLE_ISSUER))
    tasks = callers.Callers((settings.tasks_account,), audience=audience, keys=google, claim="email")
    return TaskCallers(admitted, tasks).admit
