"""Admit the tasks of Google Cloud Tasks beside the callers of a function. Imported only with timers in Cloud Tasks."""

import jwt

from shared.adapters.auth.callers import Callers

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
