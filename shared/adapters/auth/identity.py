"""Bearer tokens that this process sends to a server, renewed before they expire.

A token is fetched in the background, so a slow file or metadata server does not delay requests. Concurrent requests
share one fetch. A token never appears in a log line, an error or a repr.
"""

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from shared.adapters.clock import SystemClock
from shared.adapters.http_client import RedirectError, is_token, refuse_redirect
from shared.errors import TryLaterError
from shared.ports import Clock

TOKEN_FILE_CACHED_SECONDS = 60.0
"""Time for which a token from a file is used before the file is read again; tokens are rotated well before expiry."""

TOKEN_RENEW_SECONDS = 225.0
"""Time before expiry at which a Google token is renewed; earlier, a metadata server would return the same token."""

WAIT_SECONDS_MAX = 10.0
"""Maximum wait for a token; the fetch continues after it, for later requests."""

# The scopes that GKE's credential plugin requests. Without the e-mail scope an API server knows an account by number.
_GOOGLE_SCOPES = (
    "https://www.googleapis.com/auth/cloud-platform",
    "https://www.googleapis.com/auth/userinfo.email",
)
_log = logging.getLogger("ttl")


class Identity(Protocol):
    """A source of bearer tokens for one server."""

    async def token(self, *, refused: str = "") -> str:
        """Return a bearer token; a different one than `refused`, if there is one.

        Raises:
            TryLaterError: No token is available now.
            PermanentError: No token will be available.
        """

    def close(self) -> None:
        """Cancel a fetch in progress."""


@dataclass(frozen=True, slots=True)
class Token:
    """A bearer token, with durations that count from its fetch.

    Attributes:
        fresh_seconds: Time until the next token should be fetched.
        valid_seconds: Time until the token expires.
    """

    text: str = field(repr=False)
    fresh_seconds: float = math.inf
    valid_seconds: float = math.inf


class GivenToken:
    """A fixed token."""

    def __init__(self, text: str) -> None:
        self._text = text

    async def token(self, *, refused: str = "") -> str:  # noqa: ARG002 - there is only one token
        """See `Identity`."""
        return self._text

    def close(self) -> None:
        """See `Identity`."""


class RenewedToken:
    """Tokens that are fetched again before they expire.

    Args:
        fetch: Fetches the next token; never called concurrently. Raises TryLaterError if no token is available now.
        monotonic: A monotonic clock, in seconds.
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
        """See `Identity`. A token that is due for renewal is used once more while the next one is fetched."""
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
            raise TryLaterError(f"no bearer token for the server within {WAIT_SECONDS_MAX:.0f} s") from None

    def _renew(self) -> asyncio.Task[str]:
        """Return the renewal in progress, or start one."""
        if self._renewal is None or self._renewal.done():
            self._renewal = asyncio.create_task(self._replace(), name="token")
            self._renewal.add_done_callback(self._log_failure)
        return self._renewal

    async def _replace(self) -> str:
        asked_at = self._monotonic()
        token = await self._fetch()
        self._token, self._fetched_at = token, asked_at
        return token.text

    def _log_failure(self, renewal: asyncio.Task[str]) -> None:
        """Log the first failure in a row: no request may be waiting for this renewal."""
        error = None if renewal.cancelled() else renewal.exception()
        if error and not self._failed:
            _log.warning("bearer token not renewed", extra={"fields": {"error": str(error)}})
        self._failed = error is not None


def file_tokens(path: Path) -> Callable[[], Awaitable[Token]]:
    """Return what reads the present token in a file that another process rotates, for `RenewedToken`.

    It reads in a thread: the file may be on a network volume.
    """
    return partial(asyncio.to_thread, read_token, path)


def read_token(path: Path) -> Token:
    """Read the token in a file.

    Raises:
        TryLaterError: The file has no readable token.
    """
    try:
        text = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a text file"
        raise TryLaterError(f"expected a file with a token, got {str(path)!r}: {reason}") from None
    if not is_token(text):
        got = "other text" if text else "an empty file"
        raise TryLaterError(f"expected one token and no other text in {str(path)!r}, got {got}")
    return Token(text, fresh_seconds=TOKEN_FILE_CACHED_SECONDS)


class GoogleTokens:
    """Access tokens from Google's application default credentials; on Cloud Run, from the metadata server.

    Args:
        clock: The clock that the expiry of a token is compared with.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._credentials: Any = None

    async def __call__(self) -> Token:
        """Fetch the next token, in a thread: Google's library blocks on its requests.

        Raises:
            TryLaterError: Google returns no token now.
            RedirectError: The metadata server, or Google, answers with a redirect.
        """
        return await asyncio.to_thread(self._fetch)

    def _fetch(self) -> Token:
        import google.auth  # noqa: PLC0415 - the import takes 170 ms, and only this identity needs it
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
            raise TryLaterError(f"TTL_API_IDENTITY=google: cannot fetch a token from Google: {reason}") from None
        finally:
            request.session.close()
        expires_at = self._credentials.expiry
        if expires_at is None:
            return Token(self._credentials.token)
        left = (expires_at.replace(tzinfo=UTC) - self._clock.now()).total_seconds()
        return Token(self._credentials.token, fresh_seconds=left - TOKEN_RENEW_SECONDS, valid_seconds=left)


def _refuse_redirect(response: Any, *_: Any, **__: Any) -> None:
    """Reject redirects in Google's transport (a response hook): a request may hold a refresh token or an assertion."""
    try:
        refuse_redirect(response.url, response.status_code, response.headers)
    except RedirectError:
        response.close()
        raise
