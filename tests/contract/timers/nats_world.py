"""The NATS engine under test, over a real nats-server."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

from shared.adapters.timers.limits import EngineLimits
from shared.adapters.timers.nats.engine import NatsTimers
from shared.adapters.timers.nats.servers import NatsServers
from shared.ports import DurableTimers, Publisher
from tests.contract.timers.worlds import ShiftedClock, World
from tests.nats_servers import NatsServer, nats_server

STREAM = "ttl-timers"


def world_of(*servers: NatsServer, replicas: int = 1, bytes_max: int = 1024**3) -> World:
    """The world over running servers."""
    named = NatsServers(tuple(server.url for server in servers))

    def build(clock: ShiftedClock, publisher: Publisher, limits: EngineLimits) -> DurableTimers:
        return NatsTimers(
            named,
            STREAM,
            clock,
            publisher,
            replicas=replicas,
            bytes_max=bytes_max,
            limits=limits,
            jitter=lambda: 0.0,
        )

    return World(build, knows_next_due=False, resolution=timedelta(seconds=0.25))


@asynccontextmanager
async def nats(folder: Path) -> AsyncIterator[World]:
    """Timers in a stream of a server."""
    with nats_server(folder / "nats") as server:
        yield world_of(server)
