"""Each problem at the start of the NATS engine is one clear error, or is retried if a restart does not help."""

import asyncio
import base64
import hashlib
import json
import logging
import os
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import nats
import nkeys
import pytest

from shared.adapters.timers.nats.engine import NatsTimers
from shared.adapters.timers.nats.servers import NatsServers
from shared.devserver.ports import free_port
from shared.errors import TryLaterError, TtlError
from tests.contract.timers.nats_world import STREAM, world_of
from tests.contract.timers.worlds import QUICK, ShiftedClock, Target, until
from tests.nats_servers import NatsServer, nats_server

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]

STREAM_SETTINGS = {
    "name": STREAM,
    "subjects": [f"{STREAM}.>"],
    "retention": "workqueue",
    "storage": "file",
    "allow_direct": True,
    "allow_msg_schedules": True,
}


def engine_of(servers: NatsServers, replicas: int = 1) -> NatsTimers:
    clock = ShiftedClock()
    return NatsTimers(servers, STREAM, clock, Target(clock), replicas=replicas, limits=QUICK)


async def refusal_of(engine: NatsTimers) -> str:
    """The error with which the engine ends."""
    with pytest.raises(TtlError) as caught:
        async with asyncio.timeout(30):
            await engine.run()
    assert not isinstance(caught.value, TryLaterError)
    return str(caught.value)


async def fires(engine: NatsTimers) -> bool:
    """Whether an engine starts and takes calls."""
    task = asyncio.create_task(engine.run())
    try:
        return await engine.pending() == 0
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_jetstream_that_is_off_is_named(tmp_path: Path) -> None:
    with nats_server(tmp_path, {"jetstream": False}) as server:
        error = await refusal_of(engine_of(NatsServers((server.url,))))
    assert "JetStream is off" in error


async def test_more_replicas_than_servers_are_named(tmp_path: Path) -> None:
    with nats_server(tmp_path) as server:
        error = await refusal_of(engine_of(NatsServers((server.url,)), replicas=3))
    assert "TTL_NATS_REPLICAS" in error


@pytest.mark.parametrize(
    "changed",
    [
        {"retention": "limits"},
        {"retention": "interest"},
        {"max_age": 60_000_000_000},
        {"max_msgs": 100},
        {"max_bytes": 1_000_000},
        {"max_msgs_per_subject": 1},
        {"subjects": [f"{STREAM}.expire.>"]},
        {"storage": "memory"},
        {"allow_msg_schedules": False},
        {"allow_direct": False},
        {"no_ack": True},
    ],
    ids=lambda changed: "-".join(f"{name}" for name in changed),
)
async def test_stream_that_loses_timers_is_refused(tmp_path: Path, changed: Mapping[str, object]) -> None:
    with nats_server(tmp_path) as server:
        client = await nats.connect(server.url)
        await client.jetstream()._jsm._api_request(
            f"$JS.API.STREAM.CREATE.{STREAM}", nats_json({**STREAM_SETTINGS, **changed})
        )
        await client.close()
        error = await refusal_of(engine_of(NatsServers((server.url,))))
    assert STREAM in error
    assert next(iter(changed)) in error


def nats_json(value: object) -> bytes:
    return json.dumps(value).encode()


async def test_stream_with_another_message_size_is_updated(tmp_path: Path) -> None:
    with nats_server(tmp_path) as server:
        client = await nats.connect(server.url)
        await client.jetstream()._jsm._api_request(f"$JS.API.STREAM.CREATE.{STREAM}", nats_json(STREAM_SETTINGS))
        assert await fires(engine_of(NatsServers((server.url,))))
        assert (await client.jetstream().stream_info(STREAM)).config.max_msg_size == 64 * 1024
        await client.close()


async def test_server_that_is_away_is_tried_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    server = NatsServer(tmp_path, port=free_port())
    world = world_of(server)
    async with world.running() as engine:
        with caplog.at_level(logging.ERROR, "ttl"), pytest.raises(TryLaterError):
            await engine.set([world.timer("uid-1")])
        assert any("NATS" in record.message for record in caplog.records)
        try:
            server.start()
            await until(lambda: not isinstance(engine, NatsTimers) or engine._ready.is_set(), "the start", 15)
            await engine.set([world.timer("uid-1")])
            await world.arrival("uid-1")
        finally:
            server.stop()


async def test_missing_right_is_named(tmp_path: Path) -> None:
    user = {"user": "timers", "password": "x", "permissions": {"publish": ["nothing"], "subscribe": ["_INBOX.>"]}}
    with nats_server(tmp_path, {"authorization": {"users": [user]}}) as server:
        url = server.url.replace("//", "//timers:x@")
        error = await refusal_of(engine_of(NatsServers((url,))))
    assert "right is missing" in error
    assert "$JS.API" in error


async def test_refused_user_is_named(tmp_path: Path) -> None:
    with nats_server(tmp_path, {"authorization": {"user": "timers", "password": "x"}}) as server:
        error = await refusal_of(engine_of(NatsServers((server.url,))))
    assert "TTL_NATS_CREDENTIALS" in error


@pytest.mark.parametrize("field", ["credentials", "ca", "certificate", "key"])
async def test_missing_file_is_named(tmp_path: Path, field: str) -> None:
    servers = NatsServers(("nats://127.0.0.1:1",), **{field: tmp_path / "absent"})
    error = await refusal_of(engine_of(servers))
    assert f"TTL_NATS_{field.upper()}" in error


