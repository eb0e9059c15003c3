"""Read the ResourceQuotas of namespaces when they are needed, and cache them for a moment."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from shared.core.decision.capacity import RESOURCE_QUOTAS, QuotaUsage, usages_of
from shared.core.kinds.rule import KindRule
from shared.errors import PermanentError
from shared.ports import Cluster, Telemetry

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
        asked_at = _now()
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
        began_at = _now()
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


def _now() -> float:
    return asyncio.get_running_loop().time()
