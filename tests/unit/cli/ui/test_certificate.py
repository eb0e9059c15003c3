"""HTTPS of `ui`: files that are wrong, and files that are renewed while it serves."""

import asyncio
import logging
import os
import shutil
import socket
import ssl
from itertools import islice
from pathlib import Path

import pytest

from shared.cli.ui import command
from shared.cli.ui.app import FrontDoor
from shared.cli.ui.command import ServerCertificate, serve_app
from shared.errors import TtlError
from tests.certificates import write_certificate

pytestmark = pytest.mark.anyio

HANGS_SECONDS = 50
"""Nothing takes so long, also on a slow machine; asyncio itself ends a handshake after 60 seconds."""

NEVER_SECONDS = 3_600.0


async def app(_scope, _receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"6")]})
    await send({"type": "http.response.body", "body": b"served"})


def served(certificate: ServerCertificate):
    return serve_app(FrontDoor(app, policy="default-src 'none'", loopback_only=True), "127.0.0.1", 0, certificate)


def address_of(url: str) -> tuple[str, int]:
    host, _, port = url.rstrip("/").rpartition("//")[2].partition(":")
    return host, int(port)


async def get(url: str, ca: Path, *, newest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3, name: str = "127.0.0.1") -> bytes:
    """The answer of a server whose certificate is exactly that of a file."""
    trusting = ssl.create_default_context(cafile=ca)
    trusting.maximum_version = newest
    reader, writer = await asyncio.open_connection(*address_of(url), ssl=trusting, server_hostname=name)
    try:
        writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        return await reader.read()
    finally:
        writer.close()


def renew(new: Path, old: Path) -> None:
    """Replace what a file has; two changes within one tick of the file system's clock would look like one."""
    changed_ns = old.stat().st_mtime_ns + 1_000_000_000 if old.exists() else 0
    shutil.copy(new, old)
    if changed_ns:
        os.utime(old, ns=(changed_ns, changed_ns))


async def test_page_is_served_by_https(tmp_path):
    files = write_certificate(tmp_path, "one")
    async with served(ServerCertificate(*files)) as url:
        assert url.startswith("https://127.0.0.1:")
        assert (await get(url, files[0])).endswith(b"served")
        assert (await get(url, files[0], newest=ssl.TLSVersion.TLSv1_2)).endswith(b"served")


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1 is deprecated:DeprecationWarning")
async def test_old_tls_is_refused(tmp_path):
    files = write_certificate(tmp_path, "one")
    async with served(ServerCertificate(*files)) as url:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await get(url, files[0], newest=ssl.TLSVersion.TLSv1_1)


async def test_renewed_certificate_is_used_for_the_next_connection(tmp_path, caplog):
    caplog.set_level(logging.INFO, logger="ttl")
    files = write_certificate(tmp_path / "used", "one")
    renewed = write_certificate(tmp_path / "renewed", "two")
    async with served(ServerCertificate(*files)) as url:
        await get(url, files[0])
        for new, old in zip(renewed, files, strict=True):
            renew(new, old)
        assert (await get(url, renewed[0])).endswith(b"served")
    assert caplog.messages.count("certificate reloaded") == 1


async def test_files_that_cannot_be_used_now_leave_the_certificate_as_it_was(tmp_path, caplog):
    files = write_certificate(tmp_path / "used", "one")
    first = tmp_path / "first.crt"
    shutil.copy(files[0], first)
    renewed = write_certificate(tmp_path / "renewed", "two")
    async with served(ServerCertificate(*files)) as url:
        renew(renewed[0], files[0])  # its key follows later
        assert (await get(url, first)).endswith(b"served")
        files[1].unlink()
        for _ in range(3):
            assert (await get(url, first)).endswith(b"served")
        renew(renewed[1], files[1])
        assert (await get(url, renewed[0])).endswith(b"served")
    assert [record.message for record in caplog.records if record.levelname == "WARNING"] == [
        "certificate not reloaded"
    ] * 2


def client_hello(name: bytes) -> bytes:
    """The first message of a client that names the server so."""
    sent = ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), sent, server_hostname="x" * len(name))
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return sent.read().replace(b"x" * len(name), name)


async def test_name_of_the_server_that_is_not_ascii_prints_nothing(tmp_path, monkeypatch):
    lost: list[object] = []
    monkeypatch.setattr("sys.unraisablehook", lost.append)
    async with served(ServerCertificate(*write_certificate(tmp_path, "one"))) as url, asyncio.timeout(HANGS_SECONDS):
        reader, writer = await asyncio.open_connection(*address_of(url))
        writer.write(client_hello("größer.example".encode()))
        assert await reader.readexactly(1) == b"\x16"  # a handshake, not an alert
        writer.close()
    assert not lost