def new_certificates(folder: Path) -> None:
    """A CA, and a certificate of it for 127.0.0.1, which is the server's and the client's."""

    def openssl(*args: str) -> None:
        subprocess.run(["openssl", *args], cwd=folder, check=True, capture_output=True)

    new = ("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2")
    openssl(*new, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=ca")
    signed = ("-CA", "ca.pem", "-CAkey", "ca.key", "-addext", "subjectAltName=IP:127.0.0.1")
    openssl(*new, *signed, "-keyout", "timers.key", "-out", "timers.pem", "-subj", "/CN=timers")


async def test_tls_with_a_client_certificate_works(tmp_path: Path) -> None:
    new_certificates(tmp_path)
    ca, certificate, key = (tmp_path / name for name in ("ca.pem", "timers.pem", "timers.key"))
    tls = {"cert_file": str(certificate), "key_file": str(key), "ca_file": str(ca), "verify": True}
    with nats_server(tmp_path / "nats", {"tls": tls}) as server:
        url = server.url.replace("nats:", "tls:")
        assert await fires(engine_of(NatsServers((url,), ca=ca, certificate=certificate, key=key)))
        with pytest.raises(TryLaterError):  # the certificate of the server is not trusted
            await fires(engine_of(NatsServers((url,))))


@pytest.mark.parametrize("scheme", ["tls", "nats"])
async def test_server_without_tls_is_refused_if_its_address_or_a_certificate_asks_for_tls(
    tmp_path: Path, scheme: str
) -> None:
    new_certificates(tmp_path)
    with nats_server(tmp_path / "nats") as server:
        url = server.url.replace("nats:", f"{scheme}:")
        error = await refusal_of(engine_of(NatsServers((url,), ca=tmp_path / "ca.pem" if scheme == "nats" else None)))
    assert "offers no TLS" in error


@pytest.mark.parametrize("creates", [False, True])
async def test_command_changes_no_setting_of_the_stream(tmp_path: Path, *, creates: bool) -> None:
    with nats_server(tmp_path) as server:
        client = await nats.connect(server.url)
        stream = client.jetstream()
        await client.request(
            f"$JS.API.STREAM.CREATE.{STREAM}", json.dumps(STREAM_SETTINGS | {"max_msg_size": 1_000_000}).encode()
        )
        engine = engine_of(NatsServers((server.url,)))
        await engine.open(creates=creates)
        assert await engine.pending() == 0
        await engine.close()
        assert (await stream.stream_info(STREAM)).config.max_msg_size == 1_000_000
        assert await fires(engine_of(NatsServers((server.url,))))
        assert (await stream.stream_info(STREAM)).config.max_msg_size != 1_000_000
        await client.close()


async def test_command_that_reads_creates_no_stream(tmp_path: Path) -> None:
    with nats_server(tmp_path) as server:
        engine = engine_of(NatsServers((server.url,)))
        with pytest.raises(TtlError, match="expected a stream of timers, got none"):
            await engine.open(creates=False)
        await engine.close()
        client = await nats.connect(server.url)
        assert await client.jetstream().streams_info() == []
        await client.close()


def encoded_jwt(claims: dict, issuer: nkeys.KeyPair) -> str:
    """A JWT as `nsc` makes it: the algorithm is ed25519-nkey."""

    def base64url(data: bytes) -> str:
        return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

    claims["jti"] = base64.b32encode(hashlib.sha256(nats_json(claims)).digest()).decode().rstrip("=")
    text = ".".join(base64url(nats_json(part)) for part in ({"typ": "JWT", "alg": "ed25519-nkey"}, claims))
    return f"{text}.{base64url(issuer.sign(text.encode()))}"


def new_key(prefix: int) -> nkeys.KeyPair:
    return nkeys.from_seed(nkeys.encode_seed(os.urandom(32), prefix))


async def test_credentials_file_works(tmp_path: Path) -> None:
    operator, account, user = (
        new_key(prefix) for prefix in (nkeys.PREFIX_BYTE_OPERATOR, nkeys.PREFIX_BYTE_ACCOUNT, nkeys.PREFIX_BYTE_USER)
    )
    names = [key.public_key.decode() for key in (operator, account, user)]
    free = {"subs": -1, "data": -1, "payload": -1}
    limits = {**free, "imports": -1, "exports": -1, "conn": -1, "leaf": -1, "mem_storage": -1, "disk_storage": -1}
    limits |= {"streams": -1, "consumer": -1, "wildcards": True}

    def claims(issuer: str, subject: str, kind: str, **fields: object) -> dict:
        body = {"type": kind, "version": 2, **fields}
        return {"iat": 1_700_000_000, "iss": issuer, "sub": subject, "name": kind, "nats": body}

    jwts = {
        "operator": encoded_jwt(claims(names[0], names[0], "operator"), operator),
        "account": encoded_jwt(claims(names[0], names[1], "account", limits=limits), operator),
        "user": encoded_jwt(claims(names[1], names[2], "user", **free), account),
    }
    system = new_key(nkeys.PREFIX_BYTE_ACCOUNT)
    system_jwt = encoded_jwt(claims(names[0], system.public_key.decode(), "account"), operator)
    credentials = tmp_path / "timers.creds"
    credentials.write_text(
        f"-----BEGIN NATS USER JWT-----\n{jwts['user']}\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{user.seed.decode()}\n------END USER NKEY SEED------\n"
    )
    config = {
        "operator": jwts["operator"],
        "resolver": "MEMORY",
        "resolver_preload": {names[1]: jwts["account"], system.public_key.decode(): system_jwt},
        "system_account": system.public_key.decode(),
    }
    with nats_server(tmp_path / "nats", config) as server:
        assert await fires(engine_of(NatsServers((server.url,), credentials=credentials)))
        error = await refusal_of(engine_of(NatsServers((server.url,))))
    assert "TTL_NATS_CREDENTIALS" in error
