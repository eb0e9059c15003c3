"""LISTs of the objects of a kind in a namespace by their owners, which callers that ask at the same time share.

A LIST begins after the last of its callers has asked, so that each object that exists by then is found. A caller that
asks while it runs shares the next one. So there is one LIST of a kind in a namespace at a time, however many ask.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field

from shared.core.kinds.rule import KindRule
from shared.core.objects import get_text, list_mappings, ref_of
from shared.errors import PermanentError, TtlError
from shared.ports import Cluster, Page, Unreadable

OWNED_MAX = 500_000
"""Maximum number of owner references of one kind in one namespace: some 300 bytes are held for each."""

LISTS_AT_ONCE = 4
"""LISTs that run at the same time, in different namespaces or of different kinds: each holds a page."""

Name = tuple[str, str, str]
"""Namespace, name and uid of an object."""

_Key = tuple[str, str, str]


@dataclass(slots=True)
class Owned:
    """The objects of one kind that have owners.

    Attributes:
        total: The objects of the kind in the namespace, with and without owners.
        references: The owner references of all of them.
        by_owner: The objects that a uid owns.
        unreadable: The objects whose owners cannot be read.
    """

    total: int = 0
    references: int = 0
    by_owner: dict[str, list[Name]] = field(default_factory=dict)
    unreadable: list[Unreadable] = field(default_factory=list)

    def add(self, page: Page) -> None:
        """Note the objects of a page by their owners."""
        self.total += len(page.items) + len(page.unreadable)
        self.unreadable += page.unreadable
        for obj in page.items:
            ref = ref_of(obj)
            owners = {get_text(owner, "uid") for owner in list_mappings(obj, "metadata.ownerReferences")} - {""}
            self.references += len(owners)
            for uid in owners:
                self.by_owner.setdefault(uid, []).append((ref.namespace, ref.name, ref.uid))


@dataclass(slots=True)
class _SharedList:
    """A LIST that several callers share, also if it fails."""

    at: float = float("-inf")
    owned: Owned = field(default_factory=Owned)
    error: TtlError | None = None
    callers: int = 0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class OwnedLists:
    """Lists the owners of objects.

    Args:
        cluster: The API server.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._shared: dict[_Key, _SharedList] = {}
        self._running = asyncio.Semaphore(LISTS_AT_ONCE)

    async def get(self, rule: KindRule, namespace: str) -> Owned:
        """List the objects of a kind, with metadata only; the LIST begins now or later.

        Args:
            rule: The kind, as served.
            namespace: The namespace; empty for all.

        Raises:
            TryLaterError: The API server is busy or away.
            PermanentError: As of `Cluster.list_page`, or there are more than `OWNED_MAX` owner references.
        """
        key, asked_at = (rule.api_version, rule.kind, namespace), _now()
        shared = self._shared.setdefault(key, _SharedList())
        shared.callers += 1
        try:
            async with shared.lock:
                if shared.at < asked_at:
                    async with self._running:
                        await self._fill(shared, rule, namespace)
                if shared.error is not None:
                    raise shared.error
                return shared.owned
        finally:
            shared.callers -= 1
            if not shared.callers:
                self._shared.pop(key, None)

    async def _fill(self, shared: _SharedList, rule: KindRule, namespace: str) -> None:
        began_at, owned, error = _now(), Owned(), None
        try:
            async with aclosing(list_pages(self._cluster, rule, namespace, metadata_only=True)) as pages:
                async for page in pages:
                    owned.add(page)
                    if owned.references > OWNED_MAX:
                        expected = f"expected at most {OWNED_MAX} owner references"
                        raise PermanentError(f"{rule.name} in namespace {namespace}: {expected}, got more")
        except TtlError as failure:
            error = failure
        shared.at, shared.owned, shared.error = began_at, owned, error


async def list_pages(
    cluster: Cluster, rule: KindRule, namespace: str, *, metadata_only: bool = False
) -> AsyncGenerator[Page]:
    """Yield the pages of a LIST.

    Args:
        cluster: The API server.
        rule: The kind.
        namespace: The namespace; empty for all.
        metadata_only: Only apiVersion, kind and metadata of each object.
    """
    token = ""
    while True:
        page = await cluster.list_page(rule, namespace=namespace, continue_token=token, metadata_only=metadata_only)
        yield page
        token = page.continue_token
        if not token:
            return


def _now() -> float:
    return asyncio.get_running_loop().time()
