"""Build the metrics of a process, and serve them."""

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from shared.adapters.config.settings import Settings
from shared.core.kinds.catalogue import Catalogue
from shared.ports import Telemetry, Timers

if TYPE_CHECKING:
    from shared.adapters.config.policy_file import PolicyFile
    from shared.adapters.telemetry.metrics import Metrics


def serve_metrics(  # noqa: PLR0913 - each argument is a source of metrics
    port: int,
    settings: Settings,
    telemetry: Telemetry,
    *,
    kinds: Catalogue,
    timers: Callable[[], Timers | None],
    read_safeguards: Callable[[], Coroutine[Any, Any, None]],
    policies: "PolicyFile | None",
) -> tuple["Metrics", Callable[[], None]]:
    """Make the metrics, and serve them on a port.

    Args:
        port: The port to serve them on.
        settings: The settings.
        telemetry: The telemetry that the metrics pass everything on to.
        kinds: All known kinds.
        timers: Returns the timer engine; None until it has started.
        read_safeguards: Reads the shared state of the safeguards before a scrape.
        policies: The policy file; None if the settings name none.

    Returns:
        The metrics, and a function that stops the server.

    Raises:
        TtlError: The port is in use.
    """
    from shared.adapters.events.answers import observe_answers  # noqa: PLC0415 - as below
    from shared.adapters.telemetry.metrics import Metrics  # noqa: PLC0415 - 50 ms that only a scraped process needs

    metrics = Metrics(telemetry, kinds=kinds, sweep_interval=settings.sweep_interval)
    metrics.count_timers(timers)
    metrics.watch_shared_state(read_safeguards)
    if policies is not None:
        metrics.watch_policy(lambda: policies.is_good)
    close = metrics.serve(port)
    observe_answers(metrics.answered)
    return metrics, close
