"""Find what refers to Secrets and ConfigMaps: one pass lists each kind that may refer to one, page by page.

Only the references are held, never the objects. The kinds that are listed last are the workloads, and Pods at the very
end: a Pod is what most likely appears between a pass and a DELETE.
"""

from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from shared.core.objects import get_in, get_text
from shared.core.references.carriers import Carriers
from shared.core.references.reading import ReferenceReader
from shared.core.references.reference import ANY, Reference, TargetKind
from shared.core.references.reference_index import ReferenceIndex
from shared.core.references.target_names import TargetNames
from shared.core.unused.generations import Generations, UsedGenerations
from shared.core.unused.passes import Observation, Pass
from shared.evaluation.held_targets import HeldTargets
from shared.evaluation.usage_pass import CarrierList, UsagePass
from shared.ports import ListableKind, ListableKinds, Target, UsageCluster

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
        work = UsagePass(self.cluster, self._reader, names, served.read_at, self.find_problem(served), held=held)
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

    def _order(self, served: ListableKinds, namespaces: Sequence[str]) -> Iterator[CarrierList]:
        """Yield the LISTs of a pass, those of the workloads last."""
        kinds = sorted(self.find_carriers(served), key=lambda one: (not self._crosses(one), one.name == "pods"))
        for kind in kinds:
            crosses = self._crosses(kind)
            places = [""] if crosses or not namespaces else namespaces
            yield from (CarrierList(kind, namespace, crosses) for namespace in places)

    def _crosses(self, kind: ListableKind) -> bool:
        carrier = self.carriers.get(kind.api_version, kind.kind)
        return not kind.is_namespaced or carrier is None or carrier.crosses
