"""A sweep that deletes by a handler of a test."""

from datetime import timedelta
from typing import Any

from shared.ports import Publisher
from shared.usecases.handler import Handler
from shared.usecases.sweep import Sweep


def sweep_with(
    expiry: Handler,
    publisher: Publisher,
    interval: timedelta,
    *,
    concurrency: int,
    make: type[Sweep] = Sweep,
    **options: Any,
) -> Sweep:
    """Build a sweep over the cluster of a handler."""
    return make(
        handler=expiry,
        publisher=publisher,
        interval=interval,
        concurrency=concurrency,
        **options,
    )
