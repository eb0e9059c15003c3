"""The certificate with which `ui` serves HTTPS, in files that are renewed while it runs."""

import logging
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from shared.errors import TtlError

CERT_OPTION, KEY_OPTION = "--tls-cert-file", "--tls-private-key-file"

_log = logging.getLogger("ttl")


class ServerCertificate:
    """A certificate chain and its private key.

    A new connection uses the current files. If they cannot be used, the last good ones stay, with one warning a change.

    Args:
        chain: The file of the certificate and of its intermediate CAs, in PEM.
        key: The file of the private key, in PEM, without a passphrase.

    Raises:
        TtlError: The files cannot be used at the start; the message names the option.
    """

    def __init__(self, chain: Path, key: Path) -> None:
        self._chain, self._key = chain, key
        self._status = self._find_status()
        self._current = _load(chain, key)

    def find_tls(self) -> ssl.SSLContext:
        """Return the TLS settings of the next connection, from what the files have now.

        A callback of OpenSSL at each handshake would do this too, but Python prints a traceback for each client that
        sends an SNI name that is not ASCII.
        """
        found = self._find_status()
        if found != self._status:
            self._reload(found)
        return self._current

    def _reload(self, found: Sequence[tuple[int, ...]]) -> None:
        """Take what the files have now; if it cannot be used, keep what they had."""
        self._status = found  # what cannot be used is reported once, and tried again when it changes
        try:
            self._current = _load(self._chain, self._key)
        except TtlError as error:
            _log.warning("certificate not reloaded", extra={"fields": {"error": str(error)}})
        else:
            _log.info("certificate reloaded", extra={"fields": {"file": str(self._chain)}})

    def _find_status(self) -> Sequence[tuple[int, ...]]:
        return [_status_of(file) for file in (self._chain, self._key)]


def _status_of(file: Path) -> tuple[int, ...]:
    """Return modification time, size and inode of a file; nothing if it does not exist."""
    try:
        found = file.stat()
    except OSError:
        return ()
    return found.st_mtime_ns, found.st_size, found.st_ino


class _PassphraseError(Exception):
    """The key is encrypted."""


def _refuse_passphrase() -> NoReturn:
    raise _PassphraseError


def _load(chain: Path, key: Path) -> ssl.SSLContext:
    for file, option in ((chain, CERT_OPTION), (key, KEY_OPTION)):
        try:
            file.read_bytes()
        except OSError as error:
            raise TtlError(f"{option}: {file} cannot be read: {error.strerror}") from None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(chain, key, password=_refuse_passphrase)
    except _PassphraseError:
        raise TtlError(f"{KEY_OPTION}: {key}: expected a key without a passphrase") from None
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise TtlError(f"{KEY_OPTION}: {key}: expected the key of the certificate in {chain}") from None
        what = f"expected a certificate chain in {chain} and its private key in {key}, both in PEM"
        raise TtlError(f"{CERT_OPTION}, {KEY_OPTION}: {what}: {error.reason or error}") from None
    except OSError as error:  # another process replaces them at this moment
        raise TtlError(f"{CERT_OPTION}, {KEY_OPTION}: cannot be read: {error.strerror}") from None
    return context
