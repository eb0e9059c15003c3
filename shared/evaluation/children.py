"""Find the children of an object: what its controller created for it, found by owner references.

The kind rule names the kinds of children; a caller may name more. Kubernetes cannot select by owner, so each kind is
listed in the namespace of the object, with metadata only. The number of LISTs depends on the kind rule and the policy,
and not on what users write into owner references. Only the children themselves are then read in full.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import lru_cache, partial

from shared.core.kinds.rule import Catalogue, ChildKind, KindRule
from shared.core.values.objects import ObjectRef, get_text, ref_of
from shared.errors import AbsentKindError, ForbiddenError, PermanentError, TryLaterError
from shared.evaluation.owned_lists import Name, Owned, OwnedLists, list_pages
from shared.ports import Cluster, Snapshot, Unreadable

CHILDREN_MAX = 20_000
"""Maximum number of children of one object, for the archiving and for the commands that read them."""

READS_AT_ONCE = 4
"""Children of one object that are read at the same time, and held until they are stored."""

FEW_MAX = 10
"""So many children of one kind are always read one by one."""

WASTED_MAX = 4
"""A kind is listed in full if one of so many of its objects is a child; if fewer are, they are read one by one."""

_LOOKUPS_MAX = 2
"""So often the kinds of children are looked up: a 404 of a LIST lets discovery read their group again."""


@dataclass(frozen=True, slots=True)
class ChildPage:
    """Some children of an object.

    Attributes:
        rule: The rule of their kind.
        children: The objects as they are now; never many more than a page of a LIST has.
        unreadable: Children that exceed the limits of `shared.core.values.jsontext`; also an object whose owners cannot
            be read, since it may be a child.
    """

    rule: KindRule
    children: Sequence[Snapshot]
    unreadable: Sequence[Unreadable] = ()


@dataclass(frozen=True, slots=True)
class _ChildNames:
    """The children of one kind, before they are read.

    Attributes:
        rule: The kind, as served.
        names: The children, by uid.
        total: The objects of the kind in the namespace, children or not.
        unreadable: As in ChildPage.
    """

    rule: KindRule
    names: dict[str, Name]
    total: int
    unreadable: Sequence[Unreadable]


@dataclass
class Children:
    """Finds children on the API server.

    Attributes:
        kinds: All known kinds, enabled or not.
        children_max: An object with more children is reported, instead of being archived in part.
    """

    cluster: Cluster
    kinds: Catalogue
    children_max: int = CHILDREN_MAX

    def __post_init__(self) -> None:
        self._lists: OwnedLists[list[_ChildNames]] = OwnedLists(self.cluster, _count)
        self._page = asyncio.Lock()

    async def find(
        self, root: ObjectRef, rule: KindRule, also: Sequence[ChildKind] = (), *, key: str = ""
    ) -> AsyncGenerator[ChildPage]:
        """Yield the children of an object by page, each child once, in the order of the kinds.

        A kind that the API server does not serve is passed over. A kind that it serves only in a version that no rule
        knows is listed in that version; its rule then says that it never finishes.

        Args:
            root: The object, with its uid.
            rule: The rule of its kind.
            also: Kinds of children beside those that the rule names.
            key: Names a search that goes on when its caller is cut off: the next one with the same key continues it.
                That one does not find what was created after the search began, at most `ANSWER_SECONDS_MAX` ago.
                Empty for a search that begins now.

        Raises:
            TryLaterError: The API server is busy or away, or stopped serving a kind in the meantime.
            ForbiddenError: Children may not be listed; the message names the right.
            PermanentError: There are more than `children_max` children, or it is unknown whether a kind is served.
        """
        try:
            for found in await self._find_names(root, _join(rule, also), key):
                if found.unreadable:
                    yield ChildPage(found.rule, (), found.unreadable)
                async with aclosing(self._read(found, root)) as pages:
                    async for page in pages:
                        yield page
        except AbsentKindError as error:
            raise TryLaterError(f"the children of {root} cannot be read: {error}") from None

    async def begin(self, root: ObjectRef, rule: KindRule, also: Sequence[ChildKind], *, key: str) -> None:
        """Begin a search that the next `find` with the same key continues, and do not wait for it; see `find`."""
        kinds = await self._find_kinds(root, _join(rule, also))
        self._lists.begin(kinds, root.namespace, partial(self._find_owned, root, kinds), key=key)

    def is_found(self, key: str) -> bool:
        """Return whether a search with this key has ended, so that the next `find` does not list."""
        return self._lists.is_answered(key)

    async def _find_names(self, root: ObjectRef, children: Sequence[ChildKind], key: str) -> list[_ChildNames]:
        """Find the names of all children; their kinds are looked up again if one of them has moved."""
        for _ in range(_LOOKUPS_MAX):
            kinds = await self._find_kinds(root, children)
            try:
                return await self._lists.get(kinds, root.namespace, partial(self._find_owned, root, kinds), key=key)
            except ForbiddenError as error:
                raise ForbiddenError(f"the children of {root} cannot be listed: {error}") from None
            except AbsentKindError as error:
                problem = str(error)
        expected = "expected discovery to list the version that is served; check the right of this process to read it"
        raise PermanentError(f"the children of {root} cannot be listed: {problem}: {expected}")

    async def _find_kinds(self, root: ObjectRef, children: Sequence[ChildKind]) -> list[KindRule]:
        """The kinds of children that are served; no object in a namespace owns a cluster-scoped object."""
        served = await asyncio.gather(*map(self._find_served, children))
        return [kind for kinds in served for kind in kinds if kind.scope == "Namespaced" or not root.namespace]

    async def _find_served(self, child: ChildKind) -> tuple[KindRule, ...]:
        served = await self.cluster.served(rules_of(child, self.kinds))
        return served or await self.cluster.served((_rule_of(child),))

    def _find_owned(self, root: ObjectRef, kinds: Sequence[KindRule], lists: Sequence[Owned]) -> list[_ChildNames]:
        """The objects of each kind that the root owns, directly or through one of them."""
        found: list[dict[str, Name]] = [{} for _ in lists]
        known, pending = {root.uid}, [root.uid]
        while pending:
            owner = pending.pop()
            for names, owned in zip(found, lists, strict=True):
                for name in owned.owned_by(owner):
                    if name[-1] not in known:
                        known.add(name[-1])
                        pending.append(name[-1])
                        names[name[-1]] = name
            if len(known) > self.children_max + 1:
                limit = f"{root} has more than {self.children_max} children: expected fewer"
                without = "to archive it without them, set `children: false` in the policy rule"
                raise PermanentError(f"{limit}; {without}, and to delete it without them `propagation: Orphan`")
        every = zip(kinds, found, lists, strict=True)
        return [
            _ChildNames(rule, names, owned.total, tuple(owned.unreadable))
            for rule, names, owned in every
            if names or owned.unreadable
        ]

    async def _read(self, found: _ChildNames, root: ObjectRef) -> AsyncGenerator[ChildPage]:
        """Read children in full. One task at a time holds pages of a LIST; the others read child by child."""
        count = len(found.names)
        is_dense = count > FEW_MAX and count * WASTED_MAX >= found.total
        if not is_dense or self._page.locked():
            async with aclosing(self._read_each(found.rule, found.names)) as pages:
                async for page in pages:
                    yield page
            return
        async with self._page, aclosing(self._read_listed(found.rule, found.names, root)) as pages:
            async for page in pages:
                yield page

    async def _read_listed(self, rule: KindRule, wanted: dict[str, Name], root: ObjectRef) -> AsyncGenerator[ChildPage]:
        """LIST the kind in full, and yield the children on each page."""
        async with aclosing(list_pages(self.cluster, rule, root.namespace)) as pages:
            async for page in pages:
                children = [one for one in page.items if get_text(one, "metadata.uid") in wanted]
                unreadable = [one for one in page.unreadable if one.ref.uid in wanted]
                if children or unreadable:
                    yield ChildPage(rule, [Snapshot(one, page.read_at, page.ahead) for one in children], unreadable)

    async def _read_each(self, rule: KindRule, wanted: dict[str, Name]) -> AsyncGenerator[ChildPage]:
        """Read the children one by one, some at a time; one that is gone is left out."""
        refs = [ObjectRef(rule.api_version, rule.kind, *name) for name in wanted.values()]
        for start in range(0, len(refs), READS_AT_ONCE):
            some = refs[start : start + READS_AT_ONCE]
            answers = await asyncio.gather(*(self.cluster.get(rule, ref) for ref in some), return_exceptions=True)
            found: list[Snapshot] = []
            for ref, answer in zip(some, answers, strict=True):
                if isinstance(answer, BaseException):
                    raise answer
                if answer is not None and ref.is_same(ref_of(answer.obj)):
                    found.append(answer)
            if found:
                yield ChildPage(rule, found)


def rules_of(child: ChildKind, kinds: Catalogue) -> tuple[KindRule, ...]:
    """Return the rules by which a kind of children is listed: its own kind rules, or one that knows its name only."""
    return kinds.of(child.group, child.kind) or (_rule_of(child),)


def _join(rule: KindRule, also: Sequence[ChildKind]) -> tuple[ChildKind, ...]:
    """The kinds of children that a rule names, and others."""
    return tuple({(one.group, one.kind): one for one in (*also, *rule.children)}.values())


def _count(found: Sequence[_ChildNames]) -> int:
    return sum(len(one.names) for one in found)


@lru_cache(maxsize=256)
def _rule_of(child: ChildKind) -> KindRule:
    return KindRule(
        api_versions=child.api_versions,
        kind=child.kind,
        plural=child.plural,
        never_finishes="it is known as a kind of children only",
    )
