"""The server of the tests: whatever its clients do, none of its sockets is open after its block."""

import asyncio
import gc
import socket
import ssl
import warnings

import pytest
from aiohttp import web

from tests.certificates import write_certificate
from tests.loopback import answering_with

REQUEST = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"


async def answer(_request):
    return web.Response(text="yes")


def client_tls():
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def says_nothing(connection):
    return connection


def leaves_its_handshake(connection):
    connection.sendall(b"\x16\x03\x01")  # the first bytes of a record of TLS
    return connection


def never_ends_tls(connection):
    connection = client_tls().wrap_socket(connection)
    connection.sendall(REQUEST)
    assert connection.recv(1_000).startswith(b"HTTP/1.1 200")
    return connection


@pytest.mark.parametrize("use", [says_nothing, leaves_its_handshake, never_ends_tls])
def test_no_socket_outlives_the_server(use, tmp_path):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*write_certificate(tmp_path, "server"))

    async def serve():
        async with answering_with(answer, tls=context, shutdown_timeout=0.1) as url:
            connection = socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])))
            used = await asyncio.to_thread(use, connection)
            for _ in range(20):
                await asyncio.sleep(0)  # the server has its turns, in which it reads what was sent
        return used

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", ResourceWarning)
        with asyncio.run(serve()):
            gc.collect()

    assert [str(each.message) for each in warned] == []
