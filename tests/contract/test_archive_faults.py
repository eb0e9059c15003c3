"""What an archive answers when its folder or its real S3 server fails: the class of the error, and what to do."""

import asyncio
import ipaddress
import os
import resource
import signal
import subprocess
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from shared.adapters.archive import bucket, open_archive
from shared.adapters.archive.folder import FolderStore
from shared.core.archive.destination import parse_destination
from shared.core.archive.layout import log_path
from shared.devserver.ports import free_port
from shared.errors import AbsentDocumentError, ForbiddenError, PermanentError, TryLaterError, TtlError
from tests.builders import not_none
from tests.contract.archives import make
from tests.proc import send
from tests.s3_servers import S3Server, required_s3_program, s3_server
from tests.volumes import mounted

pytestmark = pytest.mark.anyio

KEY_ID, SECRET = "AKIAFORGOTTEN", "very-secret-value"


@pytest.fixture
def own_s3():
    """A server that a test may stop."""
    with s3_server(required_s3_program()) as server:
        yield server


@pytest.fixture
def credentials(monkeypatch):
    """Set the credentials of this process."""

    def use(server: S3Server, **given: str) -> None:
        for name, value in {**server.environment, **given}.items():
            monkeypatch.setenv(name, value)

    return use


@pytest.fixture
def impatient(monkeypatch):
    """An archive that gives up after seconds: a test need not wait as long as a function does."""
    monkeypatch.setattr(open_archive, "REQUEST_SECONDS", 2.0)
    monkeypatch.setattr(open_archive, "CONNECT_SECONDS", 2.0)
    monkeypatch.setattr(open_archive, "_RETRIES_SECONDS", 2.0)
    monkeypatch.setattr(bucket, "OPERATION_SECONDS", 6.0)


async def failures(archive) -> dict[str, TtlError]:
    """The errors of all calls, by the name of the call."""
    key, document = make()

    async def chunks():
        yield b"log"

    calls = {
        "put": archive.put(key, document),
        "find": archive.find(key),
        "read": archive.read(key),
        "put_log": archive.put_log(log_path(key, "main"), chunks()),
        "read_log": anext(archive.read_log(log_path(key, "main"))),
        "ls": _all(archive.ls()),
        "folders": _all(archive.folders("v1/")),
        "delete": archive.delete([key]),
    }
    found = {}
    for name, call in calls.items():
        try:
            await call
        except TtlError as error:
            found[name] = error
    return found


async def _all(iterator):
    return [one async for one in iterator]


def check(found: dict[str, TtlError], kind: type[TtlError], *words: str, calls=None) -> None:
    assert set(found) == (
        set(calls) if calls else {"put", "find", "read", "put_log", "read_log", "ls", "folders", "delete"}
    )
    for name, error in found.items():
        assert type(error) is kind, (name, error)
        assert str(error).startswith("archive main: cannot "), error
        for word in words:
            assert word in str(error), (name, error)
        assert SECRET not in str(error)
        assert KEY_ID not in str(error)
        assert error.__cause__ is None
        assert error.__suppress_context__


async def test_wrong_bucket_is_a_permanent_error(s3, credentials):
    credentials(s3)
    archive = open_archive.open_archive("main", s3.url("present").replace("present", "absent-bucket"))
    found = await failures(archive)
    # A HEAD of an absent bucket looks like one of an absent document.
    check({**found}, PermanentError, "absent-bucket", "NoSuchBucket", calls=set(found))
    assert {"put", "read", "put_log", "ls", "folders", "delete"} <= set(found)
    assert await archive.find(make()[0]) is None


@pytest.mark.parametrize(
    "given",
    [{"AWS_SECRET_ACCESS_KEY": SECRET}, {"AWS_ACCESS_KEY_ID": KEY_ID, "AWS_SECRET_ACCESS_KEY": SECRET}],
    ids=["secret", "account"],
)
async def test_bad_credentials_are_forbidden_and_never_in_a_message(s3, credentials, given):
    credentials(s3, **given)
    found = await failures(open_archive.open_archive("main", s3.url("refused")))
    check(found, ForbiddenError, "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY", "s3://refused")


