"""Ask the API server who sent a token, and what that user may list: TokenReview and SubjectAccessReview.

Answers are cached for a short time, in a bounded number. No token is stored, only its SHA-256.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from cachetools import TTLCache

from shared.adapters.kubernetes.requests import ApiServer
from shared.core.values.objects import get_in, get_text
from shared.errors import TryLaterError

REVIEW_CACHED_SECONDS = 60.0
"""How long an answer is used again: a right that was withdrawn ends after at most this time."""

TOKENS_KEPT_MAX = 1_000
"""Tokens whose users are cached, and tokens that were rejected."""

ANSWERS_KEPT_MAX = 50_000
"""Rights that are cached, of all users together: about 20 MB."""

REVIEWS_AT_ONCE = 16
"""Concurrent reviews of a process."""

TOKENS_REVIEWED_MAX = 32
"""Unknown tokens that are checked or wait for it; the next one gets an error, so that no flood uses memory."""

_TOKENS = "/apis/authentication.k8s.io/v1/tokenreviews"
_ACCESS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


@dataclass(frozen=True, slots=True)
class ReviewedUser:
    """The user of a token, as the API server names it.

    Attributes:
        name: The user name.
        uid: The uid; empty if there is none.
        groups: The groups.
        extra: Further facts, for the authorizer.
    """

    name: str
    uid: str
    groups: tuple[str, ...]
    extra: tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True, slots=True)
class AskedRight:
    """One right: a verb on a resource.

    Attributes:
        verb: Such as `list`.
        group: The API group; empty for the core group.
        resource: The plural: `jobs`.
        namespace: The namespace; empty for all, or if the resource is cluster-scoped.
        name: The only object; empty for all.
    """

    verb: str
    group: str
    resource: str
    namespace: str = ""
    name: str = ""


class Reviews:
    """Reviews by one API server.

    Args:
        server: The API server, with the right to create both kinds of reviews.
        monotonic: A clock, in seconds.
    """

    def __init__(self, server: ApiServer, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._server = server
        self._slots = asyncio.Semaphore(REVIEWS_AT_ONCE)
        self._unknown = asyncio.Semaphore(TOKENS_REVIEWED_MAX)
        self._users = TTLCache[bytes, ReviewedUser | None](TOKENS_KEPT_MAX, REVIEW_CACHED_SECONDS, timer=monotonic)
        self._rights = TTLCache[tuple[ReviewedUser, AskedRight], bool](
            ANSWERS_KEPT_MAX, REVIEW_CACHED_SECONDS, timer=monotonic
        )

    async def find_user(self, token: str) -> ReviewedUser | None:
        """Return the user of a token; None if the API server rejects the token.

        Raises:
            TtlError: The API server does not answer, or refuses the review; or too many tokens wait for one.
        """
        key = sha256(token.encode()).digest()
        with suppress(KeyError):
            return self._users[key]
        if self._unknown.locked():
            raise TryLaterError("too many tokens are checked at once: try again")
        async with self._unknown:
            status = await self._post(_TOKENS, "authentication.k8s.io/v1", "TokenReview", {"token": token})
        user = self._users[key] = _parse_user(status)
        return user

    async def may(self, user: ReviewedUser, right: AskedRight) -> bool:
        """Return whether a user has a right.

        Raises:
            TtlError: The API server does not answer, or refuses the review.
        """
        known = self._rights.get((user, right))
        if known is not None:
            return known
        spec = {
            "user": user.name,
            "uid": user.uid,
            "groups": list(user.groups),
            "extra": {name: list(values) for name, values in user.extra},
            "resourceAttributes": {
                "verb": right.verb,
                "group": right.group,
                "resource": right.resource,
                "namespace": right.namespace,
                "name": right.name,
            },
        }
        status = await self._post(_ACCESS, "authorization.k8s.io/v1", "SubjectAccessReview", spec)
        allowed = get_in(status, "allowed") is True
        self._rights[user, right] = allowed
        return allowed

    async def _post(self, path: str, api_version: str, kind: str, spec: Mapping[str, Any]) -> Any:
        async with self._slots:
            body = {"apiVersion": api_version, "kind": kind, "spec": spec}
            answer = await self._server.request("POST", path, body=body)
        return get_in(answer.body if answer else None, "status")


def _parse_user(status: Any) -> ReviewedUser | None:
    name = get_text(status, "user.username")
    if get_in(status, "authenticated") is not True or not name:
        return None
    groups, extra = get_in(status, "user.groups"), get_in(status, "user.extra")
    pairs = extra.items() if isinstance(extra, dict) else ()
    return ReviewedUser(
        name,
        get_text(status, "user.uid"),
        tuple(map(str, groups)) if isinstance(groups, list) else (),
        tuple((str(key), tuple(map(str, values))) for key, values in pairs if isinstance(values, list)),
    )
