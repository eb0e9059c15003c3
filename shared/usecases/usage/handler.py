"""Decide about unused Secrets and ConfigMaps, write to them, and report: what marks and deletions have in common.

`UsageArchive` is the only place where `usage` reads the data of an object. It does so only if a policy rule has the
object archived, and only when the object is due. A DELETE carries the resourceVersion that was stored.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from shared.core.archive.archiving import ArchiveFact, Archiving
from shared.core.archive.document import Record
from shared.core.archive.gate import ArchiveProof, find_unused_archiving
from shared.core.decision.facts import Context
from shared.core.decision.namespaces import Namespace
from shared.core.kinds.rule import KindRule
from shared.core.policy.archives import ArchiveDestination
from shared.core.policy.policy import Policy
from shared.core.policy.policy_rule import PolicyRule
from shared.core.policy.usage import CONFIG_MAPS, SECRETS, USAGE_KINDS
from shared.core.references.reference import TargetKind
from shared.core.usage.decide_unused import UnusedContext, UnusedDecision, decide_unused
from shared.core.values.objects import ObjectRef, get_text, ref_of
from shared.errors import ConflictError, DamagedDocumentError, ForbiddenError, PermanentError, TryLaterError
from shared.evaluation.archive_check import ArchiveCheck
from shared.evaluation.namespaces_and_owners import Namespaces
from shared.evaluation.usage_reader import UsageFound
from shared.ports import (
    Clock,
    Cluster,
    EventLevel,
    EventReason,
    Refusal,
    Report,
    Snapshot,
    Target,
    Telemetry,
    UsageCluster,
    Verdict,
)
from shared.safeguards.safeguards import Safeguards
from shared.usecases.archives.lookup import archived_of
from shared.usecases.archives.writer import ArchiveOrder, ArchiveWriter
from shared.usecases.counted_writes import patch_exactly

STORE_SECONDS_MAX = 30.0
"""How long the storing of one object may take."""


@dataclass(frozen=True, slots=True)
class UsageArchive:
    """Stores Secrets and ConfigMaps.

    Attributes:
        cluster: Reads the whole object.
        writer: Stores it.
        check: Reads the stored document back.
        telemetry: Records what is stored.
    """

    cluster: UsageCluster
    writer: ArchiveWriter
    check: ArchiveCheck
    telemetry: Telemetry

    async def prove(self, target: Target, rule: PolicyRule, policy: Policy) -> ArchiveProof:
        """Store exactly the version of an object that would be deleted, unless it is stored already.

        Args:
            target: The object, which is due.
            rule: The policy rule that has it deleted and archived.
            policy: The policy in force.

        Raises:
            ConflictError: The object has changed, or is gone.
            TryLaterError: The API server or the archive is busy or away.
            PermanentError: The API server or the archive refuses for good, or does not answer.
        """
        archiving = find_unused_archiving(rule)
        destination = policy.archives.get(archiving.to) if archiving is not None else None
        if archiving is None or destination is None:
            raise PermanentError(f"{rule.source}: the policy has no archive for it")
        kind = _kind_of(target)
        if kind.kind == TargetKind.SECRET and not destination.secrets:
            raise PermanentError(f"archive {archiving.to}: expected secrets: true for a Secret")
        snapshot = await self._read(target)
        fact = await self._find(archiving, snapshot, kind, policy)
        if fact is None or fact.acknowledged_at is None:
            await self._write(snapshot, kind, _order(archiving, destination, rule, snapshot))
            fact = await self.check.read_back_as(archiving, snapshot.obj, kind, Context(policy))
        return ArchiveProof(fact, destination, snapshot.read_at)

    async def _read(self, target: Target) -> Snapshot:
        """Read the whole object, in the version that was decided on."""
        ref = ref_of(target.obj)
        snapshot = await self.cluster.get_with_data(TargetKind(ref.kind), ref.namespace, ref.name)
        parts = ("metadata.uid", "metadata.resourceVersion")
        if snapshot is None or any(get_text(snapshot.obj, one) != get_text(target.obj, one) for one in parts):
            raise ConflictError(f"{ref} has changed since it was read")
        return snapshot

    async def _find(
        self, archiving: Archiving, snapshot: Snapshot, kind: KindRule, policy: Policy
    ) -> ArchiveFact | None:
        try:
            return await self.check.read_back_as(archiving, snapshot.obj, kind, Context(policy))
        except DamagedDocumentError:  # the writer replaces it
            return None

    async def _write(self, snapshot: Snapshot, kind: KindRule, order: ArchiveOrder) -> None:
        try:
            async with asyncio.timeout(STORE_SECONDS_MAX):
                written = await self.writer.write(snapshot, kind, order)
        except TimeoutError:
            raise TryLaterError(f"archive {order.archiving.to}: no answer within {STORE_SECONDS_MAX:g} s") from None
        archived = archived_of(snapshot.ref, order.archiving.to, written, timer=None)
        self.telemetry.archived(archived, size=written.size, by="usage")


def _kind_of(target: Target) -> KindRule:
    return USAGE_KINDS.find_by_name(ref_of(target.obj).kind)[0]


def _order(archiving: Archiving, destination: ArchiveDestination, rule: PolicyRule, snapshot: Snapshot) -> ArchiveOrder:
    record = Record(archived_at=snapshot.read_at, ttl_from=rule.source, rule=rule.name)
    return ArchiveOrder(archiving, destination, record)


PATCH_REFUSALS_MAX = 20
"""Refusals in a row after which the other objects of a kind in a namespace are skipped.

