"""Give each function's file its process, check its callers, and end that process.

Its traces and metrics are sent by OTLP if an endpoint is set; without one, OpenTelemetry is not imported.
"""

import asyncio
import atexit
import gc
import logging
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import timedelta
from functools import cache
from threading import Thread

from shared.adapters.config.settings import Settings, SettingsError, read_settings
from shared.adapters.config.timers_address import CloudTasksAddress
from shared.adapters.telemetry.log_lines import configure_logging, is_json, log_form
from shared.adapters.tracing.current import install
from shared.bootstrap.build import build
from shared.bootstrap.config import read_config
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
    google = callers.Keys(callers.Issuer(callers.GOOGLE_ISSUER))
    tasks = callers.Callers((settings.tasks_account,), audience=audience, keys=google, claim="email")
    return callers.TaskCallers(admitted, tasks).admit


EXPORT_SECONDS_MAX = 5.0
"""How long the end of a process waits for the last export: a receiver that is away must not hold it up."""


def start_exports(process: Process, *, function: str = "") -> Callable[[], Awaitable[None]]:
    """Start to send traces and metrics, as the settings say; call it after `serve_metrics`.

    Args:
        process: Has the settings and the metrics.
        function: The function of this process, which is the default of `service.name`; empty for `run` and `watch`.

    Returns:
        A function that sends what was not sent yet, and ends the exports.

    Raises:
        SettingsError: The protocol is not supported, or the extra `otel` is not installed.
    """
    settings = process.config.settings
    if not (settings.sends_traces or settings.sends_metrics):
        return _nothing
    if settings.otlp_protocol not in ("", "http/protobuf"):
        raise SettingsError(f"OTEL_EXPORTER_OTLP_PROTOCOL: expected http/protobuf, got {settings.otlp_protocol!r}")
    try:
        flushes = _start(process, settings, function)
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("opentelemetry"):
            raise
        raise SettingsError(
            f"OTEL_EXPORTER_OTLP_ENDPOINT: expected the extra otel, got no module {error.name}; "
            "install ttl-after-finished[otel], or unset the endpoint"
        ) from None

    async def end() -> None:
        install(None)
        await _in_thread(flushes)

    return end


def _start(process: Process, settings: Settings, function: str) -> Sequence[Callable[[], None]]:
    """Start what the settings say; return what sends the rest."""
    from shared.adapters.tracing.otel_tracer import build_resource  # noqa: PLC0415 - only with an endpoint

    resource, flushes = build_resource(function), list[Callable[[], None]]()
    if settings.sends_traces:
        from shared.adapters.tracing.otel_tracer import OtelTracer  # noqa: PLC0415 - as above

        tracer = OtelTracer(resource)
        install(tracer)
        flushes.append(tracer.flush)
    if settings.sends_metrics and process.config.metrics is not None:
        from shared.adapters.telemetry.otlp_push import MetricsPush  # noqa: PLC0415 - as above

        interval = timedelta(milliseconds=settings.metrics_interval_ms)
        push = MetricsPush(process.config.metrics.registry, resource, process.config.clock, interval=interval)
        flushes += [push.stop, push.flush]
    return flushes


async def _nothing() -> None:
    """Nothing is exported."""


async def _in_thread(calls: Sequence[Callable[[], None]]) -> None:
    """Make blocking calls one after the other, and wait for them a limited time.

    The thread is a daemon: a thread of the event loop's own pool would hold up the end of the process.
    """
    loop, done = asyncio.get_running_loop(), asyncio.Event()

    def run() -> None:
        for call in calls:
            call()
        with suppress(RuntimeError):  # the loop is closed: no task waits any more
            loop.call_soon_threadsafe(done.set)

    Thread(target=run, name="last-export", daemon=True).start()
    with suppress(TimeoutError):
        await asyncio.wait_for(done.wait(), EXPORT_SECONDS_MAX)


def serve_metrics(process: Process) -> Callable[[], None]:
    """Read the values that only the process knows at each scrape or push; serve the metrics if a port is set.

    Args:
        process: The process, in a running loop.

    Returns:
        A function that stops the server.

    Raises:
        TtlError: The port is in use.
    """
    config, engine = process.config, process.engine
    metrics, port, policies = config.metrics, config.settings.metrics_port, config.policies

    async def report_safeguards() -> None:
        if process.safeguards.made:  # only a process that uses the shared state reads it
            await process.safeguards.made.report()

    if metrics is None:
        return lambda: None
    metrics.count_timers(lambda: engine.timers, engine.name)
    metrics.watch_shared_state(report_safeguards)
    if policies is not None:
        metrics.watch_policy(lambda: policies.is_good)
    return metrics.serve(port) if port else lambda: None


COLLECT_EVERY = 50_000
"""The number of new containers (dicts, lists) that starts a collection of the young ones; CPython: 700 to 2,000."""

_GENERATIONS = (COLLECT_EVERY, 20, 100)


@cache
def collect_rarely() -> None:
    """Exclude all objects that exist now from collections, and start collections more rarely; only the first call acts.

    The objects of a process live as long as a request, or as long as the process. With CPython's defaults, parsing one
    page of a LIST starts hundreds of collections, which traverse the modules each time and take half of the parsing
    time. Call this when everything is loaded. Source: https://docs.python.org/3/library/gc.html#gc.freeze
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GENERATIONS)
