"""Run real etcd, kube-apiserver and kube-controller-manager on loopback ports, for the demo, tests and benchmarks.

The binaries are those of envtest, in $KUBEBUILDER_ASSETS or in /usr/local/kubebuilder/bin.
"""

import base64
import json
import os
import secrets
import ssl
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path

from shared.devserver.ports import free_port

ASSETS_VARIABLE = "KUBEBUILDER_ASSETS"
_ASSETS_DEFAULT = "/usr/local/kubebuilder/bin"
_NEEDED = ("etcd", "kube-apiserver")
_READY_SECONDS = 120
_STOP_SECONDS = 20
# A SEC 1 EC private key on P-256 without its 32 bytes: Go derives the public key, so no tool is needed to make a key.
_EC_KEY = (bytes.fromhex("30310201010420"), bytes.fromhex("a00a06082a8648ce3d030107"))


def find_assets() -> Path | None:
    """Return the folder with the binaries; None if they are not installed."""
    return _find_folder(_NEEDED)


def find_program(name: str) -> Path | None:
    """Return a binary that is beside those of envtest; None if it is not installed."""
    folder = _find_folder((name,))
    return folder / name if folder else None


def _find_folder(needed: Sequence[str]) -> Path | None:
    for folder in (os.getenv(ASSETS_VARIABLE), _ASSETS_DEFAULT):
        if folder and all(Path(folder, name).exists() for name in needed):
            return Path(folder)
    return None


