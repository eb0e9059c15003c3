"""A CA file that is rotated while the process runs, against a TLS server; and requests after the end."""

import asyncio
import base64
import ipaddress
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from shared.adapters.config.settings import read_settings
from shared.adapters.kubernetes import cluster as kubernetes_cluster
from shared.adapters.kubernetes import connect as connecting
from shared.adapters.kubernetes.access import CaFile, _decode, get_access
from shared.adapters.kubernetes.cluster import KubernetesCluster
from shared.adapters.kubernetes.connect import connect
from shared.devserver.ports import free_port
from shared.errors import PermanentError, TryLaterError
from tests.builders import JOB, job
from tests.loopback import answering_with

pytestmark = pytest.mark.anyio

NOW = datetime.now(UTC)
_PEM = serialization.Encoding.PEM


class Authority:
    """A CA, and the certificate of a server on loopback that it signed."""

    def __init__(self, name: str, folder: Path) -> None:
        self._key, self._name = ec.generate_private_key(ec.SECP256R1()), _named(name)
        self.pem = self._signed(self._name, self._key, ca=True).public_bytes(_PEM).decode()
        server_key, self.chain = ec.generate_private_key(ec.SECP256R1()), folder / f"{name}.pem"
        private = server_key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        self.chain.write_bytes(private + self._signed(_named("server"), server_key, ca=False).public_bytes(_PEM))

    def _signed(self, name: x509.Name, key: Any, *, ca: bool) -> x509.Certificate:
        address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        until = NOW + timedelta(days=1)
        serial = x509.random_serial_number()
        builder = x509.CertificateBuilder(self._name, name, key.public_key(), serial, NOW - timedelta(days=1), until)
        builder = builder.add_extension(x509.BasicConstraints(ca, None), critical=True)
        return builder.add_extension(address, critical=False).sign(self._key, hashes.SHA256())


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])


async def _answer(_request: web.Request) -> web.Response:
    return web.json_response({"gitVersion": "v1"}, headers={"date": format_datetime(NOW, usegmt=True)})


@asynccontextmanager
async def serving(authority: Authority, port: int) -> AsyncIterator[None]:
    """An API server whose certificate an authority signed, until the block ends."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(authority.chain)
    async with answering_with(_answer, tls=context, port=port, shutdown_timeout=0.1):
        yield


@pytest.fixture
def old(tmp_path: Path) -> Authority:
    return Authority("old", tmp_path)


@pytest.fixture
def new(tmp_path: Path) -> Authority:
    return Authority("new", tmp_path)


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a slow machine, no DELETE leaves too late."""
    monkeypatch.setattr(kubernetes_cluster, "LEAVE_SECONDS_MAX", 60.0)


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def ca(old: Authority, tmp_path: Path) -> Path:
    """The file of the CA, in the folder of a Pod's service account."""
    folder = tmp_path / "account"
    folder.mkdir()
    (folder / "token").write_text("secret")
    (folder / "ca.crt").write_text(old.pem)
    return folder / "ca.crt"


def rotate(ca: Path, text: str) -> None:
    ca.write_text(text)


@pytest.fixture(params=["Pod", "TTL_API_CA", "TTL_API_CA in base64"])
async def cluster(
    request: pytest.FixtureRequest, ca: Path, old: Authority, port: int, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[KubernetesCluster]:
    if request.param == "Pod":
        monkeypatch.setattr(connecting, "SERVICE_ACCOUNT", ca.parent)
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(port))
        cluster = await connect()
    else:
        if "base64" in request.param:
            rotate(ca, base64.b64encode(old.pem.encode()).decode())
        url = f"https://127.0.0.1:{port}"
        settings = {"TTL_API_SERVER": url, "TTL_API_CA": str(ca), "TTL_API_TOKEN": "secret"}
        cluster = await connect(access=get_access(read_settings(environment=settings)))
    yield cluster
    await cluster.close()


async def test_rotated_ca_is_trusted_without_a_restart_and_the_old_one_no_more(
    cluster: KubernetesCluster, ca: Path, old: Authority, new: Authority, port: int
) -> None:
    async with serving(old, port):
        await cluster.check()
    rotate(ca, new.pem)
    async with serving(new, port):
        await asyncio.gather(*(cluster.check() for _ in range(5)))
    async with serving(old, port):
        with pytest.raises(PermanentError, match="is not trusted"):
            await cluster.check()


async def test_delete_is_sent_once_the_rotated_ca_is_read(
    cluster: KubernetesCluster, ca: Path, old: Authority, new: Authority, port: int
) -> None:
    async with serving(old, port):
        await cluster.check()
    rotate(ca, new.pem)
    async with serving(new, port):
        assert await cluster.delete(JOB, job())


async def test_ca_file_that_is_only_half_written_is_read_again_at_the_next_request(
    cluster: KubernetesCluster, ca: Path, new: Authority, port: int
) -> None:
    async with serving(new, port):
        rotate(ca, new.pem[:200])
        with pytest.raises(PermanentError, match="is not trusted"):
            await cluster.check()
        rotate(ca, new.pem)
        await cluster.check()


@pytest.mark.parametrize("text", ["", "\n", "half of a fi"])
@pytest.mark.parametrize("parse", [str, _decode])
def test_ca_file_without_a_certificate_never_makes_the_system_trusted(ca: Path, text: str, parse: Any) -> None:
    ca.write_text(text)
    assert CaFile(ca, parse).load_changed() is None


async def test_ca_file_that_has_not_changed_is_read_once(
    cluster: KubernetesCluster, new: Authority, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[Path] = []
    read_text: Callable[..., str] = Path.read_text

    def counted(path: Path, *options: Any) -> str:
        reads.append(path)
        return read_text(path, *options)

    async with serving(new, port):
        await asyncio.gather(*(cluster.check() for _ in range(3)), return_exceptions=True)
        monkeypatch.setattr(Path, "read_text", counted)
        for _ in range(3):
            with pytest.raises(PermanentError, match="is not trusted"):
                await cluster.check()
    assert [path.name for path in reads if path.name == "ca.crt"] == []


async def test_request_after_the_end_is_tried_later(cluster: KubernetesCluster, old: Authority, port: int) -> None:
    async with serving(old, port):
        await cluster.check()
        await cluster.close()
        with pytest.raises(TryLaterError, match="this process ends"):
            await cluster.check()


async def test_first_request_after_the_end_opens_no_connection(cluster: KubernetesCluster) -> None:
    await cluster.close()
    with pytest.raises(TryLaterError, match="this process ends"):
        await cluster.check()