async def test_account_without_rights_is_forbidden(s3, credentials):
    url = s3.url("not-ours")
    name = f"without-rights-{os.getpid()}-{time.monotonic_ns()}"
    s3.add_user(name, SECRET)
    credentials(s3, AWS_ACCESS_KEY_ID=name, AWS_SECRET_ACCESS_KEY=SECRET)
    found = await failures(open_archive.open_archive("main", url))
    check(found, ForbiddenError, "rights to put, get, list and delete")


async def test_no_credentials_are_an_error_that_says_so(s3, credentials, monkeypatch, impatient):
    credentials(s3, AWS_METADATA_ENDPOINT=f"http://127.0.0.1:{free_port()}/latest/api/token")
    for name in s3.environment:
        monkeypatch.delenv(name)
    key, document = make()
    with pytest.raises(TryLaterError, match="no credentials: none are set"):
        await open_archive.open_archive("main", s3.url("anonymous")).put(key, document)


async def test_server_that_is_away_is_tried_later(own_s3, credentials, impatient):
    credentials(own_s3)
    url = own_s3.url("bucket")
    archive = open_archive.open_archive("main", url)
    key, document = make()
    stored = await archive.put(key, document)
    own_s3.kill()
    check(await failures(archive), TryLaterError, own_s3.endpoint, "the connection was refused")
    own_s3.start()
    assert await archive.find(key) == stored
    assert await archive.read(key) == document
    assert await failures(archive) == {}


async def test_stopped_server_is_tried_later_and_what_it_did_is_found(own_s3, credentials, impatient):
    credentials(own_s3)
    archive = open_archive.open_archive("main", own_s3.url("bucket"))
    key, document = make()
    await archive.put(*make())
    send(not_none(own_s3.process), signal.SIGSTOP)
    started = time.monotonic()
    with pytest.raises(TryLaterError, match="no answer"):
        await archive.put(key, document)
    assert time.monotonic() - started < 15
    send(not_none(own_s3.process), signal.SIGCONT)
    await asyncio.sleep(0.5)  # the server reads what was sent meanwhile
    stored = await archive.put(key, document)
    assert await archive.find(key) == stored
    assert await archive.read(key) == document


class LossyProxy:
    """Passes requests on, and closes the connection instead of the first answers to PUTs."""

    def __init__(self, server: S3Server, lost: int) -> None:
        self._host, _, self._port = server.endpoint.removeprefix("http://").partition(":")
        self.lost, self.dropped = lost, 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream, sender = await asyncio.open_connection(self._host, int(self._port))
        try:
            while request := await reader.read(1 << 16):
                sender.write(request)
                answer = await upstream.read(1 << 16)
                if request.startswith(b"PUT ") and self.dropped < self.lost:
                    self.dropped += 1
                    return
                writer.write(answer)
                await writer.drain()
        finally:
            sender.close()
            writer.close()


@pytest.mark.parametrize("lost", [1, 5])
async def test_put_whose_answers_are_lost_is_recognised(s3, credentials, lost):
    credentials(s3)
    proxy = LossyProxy(s3, lost)
    async with await asyncio.start_server(proxy.serve, "127.0.0.1", 0) as listener:
        port = listener.sockets[0].getsockname()[1]
        url = s3.url(f"lossy-{lost}").replace(s3.endpoint, f"http://127.0.0.1:{port}")
        archive = open_archive.open_archive("main", url)
        key, document = make()
        if lost > 3:  # more than the attempts of one call: the timers repeat it
            with pytest.raises(TryLaterError, match="no answer of http"):
                await archive.put(key, document)
        stored = await archive.put(key, document)
        assert proxy.dropped >= 1
        assert await archive.find(key) == stored
        assert await archive.read(key) == document


async def test_unknown_host_is_tried_later(s3, credentials, impatient):
    credentials(s3)
    archive = open_archive.open_archive("main", "s3://bucket/x?endpoint=http://absent.invalid")
    key, document = make()
    with pytest.raises(TryLaterError, match=r"no answer of http://absent\.invalid: the host name was not found"):
        await archive.put(key, document)


