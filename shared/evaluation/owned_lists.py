"""LISTs of the objects in a namespace by their owners, which callers that ask at the same time share.

A LIST begins after the last of its callers has asked, so that each object that exists by then is found. A caller that
asks while it runs shares the next one. So there is one LIST in a namespace at a time. It runs in a task beside them.
The memory is bounded. A caller gets only what it finds in the lists, and the lists are dropped. Some namespaces with
short lists are listed at the same time. A namespace with long lists waits until no other holds long lists.
"""

import asyncio
import contextvars
import math
import sys
import traceback
from array import array
from collections import Counter, OrderedDict
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from shared.core.kinds.rule import KindRule
from shared.core.values.objects import ObjectRef, get_text, list_mappings, ref_of
from shared.errors import AbsentKindError, ForbiddenError, PermanentError, TryLaterError, TtlError
from shared.ports import Cluster, Page, Unreadable, loop_now

LISTS_AT_ONCE = 3
"""Namespaces that are listed at the same time, beside the one with long lists: each holds a page."""

SHORT_BYTES_MAX = 8 * 1024 * 1024
"""Maximum memory of the short lists of one namespace: some 20,000 objects."""

LONG_BYTES_MAX = 96 * 1024 * 1024
"""Maximum memory of the lists of one namespace: some 300,000 objects, or 6,000,000 owner references."""

UNREADABLE_MAX = 10
"""So many objects whose owners cannot be read are named."""

SHORT_SECONDS_MAX = 3.0
"""LISTs that go on after this time are long, too: other namespaces do not wait for them."""

LONG_SECONDS_MAX = 240.0
"""How long the LISTs of a namespace may take: as long as an attempt to archive an object with its children."""

ANSWER_SECONDS_MAX = 600.0
"""How long after its LIST began an answer counts for the next attempts of a caller that was cut off."""

ANSWERED_NAMES_MAX = 40_000
"""So many names are held in such answers, and in questions that are not answered yet: 12 MB."""

_QUESTION_NAMES = 8
"""A question takes as much memory as so many names."""

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
    """What a caller looks for, and what was found.

    Attributes:
        rules: The kinds to list.
        find: Finds it in the lists of these kinds.
        key: See `OwnedLists.get`.
        namespace: Whose objects are listed.
        answered: Set once `found` or `error` is there.
        began: When its LIST began, in seconds of the loop's clock.
        names: What it counts of `ANSWERED_NAMES_MAX`.
    """

    rules: tuple[KindRule, ...]
    find: Callable[[Sequence[Owned]], _T]
    key: str = ""
    namespace: str = ""
    found: list[_T] = field(default_factory=list)
    error: Exception | None = None
    answered: asyncio.Event = field(default_factory=asyncio.Event)
    began: float = math.inf
    names: int = _QUESTION_NAMES

    def answer(self, lists: _Lists) -> None:
        """Find it; no error refers to the lists afterwards."""
        mine = [lists[_kind_of(rule)] for rule in self.rules]
        error: Exception | None = next((one for one in mine if isinstance(one, TtlError)), None)
        if error is None:
            try:
                self.found.append(self.find([one for one in mine if isinstance(one, Owned)]))
            except TtlError as unanswerable:
                error = unanswerable.with_traceback(None)
            except Exception as defect:  # noqa: BLE001 - its caller raises it
                error = _without_values(defect)
        self.end(error)

    def end(self, error: Exception | None) -> None:
        self.error = error
        self.answered.set()

    @property
    def is_old(self) -> bool:
        """Whether its answer does not count any more."""
        return self.answered.is_set() and self.began < loop_now() - ANSWER_SECONDS_MAX


@dataclass(slots=True)
class _Queue(Generic[_T]):
    """The questions about one namespace, and the task that lists it: those that wait share its next LIST."""

    waiting: list[_Question[_T]] = field(default_factory=list)
    lister: "asyncio.Task[None] | None" = None


