"""Who may call a function: the bearer token of each request, verified before anything of its body is read.

A Broker with authentication on sends a token of the Trigger's own identity. Knative verifies such tokens for its own
parts, not for a Service; so the function does it. Only loaded where TTL_CALLERS is set.

    no token, or one that does not hold     401
    a good token of somebody else           403
    the keys cannot be had now              503, and Knative comes back
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

from shared.adapters.auth.redirects import RedirectError, refuse_redirects
from shared.core.objects import quote
from shared.errors import EventError, TryLaterError

ALGORITHMS = ("RS256", "RS384", "RS512", "ES256", "ES384", "ES512")
"""What API servers sign with. None of them takes a public key for a shared secret."""

CLOCKS_APART_MAX_SECONDS = 60.0
"""A refused token is not tried again, so a clock that is a little off must not refuse one."""

KEPT_SECONDS = 3_600.0
"""How long keys are trusted without asking again."""

PAUSE_SECONDS = 10.0
"""Between two questions for keys: whoever makes up key ids must not have us ask for each."""

RETRY_SECONDS = 1.0
"""The same after a question that failed: a Broker gives up after some seconds."""

FETCH_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Issuer:
    """An OIDC issuer that the internet knows, as that of a managed cluster.

    Attributes:
        url: As in the tokens' `iss`; its discovery document is below it.
    """

    url: str

    async def fetch(self) -> tuple[str, jwt.PyJWKSet]:
        """Its name in tokens, and its keys."""
        async with _session(ssl.create_default_context()) as session:
            found = await _read(session, f"{self.url.rstrip('/')}/.well-known/openid-configuration")
            if found.get("issuer") != self.url:
                raise ValueError(f"issuer: expected {self.url}, got {quote(found.get('issuer'))}")
            keys_url = str(found.get("jwks_uri"))
            if urlsplit(keys_url).scheme != urlsplit(self.url).scheme:
                raise ValueError(f"jwks_uri: expected a URL as safe as the issuer's, got {quote(keys_url)}")
            return self.url, jwt.PyJWKSet.from_dict(await _read(session, keys_url))


@dataclass(frozen=True, slots=True)
class ApiServerIssuer:
    """The API server of the cluster this Pod runs in, which tells its keys to service accounts only.

    Attributes:
        url: Its base URL.
        account: The folder with the Pod's `ca.crt` and `token`, both read again for each question.
    """

    url: str = "https://kubernetes.default.svc"
    account: Path = Path("/var/run/secrets/kubernetes.io/serviceaccount")

    async def fetch(self) -> tuple[str, jwt.PyJWKSet]:
        """Its name in tokens, and its keys; not from where it says they are, which often is out of a Pod's reach."""
        token = (self.account / "token").read_text().strip()
        async with _session(ssl.create_default_context(cafile=self.account / "ca.crt"), token) as session:
            found = await _read(session, f"{self.url}/.well-known/openid-configuration")
            return str(found["issuer"]), jwt.PyJWKSet.from_dict(await _read(session, f"{self.url}/openid/v1/jwks"))


class Keys:
    """The keys of an issuer: fetched when first needed, when a token names an unknown one, and every hour.

    Args:
        issuer: Where they come from.
        clock: Seconds that only grow.

    Attributes:
        issuer_name: What tokens must have as `iss`; empty until the keys were fetched.
    """

    def __init__(self, issuer: Issuer | ApiServerIssuer, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.issuer_name = ""
        self._issuer = issuer
        self._clock = clock
        self._keys: Mapping[str | None, jwt.PyJWK] = {}
        self._fetched_at = self._ask_again_at = -math.inf
        self._asking = asyncio.Lock()

    async def get(self, key_id: str) -> jwt.PyJWK | None:
        """The key of that id; None where the issuer has none.

        Raises:
            TryLaterError: It cannot be told now.
        """
        if self._is_fresh() and key_id in self._keys:
            return self._keys[key_id]
        async with self._asking:
            pause = self._ask_again_at - self._clock()
            if pause <= 0:
                await self._fetch(key_id)
            elif key_id not in self._keys:  # its key may be newer than ours
                raise TryLaterError("the token's key is not known yet", retry_after_seconds=pause)
        return self._keys.get(key_id)

    def _is_fresh(self) -> bool:
        return self._clock() < self._fetched_at + KEPT_SECONDS

    async def _fetch(self, key_id: str) -> None:
        """Fetch the keys; where that fails, a key that was good until now stays so."""
        try:
            self.issuer_name, keys = await self._issuer.fetch()
        except (aiohttp.ClientError, jwt.PyJWTError, RedirectError, OSError, ValueError, TypeError, KeyError) as error:
            # From now, not from the question: those who waited for a slow answer must not each wait for one more.
            self._ask_again_at = self._clock() + RETRY_SECONDS
            if key_id not in self._keys:
                reason = f"no keys from {self._issuer.url}: {str(error) or type(error).__name__}"
                raise TryLaterError(reason, retry_after_seconds=RETRY_SECONDS) from None
        else:
            self._keys = {key.key_id: key for key in keys}
            self._fetched_at = self._clock()
            self._ask_again_at = self._fetched_at + PAUSE_SECONDS


class Callers:
    """Those who may call, by the `sub` of their tokens.

    Args:
        subjects: As `system:serviceaccount:NAMESPACE:NAME`.
        audience: What a token must be meant for.
        keys: Of the one issuer that is trusted.
    """

    def __init__(self, subjects: tuple[str, ...], *, audience: str, keys: Keys) -> None:
        self._subjects = frozenset(subjects)
        self._audience = audience
        self._keys = keys

    async def admit(self, authorization: str) -> None:
        """Let a request pass, by its Authorization header.

        Raises:
            EventError: It has no good token (401), or one of somebody else (403).
            TryLaterError: It cannot be told now.
        """
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise EventError("authorization: expected a bearer token, got none", status=HTTPStatus.UNAUTHORIZED)
        try:
            subject = str((await self._verify(token.strip()))["sub"])
        except (jwt.PyJWTError, RecursionError) as error:  # a header of a thousand levels is read before it is verified
            expected = f"a token that {self._keys.issuer_name or 'the issuer'} signed for {self._audience}"
            raise EventError(f"authorization: expected {expected}: {error}", status=HTTPStatus.UNAUTHORIZED) from None
        if subject not in self._subjects:
            expected = f"a token of {', '.join(sorted(self._subjects))}, got one of {subject[:200]!r}"
            raise EventError(f"authorization: expected {expected}", status=HTTPStatus.FORBIDDEN)

    async def _verify(self, token: str) -> dict[str, Any]:
        key_id = jwt.get_unverified_header(token).get("kid")
        key = await self._keys.get(key_id) if key_id else None
        if key is None:
            raise jwt.InvalidTokenError(f"the issuer has no key {quote(key_id)}")
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
        headers={"Authorization": f"Bearer {token}"} if token else {},
        timeout=aiohttp.ClientTimeout(total=FETCH_SECONDS),
        raise_for_status=True,
        middlewares=(refuse_redirects,),
    )


async def _read(session: aiohttp.ClientSession, url: str) -> dict[str, Any]:
    """A JSON object. No redirect is followed: what is asked for is where it is said to be."""
    async with session.get(url) as response:
        found = await response.json(content_type=None)  # application/jwk-set+json, and whatever else there is
    if not isinstance(found, dict):
        raise TypeError(f"{url}: expected a JSON object, got {quote(found)}")
    return found
