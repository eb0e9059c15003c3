"""What one reader of the page may list, and sees of what they ask for.

A reader is the operator who started `ui`, or any user whom the API server knows.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Protocol

from shared.adapters.kubernetes.journal_reading import JournalEvent
from shared.adapters.kubernetes.reviews import AskedRight, ReviewedUser, Reviews
from shared.cli.ui.cluster_view import ClusterView, KindPlace, ObjectGroup
from shared.core.kinds.rule import Catalogue
from shared.core.values.objects import ObjectRef
from shared.safeguards.state_schema import NAME

_USAGE = {("", "Secret"): "secrets", ("", "ConfigMap"): "configmaps"}
"""The kinds without a rule of which objects are deleted."""

PLACES_CHECKED_MAX = 500
"""Kinds in single namespaces that are checked for one answer, if a user may not list the kinds in all namespaces."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a reader asks for.

    Attributes:
        namespace: The only namespace; empty for all.
        kind: A name of the only kind; empty for all.
    """

    namespace: str = ""
    kind: str = ""

    def wants(self, group: ObjectGroup) -> bool:
        """Return whether a group is asked for."""
        is_kind = not self.kind or group.rule.has_name(self.kind)
        return is_kind and self.namespace in ("", group.place.namespace)


@dataclass(frozen=True, slots=True)
class Grant:
    """What a reader may list.

    Attributes:
        places: The kinds and namespaces.
        unchecked: How many more of them were not checked.
        status: Whether the reader may see the policy, the Leases and the safeguards.
    """

    places: AbstractSet[KindPlace]
    unchecked: int = 0
    status: bool = False


FindGrant = Callable[[Sequence[KindPlace]], Awaitable[Grant]]
"""Asks which of some kinds and namespaces a reader may list; the first ones matter most."""


@dataclass(frozen=True, slots=True)
class ShownView:
    """A view of a cluster, without what the reader does not ask for or may not list.

    Attributes:
        view: The view.
        asked: What the reader asks for.
        groups: The groups that are shown.
        named: The deletions of single objects, the newest first.
        counted: The deletions that are only counted.
        status: Whether the state of the deleters is shown.
        is_restricted: Whether the reader's rights were checked.
        unchecked: How many kinds and namespaces were not checked, and are not shown.
        is_granted: Whether the reader may list at least one kind that is asked for, even if it has no object.
    """

    view: ClusterView
    asked: Asked
    groups: Sequence[ObjectGroup]
    named: Sequence[JournalEvent]
    counted: Sequence[JournalEvent]
    status: bool = True
    is_restricted: bool = False
    unchecked: int = 0
    is_granted: bool = True


class _Named(Protocol):
    @property
    def ref(self) -> ObjectRef: ...


async def show_view(view: ClusterView, asked: Asked, find_grant: FindGrant | None) -> ShownView:
    """Leave out what a reader does not ask for or may not list.

    Args:
        view: The view.
        asked: What the reader asks for.
        find_grant: Finds out what the reader may list; None if the view was read with the reader's own rights.

    Raises:
        TtlError: The rights cannot be checked.
    """
    groups = sorted(filter(asked.wants, view.groups), key=lambda one: -one.row.total)
    placed = _places_of_deletions(view, asked)
    named, counted = (
        [one for one in found if _key(one) in placed] for found in (view.deletions.named, view.deletions.counted)
    )
    if find_grant is None:
        return ShownView(view, asked, groups, named, counted)
    places = [*(one.place for one in groups), *filter(None, placed.values()), *_empty_places(view, asked)]
    grant = await find_grant(list(dict.fromkeys(places)))
    return ShownView(
        view,
        asked,
        [one for one in groups if one.place in grant.places],
        [one for one in named if placed[_key(one)] in grant.places],
        [one for one in counted if placed[_key(one)] in grant.places],
        status=grant.status,
        is_restricted=True,
        unchecked=grant.unchecked,
        is_granted=bool(grant.places),
    )


def _empty_places(view: ClusterView, asked: Asked) -> Iterator[KindPlace]:
    """Yield the kinds of the cluster in the namespace that is asked for.

    They are checked also without an object. So a reader without rights cannot find out whether there are objects.
    """
    for one in view.groups if asked.namespace else ():
        if one.place.namespace and (not asked.kind or one.rule.has_name(asked.kind)):
            yield replace(one.place, namespace=asked.namespace)


_Key = tuple[str, str, str]


def _key(one: _Named) -> _Key:
    return one.ref.group, one.ref.kind, one.ref.namespace


def _places_of_deletions(view: ClusterView, asked: Asked) -> Mapping[_Key, KindPlace | None]:
    """Return the place of each kind and namespace of a deletion that is asked for; None for a kind without a rule."""
    keys = dict.fromkeys(map(_key, (*view.deletions.named, *view.deletions.counted)))
    plurals = _plurals(view.force.kinds)
    wanted = {key: plurals.get(key[:2]) for key in keys if asked.namespace in ("", key[2])}
    return {
        key: KindPlace(key[0], plural, key[2]) if plural else None
        for key, plural in wanted.items()
        if not asked.kind or asked.kind.lower() in (key[1].lower(), plural, f"{plural}.{key[0]}")
    }


def _plurals(kinds: Catalogue) -> Mapping[tuple[str, str], str]:
    return _USAGE | {(rule.group, rule.kind): rule.plural for rule in kinds.rules}


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
