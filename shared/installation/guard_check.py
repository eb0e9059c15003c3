"""Check for a running process that the delete guard of a kind is in force for its own account."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from shared.core.kinds.catalogue import Catalogue
from shared.core.kinds.rule import KindRule
from shared.core.objects import get_text
from shared.errors import TtlError
from shared.installation.delete_guard import usernames
from shared.installation.guard_status import GuardState, read_guard

if TYPE_CHECKING:
    from shared.adapters.kubernetes.cluster import KubernetesCluster

CHECKED_SECONDS = 60.0
"""How long a result counts, from the start of its read. A guard that is removed is noticed after this time."""

UNREAD_SECONDS = 5.0
"""How long an unreadable guard counts as not in force. `expire` reads each object meanwhile, so this time is short."""

_REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
_REVIEW = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}


class GuardCheck:
    """Reads the admission policies of a kind, and by which user name the API server knows this process.

    Args:
        cluster: The cluster.
        known: All known rules: a guard is made from all rules of a kind.
        namespace: The namespace of the installation.
        monotonic: A monotonic clock, in seconds.
    """

    def __init__(
        self, cluster: "KubernetesCluster", known: Catalogue, namespace: str, monotonic: Callable[[], float]
    ) -> None:
        self._cluster, self._known, self._namespace, self._monotonic = cluster, known, namespace, monotonic
        self._checked: dict[str, tuple[float, bool]] = {}  # until when, and the result
        self._lock = asyncio.Lock()
        self._username = ""

    async def is_in_force(self, rule: KindRule) -> bool:
        """Return whether the guard of a kind is the one that this version makes, and binds this process.

        False if that cannot be read.
        """
        async with self._lock:  # timers that are due at one instant share the read
            until, result = self._checked.get(rule.name, (float("-inf"), False))
            if (began := self._monotonic()) >= until:
                read = await self._read(rule)
                result = read is True
                # An error counts from its end: the timers that waited for a slow one share it.
                until = self._monotonic() + UNREAD_SECONDS if read is None else began + CHECKED_SECONDS
                self._checked[rule.name] = until, result
        return result

    async def _read(self, rule: KindRule) -> bool | None:
        """Read whether the guard is in force; None if it cannot be read."""
        rules = self._known.of(rule.group, rule.kind)
        state = await read_guard(self._cluster, rules, self._namespace) if rules else GuardState.MISSING
        if state is not GuardState.CURRENT:
            return None if state is None else False
        try:
            self._username = self._username or await self._read_username()
        except TtlError:
            return None
        return self._username in usernames(self._namespace)

    async def _read_username(self) -> str:
        answer = await self._cluster.request("POST", _REVIEWS, body=_REVIEW)
        return get_text(answer.body, "status.userInfo.username") if answer else ""
