"""Who we are at a server: a token, and where the next one comes from before it expires.

It is fetched beside the requests, so that neither a slow file nor a slow metadata server holds anybody up, and once for
all who wait. No token stands in a log line, an error or a repr.
"""

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC
from pathlib import Path
from typing import Any, Protocol

from shared.adapters.auth.redirects import RedirectError, refuse_redirect
from shared.adapters.clock import SystemClock
from shared.errors import TryLaterError
from shared.ports import Clock

READ_SECONDS = 60.0
"""A token of a file is used for so long before the file is looked at again; one is rotated well before its end."""

RENEW_SECONDS = 225.0
"""Before its end a token of Google's is renewed; earlier, a metadata server would answer with the same one again."""

WAIT_SECONDS_MAX = 10.0
"""For a token without which nothing can be asked; the fetch goes on, for whoever asks next."""

# What GKE's own credential plugin asks for. Without the e-mail an API server knows an account by its number only.
_GOOGLE_SCOPES = (
    "https://www.googleapis.com/auth/cloud-platform",
    "https://www.googleapis.com/auth/userinfo.email",
)
_log = logging.getLogger("ttl")


class Identity(Protocol):
    """Who asks."""

    async def token(self, *, refused: str = "") -> str:
        """A bearer token; another one than the refused, where there is another.

        Raises:
            TryLaterError: There is none now.
            PermanentError: There will be none.
        """

    def close(self) -> None:
        """End what is under way."""


@dataclass(frozen=True, slots=True)
class Token:
    """A bearer token as it was just fetched.

    Attributes:
        fresh_seconds: For so long nobody needs to look for the next one.
        valid_seconds: For so long it is of use.
    """

    text: str = field(repr=False)
    fresh_seconds: float = math.inf
    valid_seconds: float = math.inf


class GivenToken:
    """One token, for as long as it is valid."""

    def __init__(self, text: str) -> None:
        self._text = text

    async def token(self, *, refused: str = "") -> str:  # noqa: ARG002 - there is no other
        """See `Identity`."""
        return self._text

    def close(self) -> None:
        """See `Identity`."""


class RenewedToken:
    """Tokens of a source, one after the other.

    Args:
        fetch: One at a time; raises TryLaterError where there is no token now.
        monotonic: Seconds that never go back.
    """

    def __init__(
        self, fetch: Callable[[], Awaitable[Token]], *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._fetch = fetch
        self._monotonic = monotonic
        self._token: Token | None = None
        self._fetched_at = 0.0
        self._renewal: asyncio.Task[str] | None = None
        self._failed = False

    async def token(self, *, refused: str = "") -> str:
        """See `Identity`. One that is no longer fresh is used once more, while the next is fetched."""
        age = self._monotonic() - self._fetched_at
        if self._token is None or self._token.text == refused or age >= self._token.valid_seconds:
            return await self._renewed()
        if age >= self._token.fresh_seconds:
            self._renew()
        return self._token.text

    def close(self) -> None:
        """See `Identity`."""
        if self._renewal:
            self._renewal.cancel()

    async def _renewed(self) -> str:
        try:
            async with asyncio.timeout(WAIT_SECONDS_MAX):
                return await asyncio.shield(self._renew())
        except TimeoutError:
            raise TryLaterError(f"no token to ask with within {WAIT_SECONDS_MAX:.0f} s") from None

    def _renew(self) -> asyncio.Task[str]:
        """The renewal under way, or a new one."""
        if self._renewal is None or self._renewal.done():
            self._renewal = asyncio.create_task(self._replace(), name="token")
            self._renewal.add_done_callback(self._write_event)
        return self._renewal

    async def _replace(self) -> str:
        asked_at = self._monotonic()
        token = await self._fetch()
        self._token, self._fetched_at = token, asked_at
        return token.text

    def _write_event(self, renewal: asyncio.Task[str]) -> None:
        """One line for the first failure in a row: nobody may be waiting for this renewal."""
        error = None if renewal.cancelled() else renewal.exception()
        if error and not self._failed:
            _log.warning("no new token to ask with", extra={"fields": {"error": str(error)}})
        self._failed = error is not None


class FileTokens:
    """The tokens that another writes to a file, one after the other.

    Args:
        path: Where they are.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    async def __call__(self) -> Token:
        """The present one. In a thread: such a file may lie behind a network.

        Raises:
            TryLaterError: There is none that can be read.
        """
        return await asyncio.to_thread(read_token, self._path)


def read_token(path: Path) -> Token:
    """The token in a file.

    Raises:
        TryLaterError: There is none that can be read.
    """
    try:
        text = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "no text"
        raise TryLaterError(f"expected a file with a token, got {str(path)!r}: {reason}") from None
    if not is_token(text):
        raise TryLaterError(f"expected a token and nothing else in {str(path)!r}, got {'more' if text else 'none'}")
    return Token(text, fresh_seconds=READ_SECONDS)


def is_token(text: str) -> bool:
    """Whether a text can stand behind `Bearer` in a header."""
    return text.isascii() and text.isprintable() and text != "" and " " not in text


class GoogleTokens:
    """Access tokens by Google's application default credentials: on Cloud Run, of the metadata server.

    Args:
        clock: Tells how long a token still lasts.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._credentials: Any = None

    async def __call__(self) -> Token:
        """The next one. In a thread: Google's library waits for each of its requests.

        Raises:
            TryLaterError: Google has none for us now.
            RedirectError: The metadata server, or Google, sends us elsewhere.
        """
        return await asyncio.to_thread(self._fetch)

    def _fetch(self) -> Token:
        import google.auth  # noqa: PLC0415 - 170 ms that only this identity needs
        from google.auth.exceptions import GoogleAuthError  # noqa: PLC0415 - as above
        from google.auth.transport.requests import Request  # noqa: PLC0415 - as above

        request = Request()
        request.session.hooks["response"].append(_refuse_redirect)
        try:
            if self._credentials is None:
                self._credentials, _ = google.auth.default(scopes=_GOOGLE_SCOPES, request=request)
            self._credentials.refresh(request)
        except GoogleAuthError as error:
            reason = " ".join(str(error).split())[:300]
            raise TryLaterError(f"TTL_API_IDENTITY=google: there is no token of Google's now: {reason}") from None
        finally:
            request.session.close()
        expires_at = self._credentials.expiry
        if expires_at is None:
            return Token(self._credentials.token)
        left = (expires_at.replace(tzinfo=UTC) - self._clock.now()).total_seconds()
        return Token(self._credentials.token, fresh_seconds=left - RENEW_SECONDS, valid_seconds=left)


def _refuse_redirect(response: Any, *_: Any, **__: Any) -> None:
    """A hook of Google's transport: what it sends may hold a refresh token or a signed assertion."""
    try:
        refuse_redirect(response.url, response.status_code, response.headers)
    except RedirectError:
        response.close()
        raise
