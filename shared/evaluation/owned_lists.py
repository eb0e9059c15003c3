"""LISTs of the objects in a namespace by their owners, which callers that ask at the same time share.

A LIST begins after the last of its callers has asked, so that each object that exists by then is found. A caller that
asks while it runs shares the next one. So there is one LIST in a namespace at a time.
The memory is bounded. A caller gets only what it finds in the lists, and the lists are dropped. Some namespaces with
short lists are listed at the same time. A namespace with long lists waits until no other holds long lists.
"""

import asyncio
import sys
from array import array
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from shared.core.kinds.rule import KindRule
from shared.core.objects import ObjectRef, get_text, list_mappings, ref_of
from shared.errors import AbsentKindError, ForbiddenError, PermanentError, TtlError
from shared.ports import Cluster, Page, Unreadable

LISTS_AT_ONCE = 3
"""Namespaces that are listed at the same time, beside the one with long lists: each holds a page."""

SHORT_BYTES_MAX = 8 * 1024 * 1024
"""Maximum memory of the short lists of one namespace: some 20,000 objects."""

LONG_BYTES_MAX = 96 * 1024 * 1024
"""Maximum memory of the lists of one namespace: some 300,000 objects, or 6,000,000 owner references."""

UNREADABLE_MAX = 10
"""So many objects whose owners cannot be read are named."""

_NAME_BYTES, _REFERENCE_BYTES, _BUCKET_BYTES = 320, 16, 360
"""Memory for an object, without the characters of its name; for an owner reference; and for a bucket."""
_BUCKETS = 16_384

Name = tuple[str, str, str]
"""Namespace, name and uid of an object."""

_Kind = tuple[str, str]
_T = TypeVar("_T")


class Owned:
    """The objects of one kind that have owners.

    Of an owner reference only a hash of the uid is held, so that an object with many of them takes little memory. The
    hash has 64 bits, and a key that only this process has: in practice no two uids have the same.

    Attributes:
        total: The objects of the kind in the namespace, with and without owners.
        size: The memory that the object takes, in bytes.
        largest: The object with the most owner references, and their number.
        unreadable: Objects whose owners cannot be read; not all of them if there are many.
    """

    def __init__(self) -> None:
        self.total = self.size = 0
        self.largest: tuple[int, ObjectRef | None] = (0, None)
        self.unreadable: list[Unreadable] = []
        self._names: list[Name] = []
        self._buckets: dict[int, tuple[array[int], array[int]]] = {}  # hashes of owners, and places in the names

    def add(self, page: Page) -> None:
        """Note the objects of a page by their owners."""
        self.total += len(page.items) + len(page.unreadable)
        self.unreadable += page.unreadable[: max(0, UNREADABLE_MAX - len(self.unreadable))]
        for obj in page.items:
            owners = {get_text(owner, "uid") for owner in list_mappings(obj, "metadata.ownerReferences")} - {""}
            if owners:
                self._add(ref_of(obj), owners)

    def owned_by(self, uid: str) -> list[Name]:
        """The objects that an owner owns, in the order of the LIST."""
        wanted = hash(uid)
        hashes, places = self._buckets.get(wanted % _BUCKETS, ((), ()))
        return [self._names[places[at]] for at, one in enumerate(hashes) if one == wanted]

    def _add(self, ref: ObjectRef, owners: set[str]) -> None:
        place = len(self._names)
        self._names.append((sys.intern(ref.namespace), ref.name, ref.uid))
        self.size += _NAME_BYTES + len(ref.name) + _REFERENCE_BYTES * len(owners)
        self.largest = max(self.largest, (len(owners), ref), key=lambda one: one[0])
        for owner in map(hash, owners):
            bucket = self._buckets.get(owner % _BUCKETS)
            if bucket is None:
                bucket = self._buckets[owner % _BUCKETS] = array("q"), array("I")
                self.size += _BUCKET_BYTES
            bucket[0].append(owner)
            bucket[1].append(place)


_Lists = dict[_Kind, Owned | TtlError]


@dataclass(eq=False, slots=True)
class _Question(Generic[_T]):
    """What a caller looks for, and what it has found."""

    rules: Sequence[KindRule]
    find: Callable[[Sequence[Owned]], _T]
    found: list[_T] = field(default_factory=list)
    error: TtlError | None = None

    @property
    def is_answered(self) -> bool:
        return bool(self.found) or self.error is not None

    def answer(self, lists: _Lists) -> None:
        """Find it; no error refers to the lists afterwards."""
        mine = [lists[_kind_of(rule)] for rule in self.rules]
        self.error = next((one for one in mine if isinstance(one, TtlError)), None)
        if self.error is None:
            try:
                self.found.append(self.find([one for one in mine if isinstance(one, Owned)]))
            except TtlError as error:
                self.error = error.with_traceback(None)


