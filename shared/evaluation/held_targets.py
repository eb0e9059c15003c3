"""Hold the metadata of all Secrets and ConfigMaps of one LIST: for their names, the references in them, and decisions.

A tick needs them several times, and in this order, so it lists them once, before the other carriers. The pages are held
compressed: 10,000 parsed objects would take as much memory as the rest of a pass.
"""

import json
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol

from shared.core.references.reference import TargetKind, TargetNames, name_targets
from shared.core.usage.passes import Generations
from shared.core.values.objects import ref_of
from shared.errors import PermanentError
from shared.ports import ListableKinds, Target, TargetPage, Unreadable

_FAST = 1
"""The level of compression: metadata compresses well at any level."""


class TargetSource(Protocol):
    """Lists Secrets and ConfigMaps: the API server, or what was listed before."""

    async def list_targets(self, kind: TargetKind, *, namespace: str = "", continue_token: str = "") -> TargetPage:
        """See `shared.ports.cluster.UsageCluster`."""
        ...


@dataclass(frozen=True, slots=True)
class _HeldPage:
    """One page of a LIST, compressed."""

    objects: bytes
    about: Sequence[tuple[datetime, int | None, timedelta]]
    read_at: datetime
    resource_version: str
    unreadable: Sequence[Unreadable]

    @classmethod
    def of(cls, page: TargetPage) -> "_HeldPage":
        objects = zlib.compress(json.dumps([one.obj for one in page.targets]).encode(), _FAST)
        about = [(one.read_at, one.keys, one.ahead) for one in page.targets]
        return cls(objects, about, page.read_at, page.resource_version, page.unreadable)

    def read(self, token: str) -> TargetPage:
        objects = json.loads(zlib.decompress(self.objects))  # noqa: TID251 - written by `of`
        targets = [Target(obj, *about) for obj, about in zip(objects, self.about, strict=True)]
        return TargetPage(targets, self.read_at, token, self.resource_version, self.unreadable)


@dataclass(frozen=True, slots=True)
class HeldTargets:
    """The Secrets and ConfigMaps of one LIST of each kind.

    Attributes:
        served: The kinds that the API server served before the first of these LISTs.
        namespace: The only namespace that was listed; empty for all.
        generations: The objects that are generations of one another.
    """

    served: ListableKinds
    namespace: str = ""
    generations: Generations = field(default_factory=Generations)
    _pages: Mapping[TargetKind, list[_HeldPage]] = field(default_factory=lambda: {kind: [] for kind in TargetKind})
    _names: list[tuple[TargetKind, str, str]] = field(default_factory=list)
    _refused: dict[TargetKind, PermanentError] = field(default_factory=dict)

    async def read(self, cluster: TargetSource) -> None:
        """List both kinds; that a kind may not be listed is the answer to a later `list_targets`.

        Raises:
            TryLaterError: The API server is busy or away.
        """
        for kind in TargetKind:
            try:
                await self._read_kind(cluster, kind)
            except PermanentError as error:
                self._refused[kind] = error

    async def _read_kind(self, cluster: TargetSource, kind: TargetKind) -> None:
        token, is_first = "", True
        while token or is_first:
            page = await cluster.list_targets(kind, namespace=self.namespace, continue_token=token)
            self._pages[kind].append(_HeldPage.of(page))
            for one in page.targets:
                self.generations.add(one.obj)
            self._names.extend((kind, ref.namespace, ref.name) for ref in (ref_of(one.obj) for one in page.targets))
            token, is_first = page.continue_token, False
            del page  # free the memory before the next page is parsed

    def names(self, within: Collection[str] | None = None) -> TargetNames:
        """The names of the objects; a kind that may not be listed has none.

        Args:
            within: Only the names in these namespaces; None for all that were listed.
        """
        return name_targets(one for one in self._names if within is None or one[1] in within)

    async def list_targets(self, kind: TargetKind, *, namespace: str = "", continue_token: str = "") -> TargetPage:
        """Return a page again; see `shared.ports.cluster.UsageCluster`.

        Raises:
            PermanentError: The LIST was refused, or it was of another namespace.
        """
        if kind in self._refused:
            raise self._refused[kind]
        if namespace != self.namespace:
            raise PermanentError(f"expected the {kind}s of namespace {self.namespace or '*'}, got {namespace or '*'}")
        place = int(continue_token or 0)
        more = place + 1 < len(self._pages[kind])
        return self._pages[kind][place].read(str(place + 1) if more else "")
