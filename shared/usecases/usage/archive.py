"""Store a due Secret or ConfigMap in an archive before it is deleted, and read the stored document back.

This is the only place where `usage` reads the data of an object. It does so only if a policy rule has the object
archived, and only when the object is due. A DELETE carries the resourceVersion that was stored.
"""

import asyncio
from dataclasses import dataclass

from shared.core.archive.archiving import ArchiveFact, Archiving
from shared.core.archive.document import Record
from shared.core.decision.facts import Context
from shared.core.kinds.rule import KindRule
from shared.core.policy.archives import ArchiveDestination
from shared.core.policy.policy import Policy
from shared.core.policy.policy_rule import PolicyRule
from shared.core.policy.usage import USAGE_KINDS
from shared.core.references.reference import TargetKind
from shared.core.usage.archive_proof import ArchiveProof, find_unused_archiving
from shared.core.values.objects import get_text, ref_of
from shared.errors import ConflictError, DamagedDocumentError, PermanentError, TryLaterError
from shared.evaluation.archive_check import ArchiveCheck
from shared.ports import Snapshot, Target, Telemetry, UsageCluster
from shared.usecases.archives.lookup import archived_of
from shared.usecases.archives.writer import ArchiveOrder, ArchiveWriter

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