A right that is missing is certain at the first refusal. An admission webhook may refuse some objects only.
"""

_NO_RIGHT = "cannot patch resource"
"""The words of the API server if a right is missing."""


@dataclass(slots=True)
class UsageRefusals:
    """The refused PATCHes of one tick, by kind and namespace.

    Attributes:
        telemetry: Receives one problem for each kind and namespace that is skipped.
    """

    telemetry: Telemetry
    _in_a_row: Counter[tuple[str, str]] = field(default_factory=Counter)
    _skipped: set[tuple[str, str]] = field(default_factory=set)

    def check(self, ref: ObjectRef) -> None:
        """Check that a PATCH is worth sending.

        Raises:
            TryLaterError: The objects of its kind and namespace are skipped in this tick.
        """
        if (ref.kind, ref.namespace) in self._skipped:
            raise TryLaterError(f"skipped each {ref.kind} in namespace {ref.namespace}: a PATCH was refused")

    def note(self, ref: ObjectRef, error: ForbiddenError) -> None:
        """Note a refusal; see `check` for what it raises.

        Raises:
            TryLaterError: The objects of its kind and namespace are skipped already.
        """
        self.check(ref)
        key = ref.kind, ref.namespace
        self._in_a_row[key] += 1
        if _NO_RIGHT in str(error) or self._in_a_row[key] >= PATCH_REFUSALS_MAX:
            self._skipped.add(key)
            about = {"kind": ref.kind, "namespace": ref.namespace}
            self.telemetry.problem("usage skipped the other objects of a namespace", **about, error=str(error))

    def clear(self, ref: ObjectRef) -> None:
        """Note a PATCH that was accepted."""
        self._in_a_row.pop((ref.kind, ref.namespace), None)


_COUNTED = {
    Verdict.MARKED: "marked",
    Verdict.UNMARKED: "unmarked",
    Verdict.RECORDED: "recorded",
    Verdict.ANNOUNCED: "announced",
    Verdict.WOULD_DELETE: "would_delete",
    Verdict.DELETED: "deleted",
    Verdict.FAILED: "failed",
}

_RULES = {TargetKind.SECRET: SECRETS, TargetKind.CONFIG_MAP: CONFIG_MAPS}


def rule_of(obj: dict[str, Any]) -> KindRule:
    """Return the kind rule of a Secret or a ConfigMap."""
    return _RULES[TargetKind(obj["kind"])]


def now_of(target: Target, *passes: UsageFound) -> datetime:
    """Return the API server's time of a decision: the object was read before the passes, or after them."""
    return max([target.read_at, *(found.of.completed_at for found in passes)])


@dataclass(slots=True)
class UsageCounts:
    """What one tick did."""

    looked_at: int = 0
    window_seconds: float = 0.0
    verdicts: Counter[Verdict] = field(default_factory=Counter)

    def by_name(self) -> dict[str, int]:
        """The counts of the log; an object without another verdict counts as kept."""
        counts = {name: self.verdicts[verdict] for verdict, name in _COUNTED.items()}
        return {"looked_at": self.looked_at, **counts, "kept": max(self.looked_at - sum(counts.values()), 0)}


