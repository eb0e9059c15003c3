"""Find what refers to Secrets and ConfigMaps, and decide about them without writing anything."""

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime

from shared.adapters.config.carrier_files import read_carriers
from shared.adapters.config.settings import read_settings
from shared.cli.input.options import Options
from shared.cli.objects.preview import AbsentObjectError, no_cyclic_collection
from shared.core.decision.namespaces import Namespace
from shared.core.kinds.rule import KindRule
from shared.core.policy.policy import Policy
from shared.core.policy.usage import CONFIG_MAPS, SECRETS, USAGE_KINDS
from shared.core.references.carrier import Carriers
from shared.core.references.reference import Reference, TargetKind, names_of
from shared.core.usage.decide_unused import UnusedContext, UnusedDecision, decide_unused
from shared.core.usage.mark import read_unused_mark
from shared.core.usage.passes import Observation
from shared.core.usage.unused_reasons import UnusedReason
from shared.core.values.objects import get_text, parse_instant
from shared.errors import PermanentError
from shared.evaluation.namespaces_and_owners import Namespaces
from shared.evaluation.usage_reader import HeldTargets, UsageFound, UsageReader
from shared.ports import Cluster, Target

RULES = {TargetKind.SECRET: SECRETS, TargetKind.CONFIG_MAP: CONFIG_MAPS}


@dataclass(frozen=True, slots=True)
class UsageFinding:
    """What was found about one Secret or ConfigMap.

    Attributes:
        target: The object, without its data.
        decision: The decision about it.
        observation: What the last pass observed about it.
        now: The time of the decision.
    """

    target: Target
    decision: UnusedDecision
    observation: Observation
    now: datetime

    @property
    def is_used(self) -> bool | None:
        """Whether an object refers to it; None if that is unknown."""
        if self.observation.is_used:
            return True
        return None if self.observation.find_problem() else False

    @property
    def is_never_used(self) -> bool:
        """Whether nothing refers to it, and nothing shows that it was used: kept, unless its rule has neverUsed."""
        return self.is_used is False and not self.decision.facts.has_evidence

    @property
    def metadata_bytes(self) -> int:
        """The size of its metadata as JSON."""
        return len(json.dumps(self.target.obj.get("metadata"), separators=(",", ":")).encode())

    @property
    def unused_since(self) -> datetime | None:
        """Since when it is known to be unused; None if it is used, or not marked."""
        return read_unused_mark(self.target.obj) if self.is_used is False else None

    @property
    def created_at(self) -> datetime | None:
        """When it was created; None if that cannot be read."""
        try:
            return parse_instant(get_text(self.target.obj, "metadata.creationTimestamp"))
        except ValueError:
            return None


def find_usage_kind(word: str) -> KindRule | None:
    """The rule of Secrets or of ConfigMaps, if a word names one of these kinds."""
    try:
        return USAGE_KINDS.find_by_name(word)[0]
    except ValueError:
        return None


def carriers_of(options: Options) -> Carriers:
    """Read the carrier rules: the shipped ones, and those of the user's directory, else of $TTL_REFERENCES_DIR.

    Raises:
        TtlError: A rule in the directory is invalid.
    """
    return read_carriers(options.references_dir or read_settings().references_dir)


async def find_one_usage(
    reader: UsageReader, cluster: Cluster, rule: KindRule, *, namespace: str, name: str, policy: Policy
) -> UsageFinding:
    """Read one Secret or ConfigMap, and make a pass; if its TTL is over, make a second one, which confirms it.

    Raises:
        AbsentObjectError: It does not exist.
        TtlError: It cannot be read.
    """
    kind = TargetKind(rule.kind)
    with no_cyclic_collection():
        target = await reader.cluster.get_target(kind, namespace, name)
        if target is None:
            raise AbsentObjectError(f"{kind} {name} does not exist in namespace {namespace}")
        settings = await _read_namespace(Namespaces(cluster, only=namespace), namespace)
        held = await reader.hold_targets()
        siblings = held.names({namespace})
        names = siblings if siblings.has(kind, namespace, name) else names_of([target.obj])
        passes = [await reader.look(names, held=held)]
        finding = _decide(target, passes, policy, settings)
        if finding.decision.reason is UnusedReason.UNCONFIRMED:
            passes.append(await reader.look(names, namespaces=(namespace,)))
            finding = _decide(target, passes, policy, settings)
    return finding


async def find_all_usage(
    reader: UsageReader, cluster: Cluster, *, namespace: str, policy: Policy
) -> tuple[UsageFound, Sequence[UsageFinding]]:
    """Make a pass, and decide about all Secrets and ConfigMaps to which no known reference points.

    Raises:
        TtlError: They cannot be listed.
    """
    unused: list[UsageFinding] = []
    namespaces = Namespaces(cluster, only=namespace)
    with no_cyclic_collection():
        held = await reader.hold_targets(namespace=namespace)
        found = await reader.look(held.names(), held=held)
        await namespaces.prime()
        for kind in RULES:
            async with aclosing(_targets(reader, kind, held)) as targets:
                async for one in targets:
                    if found.observe(one.obj).is_used:
                        continue
                    settings = await _read_namespace(namespaces, get_text(one.obj, "metadata.namespace"))
                    unused.append(_decide(one, [found], policy, settings))
    return found, unused


async def _targets(reader: UsageReader, kind: TargetKind, held: HeldTargets) -> AsyncGenerator[Target]:
    async for page in reader.targets(kind, namespace=held.namespace, held=held):
        for one in page:
            yield one


def _decide(target: Target, passes: Sequence[UsageFound], policy: Policy, namespace: Namespace | None) -> UsageFinding:
    observations = tuple(one.observe(target.obj) for one in passes)
    now = max(target.read_at, passes[-1].of.completed_at)
    context = UnusedContext(policy, namespace, observations)
    rule = RULES[TargetKind(get_text(target.obj, "kind"))]
    decision = decide_unused(target.obj, rule, now, context, ahead=target.ahead)
    return UsageFinding(target, decision, observations[-1], now)


async def _read_namespace(namespaces: Namespaces, name: str) -> Namespace | None:
    try:
        return namespaces.get_cached(name) or await namespaces.get(name)
    except PermanentError:
        return None


def source_of(reference: Reference) -> str:
    """Name the object that refers, with its namespace if it has one: `Deployment ci/web`."""
    source = reference.source
    return f"{source.kind} {source.namespace}/{source.name}" if source.namespace else f"{source.kind} {source.name}"
