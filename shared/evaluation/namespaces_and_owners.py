"""Read the namespaces and the controller owners of objects.

A namespace is cached for a moment. An owner that has not finished may keep its dependents; it is read in the version in
which the cluster serves its kind.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from shared.core.decision.facts import Context
from shared.core.decision.finish import finish_of
from shared.core.decision.namespaces import NAMESPACES, Namespace, namespace_of, plain_namespace
from shared.core.kinds.rule import Catalogue, KindRule
from shared.core.values.objects import ObjectRef, get_controller
from shared.errors import AbsentKindError, PermanentError
from shared.ports import Cluster, Snapshot, Telemetry, loop_now

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
            now = loop_now()
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
            now, names = loop_now(), set[str]()
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
        return known if known is not None and loop_now() - known[0] < NAMESPACE_AGE_SECONDS_MAX else None

    async def _read(self, name: str) -> _Known:
        asked_at = loop_now()
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


def _characters(known: _Known | None) -> int:
    return known[1].characters if known is not None and isinstance(known[1], Namespace) else 0


async def list_served(kinds: Catalogue, *, cluster: Cluster, namespace: str = "") -> tuple[KindRule, ...]:
    """List the rules of the kinds that the cluster serves; with a namespace, only those of namespaced kinds.

    Raises:
        TryLaterError: Discovery fails for all of the kinds now.
        PermanentError: The API server refuses discovery.
    """
    served = await cluster.served(kinds.rules)
    return tuple(rule for rule in served if rule.scope == "Namespaced" or not namespace)


def list_unserved(words: Sequence[str], served: Sequence[KindRule]) -> list[str]:
    """List the words that name no served kind."""
    return [word for word in words if not any(rule.has_name(word) for rule in served)]


async def find_served(group: str, kind: str, *, cluster: Cluster, kinds: Catalogue) -> KindRule:
    """Find the rule of a kind, with the version that the cluster serves.

    Args:
        group: The API group; empty for the core group.
        kind: A kind that has a rule.
        cluster: The cluster that serves it.
        kinds: The known kinds.

    Raises:
        AbsentKindError: The cluster does not serve the kind.
        TryLaterError: Discovery fails now.
    """
    rules = kinds.of(group, kind)
    for rule in await cluster.served(rules):
        return rule
    names = ", ".join(dict.fromkeys(rule.name for rule in rules))
    raise AbsentKindError(f"this cluster does not serve {names or kind} in a known version")


@dataclass(frozen=True, slots=True)
class FoundOwner:
    """An owner as it was read.

    Attributes:
        ref: The owner; without a namespace if its kind is cluster-scoped.
        rule: The rule of its kind.
        snapshot: The object; None if it no longer exists.
    """

    ref: ObjectRef
    rule: KindRule
    snapshot: Snapshot | None


@dataclass(frozen=True, slots=True)
class Owners:
    """Reads owners from the API server.

    Attributes:
        kinds: All known kinds, enabled or not.
    """

    cluster: Cluster
    kinds: Catalogue

    async def find_unfinished(self, owner: ObjectRef) -> bool | None:
        """Return whether the owner counts as unfinished, so that it keeps its dependents; None if it may not be read.

        An owner that is gone does not keep its dependents; the garbage collector is about to delete them. An owner of a
        kind that is unknown or not served counts as unfinished.

        Raises:
            TryLaterError: The API server is busy or away.
        """
        by_kind = is_unfinished_by_kind(owner, self.kinds)
        if by_kind is not None:
            return by_kind
        try:
            found = await self.find(owner)
        except AbsentKindError:
            return True
        except PermanentError:
            return None
        if found.snapshot is None:
            return False
        return found.rule.keeps_dependents(is_finished=finish_of(found.snapshot.obj, found.rule).finished)

    async def find(self, owner: ObjectRef) -> FoundOwner:
        """Read an owner of a known kind; another object that has its name now is not the owner.

        Raises:
            TryLaterError: The API server is busy or away.
            PermanentError: The owner may not be read, or its kind is not served.
        """
        rule = await find_served(owner.group, owner.kind, cluster=self.cluster, kinds=self.kinds)
        ref = replace(owner, namespace="") if rule.scope == "Cluster" else owner
        snapshot = await self.cluster.get(rule, ref)
        is_gone = snapshot is None or snapshot.ref.uid != ref.uid
        return FoundOwner(ref, rule, None if is_gone else snapshot)


def with_owner(context: Context, obj: Any, rule: KindRule, kinds: Catalogue) -> Context:
    """Add what the kind of the controller owner of an object shows, without a read.

    An owner whose rule has `replacesFinished` does not keep a finished object. It does not matter whether that owner
    exists: if it is gone, it does not keep the object either.

    Args:
        context: The facts that are known.
        obj: The object.
        rule: The object's kind.
        kinds: All known kinds, enabled or not.
    """
    owner = get_controller(obj)
    if owner is None:
        return replace(context, owner_unfinished=False, owner_unknown=False)
    is_replaced = _replaces_finished(owner, rule, kinds) and finish_of(obj, rule).finished is True
    return replace(
        context,
        owner_unfinished=False if is_replaced else is_unfinished_by_kind(owner, kinds),
        owner_unknown=not kinds.of(owner.group, owner.kind),
    )


def _replaces_finished(owner: ObjectRef, rule: KindRule, kinds: Catalogue) -> bool:
    """Return whether an owner replaces finished objects of a kind, by each rule of the owner's group and kind."""
    rules = kinds.of(owner.group, owner.kind)
    return bool(rules) and all(rule.name in one.replaces_finished for one in rules)


def is_unfinished_by_kind(owner: ObjectRef, kinds: Catalogue) -> bool | None:
    """Return whether an owner counts as unfinished by its kind alone; None if it has to be read.

    An owner of an unknown kind is unfinished. A CronJob never finishes, but its kind rule has `dependents: free`, so it
    does not keep its dependents.
    """
    rules = kinds.of(owner.group, owner.kind)
    if any(rule.dependents == "free" for rule in rules):
        return False
    return True if all(rule.never_finishes for rule in rules) else None
