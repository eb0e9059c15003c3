"""Parse where an archive stores its documents: a folder, or a bucket of S3, Google Cloud Storage or Azure.

    file:///var/lib/ttl/archive
    s3://BUCKET/PREFIX?endpoint=https://s3.example.com&region=eu-central-1&addressing=path
    gs://BUCKET/PREFIX
    az://CONTAINER/PREFIX?account=NAME

A URL never has credentials: a process reads them from its environment.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlsplit

FILE, S3, GS, AZ, MEMORY = "file", "s3", "gs", "az", "memory"

DESTINATION_OPTIONS: Mapping[str, frozenset[str]] = {
    FILE: frozenset(),
    S3: frozenset({"endpoint", "region", "addressing"}),
    GS: frozenset({"endpoint"}),
    AZ: frozenset({"account", "endpoint"}),
}
"""What may follow the `?` of a URL, for each scheme."""

EXPECTED_URL = "expected file:///PATH, s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://CONTAINER/PREFIX"

_URL_LENGTH_MAX = 2_048
_BUCKET = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,221}")
_ADDRESSINGS = ("path", "virtual")
_CREDENTIAL = re.compile(r"(?i)key|secret|token|password|credential|sas|sig(nature)?$")
_ELSEWHERE = "credentials are set in the environment of the process, not in the URL"


@dataclass(frozen=True, slots=True)
class Destination:
    """Where an archive stores its documents.

    Attributes:
        scheme: `file`, `s3`, `gs` or `az`.
        bucket: The bucket or container; empty for a folder.
        path: The absolute path of the folder, or the prefix in the bucket without slashes at its ends.
        options: What followed the `?` of the URL.
    """

    scheme: str
    bucket: str
    path: str
    options: Mapping[str, str] = field(default_factory=dict)

    def location(self, key: str = "") -> str:
        """The URL of a key, without options; that of a bucket is what the tools of the store take."""
        if self.scheme == FILE:
            return f"{FILE}://" + quote("/".join((self.path, key) if key else (self.path,)))
        return f"{self.scheme}://" + "/".join(part for part in (self.bucket, self.path, key) if part)


def parse_destination(url: str) -> Destination:
    """Parse the URL of an archive.

    Raises:
        ValueError: The URL is malformed, has credentials, or has an unknown option.
    """
    parts = _split(url)
    if parts.scheme not in DESTINATION_OPTIONS:
        raise ValueError(f"{EXPECTED_URL}, got {_shown(parts)}")
    options = _parse_options(parts)
    path = unquote(parts.path, errors="strict")
    if any(part in ("", ".", "..") for part in path.strip("/").split("/") if path.strip("/")) or not path.isprintable():
        raise ValueError(f"expected a path without . and .. and empty parts, got {_shown(parts)}")
    if parts.scheme == FILE:
        if parts.netloc or not path.startswith("/") or not path.strip("/"):
            raise ValueError(f"expected file:///PATH with an absolute path and no host, got {_shown(parts)}")
        return Destination(FILE, "", "/" + path.strip("/"), options)
    if not _BUCKET.fullmatch(parts.netloc):
        raise ValueError(f"expected the name of a bucket after {parts.scheme}://, got {_shown(parts)}")
    return Destination(parts.scheme, parts.netloc, path.strip("/"), options)


def shown_url(text: str) -> str:
    """A URL for a message: without what may hold a credential, which is the user, the path and the options."""
    try:
        parts = urlsplit(text)
        host = parts.netloc.rpartition("@")[2]
    except ValueError:
        return "a text that is no URL"
    shown = f"{parts.scheme}://{host}" if parts.scheme and host else ""
    return repr(shown[:200]) if shown.isprintable() and shown else "a text that is no URL"


def _split(url: str) -> SplitResult:
    if len(url) > _URL_LENGTH_MAX or not url.isascii() or not url.isprintable() or " " in url:
        raise ValueError(f"{EXPECTED_URL} of at most {_URL_LENGTH_MAX} printable ASCII characters")
    try:
        parts = urlsplit(url)
        unquote(parts.path, errors="strict")
    except ValueError:
        raise ValueError(EXPECTED_URL) from None
    if "@" in parts.netloc:
        raise ValueError(f"expected a URL without a user and a password: {_ELSEWHERE}")
    if parts.fragment or "#" in url:
        raise ValueError(f"expected a URL without #, got {_shown(parts)}")
    return parts


def _parse_options(parts: SplitResult) -> dict[str, str]:
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    known = ", ".join(sorted(DESTINATION_OPTIONS[parts.scheme])) or "none"
    options: dict[str, str] = {}
    for name, value in pairs:
        if _CREDENTIAL.search(name):
            raise ValueError(f"expected one of the options {known}, got {name!r}: {_ELSEWHERE}")
        if name not in DESTINATION_OPTIONS[parts.scheme] or name in options:
            raise ValueError(f"expected each of these options at most once: {known}; got {name!r}")
        if not value:
            raise ValueError(f"expected a value for the option {name}")
        options[name] = value
    if "endpoint" in options:
        _check_endpoint(options["endpoint"])
    if options.get("addressing", "path") not in _ADDRESSINGS:
        raise ValueError(f"addressing: expected path or virtual, got {options['addressing']!r}")
    return options


def _check_endpoint(endpoint: str) -> None:
    try:
        parts = urlsplit(endpoint)
        _ = parts.port
    except ValueError as error:
        raise ValueError(f"endpoint: expected https://HOST or http://HOST: {error}") from None
    if "@" in parts.netloc:
        raise ValueError(f"endpoint: expected a URL without a user and a password: {_ELSEWHERE}")
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ValueError("endpoint: expected https://HOST or http://HOST, without ? and #")


def _shown(parts: SplitResult) -> str:
    """The URL without its options, which may hold a credential by mistake."""
    return repr(f"{parts.scheme}://{parts.netloc}{parts.path}"[:200])
