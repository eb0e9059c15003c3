"""Read the objects from which other objects inherit their TTL, and cache what they set for a moment.

If such an object cannot be read or does not exist, the objects that refer to it are kept: it may set, or may have set,
a TTL that is longer than that of a policy or a namespace. So a missing right or a wrong reference can only delete too
late.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from shared.core.kinds.rule import Catalogue, KindRule
from shared.core.kinds.ttl_and_deadline import InheritedTtl, NativeTtl, TtlSourceKind
from shared.core.ttl.ttl import InheritedFact, find_ttl_source, read_ttl_of_source
from shared.core.values.objects import ObjectRef, quote, ref_of
from shared.errors import PermanentError
from shared.evaluation.namespaces_and_owners import find_served
from shared.ports import Cluster, Telemetry, loop_now

INHERITED_AGE_SECONDS_MAX = 5.0
"""How old the read of an object may be from which others inherit their TTL."""

SOURCES_MAX = 10_000
"""Objects in the cache; beyond that the cache is cleared."""

_Key = tuple[str, ObjectRef]
_Known = tuple[float, InheritedFact | PermanentError]


@dataclass
class TtlSources:
    """Reads the objects from which other objects inherit their TTL.

    Attributes:
        telemetry: Receives a problem if such an object may not be read.
    """

    cluster: Cluster
    telemetry: Telemetry | None = None
    _known: dict[_Key, _Known] = field(default_factory=dict)
    _reading: dict[_Key, asyncio.Lock] = field(default_factory=dict)
    _was_refused: bool = False

    async def get(self, obj: Any, rule: KindRule) -> InheritedFact:
        """Return what an object inherits, as it was at most `INHERITED_AGE_SECONDS_MAX` ago.

        Args:
            obj: The object, which refers to another one.
            rule: The rule of its kind.

        Raises:
            TryLaterError: The API server is busy or away.
            PermanentError: The other object may not be read, or the cluster does not serve its kind.
        """
        source = find_ttl_source(obj, rule.ttl)
        if source is None or rule.ttl is None or rule.ttl.inherited is None:
            raise PermanentError("it refers to no object")
        key = rule.name, source
        known = self._cached(key)
        if known is None:
            # Other callers wait for the same read.
            try:
                async with self._reading.setdefault(key, asyncio.Lock()):
                    known = self._cached(key) or await self._read(key, rule.ttl, rule.ttl.inherited)
            finally:
                self._reading.pop(key, None)
        if isinstance(known[1], PermanentError):
            raise known[1]
        return known[1]

    def _cached(self, key: _Key) -> _Known | None:
        known = self._known.get(key)
        return known if known is not None and loop_now() - known[0] < INHERITED_AGE_SECONDS_MAX else None

    async def _read(self, key: _Key, ttl: NativeTtl, inherited: InheritedTtl) -> _Known:
        asked_at, source = loop_now(), key[1]
        found: InheritedFact | PermanentError
        try:
            obj = await self._find(source, inherited)
            problem = f"{inherited.ref}: {source} does not exist"
            found = read_ttl_of_source(source, obj, ttl) if obj else InheritedFact(source, problem=problem)
        except ValueError as error:
            found = InheritedFact(source, problem=f"{inherited.ref}: {error}")
        except PermanentError as error:
            self._report(error)
            found = error
        if len(self._known) >= SOURCES_MAX:
            self._known.clear()
        self._known[key] = asked_at, found
        return asked_at, found

    async def _find(self, source: ObjectRef, inherited: InheritedTtl) -> dict[str, Any] | None:
        """Read an object; None if there is none.

        Raises:
            ValueError: The reference names no object, or a kind that the rule does not know.
        """
        kind = inherited.find_kind(source.group, source.kind)
        if kind is None or not source.name:
            expected = " or ".join(f"{one.kind} of {one.group}" for one in inherited.kinds)
            raise ValueError(f"expected the name of a {expected}, got {_describe(source)}")
        rule = await find_served(source.group, source.kind, cluster=self.cluster, kinds=_catalogue_of(kind))
        snapshot = await self.cluster.get(rule, source)
        return snapshot.obj if snapshot else None

    def _report(self, error: PermanentError) -> None:
        """Report a refusal once; the verdict of every object that inherits has the reason, too."""
        if self.telemetry is not None and not self._was_refused:
            self.telemetry.problem("an inherited TTL cannot be read: objects are kept", error=str(error))
        self._was_refused = True


async def find_among(documents: Sequence[Any], obj: Any, rule: KindRule) -> InheritedFact:
    """Return what an object inherits from one of the objects of a file.

    Args:
        documents: The objects of the file.
        obj: The object, which refers to another one.
        rule: The rule of its kind.

    Raises:
        PermanentError: The other object is not in the file.
    """
    source = find_ttl_source(obj, rule.ttl)
    found = next((one for one in documents if source is not None and source.is_named(ref_of(one))), None)
    if source is None or rule.ttl is None or found is None:
        raise PermanentError(f"{source}, from which it may inherit its TTL, is not in this file")
    return read_ttl_of_source(source, found, rule.ttl)


@lru_cache(maxsize=64)
def _catalogue_of(kind: TtlSourceKind) -> Catalogue:
    """The kind alone, with a rule by which it can be read."""
    rule = KindRule(
        api_versions=kind.api_versions,
        kind=kind.kind,
        plural=kind.plural,
        scope=kind.scope,
        never_finishes="it sets the TTL of other objects",
    )
    return Catalogue((rule,))


def _describe(source: ObjectRef) -> str:
    return f"{source.kind or 'no kind'} {source.name or 'without a name'} of group {quote(source.group)}"
