"""Decide about unused Secrets and ConfigMaps, write to them, and report: what marks and deletions have in common."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from shared.core.decision.namespaces import Namespace
from shared.core.kinds.rule import KindRule
from shared.core.policy.policy import Policy
from shared.core.policy.policy_rule import PolicyRule
from shared.core.policy.usage import CONFIG_MAPS, SECRETS
from shared.core.references.reference import TargetKind
from shared.core.usage.archive_proof import ArchiveProof
from shared.core.usage.decide_unused import UnusedContext, UnusedDecision, decide_unused
from shared.core.values.objects import ObjectRef, ref_of
from shared.errors import ForbiddenError, PermanentError
from shared.evaluation.namespaces import Namespaces
from shared.evaluation.usage_reader import Target, UsageFound
from shared.ports import Clock, Cluster, EventLevel, EventReason, Refusal, Report, Telemetry, Verdict
from shared.safeguards.safeguards import Safeguards
from shared.usecases.counted_writes import patch_exactly
from shared.usecases.usage.archive import UsageArchive
from shared.usecases.usage.refusals import UsageRefusals

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
