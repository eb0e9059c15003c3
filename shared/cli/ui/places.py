"""Limit the requests that are handled at once: of all users together, and of each user."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from shared.errors import TryLaterError

REQUESTS_AT_ONCE_MAX = 64
"""Requests for data that are handled at once. If a client leaves, its request keeps its place while a review of its
token or rights runs. If the client sent a second request on that connection, the first one keeps its place to its end.
"""

REQUESTS_OF_USER_MAX = 8
"""Requests of one user that are handled at once, so that one user cannot block all others. Each ServiceAccount is a
user, so a user who may create eight of them can still block all."""


class RequestPlaces:
    """Counts the requests that are handled."""

    def __init__(self) -> None:
        self._all = 0
        self._users = Counter[str]()

    @contextmanager
    def take(self) -> Iterator[None]:
        """Take a place until the end of the block.

        Raises:
            TryLaterError: All places are taken.
        """
        if self._all >= REQUESTS_AT_ONCE_MAX:
            raise TryLaterError("too many requests at once: try again")
        self._all += 1
        try:
            yield
        finally:
            self._all -= 1

    @contextmanager
    def take_of(self, user: str) -> Iterator[None]:
        """Count a request of one user until the end of the block. Call it within `take`.

        Args:
            user: The name of the user; empty if rights are not checked, and then only the limit of `take` applies.

        Raises:
            TryLaterError: The user has too many requests.
        """
        if user and self._users[user] >= REQUESTS_OF_USER_MAX:
            raise TryLaterError("too many requests of this user at once: try again")
        self._users[user] += 1
        try:
            yield
        finally:
            self._users[user] -= 1
            if not self._users[user]:
                del self._users[user]
