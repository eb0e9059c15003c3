"""Find what refers to Secrets and ConfigMaps: one pass lists each kind that may refer to one, page by page.

Only the references are held, never the objects. The kinds that are listed last are the workloads, and Pods at the very
end: a Pod is what most likely appears between a pass and a DELETE.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from shared.core.references.carrier import Carriers
from shared.core.references.reading import ReferenceReader
from shared.core.references.reference import ANY, BOTH, Reference, ReferenceIndex, TargetKind, TargetNames
from shared.core.usage.passes import Generations, Observation, Pass, UsedGenerations
from shared.core.values.objects import get_in, get_text
from shared.errors import TryLaterError, TtlError
from shared.evaluation.held_targets import HeldTargets
from shared.ports import ListableKind, ListableKinds, Page, Target, Unreadable, UsageCluster, loop_now

TURN_SECONDS_MAX = 0.02
"""How long the work runs before other tasks run: a health check and other answers wait no longer for it."""


class Turns:
    """The turns of the event loop during one work, which several tasks may share."""

    def __init__(self) -> None:
        self._since = 0.0

    @property
    def is_over(self) -> bool:
        """Return whether the present turn has taken long; ask it after each part of the work on one object."""
        return loop_now() - self._since >= TURN_SECONDS_MAX

    async def pause(self) -> None:
        """Let other tasks run, if the present turn has taken long; call it after each object."""
        if self.is_over:
            await asyncio.sleep(0)
            self._since = loop_now()


CARRIERS_AT_ONCE = 4
"""LISTs of carriers that run at the same time: each holds a page."""

_PROBLEMS_SHOWN = 3


@dataclass(frozen=True, slots=True)
class _CarrierList:
    """One LIST of a pass.

    A kind whose objects refer only to their own namespace may be listed in several namespaces, one LIST each. Then the
    pass has a result for each of these namespaces: a LIST that fails in one of them is no problem of another.

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
class _UsagePass:
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
    _versions: dict[_CarrierList, str] = field(default_factory=dict)
    _failures: dict[_CarrierList, TtlError] = field(default_factory=dict)
    _torn: set[_CarrierList] = field(default_factory=set)
    _turns: Turns = field(default_factory=Turns)

    def __post_init__(self) -> None:
        self._read_at = self.started_at

    async def run(self, lists: Iterable[_CarrierList]) -> None:
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

    def _result(self, lists: Iterable[_CarrierList]) -> Pass:
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

    async def _list_all(self, queue: Iterator[_CarrierList]) -> None:
        """Make one LIST after another; an iterator of all tasks has the next one."""
        for one in queue:
            try:
                await self._list(one)
            except TtlError as error:
                self._versions[one] = ""
                self._failures[one] = error

    async def _list(self, one: _CarrierList) -> None:
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

    async def _list_page(self, one: _CarrierList, token: str) -> Page:
        kind = one.kind
        if kind.target is None:
            return await self.cluster.list_objects(kind, namespace=one.namespace, continue_token=token)
        source = self.held if self.held and self._is_held(one) else self.cluster
        page = await source.list_targets(kind.target, namespace=one.namespace, continue_token=token)
        items = [target.obj for target in page.targets]
        return Page(items, page.read_at, page.continue_token, page.resource_version, page.unreadable)

    def _is_held(self, one: _CarrierList) -> bool:
        """Return whether a LIST was sent before the pass."""
        return self.held is not None and one.kind.target is not None and one.namespace == self.held.namespace

    async def _add(self, one: _CarrierList, objects: Sequence[Any], unreadable: Sequence[Unreadable]) -> None:
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


__all__ = ["HeldTargets", "Target", "UsageFound", "UsageReader"]

NAMESPACES_LISTED_MAX = 10
"""The most namespaces of which each kind is listed by one LIST per namespace; beyond that, by one LIST of all."""

_NAMES_SHOWN = 3


@dataclass(frozen=True, slots=True)
class UsageFound:
    """What one pass found.

    Attributes:
        of: The pass.
        index: The references of all objects.
        names: The Secrets and ConfigMaps whose references were looked for.
        namespaces: The namespaces whose objects the pass can show to be unused; empty for all.
        by_namespace: The pass as it concerns the objects of one namespace; of any other, `of` counts.
        generations: The Secrets and ConfigMaps that are generations of one another.
    """

    of: Pass
    index: ReferenceIndex
    names: TargetNames
    namespaces: Collection[str] = ()
    by_namespace: Mapping[str, Pass] = field(default_factory=dict)
    generations: Generations = field(default_factory=Generations)
    _used: UsedGenerations = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_used", UsedGenerations(self.generations, self._proves_use))

    def observe(self, obj: Any) -> Observation:
        """Return what the pass observed about a Secret or a ConfigMap; its metadata is enough."""
        kind, namespace, name = (get_text(obj, path) for path in ("kind", "metadata.namespace", "metadata.name"))
        found = self.index.find(kind, namespace, name, get_in(obj, "metadata.labels"))
        if not self.names.has(kind, namespace, name):
            problem = f"the pass did not look for references to {kind} {namespace}/{name}"
            return Observation(replace(self.of, problem=problem), found)
        if self.namespaces and namespace not in self.namespaces:
            problem = f"the pass did not list what may refer to namespace {namespace}"
            return Observation(replace(self.of, problem=problem), found)
        return Observation(self._pass_in(namespace), found, "" if found else self._used.find_newer(obj))

    def _pass_in(self, namespace: str) -> Pass:
        return self.by_namespace.get(namespace, self.of)

    def _proves_use(self, kind: str, namespace: str, name: str) -> bool:
        return Observation(self._pass_in(namespace), self.index.find(kind, namespace, name)).proves_use

    def find_problem(self) -> str:
        """Why it is unknown in each namespace what is used; empty if it is known in some.

        Either the pass is not complete, or an object may refer to each Secret or each ConfigMap of the cluster.
        """
        everywhere = [_describe(one) for one in self.index.list_unknown() if ANY in one.namespace]
        return self.of.find_problem() or "; ".join(dict.fromkeys(everywhere[:_NAMES_SHOWN]))

    def find_unknown(self) -> Mapping[str, str]:
        """The namespaces in which it is unknown what is used, each with the object and the field that are the cause."""
        unknown = (one for one in self.index.list_unknown() if one.namespace in self.names.namespaces)
        return {one.namespace: _describe(one) for one in unknown}


