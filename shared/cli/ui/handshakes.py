"""Accept connections with TLS, with limits on the handshakes.

The server of asyncio ends a handshake only after 60 seconds, and does not limit their number. So clients that connect
and send nothing could fill the memory: the limits of HTTP apply only after the handshake.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress

HANDSHAKE_SECONDS_MAX = 10.0
"""A handshake that takes longer fails, and its connection is closed."""

HANDSHAKES_AT_ONCE_MAX = 256
"""Handshakes at once, of up to 0.3 MB each. The next connection closes the one whose handshake has lasted longest. So a
reader whose handshake takes 0.2 s is cut off if 1,280 connections a second arrive."""

GOODBYE_SECONDS_MAX = 1.0
"""How long a closed connection waits for the client's close_notify. The server of asyncio waits for 30 seconds, and the
limits of HTTP cannot end such a connection."""

_PAUSE_SECONDS = 1.0


async def accept_tls(
    listener: socket.socket, find_tls: Callable[[], ssl.SSLContext], make_protocol: Callable[[], asyncio.Protocol]
) -> None:
    """Accept connections until this task is cancelled. Then handshakes in progress end; established connections go on.

    Args:
        listener: A listening socket that does not block.
        find_tls: Returns the TLS settings of one connection, with the certificate of the server.
        make_protocol: Makes what handles one connection after its handshake.
    """
    running: dict[asyncio.Task[None], None] = {}
    async with asyncio.TaskGroup() as handshakes:
        while True:
            accepted = await _accept(listener)
            if len(running) >= HANDSHAKES_AT_ONCE_MAX:
                longest = next(iter(running))
                del running[longest]  # now, since it ends some turns of the loop later
                longest.cancel()
            task = handshakes.create_task(_shake_hands(accepted, find_tls(), make_protocol))
            running[task] = None
            task.add_done_callback(lambda ended: running.pop(ended, None))
            await asyncio.sleep(0)  # the task begins: from now on, its end closes the connection


async def _accept(listener: socket.socket) -> socket.socket:
    while True:
        try:
            return (await asyncio.get_running_loop().sock_accept(listener))[0]
        except ConnectionError:
            continue  # that client has gone, and others wait
        except OSError:  # this process has no file descriptor left
            await asyncio.sleep(_PAUSE_SECONDS)


async def _shake_hands(
    accepted: socket.socket, tls: ssl.SSLContext, make_protocol: Callable[[], asyncio.Protocol]
) -> None:
    with suppress(OSError):  # no client of TLS, or it is too slow, refuses the certificate, or has gone
        await asyncio.get_running_loop().connect_accepted_socket(
            make_protocol,
            accepted,
            ssl=tls,
            ssl_handshake_timeout=HANDSHAKE_SECONDS_MAX,
            ssl_shutdown_timeout=GOODBYE_SECONDS_MAX,
        )
