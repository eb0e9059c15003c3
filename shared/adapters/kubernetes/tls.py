"""The TLS settings of connections to an API server, also of a CA file that another process rotates.

The kubelet does so with `ca.crt` of a Pod.
"""

import logging
import os
import ssl
from collections.abc import Callable
from pathlib import Path

from shared.errors import TtlError

_log = logging.getLogger("ttl")


def tls_context(*, ca_file: str | None = None, ca: str | None = None) -> ssl.SSLContext:
    """Return the TLS settings that trust a CA; those that trust the CAs of the system if none is given.

    Args:
        ca_file: A file with certificates in PEM.
        ca: Certificates in PEM.

    Raises:
        OSError: The certificates cannot be read, or are not valid.
    """
    context = ssl.create_default_context(cafile=ca_file, cadata=ca)
    # Python 3.13 requires key identifiers, which the CAs of older GKE and EKS clusters lack; kubectl does not require
    # them. The certificate chain, its dates and the host name are still verified.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


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
