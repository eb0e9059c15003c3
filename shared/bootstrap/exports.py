"""Send the traces and the metrics of a process by OTLP, if an endpoint is set, and serve its metrics, if a port is set.

Without an endpoint OpenTelemetry is not imported.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from threading import Thread

from shared.adapters.config.settings import Settings, SettingsError
from shared.adapters.tracing.current import install
from shared.bootstrap.process import Process

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
    from shared.adapters.tracing.resource import build_resource  # noqa: PLC0415 - only with an endpoint

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
