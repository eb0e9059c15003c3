"""Keep an unused object that a policy rule has archived until the archive has acknowledged exactly this version of it.

It is the gate of `shared.core.archive.gate`, for objects that never finish. Annotations about archives do not count.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from shared.core.archive.archiving import ArchiveFact, Archiving
from shared.core.policy.archives import ArchiveDestination
from shared.core.policy.policy import Policy
from shared.core.policy.policy_rule import PolicyRule
from shared.core.policy.ruling import add
from shared.core.values.objects import format_instant


@dataclass(frozen=True, slots=True)
class ArchiveProof:
    """What an archive holds of one object.

    Attributes:
        fact: Whether it has acknowledged the object, and which version.
        destination: The archive that was asked.
        seen_at: The API server's time of the read of the object.
    """

    fact: ArchiveFact
    destination: ArchiveDestination
    seen_at: datetime


def find_unused_archiving(rule: PolicyRule | None) -> Archiving | None:
    """How an object is archived before it is deleted by a rule with `unused`; None if it is not."""
    if rule is None or rule.archive is None:
        return None
    return Archiving(rule.archive.to, rule.source, rule.name, rule.archive.grace, children=False)


def find_unarchived(obj: Any, rule: PolicyRule | None, policy: Policy, proof: ArchiveProof | None) -> str:
    """Why an object that is due may not be deleted yet because of its archive; empty if it may.

    Args:
        obj: The version of the object that would be deleted.
        rule: The policy rule that has it deleted.
        policy: The policy in force.
        proof: What its archive holds; None if it was not asked.
    """
    archiving = find_unused_archiving(rule)
    if archiving is None:
        return ""
    missing = f"archive {archiving.to} has not acknowledged this version of it"
    if proof is None or proof.destination != policy.archives.get(archiving.to):
        return missing
    fact = proof.fact
    if not (fact.is_about(obj, archiving) and fact.is_read_back) or fact.acknowledged_at is None:
        return fact.problem or missing
    ready_at = add(fact.acknowledged_at, archiving.grace)
    if archiving.grace and proof.seen_at < ready_at:
        return f"the grace of archive {archiving.to} ends {format_instant(ready_at)}"
    return ""