class RealServer:
    """A running kube-apiserver.

    Attributes:
        url: The base URL, https.
        token: A bearer token of a cluster administrator.
        ca: The CA certificate.
        kubeconfig: The kubeconfig for kubectl and other clients.
        home: The folder of the data, logs (`NAME.log`) and process ids (`NAME.pid`) of all processes.
    """

    def __init__(self, assets: Path, home: Path, *, fsync: bool = True, apiserver_args: Sequence[str] = ()) -> None:
        self.assets, self.home, self.token = assets, home, secrets.token_hex(16)
        self._children: list[tuple[str, subprocess.Popen[bytes]]] = []
        self._etcd = f"http://127.0.0.1:{free_port()}"
        self.url = f"https://127.0.0.1:{free_port()}"
        self.ca = home / "certs" / "apiserver.crt"
        self.kubeconfig = home / "kubeconfig"
        self._key = home / "service-accounts.key"
        try:
            self._start_etcd(fsync)
            self._start_apiserver(apiserver_args)
        except BaseException:
            self.stop()
            raise

    @property
    def ssl(self) -> ssl.SSLContext:
        """The TLS context that trusts this server."""
        return ssl.create_default_context(cafile=self.ca)

    def has_controllers(self) -> bool:
        """Whether kube-controller-manager can be started."""
        return (self.assets / "kube-controller-manager").exists()

    def start_controllers(
        self,
        names: Sequence[str],
        *,
        qps: float = 20,
        burst: int = 30,
        syncs: Mapping[str, int] | None = None,
        args: Sequence[str] = (),
    ) -> None:
        """Start kube-controller-manager.

        Args:
            names: The controllers, such as `garbage-collector-controller`.
            qps: The requests per second of its client.
            burst: The burst of its client.
            syncs: The concurrent syncs by flag, such as `{"ttl-after-finished": 5, "gc": 20}`.
            args: Further flags.
        """
        self._start(
            "kube-controller-manager",
            f"--kubeconfig={self.kubeconfig}",
            "--leader-elect=false",
            "--secure-port=0",
            f"--controllers={','.join(names)}",
            f"--kube-api-qps={qps}",
            f"--kube-api-burst={burst}",
            "--use-service-account-credentials=true",
            f"--root-ca-file={self.ca}",
            f"--service-account-private-key-file={self._key}",
            *(f"--concurrent-{name}-syncs={count}" for name, count in (syncs or {}).items()),
            *args,
        )

    def compact(self) -> None:
        """Compact the history of etcd; then a request for an old version of an uncached resource gets 410."""
        revision = int(self._etcd_call("kv/range", {"key": "AA=="})["header"]["revision"])
        self._etcd_call("kv/compaction", {"revision": revision, "physical": True})

    def pid(self, name: str) -> int:
        """Return the process id of a server, for fault injection."""
        return int((self.home / f"{name}.pid").read_text())

    def stop(self) -> None:
        """Terminate the started processes, the last one first."""
        while self._children:
            _, child = self._children.pop()
            child.terminate()
            try:
                child.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()

    def _start_etcd(self, fsync: bool) -> None:
        flags = [] if fsync else ["--unsafe-no-fsync"]
        peers = f"http://127.0.0.1:{free_port()}"
        self._start(
            "etcd",
            f"--data-dir={self.home}/etcd",
            f"--listen-client-urls={self._etcd}",
            f"--advertise-client-urls={self._etcd}",
            f"--listen-peer-urls={peers}",
            "--quota-backend-bytes=8589934592",
            *flags,
        )

    def _start_apiserver(self, args: Sequence[str]) -> None:
        self._key.write_text(_new_ec_key())
        tokens = self.home / "tokens.csv"
        tokens.write_text(f'{self.token},admin,admin,"system:masters"\n')
        self._start(
            "kube-apiserver",
            f"--etcd-servers={self._etcd}",
            f"--secure-port={self.url.rsplit(':', 1)[1]}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            "--endpoint-reconciler-type=none",  # 1.37 refuses a loopback address as the endpoint of its Service
            f"--cert-dir={self.ca.parent}",
            f"--token-auth-file={tokens}",
            "--authorization-mode=RBAC",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--allow-privileged=true",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={self._key}",
            f"--service-account-signing-key-file={self._key}",
            "--disable-admission-plugins=ServiceAccount",  # Pods are created without a controller that makes accounts
            *args,
        )
        self._wait_until("kube-apiserver", self._is_ready)
        self.kubeconfig.write_text(json.dumps(self._kubeconfig()))

    def _kubeconfig(self) -> dict[str, object]:
        cluster = {"server": self.url, "certificate-authority": str(self.ca)}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "real",
            "clusters": [{"name": "real", "cluster": cluster}],
            "users": [{"name": "real", "user": {"token": self.token}}],
            "contexts": [{"name": "real", "context": {"cluster": "real", "user": "real"}}],
        }

    def _is_ready(self) -> bool:
        request = urllib.request.Request(f"{self.url}/readyz", headers={"Authorization": f"Bearer {self.token}"})
        try:
            with urllib.request.urlopen(request, context=self.ssl, timeout=5) as answer:
                return bool(answer.status == HTTPStatus.OK)
        except OSError:  # the server does not listen yet, has no certificate yet, or starts
            return False

    def _etcd_call(self, method: str, body: Mapping[str, object]) -> dict[str, dict[str, str]]:
        request = urllib.request.Request(f"{self._etcd}/v3/{method}", data=json.dumps(body).encode(), method="POST")
        with urllib.request.urlopen(request, timeout=10) as answer:
            result: dict[str, dict[str, str]] = json.load(answer)  # noqa: TID251 - of a server of the demo
            return result

    def _start(self, name: str, *args: str) -> None:
        with (self.home / f"{name}.log").open("ab") as log:
            command = [str(self.assets / name), *args]
            child = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        (self.home / f"{name}.pid").write_text(str(child.pid))
        self._children.append((name, child))

    def _wait_until(self, what: str, ready: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _READY_SECONDS
        while not ready():
            dead = [name for name, child in self._children if child.poll() is not None]
            if dead or time.monotonic() > deadline:
                log = (self.home / f"{(dead or [what])[0]}.log").read_text()[-2000:]
                raise RuntimeError(f"{' and '.join(dead) or what} did not start:\n{log}")
            time.sleep(0.1)


@contextmanager
def real_server(assets: Path, *, fsync: bool = True, apiserver_args: Sequence[str] = ()) -> Iterator[RealServer]:
    """Run a RealServer in a temporary folder; stop the server and remove the folder at the end."""
    with tempfile.TemporaryDirectory(prefix="realserver-") as home:
        server = RealServer(assets, Path(home), fsync=fsync, apiserver_args=apiserver_args)
        try:
            yield server
        finally:
            server.stop()


def _new_ec_key() -> str:
    scalar = b"\0" + secrets.token_bytes(31)  # always below the order of the curve
    text = base64.encodebytes(scalar.join(_EC_KEY)).decode()
    return f"-----BEGIN EC PRIVATE KEY-----\n{text}-----END EC PRIVATE KEY-----\n"
