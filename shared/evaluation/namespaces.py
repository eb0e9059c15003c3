"""Read the namespaces of objects when they are needed, and cache them for a moment."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from shared.core.decision.namespaces import NAMESPACES, Namespace, namespace_of, plain_namespace
from shared.errors import PermanentError
from shared.ports import Cluster, Telemetry

NAMESPACE_AGE_SECONDS_MAX = 3.5
"""How old a cached namespace may be: in a namespace that has just been exempted, due objects may still be deleted.

Then `LEAVE_SECONDS_MAX` limits how long the DELETE may take to be sent.
"""

REMEMBERED_MAX = 20_000
"""Namespaces in the cache; beyond that, which no cluster reaches, the cache is cleared."""

CHARACTERS_MAX = 32 * 1024 * 1024
"""Characters of all cached labels and annotations; beyond that the cache is cleared."""

_Known = tuple[float, Namespace | PermanentError]


@dataclass
class Namespaces:
    """The namespaces of a cluster.

    Attributes:
        telemetry: Receives a problem if a namespace may not be read.
        only: The only namespace of this process; empty for all.
    """

    cluster: Cluster
    telemetry: Telemetry | None = None
    only: str = ""
    _known: dict[str, _Known] = field(default_factory=dict)
    _reading: dict[str, asyncio.Lock] = field(default_factory=dict)
    _characters: int = 0
    _listing: asyncio.Lock = field(default_factory=asyncio.Lock)
    _listed_at: float | None = None
    _was_refused: bool = False

    async def get(self, name: str) -> Namespace:
        """Return a namespace as it was at most `NAMESPACE_AGE_SECONDS_MAX` ago.

        Raises:
            TryLaterError: The API server is busy or away.
            PermanentError: The right to read it is missing, or there is none of this name.
        """
        known = self._cached(name)
        if known is None:
            # Other callers wait for the same read.
            try:
                async with self._reading.setdefault(name, asyncio.Lock()):
                    known = self._cached(name) or await self._read(name)
            finally:
                self._reading.pop(name, None)
        if isinstance(known[1], PermanentError):
            raise known[1]
        return known[1]

    def get_cached(self, name: str) -> Namespace | None:
        """Return a namespace if it is cached; None if it has to be read."""
        known = self._cached(name)
        return known[1] if known is not None and isinstance(known[1], Namespace) else None

    async def prime(self) -> None:
        """Cache all namespaces by one LIST, unless a LIST is recent; call it before many reads.

        If the LIST is refused, each namespace is read alone.

        Raises:
            TryLaterError: The API server is busy or away.
        """
        async with self._listing:
            now = _now()
            if self.only or (self._listed_at is not None and now - self._listed_at < NAMESPACE_AGE_SECONDS_MAX / 2):
                return
            try:
                async for one in self._list():
                    self._remember(one.ref.name, (now, one))
            except PermanentError as error:
                self._report(error)
            self._listed_at = now

    async def find_names(self, is_wanted: Callable[[Namespace], bool]) -> frozenset[str]:
        """Return the names of the namespaces that pass a test, by one LIST of all; it caches them.

        A namespace that cannot be read is left out.

        Raises:
            TryLaterError: The API server is busy or away.
            PermanentError: The LIST is refused, or the read of the only namespace.
        """
        if self.only:
            one = await self.get(self.only)
            return frozenset([self.only] if is_wanted(one) else [])
        async with self._listing:
            now, names = _now(), set[str]()
            async for one in self._list():
                self._remember(one.ref.name, (now, one))
                if is_wanted(one):
                    names.add(one.ref.name)
            self._listed_at = now
        return frozenset(names)

    async def _list(self) -> AsyncIterator[Namespace]:
        """List all namespaces; an unreadable one is left out, so that a read of it alone reports the error."""
        token = ""
        while True:
            page = await self.cluster.list_page(NAMESPACES, continue_token=token, metadata_only=True)
            for one in page.items:
                yield namespace_of(one)
            token = page.continue_token
            del page  # free the memory before the next page is parsed
            if not token:
                return

    def _cached(self, name: str) -> _Known | None:
        known = self._known.get(name)
        return known if known is not None and _now() - known[0] < NAMESPACE_AGE_SECONDS_MAX else None

    async def _read(self, name: str) -> _Known:
        asked_at = _now()
        found: Namespace | PermanentError
        try:
            snapshot = await self.cluster.get(NAMESPACES, plain_namespace(name).ref)
            found = namespace_of(snapshot.obj) if snapshot else PermanentError(f"there is no namespace {name}")
        except PermanentError as error:
            self._report(error)
            found = error
        self._remember(name, (asked_at, found))
        return asked_at, found

    def _remember(self, name: str, known: _Known) -> None:
        """Cache a namespace in place of its earlier state."""
        self._characters += _characters(known) - _characters(self._known.pop(name, None))
        if len(self._known) >= REMEMBERED_MAX or self._characters > CHARACTERS_MAX:
            self._known.clear()
            self._characters = _characters(known)
        self._known[name] = known

    def _report(self, error: PermanentError) -> None:
        """Report a refusal once; the verdict of every object in the namespace has the reason, too."""
        if self.telemetry is not None and not self._was_refused:
            self.telemetry.problem("namespaces may not be read: their objects are kept", error=str(error))
        self._was_refused = True


def _now() -> float:
    return asyncio.get_running_loop().time()


def _characters(known: _Known | None) -> int:
    return known[1].characters if known is not None and isinstance(known[1], Namespace) else 0
