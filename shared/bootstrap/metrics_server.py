"""Serve the metrics of a process, with what only the process knows."""

from collections.abc import Callable

from shared.bootstrap.process import Process


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
