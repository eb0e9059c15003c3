"""The connection to NATS: it leaves a server that takes no bytes any more, and ends when it is cancelled."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from shared.adapters.timers.nats.connection import NatsConnection
from shared.adapters.timers.nats.servers import NatsServers

pytestmark = pytest.mark.anyio

BYTES = 64 * 1024 * 1024
"""More than the kernel holds for a connection."""


class Server:
    """A server of NATS's text protocol that answers pings, and freezes at a long line."""

    def __init__(self) -> None:
        self.connections, self.frozen = 0, asyncio.Event()
        self.serving: set[asyncio.Task[None]] = set()

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self.serve(reader, writer))
        self.serving.add(task)
        task.add_done_callback(self.serving.discard)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        info = {"server_id": "x", "version": "2.15.2", "max_payload": BYTES, "headers": True}
        writer.write(f"INFO {json.dumps(info)}\r\n".encode())
        try:
            while line := await reader.readline():
                if line.startswith(b"PING"):
                    writer.write(b"PONG\r\n")
        except ValueError:  # as after SIGSTOP: the connection stays, and nothing is read any more
            self.frozen.set()
            await asyncio.Event().wait()
        except ConnectionError:  # the client has left
            pass
        finally:
            writer.transport.abort()


@asynccontextmanager
async def serving(server: Server) -> AsyncIterator[str]:
    listening = await asyncio.start_server(server.accept, "127.0.0.1", 0)
    yield f"nats://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    listening.close()
    for task in server.serving:
        task.cancel()
    await asyncio.gather(*server.serving, return_exceptions=True)


async def test_client_leaves_a_server_that_takes_no_bytes() -> None:
    server = Server()
    async with serving(server) as url:
        client = NatsServers((url,)).new_client()
        again = asyncio.Event()

        async def reconnected() -> None:
            again.set()

        await client.connect(
            servers=[url], allow_reconnect=True, pending_size=2 * BYTES, connect_timeout=60, reconnected_cb=reconnected
        )
        await client.publish("x", b"x" * BYTES)
        await server.frozen.wait()  # some of the bytes have arrived, and the client's transport has the others

        await client.force_reconnect()
        await again.wait()
        assert server.connections == 2
        assert client.is_connected
        await client.close()


async def test_connection_ends_at_whatever_step_it_is_cancelled() -> None:
    async with serving(Server()) as url:
        connected, steps = False, 0
        while not connected:
            connection = NatsConnection(NatsServers((url,)), "ttl-timers")
            task = asyncio.create_task(connection.open())
            for _ in range(steps):
                await asyncio.sleep(0)
            connected = not task.cancel()  # it was connected already
            await asyncio.wait([task])
            assert connected or task.cancelled()
            await connection.close()
            steps += 1
        assert steps > 10
