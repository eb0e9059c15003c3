"""Read what limits by count and by quota need: the ranks of objects in their groups, and the ResourceQuotas.

The objects of a group are listed, and counted by `shared.core.decision.ranks`. The quotas of a namespace are cached for
a moment.
"""

import asyncio
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, get_args

from shared.core.decision.capacity import (
    BEYOND_COUNT,
    FULL_PRESSURE,
    NO_PRESSURE,
    RESOURCE_QUOTAS,
    WITHIN_COUNT,
    Counted,
    QuotaPressure,
    QuotaUsage,
    usages_of,
)
from shared.core.decision.evaluate import evaluate
from shared.core.decision.facts import Context, Fact, Reason
from shared.core.decision.ranks import (
    Leaving,
    RankedBy,
    RankedObject,
    RankGroup,
    RankGroups,
    find_counted,
    find_pressed,
    find_ranked,
    is_kept,
)
from shared.core.kinds.rule import Catalogue, KindRule
from shared.core.policy.policy import Policy
from shared.core.values.objects import get_controller, get_in, ref_of
from shared.errors import PermanentError
from shared.evaluation.namespaces_and_owners import Owners, with_owner
from shared.evaluation.ttl_sources import TtlSources
from shared.ports import Cluster, Telemetry, loop_now

QUOTA_AGE_SECONDS_MAX = 2.0
"""How old the LIST of quotas may be. An old usage deletes no more objects, since a LIST of the objects counts, too."""

QUOTA_LISTS_MAX = 1_000
"""Namespaces in the cache."""

KnownQuotas = Sequence[QuotaUsage] | PermanentError
"""The quotas of a namespace, or why they could not be listed."""


@dataclass(frozen=True, slots=True)
class _Known:
    """The quotas of a namespace.

    Attributes:
        at: When the LIST began, in seconds of the loop's clock.
        read_at: The same by the API server's clock, in whole seconds; None after a refusal.
        quotas: The ResourceQuotas, or the refusal.
    """

    at: float
    read_at: datetime | None
    quotas: Sequence[Any] | PermanentError


@dataclass
class Quotas:
    """The ResourceQuotas of a cluster.

    Attributes:
        telemetry: Receives a problem if quotas may not be listed.
    """

    cluster: Cluster
    telemetry: Telemetry | None = None
    _known: dict[str, _Known] = field(default_factory=dict)
    _reading: dict[str, asyncio.Lock] = field(default_factory=dict)
    _was_refused: bool = False

    async def of(self, namespace: str, rule: KindRule, *, after: datetime | None = None) -> tuple[QuotaUsage, ...]:
        """Return the usage of each quota of a namespace that limits the number of objects of a kind.

        Args:
            namespace: The namespace; empty for a cluster-scoped object, which no quota counts.
            rule: The kind.
            after: The finish time of the object. Quotas that were read before may not count the object.

        Raises:
            TryLaterError: The API server is busy or away.
            PermanentError: The right to list quotas is missing.
        """
        if not namespace:
            return ()
        asked_at = loop_now()
        known = self._cached(namespace, after, asked_at)
        if known is None:
            # Other callers wait for the same LIST.
            try:
                async with self._reading.setdefault(namespace, asyncio.Lock()):
                    known = self._cached(namespace, after, asked_at) or await self._read(namespace)
            finally:
                self._reading.pop(namespace, None)
        if isinstance(known.quotas, PermanentError):
            raise known.quotas
        return usages_of(known.quotas, rule)

    async def find(self, namespace: str, rule: KindRule) -> KnownQuotas:
        """Return the same, or the refusal.

        Raises:
            TryLaterError: The API server is busy or away.
        """
        try:
            return await self.of(namespace, rule)
        except PermanentError as error:
            return error

    def _cached(self, namespace: str, after: datetime | None, asked_at: float) -> _Known | None:
        """The cached quotas if they are fresh; a LIST that began after the call counts, however long it took."""
        known = self._known.get(namespace)
        if known is None or known.at >= asked_at:
            return known
        is_after = after is None or known.read_at is None or known.read_at > after
        return known if is_after and asked_at - known.at < QUOTA_AGE_SECONDS_MAX else None

    async def _read(self, namespace: str) -> _Known:
        began_at = loop_now()
        try:
            known = await self._list(namespace, began_at)
        except PermanentError as error:
            self._report(error)
            known = _Known(began_at, None, error)
        if len(self._known) >= QUOTA_LISTS_MAX:
            self._known.clear()
        self._known[namespace] = known
        return known

    async def _list(self, namespace: str, began_at: float) -> _Known:
        found: list[dict[str, Any]] = []
        page = await self.cluster.list_page(RESOURCE_QUOTAS, namespace=namespace)
        read_at = page.read_at
        while True:
            found += page.items
            if not page.continue_token:
                return _Known(began_at, read_at, found)
            token = page.continue_token
            page = await self.cluster.list_page(RESOURCE_QUOTAS, namespace=namespace, continue_token=token)

    def _report(self, error: PermanentError) -> None:
        """Report a refusal once; the verdict of every object has the problem, too."""
        if self.telemetry is not None and not self._was_refused:
            self.telemetry.problem("quotas may not be listed: objects keep their normal TTL", error=str(error))
        self._was_refused = True


