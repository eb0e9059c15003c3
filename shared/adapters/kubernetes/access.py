"""How a process outside of its cluster reaches the API server: what TTL_API_* say, checked before it is needed."""

import base64
import binascii
import ssl
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from shared.adapters.auth.identity import FileTokens, GivenToken, GoogleTokens, Identity, RenewedToken, read_token
from shared.adapters.config.settings import Settings, SettingsError
from shared.errors import TryLaterError

_PEM = "-----BEGIN"
_PEM_IN_BASE64 = "LS0tLS1CRUdJTi"
_EXPECTED_CA = "expected certificates in PEM, their base64, or a file with them"


@dataclass(frozen=True, slots=True)
class Access:
    """An API server and who we are there.

    Attributes:
        server: Its URL, without a slash at the end.
        ca: The certificates to trust, in PEM; empty for those of the system.
    """

    server: str
    ca: str
    identity: Identity


def get_access(settings: Settings) -> Access | None:
    """What the settings say about the API server; None where they leave it to the cluster around, or a kubeconfig.

    Raises:
        SettingsError: They are incomplete, contradict each other, or name what cannot be read.
    """
    identities = {
        "TTL_API_TOKEN": settings.api_token,
        "TTL_API_TOKEN_FILE": settings.api_token_file,
        "TTL_API_IDENTITY": settings.api_identity,
    }
    given = [name for name, value in identities.items() if value]
    if not settings.api_server:
        for name in [*given, *(["TTL_API_CA"] if settings.api_ca else [])]:
            raise SettingsError(f"{name}: expected TTL_API_SERVER beside it, got none")
        return None
    if len(given) != 1:
        raise SettingsError(
            f"TTL_API_SERVER: expected one of {', '.join(identities)} beside it, got {' and '.join(given) or 'none'}"
        )
    if settings.api_ca and urlsplit(settings.api_server).scheme == "http":
        raise SettingsError("TTL_API_CA: expected a TTL_API_SERVER with https:// beside it, got http://")
    return Access(settings.api_server, _parse_ca(settings.api_ca), _identity_of(settings))


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
    """The PEM that is meant by a PEM, its base64, or a file with either."""
    if not text:
        return ""
    pem = _decode(text) if _is_given(text) else _decode(_read(text))
    try:
        ssl.create_default_context(cadata=pem)
    except (ssl.SSLError, ValueError) as error:
        raise SettingsError(f"TTL_API_CA: {_EXPECTED_CA}, got one that cannot be used ({error})") from None
    return pem


def _is_given(text: str) -> bool:
    return _PEM in text or text.lstrip().startswith(_PEM_IN_BASE64)


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
    except (OSError, ValueError) as error:  # ValueError: no text, or a name that no file can have
        reason = error.strerror if isinstance(error, OSError) else "no text"
        raise SettingsError(f"TTL_API_CA: {_EXPECTED_CA}, got {path[:60]!r}: {reason}") from None
