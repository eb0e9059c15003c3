"""The API server and the identity in the TTL_API_* settings, for a process outside its cluster; validated at start.

It loads no HTTP client: a function reads it while it starts, and connects when it needs to.
"""

import base64
import binascii
import logging
import os
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from shared.adapters.auth.identity import (
    GivenToken,
    GoogleTokens,
    Identity,
    RenewedToken,
    file_tokens,
    read_token,
)
from shared.adapters.config.settings import Settings, SettingsError
from shared.errors import TryLaterError, TtlError

_PEM = "-----BEGIN"
_PEM_IN_BASE64 = "LS0tLS1CRUdJTi"
_EXPECTED_CA = "expected certificates in PEM, their base64, or a file with them"
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


@dataclass(frozen=True, slots=True)
class Access:
    """An API server and the identity of this process there.

    Attributes:
        server: The URL, without a trailing slash.
        ca: The trusted certificates, in PEM; empty to trust those of the system.
        ca_file: The file that they are from; None if they are from no file.
    """

    server: str
    ca: str
    identity: Identity
    ca_file: CaFile | None = None


def get_access(settings: Settings) -> Access | None:
    """Return the API server of the settings; None if they name none, so that in-cluster access or a kubeconfig applies.

    Raises:
        SettingsError: The settings are incomplete, contradict each other, or name an unreadable file.
    """
    identities = {
        "TTL_API_TOKEN": settings.api_token,
        "TTL_API_TOKEN_FILE": settings.api_token_file,
        "TTL_API_IDENTITY": settings.api_identity,
    }
    given = [name for name, value in identities.items() if value]
    if not settings.api_server:
        for name in [*given, *(["TTL_API_CA"] if settings.api_ca else [])]:
            raise SettingsError(f"{name}: expected TTL_API_SERVER to be set too, but it is not set")
        return None
    if len(given) != 1:
        raise SettingsError(
            f"TTL_API_SERVER: expected exactly one of {', '.join(identities)} to be set too, "
            f"got {' and '.join(given) or 'none'}"
        )
    if settings.api_ca and urlsplit(settings.api_server).scheme == "http":
        raise SettingsError("TTL_API_CA: expected TTL_API_SERVER to be an https:// URL, got an http:// one")
    ca_file = None if _is_given(settings.api_ca) else CaFile(Path(settings.api_ca), _decode)
    return Access(settings.api_server, _parse_ca(settings.api_ca), _identity_of(settings), ca_file)


def _identity_of(settings: Settings) -> Identity:
    path = settings.api_token_file
    if settings.api_token:
        return GivenToken(settings.api_token.get_secret_value())
    if path is None:
        return RenewedToken(GoogleTokens())
    try:
        read_token(path)
    except TryLaterError as error:
        raise SettingsError(f"TTL_API_TOKEN_FILE: {error}") from None
    return RenewedToken(file_tokens(path))


def _parse_ca(text: str) -> str:
    """Return the PEM given as PEM, as its base64, or as a file with either."""
    if not text:
        return ""
    pem = _decode(text) if _is_given(text) else _decode(_read(text))
    try:
        ssl.create_default_context(cadata=pem)
    except (ssl.SSLError, ValueError) as error:
        raise SettingsError(f"TTL_API_CA: {_EXPECTED_CA}, got an unusable one ({error})") from None
    return pem


def _is_given(text: str) -> bool:
    return not text or _PEM in text or text.lstrip().startswith(_PEM_IN_BASE64)


def _decode(text: str) -> str:
    if _PEM in text:
        return text
    try:
        return base64.b64decode("".join(text.split()), validate=True).decode("ascii")
    except (binascii.Error, ValueError):
        raise SettingsError(f"TTL_API_CA: {_EXPECTED_CA}, got neither PEM nor base64") from None


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except (OSError, ValueError) as error:  # ValueError: not a text file, or an invalid file name
        reason = error.strerror if isinstance(error, OSError) else "not a text file"
        raise SettingsError(f"TTL_API_CA: {_EXPECTED_CA}, got {path[:60]!r}: {reason}") from None
