"""The NATS engine under test, over a real nats-server."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import nats as client_library
from nats.aio.client import Client

from shared.adapters.timers.delivery import EngineLimits
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


@asynccontextmanager
async def connected(node: NatsServer) -> AsyncIterator[Client]:
    client = await client_library.connect(node.url)
    try:
        yield client
    finally:
        await client.close()


async def answer(node: NatsServer, operation: str, request: Mapping[str, object] | None = None) -> dict:
    """Call JetStream's API."""
    async with connected(node) as client:
        found = await client.request(f"$JS.API.{operation}", json.dumps(request or {}).encode(), timeout=10)
    result = json.loads(found.data)
    assert "error" not in result, result
    return result


async def stored(node: NatsServer) -> set[str]:
    """The subjects of the messages that the server has."""
    state = (await answer(node, f"STREAM.INFO.{STREAM}", {"subjects_filter": ">"}))["state"]
    return set(state.get("subjects", ()))