async def test_server_without_tls_is_named(s3, credentials, impatient):
    credentials(s3)
    archive = open_archive.open_archive("main", f"s3://bucket/x?endpoint={s3.endpoint.replace('http:', 'https:')}")
    with pytest.raises(TryLaterError, match="expected http:// in endpoint"):
        await archive.put(*make())


async def test_full_volume_of_the_server_is_tried_later_and_keeps_what_was_stored(tmp_path, credentials):
    with mounted(tmp_path / "volume", mebibytes=3) as volume, s3_server(required_s3_program(), volume) as server:
        credentials(server)
        archive = open_archive.open_archive("main", server.url("bucket"))
        done = await fill(archive)
        assert isinstance(done.error, TryLaterError)
        assert str(done.error).startswith("archive main: cannot store s3://bucket/v1/prod/")
        await check_after_full(archive, done)


async def test_full_volume_of_a_folder_is_tried_later_and_keeps_what_was_stored(tmp_path):
    with mounted(tmp_path / "volume", mebibytes=3) as volume:
        archive = open_archive.open_archive("main", f"file://{volume}/archive")
        done = await fill(archive)
        assert isinstance(done.error, TryLaterError)
        assert done.error.retry_after_seconds >= 10
        assert "the volume is full or a quota is reached" in str(done.error)
        await check_after_full(archive, done)
        assert list((volume / "archive" / ".tmp").iterdir()) == []


async def test_file_size_limit_of_a_folder_is_tried_later(tmp_path):
    archive = open_archive.open_archive("main", f"file://{tmp_path}/archive")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16_384, hard))
    try:
        with pytest.raises(TryLaterError, match="File too large"):
            await archive.put(*make(spec={"text": os.urandom(50_000).hex()}))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [path.name for path in (tmp_path / "archive").rglob("*")] == [".tmp"]


class Filled:
    def __init__(self) -> None:
        self.stored: dict = {}
        self.failed: list = []
        self.error: Exception | None = None


async def fill(archive) -> Filled:
    done = Filled()
    for number in range(200):
        key, document = make(f"job-{number}", spec={"text": os.urandom(40_000).hex()})
        try:
            await archive.put(key, document)
        except TtlError as error:
            done.error = error
            done.failed.append((key, document))
            if len(done.failed) > 3:
                return done
        else:
            done.stored[key] = document
    raise AssertionError("expected a full volume")


async def check_after_full(archive, done: Filled) -> None:
    """What was acknowledged is whole, what was not is absent; and there is room again after a delete."""
    assert len(done.stored) > 10
    listed = {stored.key async for page in archive.ls() for stored in page}
    assert listed == set(done.stored)
    for key, document in done.stored.items():
        assert await archive.read(key) == document
    for key, _ in done.failed:
        assert await archive.find(key) is None
    await archive.delete(list(done.stored)[:10])
    for key, document in done.failed[:2]:
        await archive.put(key, document)
        assert await archive.read(key) == document


async def test_folder_without_rights_is_forbidden(tmp_path):
    if os.geteuid() == 0:
        archive = open_archive.open_archive("main", "file:///proc/1/archive-of-a-test")
        with pytest.raises(TtlError, match=r"archive main: cannot store file:///proc/1/archive-of-a-test/v1"):
            await archive.put(*make())
        return
    root = tmp_path / "archive"
    root.mkdir(0o500)
    with pytest.raises(ForbiddenError, match="expected that this account may read and write"):
        await open_archive.open_archive("main", f"file://{root}").put(*make())


async def test_read_only_volume_is_forbidden(tmp_path):
    with mounted(tmp_path / "volume", mebibytes=1) as volume:
        remount_read_only(volume)
        with pytest.raises(ForbiddenError, match="Read-only file system"):
            await open_archive.open_archive("main", f"file://{volume}/archive").put(*make())


def remount_read_only(volume: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(volume)], check=True)