@dataclass(slots=True)
class _Queue(Generic[_T]):
    """The callers of one namespace: one of them lists at a time, for all who wait then."""

    waiting: list[_Question[_T]] = field(default_factory=list)
    callers: int = 0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class OwnedLists(Generic[_T]):
    """Lists the owners of objects.

    Args:
        cluster: The API server.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._queues: dict[str, _Queue[_T]] = {}
        self._short = asyncio.Semaphore(LISTS_AT_ONCE)
        self._long = asyncio.Lock()

    async def get(self, rules: Sequence[KindRule], namespace: str, find: Callable[[Sequence[Owned]], _T]) -> _T:
        """Get what `find` finds in the LISTs of some kinds, with metadata only; the LISTs begin now or later.

        Args:
            rules: The kinds, as served.
            namespace: The namespace; empty for all.
            find: Finds it in the lists of the kinds. The lists are dropped afterwards.

        Raises:
            TryLaterError: The API server is busy or away.
            PermanentError: As of `Cluster.list_page` and `find`, or the lists exceed `LONG_BYTES_MAX`.
        """
        queue = self._queues.setdefault(namespace, _Queue())
        question = _Question(rules, find)
        queue.waiting.append(question)
        queue.callers += 1
        try:
            async with queue.lock:
                if not question.is_answered:
                    await self._answer_all(queue, namespace)
        finally:
            queue.callers -= 1
            if question in queue.waiting:
                queue.waiting.remove(question)
            if not queue.callers:
                self._queues.pop(namespace, None)
        if question.error is not None:
            raise question.error
        return question.found[0]

    async def _answer_all(self, queue: _Queue[_T], namespace: str) -> None:
        async with self._short:
            if await self._answer(queue, namespace, is_long=False):
                return
        async with self._long:
            await self._answer(queue, namespace, is_long=True)

    async def _answer(self, queue: _Queue[_T], namespace: str, *, is_long: bool) -> bool:
        """Answer those who wait now; return False if their lists are long and `is_long` is not set."""
        asked, queue.waiting = queue.waiting, []
        try:
            lists = await self._list_all(asked, namespace, is_long=is_long)
            if lists is None:
                return False
            for question in asked:
                question.answer(lists)
                await asyncio.sleep(0)
            return True
        finally:
            queue.waiting[:0] = [question for question in asked if not question.is_answered]

    async def _list_all(self, asked: Sequence[_Question[_T]], namespace: str, *, is_long: bool) -> _Lists | None:
        lists: _Lists = {}
        room = LONG_BYTES_MAX if is_long else SHORT_BYTES_MAX
        for kind, rule in {_kind_of(rule): rule for question in asked for rule in question.rules}.items():
            listed = await self._list(rule, namespace, room, is_long=is_long)
            if listed is None:
                return None
            lists[kind] = listed
            room -= listed.size if isinstance(listed, Owned) else 0
        return lists

    async def _list(self, rule: KindRule, namespace: str, room: int, *, is_long: bool) -> Owned | TtlError | None:
        """List a kind. Return the error, if there is one; None if the list is long and `is_long` is not set."""
        owned, token = Owned(), ""
        try:
            while True:
                token, is_large = await self._add_page(owned, rule, namespace, token)
                if not is_long and (owned.size > room or (is_large and token)):
                    return None
                if owned.size > room:
                    return _too_long(rule, namespace, owned)
                if not token:
                    return owned
        except AbsentKindError:
            return AbsentKindError(f"{rule.name} is not found in version {rule.api_version}")
        except ForbiddenError as error:
            return ForbiddenError(f"{error}; expected the right to list {rule.name}, which `kinds manifests` prints")
        except TtlError as error:
            return error.with_traceback(None)

    async def _add_page(self, owned: Owned, rule: KindRule, namespace: str, token: str) -> tuple[str, bool]:
        """Add the next page, which is then dropped; return the token of the one after it, and whether it was large."""
        page = await self._cluster.list_page(rule, namespace=namespace, continue_token=token, metadata_only=True)
        owned.add(page)
        return page.continue_token, page.is_large


async def list_pages(cluster: Cluster, rule: KindRule, namespace: str) -> AsyncGenerator[Page]:
    """Yield the pages of a LIST; the namespace is empty for all."""
    token = ""
    while True:
        page = await cluster.list_page(rule, namespace=namespace, continue_token=token)
        yield page
        token = page.continue_token
        del page
        if not token:
            return


def _kind_of(rule: KindRule) -> _Kind:
    return rule.api_version, rule.kind


def _too_long(rule: KindRule, namespace: str, owned: Owned) -> PermanentError:
    count, ref = owned.largest
    limit = f"expected at most {LONG_BYTES_MAX} bytes of names and owners, got more"
    most = f"{ref} has {count} owner references: delete the objects that nothing needs"
    return PermanentError(f"{rule.name} in namespace {namespace}: {limit}; {most}")
