"""A sweep that deletes by an `Expiry` of a test."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

from shared.ports import Publisher
from shared.usecases.expire import Expiry
from shared.usecases.sweep import Sweep


def sweep_with(
    expiry: Expiry,
    publisher: Publisher,
    interval: timedelta,
    *,
    concurrency: int,
    make: type[Sweep] = Sweep,
    **options: Any,
) -> Sweep:
    """Build a sweep over the cluster of an `Expiry`."""
    return make(
        cluster=expiry.cluster,
        catalogue=expiry.catalogue,
        evaluator=expiry.evaluator,
        clock=expiry.clock,
        telemetry=expiry.telemetry,
        expiry_with=lambda telemetry: replace(expiry, telemetry=telemetry),
        publisher=publisher,
        interval=interval,
        concurrency=concurrency,
        **options,
    )
