"""The pages that `sweep` lists: which objects of a page it has to evaluate, and how many large pages it holds."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from shared.core.kinds.rule import KindRule
from shared.core.values.objects import ObjectRef, ref_of
from shared.errors import TryLaterError
from shared.evaluation.evaluator import Evaluator
from shared.ports import Cluster, Page, Snapshot

FULL_READS_MAX = 10
"""Objects of a metadata page that are read one by one; if there are more, the page is listed again in full."""

LIST_PAUSE_SECONDS_MAX = 5.0
"""The longest pause after a 429: a step waits for at most 5 of its 20 seconds."""

TURN_SECONDS = 30.0
"""After this time the next kind has its turn, since deletions that hang must not stop the sweeps of other kinds."""

_AnswerT = TypeVar("_AnswerT")

Found = Snapshot | ObjectRef
"""An object that was listed in full, or the identity of one that has to be read."""


@dataclass(slots=True)
class OnePause:
    """The pause of a step after a 429.

    A step waits once. If it waited for each kind, its time would be over before it had tried the last kinds.
    """

    is_over: bool = False

    async def repeat_once(self, request: Callable[[], Awaitable[_AnswerT]]) -> _AnswerT:
        """Send a request. After the first 429 of the step, wait as the API server asks, and send it once more.

        Raises:
            TtlError: The error of the request.
        """
        try:
            return await request()
        except TryLaterError as error:
            if not error.is_overload or self.is_over:
                raise
            self.is_over = True
            await asyncio.sleep(min(error.retry_after_seconds, LIST_PAUSE_SECONDS_MAX))
        return await request()


@dataclass(frozen=True, slots=True)
class PageReader:
    """Reads the pages of a kind.

    Attributes:
        cluster: The API server.
        evaluator: Says which objects may expire.
        pause: The pause of the step after a 429.
        namespace: Only this namespace; empty for all.
    """

    cluster: Cluster
    evaluator: Evaluator
    pause: OnePause
    namespace: str = ""

    async def read(self, rule: KindRule, token: str) -> tuple[Page, Sequence[Found]]:
        """Read a page, and find those of its objects that may be due now or later, or may have a deadline.

        If only metadata can set the TTL of a kind, the page is first listed with metadata only. The metadata of the
        namespace counts, too.

        Args:
            rule: The kind.
            token: The continue token of the page; empty for the first page.

        Raises:
            TtlError: The page cannot be listed.
        """
        return await self.pause.repeat_once(partial(self._read, rule, token))

    async def _read(self, rule: KindRule, token: str) -> tuple[Page, Sequence[Found]]:
        if rule.scope == "Namespaced":
            await self.evaluator.namespaces.prime()
        policy = self.evaluator.policy()
        by_policy = policy.sets_ttl_for(rule) or policy.sets_deadline_for(rule) or policy.archives_kind(rule)
        in_full = rule.ttl is not None or by_policy
        page = await self.cluster.list_page(
            rule, namespace=self.namespace, continue_token=token, metadata_only=not in_full
        )
        wanted = [obj for obj in page.items if self._is_wanted(obj, rule)]
        if not in_full and len(wanted) <= FULL_READS_MAX:
            return page, [ref_of(obj) for obj in wanted]
        if in_full:
            return page, [Snapshot(obj, page.read_at, page.ahead) for obj in wanted]
        listed = await self.cluster.list_page(
            rule, namespace=self.namespace, continue_token=token, resource_version=page.resource_version
        )
        full = {ref_of(obj).uid: Snapshot(obj, page.read_at, page.ahead) for obj in listed.items}
        page = replace(page, is_large=page.is_large or listed.is_large)
        # If the objects are large, the full page ends sooner; the remaining objects are read one by one.
        return page, [full.get(ref.uid, ref) for ref in map(ref_of, wanted)]

    def _is_wanted(self, obj: Any, rule: KindRule) -> bool:
        evaluator = self.evaluator
        return evaluator.may_expire(obj, rule) or evaluator.may_stop(obj, rule) or evaluator.may_archive(obj, rule)


class LargePages:
    """Lets the sweeps of one process hold one large page at a time: each kind has its turn."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._kinds: set[str] = set()

    @asynccontextmanager
    async def turn(self, kind: str) -> AsyncIterator[bool]:
        """Wait for the lock on large pages if the last page of a kind was large.

        The lock is released at the end of the block, or after `TURN_SECONDS`.

        Yields:
            Whether the kind holds the lock; False if its last page was not large.
        """
        if kind not in self._kinds:
            yield False
            return
        await self._lock.acquire()
        turn = _Turn(self._lock)
        timer = asyncio.get_running_loop().call_later(TURN_SECONDS, turn.end)
        try:
            yield True
        finally:
            timer.cancel()
            turn.end()

    def note(self, kind: str, *, is_large: bool) -> None:
        """Remember whether the last page of a kind was large."""
        if is_large:
            self._kinds.add(kind)
        else:
            self._kinds.discard(kind)


class _Turn:
    """A turn that ends once."""

    def __init__(self, lock: asyncio.Lock) -> None:
        self._lock: asyncio.Lock | None = lock

    def end(self) -> None:
        if self._lock is not None:
            self._lock.release()
        self._lock = None
