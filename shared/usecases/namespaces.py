"""What the namespaces say, read when it is needed and remembered for a moment, for all who ask at once."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from shared.core.namespaces import NAMESPACES, Namespace, namespace_of
from shared.core.objects import ObjectRef
from shared.errors import PermanentError
from shared.ports import Cluster, Telemetry

FRESH_SECONDS = 5.0
"""How old what is remembered may be: a namespace that was exempted a moment ago may lose what was due by then."""

REMEMBERED_MAX = 20_000
"""Namespaces; all are forgotten beyond that, which clusters do not have."""

_Known = tuple[float, Namespace | PermanentError | None]


@dataclass
class Namespaces:
    """The namespaces of a cluster.

    Attributes:
        telemetry: Told where one may not be read.
        only: The one that this process is limited to; empty for all.
    """

    cluster: Cluster
    telemetry: Telemetry | None = None
    only: str = ""
    _known: dict[str, _Known] = field(default_factory=dict)
    _reading: dict[str, asyncio.Lock] = field(default_factory=dict)
    _listed_at: float | None = None
    _was_refused: bool = False

    async def get(self, name: str) -> Namespace | None:
        """One namespace as it was at most five seconds ago; None where there is none of this name.

        Raises:
            TryLaterError: The API server is busy or away.
            PermanentError: It refuses: a right is missing.
        """
        known = self._remembered(name)
        if known is None:
            # Whoever asks meanwhile waits for the same read.
            try:
                async with self._reading.setdefault(name, asyncio.Lock()):
                    known = self._remembered(name) or await self._read(name)
            finally:
                self._reading.pop(name, None)
        if isinstance(known[1], PermanentError):
            raise known[1]
        return known[1]

    def recall(self, name: str) -> Namespace | None:
        """One namespace if it is remembered; None where it would have to be read."""
        known = self._remembered(name)
        return known[1] if known is not None and isinstance(known[1], Namespace) else None

    async def prime(self) -> None:
        """Remember all of them by one LIST, if that is due: for who is about to ask for many.

        A LIST that is refused is no error here: each is then asked for alone.

        Raises:
            TryLaterError: The API server is busy or away.
        """
        now = _now()
        if self.only or (self._listed_at is not None and now - self._listed_at < FRESH_SECONDS / 2):
            return
        try:
            found = [namespace_of(one) async for one in self._list()]
        except PermanentError as error:
            self._report(error)
        else:
            self._known = {one.ref.name: (now, one) for one in found}
        self._listed_at = now

    async def _list(self) -> AsyncIterator[dict[str, Any]]:
        token = ""
        while True:
            page = await self.cluster.list_page(NAMESPACES, continue_token=token, metadata_only=True)
            for one in page.items:
                yield one
            token = page.continue_token
            if not token:
                return

    def _remembered(self, name: str) -> _Known | None:
        known = self._known.get(name)
        return known if known is not None and _now() - known[0] < FRESH_SECONDS else None

    async def _read(self, name: str) -> _Known:
        asked_at = _now()
        found: Namespace | PermanentError | None
        try:
            snapshot = await self.cluster.get(NAMESPACES, ObjectRef("v1", "Namespace", "", name, ""))
            found = namespace_of(snapshot.obj) if snapshot else None
        except PermanentError as error:
            self._report(error)
            found = error
        if len(self._known) >= REMEMBERED_MAX:
            self._known.clear()
        self._known[name] = asked_at, found
        return self._known[name]

    def _report(self, error: PermanentError) -> None:
        """Said once: every object in it says so, too."""
        if self.telemetry is not None and not self._was_refused:
            self.telemetry.problem("namespaces may not be read: what is in them stays", error=str(error))
        self._was_refused = True


def _now() -> float:
    return asyncio.get_running_loop().time()