def _rank_all(obj: Any, rule: KindRule, context: Context, kinds: Catalogue) -> Iterator[RankedObject]:
    """Yield how the object is counted for each field of a policy rule that counts it."""
    for by in _fields(context, rule):
        if ranked := _rank_by(by, obj, rule, context, kinds):
            yield ranked


def _fields(context: Context, rule: KindRule) -> Iterator[RankedBy]:
    """The fields that the rules of a kind have."""
    rules = [one.rule for one in context.policy.candidates(rule)]
    for by in get_args(RankedBy):
        match by:
            case "keepLast" if any(one.counts for one in rules):
                yield by
            case "maxCount" if any(one.max_count is not None for one in rules):
                yield by
            case "whenQuotaAbove" if any(one.when_quota_above is not None for one in rules):
                yield by


def _rank_by(by: RankedBy, obj: Any, rule: KindRule, context: Context, kinds: Catalogue) -> RankedObject | None:
    """How the object is counted for one field of a policy rule; None if it is not.

    It is evaluated as if its owner had finished, and whatever its rank turns out to be.
    """
    ref, known = ref_of(obj), replace(context, owner_unfinished=False, counted=WITHIN_COUNT, pressure=NO_PRESSURE)
    if by == "keepLast":
        return find_ranked(ref, *evaluate(obj, rule, replace(known, newer=None)))
    known = replace(known, aggregated=False, newer=sys.maxsize)
    if by == "maxCount":
        return find_counted(ref, *evaluate(obj, rule, replace(known, counted=BEYOND_COUNT)))
    known = replace(known, pressure=FULL_PRESSURE)
    owner, of_owner = None, with_owner(known, obj, rule, kinds)
    if of_owner.owner_unfinished is not False:
        reason, facts = evaluate(obj, rule, replace(of_owner, owner_unfinished=None))
        is_needed = reason is Reason.OWNER_UNREAD or Fact.OWNER in facts.unread
        owner = get_controller(obj) if is_needed else None
    return find_pressed(ref, *evaluate(obj, rule, known), owner=owner)


RANK_AGE_SECONDS_MAX = 5.0
"""How old the LIST for a rank may be."""

PRESSED_AGE_SECONDS_MAX = 1.0
"""The same for a quota: which objects have to go depends on how many are left."""

FALLEN_MAX = 20
"""The most timers that one evaluation sets for other objects of a group. The sweep deletes the rest."""

LISTS_MAX = 100
"""LISTs in the cache."""

_Key = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Rank:
    """The rank of one object in its group.

    Attributes:
        newer: How many objects of the group finished later.
        fallen: If the rule keeps this object: the objects that it no longer keeps; for keepLast the newest first, for
            maxCount the oldest.
        counted: The place of the object, for maxCount.
    """

    newer: int
    fallen: Sequence[RankedObject] = ()
    counted: Counted = WITHIN_COUNT


@dataclass(slots=True)
class _Listed:
    at: float
    policy: Policy
    live: int = 0
    by_uid: dict[tuple[RankedBy, str], RankedObject] = field(default_factory=dict)
    groups: RankGroups = field(default_factory=RankGroups)
    leaving: dict[tuple[RankGroup, Sequence[QuotaUsage]], Leaving] = field(default_factory=dict)

    def get(self, ranked: RankedObject) -> RankedObject | None:
        """How the LIST shows an object; None if it shows no such object."""
        return self.by_uid.get((ranked.group[0], ranked.ref.uid))

    def rank(self, ranked: RankedObject) -> Rank:
        """The rank of an object; the LIST may show it in an earlier state, or not at all."""
        newer = self.groups.count_newer(ranked, listed=self.get(ranked))
        counted = self.groups.count(ranked, listed=self.get(ranked))
        if not is_kept(newer, ranked.kept):
            return Rank(newer, counted=counted)
        found = (self.by_uid[ranked.group[0], uid] for uid in self.groups.list_fallen(ranked))
        fallen = [one for one in found if one.due_at is not None]
        if ranked.group[0] == "maxCount":
            fallen.reverse()
        return Rank(newer, fallen[:FALLEN_MAX], counted)

    def pressed(self, group: RankGroup) -> Iterator[RankedObject]:
        """The objects of a group that may go because of a quota, the oldest first; keepLast keeps none of them."""
        found = [one for one in self.by_uid.values() if one.group == group]
        for one in sorted(found, key=lambda one: one.place):
            ranked = self.by_uid.get(("keepLast", one.ref.uid))
            if ranked is None or not is_kept(self.groups.count_newer(ranked), ranked.kept):
                yield one


