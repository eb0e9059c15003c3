"""Make one pass over all objects that may refer to Secrets and ConfigMaps: the LISTs, and what they found.

A kind whose objects refer only to their own namespace may be listed in several namespaces, one LIST each. Then the pass
has a result for each of these namespaces: a LIST that fails in one of them is no problem of another.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from shared.core.references.reading import ReferenceReader
from shared.core.references.reference import ANY, BOTH, Reference
from shared.core.references.reference_index import ReferenceIndex
from shared.core.references.target_names import TargetNames
from shared.core.unused.passes import Pass
from shared.errors import TryLaterError, TtlError
from shared.evaluation.held_targets import HeldTargets
from shared.evaluation.turns import Turns
from shared.ports import ListableKind, Page, Unreadable, UsageCluster

CARRIERS_AT_ONCE = 4
"""LISTs of carriers that run at the same time: each holds a page."""

_PROBLEMS_SHOWN = 3


@dataclass(frozen=True, slots=True)
class CarrierList:
    """One LIST of a pass.

    Attributes:
        kind: The kind.
        namespace: The only namespace that is listed; empty for all.
        crosses: Whether an object of the kind may refer to another namespace than its own.
    """

    kind: ListableKind
    namespace: str = ""
    crosses: bool = True

    @property
    def name(self) -> str:
        """What the LIST is called in a problem: `pods`, `pods in namespace ci`."""
        return f"{self.kind.name} in namespace {self.namespace}" if self.namespace else self.kind.name


@dataclass
class UsagePass:
    """A pass that is made.

    Attributes:
        cluster: The API server.
        reader: Reads the references of an object.
        names: The objects whose references are looked for.
        started_at: The API server's time before the first LIST.
        problem: Why discovery is not complete; empty if it is.
        held: Secrets and ConfigMaps that were listed after `started_at`; None to list them.
        index: The references of all objects.
    """

    cluster: UsageCluster
    reader: ReferenceReader
    names: TargetNames
    started_at: datetime
    problem: str = ""
    held: HeldTargets | None = None
    index: ReferenceIndex = field(default_factory=ReferenceIndex)
    _read_at: datetime = field(init=False)
    _versions: dict[CarrierList, str] = field(default_factory=dict)
    _failures: dict[CarrierList, TtlError] = field(default_factory=dict)
    _torn: set[CarrierList] = field(default_factory=set)
    _turns: Turns = field(default_factory=Turns)

    def __post_init__(self) -> None:
        self._read_at = self.started_at

    async def run(self, lists: Iterable[CarrierList]) -> None:
        """Make the LISTs, in this order.

        A LIST that fails is a problem of the pass, and raises no error.

        Raises:
            TryLaterError: The API server is away: each LIST that was sent failed.
        """
        queue = iter(lists)
        async with asyncio.TaskGroup() as group:
            for _ in range(CARRIERS_AT_ONCE):
                group.create_task(self._list_all(queue))
        if self._failures and len(self._failures) == sum(not self._is_held(one) for one in self._versions):
            away = [one for one in self._failures.values() if isinstance(one, TryLaterError)]
            if len(away) == len(self._failures):
                raise away[0]

    def result(self) -> Pass:
        """The result for all namespaces, once each LIST has ended; any problem is a problem of this one."""
        return self._result(self._versions)

    def results(self, namespaces: Iterable[str]) -> Mapping[str, Pass]:
        """The result for each of some namespaces: of the LISTs that can find a reference to its objects."""
        return {
            name: self._result([one for one in self._versions if one.namespace in ("", name)]) for name in namespaces
        }

    def _result(self, lists: Iterable[CarrierList]) -> Pass:
        known = sorted(lists, key=lambda one: (one.kind.name, one.namespace))
        problems = [self.problem] if self.problem else []
        problems += [f"{one.name} cannot be listed: {self._failures[one]}" for one in known if one in self._failures]
        torn = (one.name for one in known if one in self._torn)
        problems += [f"{name} changed during the LIST: its pages show several states" for name in torn]
        more = len(problems) - _PROBLEMS_SHOWN
        text = "; ".join(problems[:_PROBLEMS_SHOWN]) + (f"; and {more} more" if more > 0 else "")
        versions: dict[str, str] = {}
        for one in known:  # of several LISTs of a kind, one without a version counts
            versions[one.kind.name] = versions.get(one.kind.name, "x") and self._versions[one]
        return Pass(self.started_at, self._read_at, versions, text)

    async def _list_all(self, queue: Iterator[CarrierList]) -> None:
        """Make one LIST after another; an iterator of all tasks has the next one."""
        for one in queue:
            try:
                await self._list(one)
            except TtlError as error:
                self._versions[one] = ""
                self._failures[one] = error

    async def _list(self, one: CarrierList) -> None:
        token = ""
        while True:
            page = await self._list_page(one, token)
            self._read_at = max(self._read_at, page.read_at)
            if self._versions.setdefault(one, page.resource_version) != page.resource_version:
                self._torn.add(one)
            await self._add(one, page.items, page.unreadable)
            token = page.continue_token
            del page  # free the memory before the next page is parsed
            if not token:
                return

    async def _list_page(self, one: CarrierList, token: str) -> Page:
        kind = one.kind
        if kind.target is None:
            return await self.cluster.list_objects(kind, namespace=one.namespace, continue_token=token)
        source = self.held if self.held and self._is_held(one) else self.cluster
        page = await source.list_targets(kind.target, namespace=one.namespace, continue_token=token)
        items = [target.obj for target in page.targets]
        return Page(items, page.read_at, page.continue_token, page.resource_version, page.unreadable)

    def _is_held(self, one: CarrierList) -> bool:
        """Return whether a LIST was sent before the pass."""
        return self.held is not None and one.kind.target is not None and one.namespace == self.held.namespace

    async def _add(self, one: CarrierList, objects: Sequence[Any], unreadable: Sequence[Unreadable]) -> None:
        """Add the references of the objects of a page.

        An object that cannot be read may refer to any object; one of a kind that does not cross, of its namespace only.
        """
        for obj in objects:
            for reference in self.reader.read_each(obj, self.names):
                if reference is not None:
                    self.index.add((reference,))
                if self._turns.is_over:
                    await self._turns.pause()
            await self._turns.pause()
        for left_out in unreadable:
            place = ANY if one.crosses else one.namespace or left_out.ref.namespace or ANY
            self.index.add(Reference(kind, place, ANY, "", left_out.ref, problem=left_out.problem) for kind in BOTH)