async def stalled(url: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection that begins no handshake."""
    return await asyncio.open_connection(*address_of(url))


async def test_handshake_that_lasts_too_long_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(command, "HANDSHAKE_SECONDS_MAX", 0.2)
    async with served(ServerCertificate(*write_certificate(tmp_path, "one"))) as url, asyncio.timeout(HANGS_SECONDS):
        reader, writer = await stalled(url)
        assert await reader.read() == b""
        writer.close()


async def test_stalled_handshakes_leave_room_for_a_reader(tmp_path, monkeypatch):
    monkeypatch.setattr(command, "HANDSHAKES_AT_ONCE_MAX", 16)
    monkeypatch.setattr(command, "HANDSHAKE_SECONDS_MAX", NEVER_SECONDS)
    files = write_certificate(tmp_path, "one")
    async with served(ServerCertificate(*files)) as url, asyncio.timeout(HANGS_SECONDS):
        waiting = [await stalled(url) for _ in range(command.HANDSHAKES_AT_ONCE_MAX)]
        assert (await get(url, files[0])).endswith(b"served")
        assert await waiting[0][0].read() == b""  # the longest one had to go
        assert not waiting[-1][0].at_eof()
        assert (await get(url, files[0])).endswith(b"served")
        for _, writer in waiting:
            writer.close()


async def test_burst_of_stalled_handshakes_leaves_no_more_than_the_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(command, "HANDSHAKES_AT_ONCE_MAX", 16)
    monkeypatch.setattr(command, "HANDSHAKE_SECONDS_MAX", NEVER_SECONDS)
    files = write_certificate(tmp_path, "one")
    async with served(ServerCertificate(*files)) as url, asyncio.timeout(HANGS_SECONDS):
        waiting = await asyncio.gather(*(stalled(url) for _ in range(3 * command.HANDSHAKES_AT_ONCE_MAX)))
        assert (await get(url, files[0])).endswith(b"served")
        closed = [asyncio.create_task(reader.read()) for reader, _ in waiting]
        for ended in islice(asyncio.as_completed(closed), 2 * command.HANDSHAKES_AT_ONCE_MAX):
            assert await ended == b""  # all others but the limit
        for _, writer in waiting:
            writer.close()


async def test_closed_connection_does_not_wait_long_for_the_end_of_tls(tmp_path, monkeypatch):
    """The client goes on with TCP and answers nothing, as one that fills the connections would."""
    monkeypatch.setattr("asyncio.constants.SSL_SHUTDOWN_TIMEOUT", NEVER_SECONDS)  # the default of asyncio
    monkeypatch.setattr(command, "GOODBYE_SECONDS_MAX", 0.2)
    files = write_certificate(tmp_path, "one")
    async with served(ServerCertificate(*files)) as url:
        client = await asyncio.to_thread(silent_after_its_request, url, files[0])
        with client:
            client.setblocking(False)
            async with asyncio.timeout(HANGS_SECONDS):
                while await asyncio.get_running_loop().sock_recv(client, 65_536):
                    pass  # what is left of the answer, and the server's end of TLS


def silent_after_its_request(url: str, ca: Path) -> socket.socket:
    """A connection that has its answer, below its TLS: it sends no end of TLS."""
    trusting, address = ssl.create_default_context(cafile=ca), address_of(url)
    client = trusting.wrap_socket(socket.create_connection(address), server_hostname=address[0])
    client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    assert client.recv(12) == b"HTTP/1.1 200"
    return socket.socket(fileno=client.detach())


async def test_client_that_leaves_before_it_is_accepted_delays_no_other(tmp_path, monkeypatch):
    monkeypatch.setattr(command, "_PAUSE_SECONDS", NEVER_SECONDS)
    loop, files = asyncio.get_running_loop(), write_certificate(tmp_path, "one")
    accept, gone = loop.sock_accept, [ConnectionAbortedError()] * 3

    async def accept_after_others(listener):
        if gone:
            raise gone.pop()
        return await accept(listener)

    monkeypatch.setattr(loop, "sock_accept", accept_after_others)
    async with served(ServerCertificate(*files)) as url, asyncio.timeout(HANGS_SECONDS):
        assert (await get(url, files[0])).endswith(b"served")
    assert gone == []


async def test_client_without_tls_disturbs_no_other(tmp_path):
    files = write_certificate(tmp_path, "one")
    async with served(ServerCertificate(*files)) as url, asyncio.timeout(HANGS_SECONDS):
        reader, writer = await stalled(url)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert not (await reader.read()).startswith(b"HTTP")
        writer.close()
        assert (await get(url, files[0])).endswith(b"served")


def broken(folder: Path, what: str) -> tuple[Path, Path]:
    chain, key = write_certificate(folder, "one", passphrase=b"secret" if what == "encrypted" else b"")
    match what:
        case "no chain":
            chain.unlink()
        case "no key":
            key.unlink()
        case "other key":
            shutil.copy(write_certificate(folder / "other", "two")[1], key)
        case "no PEM":
            chain.write_text("text")
        case "folder":
            chain = folder
    return chain, key


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("no chain", r"--tls-cert-file: \S+tls.crt cannot be read: No such file or directory"),
        ("no key", r"--tls-private-key-file: \S+tls.key cannot be read: No such file or directory"),
        ("folder", r"--tls-cert-file: \S+ cannot be read: Is a directory"),
        ("other key", r"--tls-private-key-file: \S+tls.key: expected the key of the certificate in \S+tls.crt"),
        ("encrypted", r"--tls-private-key-file: \S+tls.key: expected a key without a passphrase"),
        (
            "no PEM",
            r"--tls-cert-file, --tls-private-key-file: expected a certificate chain in \S+tls.crt and .* PEM",
        ),
    ],
)
def test_files_that_cannot_be_used_are_one_error_that_names_the_option(tmp_path, what, words):
    with pytest.raises(TtlError, match=words):
        ServerCertificate(*broken(tmp_path, what))
