"""A real S3 server, versitygw, on a folder and a loopback port, for tests and benchmarks.

The binary is beside those of envtest: in $KUBEBUILDER_ASSETS or in /usr/local/kubebuilder/bin.
"""

import signal
import ssl
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from shared.devserver.ports import free_port
from shared.devserver.real_servers import find_program
from tests.required import PLACES, required

S3_PROGRAM = "versitygw"

_READY_SECONDS = 30
_STOP_SECONDS = 10


def find_s3_server() -> Path | None:
    """Return the binary of the S3 server; None if it is not installed."""
    return find_program(S3_PROGRAM)


def required_s3_program() -> Path:
    """Return the binary; without it the test is skipped, and in CI it fails."""
    return required(find_s3_server(), f"no {S3_PROGRAM} in {PLACES}")


class S3Server:
    """An S3 server on a folder; a bucket is a folder below it.

    Attributes:
        endpoint: The base URL; https if the arguments have a certificate.
        root: The folder.
        environment: The credentials of the server's root account, as S3 clients read them.
        process: The server; None if it does not run.
    """

    def __init__(self, program: Path, root: Path, home: Path, *, args: Sequence[str] = ()) -> None:
        self.root, self._program, self._home, self._args = root, program, home, args
        self._address = f"127.0.0.1:{free_port()}"
        self.endpoint = f"{'https' if any(arg.startswith('--cert') for arg in args) else 'http'}://{self._address}"
        self.environment: Mapping[str, str] = {
            "AWS_ACCESS_KEY_ID": "test-account",
            "AWS_SECRET_ACCESS_KEY": "test-account-secret",
        }
        self.process: subprocess.Popen[bytes] | None = None

    def url(self, bucket: str, prefix: str = "") -> str:
        """The URL of an archive in a bucket; the bucket is made if it does not exist."""
        (self.root / bucket).mkdir(exist_ok=True)
        return f"s3://{bucket}/{prefix}?endpoint={self.endpoint}&region=us-east-1"

    @property
    def log(self) -> Path:
        """What the server prints."""
        return self._home / f"{S3_PROGRAM}.log"

    def start(self) -> None:
        """Start the server, on the same port as before, and wait until it answers."""
        users = self._home / "users"
        users.mkdir(exist_ok=True)
        account = self.environment
        command = [
            str(self._program),
            f"--access={account['AWS_ACCESS_KEY_ID']}",
            f"--secret={account['AWS_SECRET_ACCESS_KEY']}",
            f"--port={self._address}",
            f"--iam-dir={users}",
            "--health=/healthz",
            "--keep-alive",
            "--quiet",
            *self._args,
            "posix",
            str(self.root),
        ]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        deadline = time.monotonic() + _READY_SECONDS
        while not self._is_ready():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{S3_PROGRAM} did not start:\n{self.log.read_text()[-2000:]}")
            time.sleep(0.05)

    def add_user(self, name: str, secret: str) -> None:
        """Add an account without any right."""
        account = self.environment
        command = [
            str(self._program),
            "admin",
            f"--access={account['AWS_ACCESS_KEY_ID']}",
            f"--secret={account['AWS_SECRET_ACCESS_KEY']}",
            f"--endpoint-url={self.endpoint}",
            "create-user",
            f"--access={name}",
            f"--secret={secret}",
            "--role=user",
        ]
        subprocess.run(command, check=True, capture_output=True, timeout=_READY_SECONDS)

    def kill(self) -> None:
        """End the server at once, as a power cut does."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def stop(self) -> None:
        """Terminate the server."""
        if self.process is None:
            return
        self.process.send_signal(signal.SIGCONT)
        self.process.terminate()
        try:
            self.process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = None

    def _is_ready(self) -> bool:
        try:
            untrusted = ssl._create_unverified_context()
            with urllib.request.urlopen(f"{self.endpoint}/healthz", timeout=2, context=untrusted):
                return True
        except OSError:
            return False


@contextmanager
def s3_server(program: Path, root: Path | None = None, *, args: Sequence[str] = ()) -> Iterator[S3Server]:
    """Run an S3Server on a folder, or on a temporary one; stop it at the end."""
    with tempfile.TemporaryDirectory(prefix="s3server-") as home:
        (Path(home) / "buckets").mkdir()
        server = S3Server(program, root or Path(home) / "buckets", Path(home), args=args)
        try:
            server.start()
            yield server
        finally:
            server.stop()
