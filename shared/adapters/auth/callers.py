"""Authenticate callers of a function: verify the bearer token of a request before reading its body.

If authentication is enabled on a Broker, it sends a token of the Trigger's identity. Knative verifies such tokens for
its own components, but not for a Service; so the function verifies them. This module is imported only if TTL_CALLERS is
set.

    no token, or an invalid one                  401
    a valid token of a subject not listed        403
    the issuer's keys are not available now      503, and Knative retries
"""

import asyncio
import math
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import jwt

from shared.adapters.http_client import UNCOMPRESSED, RedirectError, read_up_to, refuse_redirects
from shared.core.values.jsontext import parse_json
from shared.core.values.objects import quote
from shared.errors import EventError, TryLaterError

ALGORITHMS = ("RS256", "RS384", "RS512", "ES256", "ES384", "ES512")
"""Algorithms that API servers sign with. None of them accepts a public key as a shared secret."""

CLOCKS_APART_MAX_SECONDS = 60.0
"""Clock skew allowed when a token is verified: a request with a rejected token is not retried."""

KEPT_SECONDS = 3_600.0
"""Maximum age of cached keys before they are fetched again."""

KEYS_PAUSE_SECONDS = 10.0
"""Minimum time between two fetches of the keys: otherwise tokens with invented key ids could force a fetch each."""

RETRY_SECONDS = 1.0
"""Minimum time before a fetch that failed is repeated: a Broker gives up after some seconds."""

FETCH_SECONDS = 3.0

KEYS_BYTES_MAX = 1024 * 1024
"""Maximum number of bytes of an answer of an issuer; a key has some 500."""


@dataclass(frozen=True, slots=True)
class Issuer:
    """An OIDC issuer with a public URL, such as that of a managed cluster.

    Attributes:
        url: The value of `iss` in its tokens; the discovery document is served below this URL.
    """

    url: str

    async def fetch(self) -> tuple[str, jwt.PyJWKSet]:
        """Fetch the issuer's name (`iss` in tokens) and its keys."""
        async with _session(ssl.create_default_context()) as session:
            found = await _read(session, f"{self.url.rstrip('/')}/.well-known/openid-configuration")
            if found.get("issuer") != self.url:
                raise ValueError(f"issuer: expected {self.url}, got {quote(found.get('issuer'))}")
            keys_url = str(found.get("jwks_uri"))
            if urlsplit(keys_url).scheme != urlsplit(self.url).scheme:
                raise ValueError(f"jwks_uri: expected the same scheme as the issuer's URL, got {quote(keys_url)}")
            return self.url, jwt.PyJWKSet.from_dict(await _read(session, keys_url))


@dataclass(frozen=True, slots=True)
class ApiServerIssuer:
    """The API server of the cluster of this Pod as an issuer; it serves its keys to service accounts only.

    Attributes:
        url: The base URL of the API server.
        account: The folder with the Pod's `ca.crt` and `token`; both are read again for each fetch.
    """

    url: str = "https://kubernetes.default.svc"
    account: Path = Path("/var/run/secrets/kubernetes.io/serviceaccount")

    async def fetch(self) -> tuple[str, jwt.PyJWKSet]:
        """Fetch the issuer's name (`iss` in tokens) and its keys.

        The keys come from the API server itself. Its discovery document names an address that a Pod often cannot reach.
        """
        token = (self.account / "token").read_text().strip()
        async with _session(ssl.create_default_context(cafile=self.account / "ca.crt"), token) as session:
            found = await _read(session, f"{self.url}/.well-known/openid-configuration")
            return str(found["issuer"]), jwt.PyJWKSet.from_dict(await _read(session, f"{self.url}/openid/v1/jwks"))