class OwnedLists(Generic[_T]):
    """Lists the owners of objects.

    A LIST ends although its callers were cut off: in a namespace with very many objects, it takes longer than one
    attempt. If the question has a key, the next attempt asks it again, and gets the answer.

    Args:
        cluster: The API server.
        size_of: How many names an answer holds.
    """

    def __init__(self, cluster: Cluster, size_of: Callable[[_T], int]) -> None:
        self._cluster = cluster
        self._size_of = size_of
        self._queues: dict[str, _Queue[_T]] = {}
        self._asked: OrderedDict[str, _Question[_T]] = OrderedDict()
        self._names: Counter[str] = Counter()  # by namespace
        self._short = asyncio.Semaphore(LISTS_AT_ONCE)
        self._long = asyncio.Lock()

    async def get(
        self, rules: Sequence[KindRule], namespace: str, find: Callable[[Sequence[Owned]], _T], *, key: str = ""
    ) -> _T:
        """Get what `find` finds in the LISTs of some kinds, with metadata only; the LISTs begin now or later.

        Args:
            rules: The kinds, as served.
            namespace: The namespace; empty for all.
            find: Finds it in the lists of the kinds. The lists are dropped afterwards.
            key: If the question was asked with this key before, and no caller has got its answer: get that answer,
                from a LIST that began at most `ANSWER_SECONDS_MAX` ago. Empty for a LIST that begins now or later.

        Raises:
            TryLaterError: The API server is busy or away.
            PermanentError: As of `Cluster.list_page` and `find`, or the lists exceed `LONG_BYTES_MAX`.
        """
        question = self._ask(rules, namespace, find, key)
        try:
            await question.answered.wait()
        finally:
            if question.answered.is_set():
                self._forget(question)
            elif not key:  # no other attempt asks for its answer
                question.end(None)
                queue = self._queues.get(namespace)
                if queue is not None and question in queue.waiting:
                    queue.waiting.remove(question)
        if question.error is not None:
            raise question.error
        return question.found[0]

    def begin(
        self, rules: Sequence[KindRule], namespace: str, find: Callable[[Sequence[Owned]], _T], *, key: str
    ) -> None:
        """Have a question answered that the next `get` with the same key asks, unless too many are asked; see there.

        A namespace that holds fewer names than another one may always ask.
        """
        self._drop_old()
        if self._names.total() < ANSWERED_NAMES_MAX or self._names[namespace] < max(self._names.values()):
            self._ask(rules, namespace, find, key)

    def is_answered(self, key: str) -> bool:
        """Return whether the next `get` with this key has its answer at once."""
        question = self._asked.get(key)
        return question is not None and question.answered.is_set() and not question.is_old

    def _ask(
        self, rules: Sequence[KindRule], namespace: str, find: Callable[[Sequence[Owned]], _T], key: str
    ) -> _Question[_T]:
        known = self._asked.get(key)
        if known is not None and known.rules == tuple(rules) and not known.is_old:
            return known
        question = _Question(tuple(rules), find, key, namespace)
        if key:
            self._remember(question)
        queue = self._queues.setdefault(namespace, _Queue())
        queue.waiting.append(question)
        if queue.lister is None or queue.lister.done():
            # A context of its own: a LIST belongs to the trace of none of its callers.
            queue.lister = asyncio.create_task(self._answer_all(queue, namespace), context=contextvars.Context())
        return question

    def _remember(self, question: _Question[_T]) -> None:
        """Remember a question, within the limit; the first one of the namespace with the most names is forgotten first.

        So a namespace with at most its equal share loses nothing because of others.
        """
        if (before := self._asked.get(question.key)) is not None:
            self._forget(before)
        self._drop_old()
        self._asked[question.key] = question
        self._names[question.namespace] += question.names
        while self._names.total() > ANSWERED_NAMES_MAX:
            ((most, _),) = self._names.most_common(1)
            self._forget(next(one for one in self._asked.values() if one.namespace == most))

    def _drop_old(self) -> None:
        while self._asked and (first := next(iter(self._asked.values()))).is_old:
            self._forget(first)

    def _forget(self, question: _Question[_T]) -> None:
        if self._asked.get(question.key) is question:
            del self._asked[question.key]
            self._names[question.namespace] -= question.names
            if not self._names[question.namespace]:
                del self._names[question.namespace]

    async def _answer_all(self, queue: _Queue[_T], namespace: str) -> None:
        problem: Exception = TryLaterError(f"the LIST of the owners in namespace {namespace or '*'} was cut off")
        try:
            while queue.waiting:
                async with self._short:
                    is_answered = await self._answer(queue, namespace, is_long=False)
                if not is_answered:
                    async with self._long, asyncio.timeout(LONG_SECONDS_MAX):
                        await self._answer(queue, namespace, is_long=True)
        except TimeoutError:
            limit = f"expected the LIST of the owners to end within {LONG_SECONDS_MAX:g} s"
            problem = TryLaterError(f"namespace {namespace or '*'}: {limit}")
        except Exception as error:  # noqa: BLE001 - those who wait raise it
            problem = _without_values(error)
        finally:
            del self._queues[namespace]
            for question in queue.waiting:
                question.end(problem)
                self._forget(question)

    async def _answer(self, queue: _Queue[_T], namespace: str, *, is_long: bool) -> bool:
        """Answer those who wait now; return False if their lists are long and `is_long` is not set."""
        asked, queue.waiting = queue.waiting, []
        for question in asked:
            question.began = loop_now()
        try:
            lists = await self._list_all(asked, namespace, is_long=is_long)
            if lists is None:
                return False
            while asked:  # an answer that is not remembered is dropped
                question = asked.pop(0)
                if question.answered.is_set():
                    continue
                question.answer(lists)
                if self._asked.get(question.key) is question:
                    self._forget(question)
                    if not isinstance(question.error, TryLaterError):  # that may be over when it is asked again
                        question.names += sum(map(self._size_of, question.found))
                        self._remember(question)
                await asyncio.sleep(0)
            return True
        finally:
            queue.waiting[:0] = [question for question in asked if not question.answered.is_set()]

    async def _list_all(self, asked: Sequence[_Question[_T]], namespace: str, *, is_long: bool) -> _Lists | None:
        """List the kinds of the questions; None if the lists are long and `is_long` is not set, or no caller waits."""
        lists: _Lists = {}
        room = LONG_BYTES_MAX if is_long else SHORT_BYTES_MAX
        ends = math.inf if is_long else loop_now() + SHORT_SECONDS_MAX

        def is_given_up(size: int, *, is_large: bool, has_more: bool) -> bool:
            is_short = size <= room and not (has_more and (is_large or loop_now() >= ends))
            return all(question.answered.is_set() for question in asked) or not (is_long or is_short)

        for kind, rule in {_kind_of(rule): rule for question in asked for rule in question.rules}.items():
            if is_given_up(0, is_large=False, has_more=True):
                return None
            listed = await self._list(rule, namespace, room, is_given_up)
            if listed is None:
                return None
            lists[kind] = listed
            room -= listed.size if isinstance(listed, Owned) else 0
        return lists

    async def _list(
        self, rule: KindRule, namespace: str, room: int, is_given_up: Callable[..., bool]
    ) -> Owned | TtlError | None:
        """List a kind. Return the error, if there is one; None if it is given up."""
        owned, token = Owned(), ""
        try:
            while True:
                token, is_large = await self._add_page(owned, rule, namespace, token)
                if is_given_up(owned.size, is_large=is_large, has_more=bool(token)):
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


def _without_values(defect: Exception) -> Exception:
    """The error with its traceback as a note only: the variables of a traceback refer to the lists."""
    defect.add_note("".join(traceback.format_exception(defect)))
    defect.__cause__ = defect.__context__ = None
    return defect.with_traceback(None)


def _too_long(rule: KindRule, namespace: str, owned: Owned) -> PermanentError:
    count, ref = owned.largest
    limit = f"expected at most {LONG_BYTES_MAX} bytes of names and owners, got more"
    most = f"{ref} has {count} owner references: delete the objects that nothing needs"
    where = f"namespace {namespace}" if namespace else "all namespaces"
    return PermanentError(f"{rule.name} in {where}: {limit}; {most}")
