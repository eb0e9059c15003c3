"""The API server and the identity in the TTL_API_* settings, for a process outside its cluster; validated at start."""

import base64
import binascii
import ssl
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from shared.adapters.auth.identity import FileTokens, GivenToken, GoogleTokens, Identity, RenewedToken, read_token
from shared.adapters.config.settings import Settings, SettingsError
from shared.adapters.kubernetes.tls import CaFile
from shared.errors import TryLaterError

_PEM = "-----BEGIN"
_PEM_IN_BASE64 = "LS0tLS1CRUdJTi"
_EXPECTED_CA = "expected certificates in PEM, their base64, or a file with them"


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
    return RenewedToken(FileTokens(path))


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