class Keys:
    """Cached keys of an issuer: fetched on first use, for a token with an unknown key id, and every hour.

    Args:
        issuer: The issuer to fetch the keys from.
        clock: A monotonic clock, in seconds.

    Attributes:
        issuer_name: The expected `iss` of tokens; empty until the keys are fetched.
    """

    def __init__(self, issuer: Issuer | ApiServerIssuer, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.issuer_name = ""
        self._issuer = issuer
        self._clock = clock
        self._keys: Mapping[str | None, jwt.PyJWK] = {}
        self._fetched_at = self._next_fetch_at = -math.inf
        self._fetching = asyncio.Lock()

    async def get(self, key_id: str) -> jwt.PyJWK | None:
        """Return the key with an id, or None if the issuer has no such key.

        Raises:
            TryLaterError: The keys are not available now.
        """
        if self._is_fresh() and key_id in self._keys:
            return self._keys[key_id]
        async with self._fetching:
            pause = self._next_fetch_at - self._clock()
            if pause <= 0:
                await self._fetch(key_id)
            elif key_id not in self._keys:  # the issuer may have added the key since the last fetch
                raise TryLaterError(
                    "authorization: the token's key is not among the known keys of "
                    f"{self._issuer.url}; they are fetched again in {pause:.1f} s",
                    retry_after_seconds=pause,
                )
        return self._keys.get(key_id)

    def _is_fresh(self) -> bool:
        return self._clock() < self._fetched_at + KEPT_SECONDS

    async def _fetch(self, key_id: str) -> None:
        """Fetch the keys. If the fetch fails, known keys stay valid."""
        try:
            self.issuer_name, keys = await self._issuer.fetch()
        except (aiohttp.ClientError, jwt.PyJWTError, RedirectError, OSError, ValueError, TypeError, KeyError) as error:
            # Count from the end of the fetch: requests that waited for a slow answer must not each start another fetch.
            self._next_fetch_at = self._clock() + RETRY_SECONDS
            if key_id not in self._keys:
                reason = f"cannot fetch the keys of {self._issuer.url}: {str(error) or type(error).__name__}"
                raise TryLaterError(reason, retry_after_seconds=RETRY_SECONDS) from None
        else:
            self._keys = {key.key_id: key for key in keys}
            self._fetched_at = self._clock()
            self._next_fetch_at = self._fetched_at + KEYS_PAUSE_SECONDS


class Callers:
    """Admits requests by the subject (`sub`) of their token.

    Args:
        subjects: The admitted subjects, such as `system:serviceaccount:NAMESPACE:NAME`.
        audience: The expected audience (`aud`) of a token.
        keys: The keys of the trusted issuer.
        claim: The claim with the subject. For `email`, the issuer must have verified it: `email_verified`.
    """

    def __init__(self, subjects: tuple[str, ...], *, audience: str, keys: Keys, claim: str = "sub") -> None:
        self._subjects = frozenset(subjects)
        self._audience = audience
        self._keys = keys
        self._claim = claim

    async def admit(self, authorization: str) -> None:
        """Verify the Authorization header of a request; return if its subject is admitted.

        Raises:
            EventError: The token is missing or invalid (401), or its subject is not admitted (403).
            TryLaterError: The keys are not available now.
        """
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise EventError("authorization: expected a bearer token, got none", status=HTTPStatus.UNAUTHORIZED)
        try:
            subject = self._subject_in(await self._verify(token.strip()))
        except (jwt.PyJWTError, RecursionError) as error:  # a deeply nested header is parsed before verification
            expected = f"a token signed by {self._keys.issuer_name or 'the issuer'} for audience {self._audience}"
            raise EventError(f"authorization: expected {expected}: {error}", status=HTTPStatus.UNAUTHORIZED) from None
        if not subject or subject not in self._subjects:
            expected = f"a token of subject {' or '.join(sorted(self._subjects))}, got subject {subject[:200]!r}"
            raise EventError(f"authorization: expected {expected}", status=HTTPStatus.FORBIDDEN)

    def _subject_in(self, claims: Mapping[str, Any]) -> str:
        if self._claim == "email" and claims.get("email_verified") is not True:
            return ""
        return str(claims.get(self._claim, ""))

    async def _verify(self, token: str) -> dict[str, Any]:
        key_id = jwt.get_unverified_header(token).get("kid")
        key = await self._keys.get(key_id) if key_id else None
        if key is None:
            raise jwt.InvalidTokenError(f"kid: expected a key id of the issuer, got {quote(key_id)}")
        return jwt.decode(
            token,
            key,
            algorithms=ALGORITHMS,
            audience=self._audience,
            issuer=self._keys.issuer_name,
            leeway=CLOCKS_APART_MAX_SECONDS,
            options={"require": ["aud", "exp", "iss", "sub"]},
        )


def _session(context: ssl.SSLContext, token: str = "") -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=context),
        headers={**UNCOMPRESSED, **({"Authorization": f"Bearer {token}"} if token else {})},
        auto_decompress=False,
        timeout=aiohttp.ClientTimeout(total=FETCH_SECONDS),
        raise_for_status=True,
        middlewares=(refuse_redirects,),
    )


async def _read(session: aiohttp.ClientSession, url: str) -> dict[str, Any]:
    """GET a JSON object of any media type. Redirects are not followed: only the configured address is asked."""
    async with session.get(url) as response:
        answer, is_whole = await read_up_to(KEYS_BYTES_MAX, response)
    if not is_whole:
        raise ValueError(f"{url}: expected an answer of at most {KEYS_BYTES_MAX} bytes, got a larger one")
    found = parse_json(answer)
    if not isinstance(found, dict):
        raise TypeError(f"{url}: expected a JSON object, got {quote(found)}")
    return found


GOOGLE_ISSUER = "https://accounts.google.com"
"""The issuer of the OIDC tokens that Google Cloud Tasks sends: https://cloud.google.com/tasks/docs/creating-http-target-tasks."""


class TaskCallers:
    """Admits the callers of a function, and Google Cloud Tasks.

    Args:
        callers: Admits all other callers.
        tasks: Admits the account that Cloud Tasks sends its tasks as.
        issuer: The issuer of Google's tokens.
    """

    def __init__(self, callers: Callers, tasks: Callers, *, issuer: str = GOOGLE_ISSUER) -> None:
        self._callers, self._tasks, self._issuer = callers, tasks, issuer

    async def admit(self, authorization: str) -> None:
        """See `Callers.admit`. The issuer that a token names selects the keys, which then verify the token."""
        await (self._tasks if _named_issuer(authorization) == self._issuer else self._callers).admit(authorization)


def _named_issuer(authorization: str) -> object:
    """Return the `iss` of the token, unverified; None if there is none."""
    try:
        return jwt.decode(authorization.partition(" ")[2].strip(), options={"verify_signature": False}).get("iss")
    except (jwt.PyJWTError, RecursionError):
        return None
