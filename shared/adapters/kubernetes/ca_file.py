"""The CA of an API server in a file that another process rotates, as the kubelet does with `ca.crt` of a Pod."""

import logging
import os
import ssl
from collections.abc import Callable
from pathlib import Path

from shared.adapters.kubernetes.tls import tls_context
from shared.errors import TtlError

_log = logging.getLogger("ttl")


class CaFile:
    """A file with the certificates of a CA.

    Args:
        path: The file.
        parse: Returns the certificates in PEM from the text of the file. Raises ValueError or TtlError if it has none.
    """

    def __init__(self, path: Path, parse: Callable[[str], str] = str) -> None:
        self._path, self._parse = path, parse
        self._read: tuple[int, int, int] | None = None

    def load_changed(self) -> ssl.SSLContext | None:
        """Return TLS settings that trust the file as it is now, and no certificate that it no longer has.

        Returns:
            None if the file is the same as at the last call, or cannot be used now.
        """
        try:
            status = self._path.stat()
            found = (status.st_mtime_ns, status.st_size, status.st_ino)
            if found == self._read:
                return None
            tls = tls_context(ca=self._read_pem())
        except (OSError, ValueError, TtlError) as error:  # another process may be writing it
            _log.warning("CA file not reloaded", extra={"fields": {"file": os.fspath(self._path), "error": str(error)}})
            return None
        self._read = found
        return tls

    def _read_pem(self) -> str:
        pem = self._parse(self._path.read_text())
        if not pem.strip():  # without a CA, the CAs of the system would be trusted
            raise ValueError("expected certificates in PEM, got an empty file")
        return pem
