"""Read the ranks for keepLast: the objects of a group are listed, and counted by `shared.core.ranks`."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from shared.core.evaluate import evaluate
from shared.core.facts import Context
from shared.core.kinds.rule import KindRule
from shared.core.objects import ref_of
from shared.core.policy.policy import Policy
from shared.core.ranks import RankedObject, RankGroups, find_ranked, is_kept
from shared.ports import Cluster

RANK_AGE_SECONDS_MAX = 5.0
"""How old the LIST for a rank may be."""

FALLEN_MAX = 20
"""The most timers that one evaluation sets for objects that `keepLast` no longer keeps. The sweep deletes the rest."""

LISTS_MAX = 100
"""LISTs in the cache."""

_Key = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Rank:
    """The rank of one object in its group.

    Attributes:
        newer: How many objects of the group finished later.
        fallen: If the rule keeps this object: the objects that it no longer keeps, the newest first.
    """

    newer: int
    fallen: Sequence[RankedObject] = ()


@dataclass(slots=True)
class _Listed:
    at: float
    policy: Policy
    by_uid: dict[str, RankedObject] = field(default_factory=dict)
    groups: RankGroups = field(default_factory=RankGroups)

    def rank(self, ranked: RankedObject) -> Rank:
        """The rank of an object; the LIST may show it in an earlier state, or not at all."""
        newer = self.groups.count_newer(ranked, listed=self.by_uid.get(ranked.ref.uid))
        if not is_kept(newer, ranked.kept):
            return Rank(newer)
        fallen = (self.by_uid[uid] for uid in self.groups.list_fallen(ranked))
        return Rank(newer, tuple(islice((one for one in fallen if one.due_at is not None), FALLEN_MAX)))


@dataclass
class Ranks:
    """Counts objects by LISTs of one kind in one namespace, at most five seconds old and shared by all callers."""

    cluster: Cluster
    _lists: dict[_Key, _Listed] = field(default_factory=dict)
    _listing: dict[_Key, asyncio.Lock] = field(default_factory=dict)

    async def rank(self, obj: Any, rule: KindRule, context: Context) -> Rank:
        """Return the rank of a finished object among those that its policy rule counts.

        Args:
            obj: The object.
            rule: The object's kind.
            context: The policy and the namespace.

        Raises:
            TryLaterError: The API server is busy or away.
            PermanentError: The API server refuses to list.
        """
        ranked = _find_ranked(obj, rule, context)
        return Rank(0) if ranked is None else (await self._listed(ranked, rule, context)).rank(ranked)

    async def _listed(self, ranked: RankedObject, rule: KindRule, context: Context) -> _Listed:
        """The LIST of the object's namespace; a LIST that does not show how the object finished is too old."""
        key = rule.api_version, rule.kind, ranked.ref.namespace
        asked_at = asyncio.get_running_loop().time()
        async with self._listing.setdefault(key, asyncio.Lock()):
            listed, now = self._lists.get(key), asyncio.get_running_loop().time()
            # A LIST that began after this call counts, however long it took.
            is_fresh = (
                listed is not None
                and listed.policy is context.policy
                and (now - listed.at < RANK_AGE_SECONDS_MAX or listed.at >= asked_at)
            )
            known = listed.by_uid.get(ranked.ref.uid) if listed is not None else None
            if listed is None or not is_fresh or known is None or known.place != ranked.place:
                listed = await self._list(_Listed(now, context.policy), ranked.ref.namespace, rule, context)
                self._remember(key, listed)
        return listed

    def _remember(self, key: _Key, listed: _Listed) -> None:
        if len(self._lists) >= LISTS_MAX:
            self._lists.clear()
            self._listing = {key: lock for key, lock in self._listing.items() if lock.locked()}
        self._lists[key] = listed

    async def _list(self, listed: _Listed, namespace: str, rule: KindRule, context: Context) -> _Listed:
        token = ""
        while True:
            page = await self.cluster.list_page(rule, namespace=namespace, continue_token=token)
            for obj in page.items:
                if ranked := _find_ranked(obj, rule, context):
                    listed.by_uid[ranked.ref.uid] = ranked
                    listed.groups.add(ranked)
            token = page.continue_token
            if not token:
                listed.groups.sort()
                return listed


def _find_ranked(obj: Any, rule: KindRule, context: Context) -> RankedObject | None:
    """How a policy rule counts an object, whatever its owner is."""
    reason, facts = evaluate(obj, rule, replace(context, owner_unfinished=False, newer=None))
    return find_ranked(ref_of(obj), reason, facts)
