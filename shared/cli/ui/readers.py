"""Who reads the page: the operator who started it, or any user whom the API server knows."""

import asyncio
from collections.abc import Sequence

from shared.adapters.kubernetes.reviews import AskedRight, ReviewedUser, Reviews
from shared.cli.ui.groups import KindPlace
from shared.cli.ui.shown import Grant
from shared.safeguards.state_schema import NAME

PLACES_CHECKED_MAX = 500
"""Kinds in single namespaces that are checked for one answer, if a user may not list the kinds in all namespaces."""


class UserGrants:
    """Finds out what one user may list.

    Args:
        reviews: Asks the API server.
        user: The user.
        home: The namespace of the installation.
    """

    def __init__(self, reviews: Reviews, user: ReviewedUser, home: str) -> None:
        self._reviews, self._user, self._home = reviews, user, home

    async def find(self, places: Sequence[KindPlace]) -> Grant:
        """Find out which places the user may list: first in all namespaces, then in each.

        The state of the deleters needs `get` on the ConfigMap of the shared state.

        Raises:
            TtlError: The API server does not answer, or refuses a review.
        """
        kinds = list(dict.fromkeys((one.group, one.plural) for one in places))
        status = AskedRight("get", "", "configmaps", self._home, NAME)
        rights = [status, *(AskedRight("list", group, plural) for group, plural in kinds)]
        may_see_status, *everywhere = await self._ask(rights)
        in_all = {kind for kind, may in zip(kinds, everywhere, strict=True) if may}
        granted = {one for one in places if (one.group, one.plural) in in_all}
        rest = [one for one in places if one not in granted and one.namespace]
        checked = rest[:PLACES_CHECKED_MAX]
        found = await self._ask([AskedRight("list", one.group, one.plural, one.namespace) for one in checked])
        granted |= {one for one, may in zip(checked, found, strict=True) if may}
        return Grant(frozenset(granted), len(rest) - len(checked), status=may_see_status)

    async def _ask(self, rights: Sequence[AskedRight]) -> list[bool]:
        return await asyncio.gather(*(self._reviews.may(self._user, one) for one in rights))
