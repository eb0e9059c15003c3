"""What a policy rule with `audit: true` would do to an object: logs, metrics and reports show it."""

from dataclasses import dataclass
from datetime import datetime

from shared.core.facts import Facts


@dataclass(frozen=True, slots=True)
class Audited:
    """What would be done to an object that is due.

    Attributes:
        rule: The name of the policy rule.
        due_at: When the object was due; None for an object that would be archived.
        summary: When it finished, or since when it runs, and which source sets that it is due.
    """

    rule: str
    due_at: datetime | None
    summary: str


def audited_of(facts: Facts) -> Audited:
    """What the rule of `facts.audited_by` would do."""
    return Audited(facts.audited_by, facts.due_at, facts.summary())