def _describe(one: Reference) -> str:
    return f"{one.source}: {one.problem}"


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

    async def hold_targets(self, *, namespace: str = "") -> HeldTargets:
        """List the Secrets and ConfigMaps, for a first pass and for the decisions after it.

        Args:
            namespace: List only this namespace; empty for all. Then the pass needs no other LIST of them.

        Raises:
            TryLaterError: The API server is busy or away.
            PermanentError: The API server refuses discovery.
        """
        held = HeldTargets(await self.cluster.list_kinds(), namespace)
        await held.read(self.cluster)
        return held

    async def look(
        self, names: TargetNames, *, namespaces: Collection[str] = (), held: HeldTargets | None = None
    ) -> UsageFound:
        """Make a pass: list each served carrier.

        A LIST that fails is the problem of the pass, and raises no error.

        Args:
            names: The objects whose references are looked for; what refers to any other is unknown after it.
            namespaces: Only what can refer to objects of these namespaces: their own workloads, and all objects of the
                kinds that refer to other namespaces. Beyond `NAMESPACES_LISTED_MAX`, the workloads of all namespaces
                are listed. Empty for all namespaces. A text of a workload may mention an object of another namespace,
                and is not found then: so of two passes, the first has to list all namespaces.
            held: What was listed right before, of which the names are: the pass then starts with the LISTs of it.

        Raises:
            TryLaterError: The API server is away: discovery fails, or each LIST does.
            PermanentError: The API server refuses discovery.
        """
        served = held.served if held else await self.cluster.list_kinds()
        work = _UsagePass(self.cluster, self._reader, names, served.read_at, self.find_problem(served), held=held)
        listed = sorted(namespaces) if len(namespaces) <= NAMESPACES_LISTED_MAX else ()
        await work.run(self._order(served, listed))
        by_namespace, generations = work.results(listed), held.generations if held else Generations()
        return UsageFound(work.result(), work.index, names, frozenset(namespaces), by_namespace, generations)

    def find_problem(self, served: ListableKinds) -> str:
        """Why the served kinds do not tell which objects refer to Secrets and ConfigMaps; empty if they do."""
        unlistable = sorted(one.name for one in map(self._known, served.unlistable) if self._is_searched(one))
        if not unlistable:
            return served.problem
        names = ", ".join(unlistable[:_NAMES_SHOWN]) + (", ..." if len(unlistable) > _NAMES_SHOWN else "")
        advice = "if its objects refer to none, write a carrier rule with refersToNone"
        problem = f"{names} is served, and its API server cannot list it: {advice}"
        return "; ".join(filter(None, (served.problem, problem)))

    def find_carriers(self, served: ListableKinds) -> tuple[ListableKind, ...]:
        """The kinds that a pass lists, each in the version that a carrier rule knows, else in the preferred one."""
        kinds = (self._known(one) for one in served.kinds)
        return tuple(one for one in kinds if self._is_searched(one))

    async def targets(
        self, kind: TargetKind, *, namespace: str = "", held: HeldTargets | None = None
    ) -> AsyncIterator[Sequence[Target]]:
        """Yield the Secrets or ConfigMaps page by page, without their data; one that cannot be read is left out.

        Args:
            kind: Which of the two.
            namespace: Only this namespace; empty for all.
            held: What was listed before, of this namespace; None to list them now.

        Raises:
            TryLaterError: The API server is busy or away.
            PermanentError: The LIST is refused.
        """
        token = ""
        while True:
            page = await (held or self.cluster).list_targets(kind, namespace=namespace, continue_token=token)
            yield page.targets
            token = page.continue_token
            del page  # free the memory before the next page is parsed
            if not token:
                return

    def _is_searched(self, kind: ListableKind) -> bool:
        return self.carriers.is_searched(kind.api_version, kind.kind)

    def _known(self, kind: ListableKind) -> ListableKind:
        known = (version for version in kind.api_versions if self.carriers.get(version, kind.kind) is not None)
        return kind.listed_in(next(known, kind.api_version))

    def _order(self, served: ListableKinds, namespaces: Sequence[str]) -> Iterator[_CarrierList]:
        """Yield the LISTs of a pass, those of the workloads last."""
        kinds = sorted(self.find_carriers(served), key=lambda one: (not self._crosses(one), one.name == "pods"))
        for kind in kinds:
            crosses = self._crosses(kind)
            places = [""] if crosses or not namespaces else namespaces
            yield from (_CarrierList(kind, namespace, crosses) for namespace in places)

    def _crosses(self, kind: ListableKind) -> bool:
        carrier = self.carriers.get(kind.api_version, kind.kind)
        return not kind.is_namespaced or carrier is None or carrier.crosses
