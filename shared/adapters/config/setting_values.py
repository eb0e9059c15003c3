"""How the text of an environment variable becomes the value of a setting."""

from ipaddress import ip_address
from urllib.parse import urlsplit

from shared.adapters.auth.token_text import is_token
from shared.core.archive.signature import SigningKeys

_BOOLEANS: dict[str | bool, bool] = {"true": True, "false": False, True: True, False: False}

ALL_KINDS = "all"
"""The value that selects every known kind that can finish."""


def parse_boolean(value: str | bool) -> bool:
    """Parse `true` or `false`.

    Raises:
        ValueError: The value is another text, such as `yes` or `1`.
    """
    if value not in _BOOLEANS:
        raise ValueError("expected true or false")
    return _BOOLEANS[value]


def split_words(text: str) -> tuple[str, ...]:
    """Split comma-separated words and strip each.

    Raises:
        ValueError: The text has no word.
    """
    words = tuple(word.strip() for word in text.split(",") if word.strip())
    if not words:
        raise ValueError("expected comma-separated names")
    return words


def split_kinds(text: str) -> tuple[str, ...]:
    """Split comma-separated kinds; return no kind for `all`.

    Raises:
        ValueError: The text has no word.
    """
    words = split_words(text)
    return () if words == (ALL_KINDS,) else words


def check_server(value: str) -> str:
    """Validate a URL that tokens are sent to: https, or http to a loopback address.

    Raises:
        ValueError: The value is another URL, or no URL.
    """
    try:
        url = urlsplit(value)
        _ = url.port
    except ValueError:
        raise ValueError("expected a URL") from None
    if not url.hostname or url.query or url.fragment or url.username is not None:
        raise ValueError("expected https://HOST[:PORT]")
    if url.scheme != "https" and not (url.scheme == "http" and _is_loopback(url.hostname)):
        raise ValueError("expected https://, or http:// to a loopback address")
    return value.rstrip("/")


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def check_signing_keys(value: str) -> str:
    """Check the keys of archives.

    Raises:
        ValueError: There is none, or one is too short.
    """
    SigningKeys.parse(value)
    return value


def strip_token(value: str) -> str:
    """Strip and validate a token; a secret store often adds a line break at its end.

    Raises:
        ValueError: The token has a character that a header cannot hold.
    """
    token = value.strip()
    if not is_token(token):
        raise ValueError("expected a token of printable ASCII characters, without spaces")
    return token
