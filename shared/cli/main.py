"""`ttl-after-finished`, also `kubectl ttl`."""

import asyncio
import sys

from shared.adapters.bootstrap import build
from shared.adapters.connect import connect
from shared.adapters.memory import Memory
from shared.adapters.settings import read_settings
from shared.adapters.telemetry import configure_logging
from shared.local.runner import Runner


async def _main() -> None:
    settings = read_settings()
    configure_logging("text")
    world = build(settings)
    cluster = await connect(memory=Memory())
    world.cluster = cluster
    await Runner(world, cluster).run()


def main() -> None:
    """x."""
    asyncio.run(_main())
