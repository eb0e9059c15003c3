"""Where the NATS servers are, and who connects to them."""

import ssl
from dataclasses import dataclass
from pathlib import Path

from nats.aio.client import Client
from nats.errors import Error

from shared.errors import TtlError

TLS_MISSING = "offers no TLS"
"""A part of the error of a server that is reached by a `tls://` URL and offers no TLS."""


@dataclass(frozen=True, slots=True)
class NatsServers:
    """Where the servers are, and who connects.

    Attributes:
        urls: The URLs of some servers of the cluster: `nats://` or `tls://`.
        credentials: The credentials file of a user (JWT and seed).
        ca: A PEM file with the certificates to trust; the system's if None.
        certificate: A PEM file with the client certificate.
        key: A PEM file with the private key of the certificate.
    """

    urls: tuple[str, ...]
    credentials: Path | None = None
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None

    def new_client(self) -> "NatsClient":
        """Return a client that is not connected; if a URL has `tls://`, or a file for TLS is set, it needs TLS."""
        return _TlsClient() if self._needs_tls else NatsClient()

    @property
    def _needs_tls(self) -> bool:
        return bool(self.ca or self.certificate) or any(url.startswith("tls:") for url in self.urls)

    def check(self) -> None:
        """Require that the files exist.

        Raises:
            TtlError: A file cannot be read.
        """
        named = {
            "TTL_NATS_CREDENTIALS": self.credentials,
            "TTL_NATS_CA": self.ca,
            "TTL_NATS_CERTIFICATE": self.certificate,
            "TTL_NATS_KEY": self.key,
        }
        for name, path in named.items():
            if path is not None and not path.is_file():
                raise TtlError(f"{name}: expected a file, got {path}; mount the file or correct the path")
        if (self.certificate is None) != (self.key is None):
            raise TtlError("expected both TTL_NATS_CERTIFICATE and TTL_NATS_KEY, got one of them; set both or none")

    def tls(self) -> ssl.SSLContext | None:
        """Return the TLS context; None if the servers are reached without TLS.

        Raises:
            TtlError: A file is no PEM file.
        """
        if not self._needs_tls:
            return None
        try:
            context = ssl.create_default_context(cafile=self.ca)
            if self.certificate and self.key:
                context.load_cert_chain(self.certificate, self.key)
        except (ssl.SSLError, OSError) as error:
            files = f"{self.ca or ''} {self.certificate or ''} {self.key or ''}".split()
            raise TtlError(f"expected PEM files in {', '.join(files)}: {error}") from error
        return context


class NatsClient(Client):
    """A client that leaves a server at once if it connects again.

    The library waits until the old server has taken all bytes. A frozen server, or one whose node is gone, takes none.
    Then the process would wait for the time-out of TCP, a quarter of an hour.
    """

    def abort(self) -> None:
        """Leave the server, and drop what it has not taken."""
        writer = getattr(self._transport, "_io_writer", None)
        if writer is not None:
            writer.transport.abort()

    def discard(self) -> None:
        """Drop what waits to be sent: without a connection, the library would fail to send it when it closes."""
        self._pending, self._pending_data_size = [], 0

    async def _attempt_reconnect(self) -> None:
        self.abort()
        await super()._attempt_reconnect()


class _TlsClient(NatsClient):
    """A client that sends nothing to a server without TLS; the library's own one takes `tls://` as a wish."""

    def _connect_command(self) -> bytes:  # the first line to the server, with the credentials
        if not self._server_info.get("tls_required"):
            raise Error(f"nats: the server {TLS_MISSING}")
        return super()._connect_command()