async def test_folder_whose_parent_is_absent_is_a_permanent_error(tmp_path):
    archive = open_archive.open_archive("main", f"file://{tmp_path}/not-mounted/archive")
    found = await failures(archive)
    absent = {name: error for name, error in found.items() if isinstance(error, AbsentDocumentError)}
    check(
        {name: error for name, error in found.items() if name not in absent},
        PermanentError,
        "expected the folder",
        calls=["put", "put_log", "ls", "folders"],
    )
    assert set(absent) == {"read", "read_log"}
    assert not (tmp_path / "not-mounted").exists()


async def test_folder_of_an_archive_without_documents_is_not_made_by_reads(tmp_path):
    archive = open_archive.open_archive("main", f"file://{tmp_path}/archive")
    assert await _all(archive.ls()) == []
    assert await _all(archive.folders("v1/")) == []
    assert await archive.find(make()[0]) is None
    assert list(tmp_path.iterdir()) == []


async def test_name_that_is_too_long_for_a_file_system_is_a_permanent_error(tmp_path, s3, credentials):
    key, document = make("system:" * 30)  # 210 characters, and 270 in a key
    archive = open_archive.open_archive("main", f"file://{tmp_path}/archive")
    with pytest.raises(PermanentError, match="names of at most 255 bytes; use a bucket"):
        await archive.put(key, document)
    credentials(s3)
    key, document = make("n" * 2_000)
    with pytest.raises(PermanentError, match=r"its key has 2\d{3} bytes, expected at most 1024"):
        await open_archive.open_archive("main", s3.url("long")).put(key, document)


async def test_hung_file_system_is_tried_later(tmp_path, monkeypatch):
    store = FolderStore("main", parse_destination(f"file://{tmp_path}/archive"), seconds=0.2)
    (tmp_path / "archive").mkdir()
    hung, os_open = threading.Event(), os.open

    def open_after(path: str | Path, *words: Any, **options: Any) -> int:
        if path == "v1":
            hung.wait()  # as a network's file system whose server is away
        return os_open(path, *words, **options)

    monkeypatch.setattr(os, "open", open_after)
    try:
        with pytest.raises(TryLaterError, match=r"no answer of the file system in 0.2 s"):
            await store.get("v1", 10)
    finally:
        hung.set()


def make_certificates(folder: Path) -> tuple[Path, Path, Path]:
    """A CA of this test, and the certificate and key of a server on the loopback address."""
    now, ca_key, key = (
        datetime.now(UTC),
        ec.generate_private_key(ec.SECP256R1()),
        ec.generate_private_key(ec.SECP256R1()),
    )

    def certify(name: str, public: ec.EllipticCurvePublicKey, extension: x509.ExtensionType) -> x509.Certificate:
        names = [x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, one)]) for one in (name, "ca")]
        builder = x509.CertificateBuilder().subject_name(names[0]).issuer_name(names[1]).public_key(public)
        builder = builder.serial_number(x509.random_serial_number()).add_extension(extension, critical=False)
        builder = builder.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
        return builder.sign(ca_key, hashes.SHA256())

    ca = certify("ca", ca_key.public_key(), x509.BasicConstraints(ca=True, path_length=None))
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    server = certify("server", key.public_key(), x509.SubjectAlternativeName([address]))
    paths = folder / "ca.pem", folder / "server.pem", folder / "key.pem"
    for path, certificate in zip(paths, (ca, server), strict=False):
        path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    paths[2].write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
    return paths


async def test_server_with_a_private_ca_is_trusted_by_a_variable_only(tmp_path, credentials, monkeypatch):
    ca, certificate, key_file = make_certificates(tmp_path)
    with s3_server(required_s3_program(), args=[f"--cert={certificate}", f"--key={key_file}"]) as server:
        credentials(server)
        url = server.url("bucket")
        assert "https://" in url
        with pytest.raises(TryLaterError, match="the certificate of the server is not trusted; SSL_CERT_FILE names"):
            await open_archive.open_archive("main", url).put(*make())
        monkeypatch.setenv("SSL_CERT_FILE", str(ca))
        await open_archive.open_archive("main", url).put(*make())
