"""Find what refers to Secrets and ConfigMaps: one pass lists each kind that may refer to one, page by page.

Only the references are held, never the objects. The kinds that are listed last are the workloads, and Pods at the very
end: a Pod is what most likely appears between a pass and a DELETE.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from shared.core.objects import get_in, get_text
from shared.core.references.carriers import Carriers
from shared.core.references.reading import ReferenceReader
from shared.core.references.reference import ANY, BOTH, Reference, TargetKind
from shared.core.references.reference_index import ReferenceIndex
from shared.core.unused.passes import Observation, Pass
from shared.errors import TryLaterError, TtlError
from shared.ports import ListableKind, ListableKinds, Page, Target, Unreadable, UsageCluster

__all__ = ["Target", "UsageFound", "UsageReader"]

CARRIERS_AT_ONCE = 4
"""LISTs of carriers that run at the same time: each holds a page."""

_PROBLEMS_SHOWN = 3
_OBJECTS_AT_ONCE = 50
"""Objects that are read before other tasks run."""


@dataclass(frozen=True, slots=True)
class UsageFound:
    """What one pass found.

    Attributes:
        of: The pass.
        index: The references of all objects.
        namespace: The only namespace whose objects the pass can show to be unused; empty for all.
    """

    of: Pass
    index: ReferenceIndex
    namespace: str = ""

    def observe(self, obj: Any) -> Observation:
        """Return what the pass observed about a Secret or a ConfigMap; its metadata is enough."""
        kind, namespace, name = (get_text(obj, path) for path in ("kind", "metadata.namespace", "metadata.name"))
        found = self.index.find(kind, namespace, name, get_in(obj, "metadata.labels"))
        if self.namespace in ("", namespace):
            return Observation(self.of, found)
        problem = f"the pass listed only what may refer to namespace {self.namespace}"
        return Observation(replace(self.of, problem=problem), found)


@dataclass
class UsageReader:
    """Reads references to Secrets and ConfigMaps from the API server, and the metadata of Secrets and ConfigMaps.

    Attributes:
        cluster: The API server.
        carriers: The known carrier rules.
    """

    cluster: UsageCluster
    carriers: Carriers
    _reader: ReferenceReader = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._reader = ReferenceReader(self.carriers)

    async def look(self, *, namespace: str = "") -> UsageFound:
        """Make a pass: list each served carrier.

        A LIST that fails is the problem of the pass, and raises no error.

        Args:
            namespace: Only what can refer to objects of this namespace: its own workloads, and all objects of the kinds
                that refer to other namespaces. Empty for all.

        Raises:
            TryLaterError: The API server is away: discovery fails, or each LIST does.
            PermanentError: The API server refuses discovery.
        """
        served = await self.cluster.list_kinds()
        work = _Work(self.cluster, self._reader, served.read_at, served.problem)
        queue = iter(self._order(served, namespace))
        async with asyncio.TaskGroup() as group:
            for _ in range(CARRIERS_AT_ONCE):
                group.create_task(_list_all(queue, work))
        if work.failures and len(work.failures) == len(work.versions):
            away = [one for one in work.failures.values() if isinstance(one, TryLaterError)]
            if len(away) == len(work.failures):
                raise away[0]
        return UsageFound(work.as_pass(served.read_at), work.index, namespace)

    def find_carriers(self, served: ListableKinds) -> tuple[ListableKind, ...]:
        """The kinds that a pass lists, each in the version that a carrier rule knows, else in the preferred one."""
        kinds = (self._known(one) for one in served.kinds)
        return tuple(one for one in kinds if self.carriers.is_searched(one.api_version, one.kind))

    async def targets(self, kind: TargetKind, *, namespace: str = "") -> AsyncIterator[Sequence[Target]]:
        """Yield the Secrets or ConfigMaps page by page, without their data; one that cannot be read is left out.

        Raises:
            TryLaterError: The API server is busy or away.
            PermanentError: The LIST is refused.
        """
        token = ""
        while True:
            page = await self.cluster.list_targets(kind, namespace=namespace, continue_token=token)
            yield page.targets
            token = page.continue_token
            del page  # free the memory before the next page is parsed
            if not token:
                return

    def _known(self, kind: ListableKind) -> ListableKind:
        known = (version for version in kind.api_versions if self.carriers.get(version, kind.kind) is not None)
        return kind.listed_in(next(known, kind.api_version))

    def _order(self, served: ListableKinds, namespace: str) -> list[tuple[ListableKind, str]]:
        """Return the LISTs of a pass, those of the workloads last."""
        kinds = sorted(self.find_carriers(served), key=lambda one: (not self._crosses(one), one.name == "pods"))
        return [(kind, "" if self._crosses(kind) else namespace) for kind in kinds]

    def _crosses(self, kind: ListableKind) -> bool:
        carrier = self.carriers.get(kind.api_version, kind.kind)
        return not kind.is_namespaced or carrier is None or carrier.crosses


@dataclass
class _Work:
    """A pass that is made."""

    cluster: UsageCluster
    reader: ReferenceReader
    read_at: datetime
    problem: str
    index: ReferenceIndex = field(default_factory=ReferenceIndex)
    versions: dict[str, str] = field(default_factory=dict)
    failures: dict[str, TtlError] = field(default_factory=dict)
    torn: list[str] = field(default_factory=list)

    def note(self, kind: ListableKind, version: str, read_at: datetime) -> None:
        """Note the state that a page shows."""
        self.read_at = max(self.read_at, read_at)
        if self.versions.setdefault(kind.name, version) != version:
            self.torn.append(kind.name)

    async def add(self, objects: Sequence[Any], unreadable: Sequence[Unreadable]) -> None:
        """Add the references of the objects of a page; one that cannot be read may refer to any object."""
        for place, obj in enumerate(objects, start=1):
            self.index.add(self.reader.read(obj))
            if place % _OBJECTS_AT_ONCE == 0:
                await asyncio.sleep(0)
        for one in unreadable:
            self.index.add(Reference(kind, ANY, ANY, "", one.ref, problem=one.problem) for kind in BOTH)

    def as_pass(self, started_at: datetime) -> Pass:
        """The pass, once each LIST has ended."""
        problems = [self.problem] if self.problem else []
        problems += [f"{name} cannot be listed: {error}" for name, error in sorted(self.failures.items())]
        problems += [f"{name} changed during the LIST: its pages show several states" for name in sorted({*self.torn})]
        more = len(problems) - _PROBLEMS_SHOWN
        text = "; ".join(problems[:_PROBLEMS_SHOWN]) + (f"; and {more} more" if more > 0 else "")
        return Pass(started_at, max(started_at, self.read_at), self.versions, text)


async def _list_all(queue: Iterator[tuple[ListableKind, str]], work: _Work) -> None:
    """List one carrier after another; an iterator of all tasks has the next one."""
    for kind, namespace in queue:
        try:
            await _list_carrier(kind, namespace, work)
        except TtlError as error:
            work.versions[kind.name] = ""
            work.failures[kind.name] = error


async def _list_carrier(kind: ListableKind, namespace: str, work: _Work) -> None:
    token = ""
    while True:
        page = await _list_page(work.cluster, kind, namespace, token)
        work.note(kind, page.resource_version, page.read_at)
        await work.add(page.items, page.unreadable)
        token = page.continue_token
        del page  # free the memory before the next page is parsed
        if not token:
            return


async def _list_page(cluster: UsageCluster, kind: ListableKind, namespace: str, token: str) -> Page:
    if kind.target is None:
        return await cluster.list_objects(kind, namespace=namespace, continue_token=token)
    page = await cluster.list_targets(kind.target, namespace=namespace, continue_token=token)
    items = [one.obj for one in page.targets]
    return Page(items, page.read_at, page.continue_token, page.resource_version, page.unreadable)