@dataclass(frozen=True, slots=True)
class UsageHandler:
    """What a tick needs for each object.

    Attributes:
        cluster: The API server.
        policy: Returns the policy in force.
        namespaces: The namespaces, with a cache.
        clock: This process's clock, for lateness only; the API server's clock decides what is due.
        telemetry: Records every verdict.
        interval: The time between two ticks.
        dry_run: Decide and report; change nothing and write nothing.
        safeguards: Asked before each DELETE, and informed of its result; None for no safeguards.
        archive: Stores objects that a policy rule has archived; None if this process stores none.
        by: The function that acts, in logs and metrics.
        counts: What the present tick did.
        refusals: The PATCHes that were refused in the present tick; None outside of a tick.
    """

    cluster: Cluster
    policy: Callable[[], Policy]
    namespaces: Namespaces
    clock: Clock
    telemetry: Telemetry
    interval: timedelta
    dry_run: bool = False
    safeguards: Safeguards | None = None
    archive: UsageArchive | None = None
    by: str = "usage"
    counts: UsageCounts = field(default_factory=UsageCounts)
    refusals: UsageRefusals | None = None

    async def find_namespace(self, target: Target) -> Namespace | None:
        """Read the Namespace of an object; None if it cannot be read, so that the object is kept.

        Raises:
            TryLaterError: The API server is busy or away.
        """
        try:
            return await self.namespaces.get(ref_of(target.obj).namespace)
        except PermanentError:
            return None

    def decide(self, target: Target, namespace: Namespace | None, *passes: UsageFound) -> UnusedDecision:
        """Decide about an object by what some passes found, at the end of the last of them.

        The object may be older: a write or a DELETE carries its resourceVersion, so one that has changed is kept.

        Args:
            target: The object.
            namespace: Its Namespace; None if it was not read.
            passes: The passes, the oldest first.
        """
        observations = tuple(found.observe(target.obj) for found in passes)
        context = UnusedContext(self.policy(), namespace, observations)
        return decide_unused(target.obj, rule_of(target.obj), now_of(target, *passes), context, ahead=target.ahead)

    async def patch(self, target: Target, patch: dict[str, Any], *, manager: str) -> None:
        """Patch exactly the object that was read, as one of our field managers: so the write attests itself.

        Raises:
            ConflictError: The object has changed, or is gone.
            TryLaterError: The API server is busy or away, or has refused the PATCHes of such objects in this tick.
            PermanentError: The API server refuses for good.
        """
        ref = ref_of(target.obj)
        if self.refusals:
            self.refusals.check(ref)
        try:
            await patch_exactly(self.cluster, rule_of(target.obj), target.obj, patch, manager=manager)
        except ForbiddenError as error:
            if self.refusals:
                self.refusals.note(ref, error)
            raise
        if self.refusals:
            self.refusals.clear(ref)

    async def prove_archived(self, target: Target, rule: PolicyRule) -> ArchiveProof:
        """Store an object in the archive of a policy rule; see `UsageArchive.prove`."""
        if self.archive is None:
            raise PermanentError(f"{rule.source}: this process has no access to an archive")
        return await self.archive.prove(target, rule, self.policy())

    def record(self, verdict: Verdict, ref: ObjectRef, reason: str, *, detail: str = "") -> None:
        """Record a verdict, and count it."""
        self.counts.verdicts[verdict] += 1
        self.telemetry.record(verdict, ref, reason, detail=detail, by=self.by)

    def keep(self, targets: Iterable[Target], reason: str, detail: str = "") -> None:
        """Record that objects are kept that were due."""
        for target in targets:
            self.record(Verdict.KEPT, ref_of(target.obj), reason, detail=detail)

    def report(self, ref: ObjectRef, error: PermanentError) -> None:
        """Report a permanent error by a log line, a metric, and an entry of the journal."""
        self.record(Verdict.FAILED, ref, type(error).__name__, detail=str(error))
        self.note_refusal(ref, EventReason.DELETION_REFUSED, error)

    def note_refusal(self, ref: ObjectRef, reason: EventReason, error: PermanentError) -> None:
        """Note in the journal what was refused for good."""
        if not self.dry_run:
            self.telemetry.refused(Refusal.of(ref, reason, error, at=self.clock.now()), by=self.by)

    def write_event(self, ref: ObjectRef, reason: EventReason, message: str, *, level: EventLevel = "Warning") -> None:
        """Have the journal write an Event in the background, within its limits: the verdict does not depend on it."""
        if not self.dry_run:
            self.telemetry.reported(Report.of(ref, reason, message, at=self.clock.now()), by=self.by, level=level)


def archives_unused(policy: Policy) -> bool:
    """Return whether a rule of the policy has unused objects archived before they are deleted."""
    return any(rule.unused is not None and rule.archive is not None for rule in policy.rules)


def has_unused_rule(policy: Policy) -> bool:
    """Return whether a rule of the policy has unused objects deleted; without one, no pass is made."""
    return any(rule.unused is not None for rule in policy.rules)