@dataclass
class Ranks:
    """Counts objects by LISTs of one kind in one namespace, at most five seconds old and shared by all callers."""

    cluster: Cluster
    owners: Owners
    ttl_sources: TtlSources
    _lists: dict[_Key, _Listed] = field(default_factory=dict)
    _listing: dict[_Key, asyncio.Lock] = field(default_factory=dict)

    async def rank(self, obj: Any, rule: KindRule, context: Context, by: RankedBy = "keepLast") -> Rank:
        """Return the rank of a finished object among those that its policy rule counts.

        Args:
            obj: The object.
            rule: The object's kind.
            context: The policy and the namespace.
            by: The field of the policy rule.

        Raises:
            TryLaterError: The API server is busy or away.
            PermanentError: The API server refuses to list.
        """
        ranked = _rank_by(by, obj, rule, await self._known(obj, rule, context), self.owners.kinds)
        return Rank(0) if ranked is None else (await self._listed(ranked, rule, context)).rank(ranked)

    async def press(
        self, obj: Any, rule: KindRule, context: Context, pressure: QuotaPressure
    ) -> tuple[QuotaPressure, Sequence[RankedObject]]:
        """Find out whether an object has to go because of a quota.

        The owner of an object is read only if the object is one of the oldest, and its owner may keep it.

        Args:
            obj: The object.
            rule: The object's kind.
            context: The policy and the namespace.
            pressure: The quotas.

        Returns:
            The pressure with the rank of the object; and the other objects that have to go and can, if it has not.

        Raises:
            TryLaterError: The API server is busy or away.
            PermanentError: The API server refuses to list.
        """
        ranked = _rank_by("whenQuotaAbove", obj, rule, await self._known(obj, rule, context), self.owners.kinds)
        if ranked is None or not pressure.excess(ranked.percent):
            return pressure, ()
        listed = await self._listed(ranked, rule, context, PRESSED_AGE_SECONDS_MAX)
        pressure = QuotaPressure(pressure.quotas, None, listed.live, pressure.read_at)
        leaving = await self._leaving(listed, ranked.group, pressure)
        # Not the object itself: if its owner keeps it since a moment ago, its own timer would fire at once, and again.
        others = [one for one in leaving.going if one.ref.uid != ranked.ref.uid]
        if await self._is_known_to_be_kept(ranked) is not False:
            return pressure, others
        pressure = replace(pressure, older=leaving.count_older(ranked))
        # An object that has to go sets no timers for the others: if they wait, each would wake up the other.
        return pressure, () if pressure.is_over(ranked.percent) else others

    async def _leaving(self, listed: _Listed, group: RankGroup, pressure: QuotaPressure) -> Leaving:
        """The oldest objects of a group, as many as have to go."""
        known = listed.leaving.get((group, pressure.quotas))
        if known is None:
            known = Leaving(pressure)
            for one in listed.pressed(group):
                if not known.must_include(one):
                    continue
                is_kept_by_owner = await self._is_known_to_be_kept(one)
                known.objects += [one] if is_kept_by_owner is not True else []
                known.going += [one] if is_kept_by_owner is False else []
            listed.leaving[group, pressure.quotas] = known
        return known

    async def _is_known_to_be_kept(self, ranked: RankedObject) -> bool | None:
        """Return whether an owner keeps an object, so that a younger one has to go instead; None if that is unknown.

        While it is unknown, the object itself stays, and no other one goes in its place.
        """
        return ranked.owner is not None and await self.owners.find_unfinished(ranked.owner)

    async def _listed(
        self, ranked: RankedObject, rule: KindRule, context: Context, age_max: float = RANK_AGE_SECONDS_MAX
    ) -> _Listed:
        """The LIST of the object's namespace; a LIST that does not show how the object finished is too old."""
        key = rule.api_version, rule.kind, ranked.ref.namespace
        asked_at = loop_now()
        async with self._listing.setdefault(key, asyncio.Lock()):
            listed, now = self._lists.get(key), loop_now()
            # A LIST that began after this call counts, however long it took.
            is_fresh = (
                listed is not None
                and listed.policy is context.policy
                and (now - listed.at < age_max or listed.at >= asked_at)
            )
            known = listed.get(ranked) if listed is not None else None
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
                listed.live += get_in(obj, "metadata.deletionTimestamp") is None
                for ranked in _rank_all(obj, rule, await self._known(obj, rule, context), self.owners.kinds):
                    listed.by_uid[ranked.group[0], ranked.ref.uid] = ranked
                    listed.groups.add(ranked)
            token = page.continue_token
            if not token:
                listed.groups.sort()
                return listed

    async def _known(self, obj: Any, rule: KindRule, context: Context) -> Context:
        """The context with the TTL that the object inherits, if it inherits one and that can be read."""
        if rule.ttl is None or rule.ttl.inherited is None:
            return context
        reason, _ = evaluate(obj, rule, replace(context, owner_unfinished=False, newer=None))
        if reason is Reason.INHERITED_UNREAD:
            with suppress(PermanentError):
                return replace(context, inherited=await self.ttl_sources.get(obj, rule))
        return context
