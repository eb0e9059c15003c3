"""A rule of a policy: the objects that it matches, the TTL that it sets, and the limits that it adds.

The fields of the whole file, with an example of each, are in shared.core.policy.policy.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, Self

from pydantic import Field
from pydantic import model_validator as checked

from shared.core.kinds.predicates import RuleModel
from shared.core.kinds.rule import KindRule, Outcome
from shared.core.policy.conditions import NAMESPACE, AnyCondition, AnyGrouping
from shared.core.policy.matching import Duration, Match, Test
from shared.core.policy.outcome_ttl import OUTCOMES, AnyLasting
from shared.core.ttl.ttl import Ttl


class PolicyRule(RuleModel):
    """One rule: what it matches, and what it sets or guards."""

    name: str = Field(
        pattern=r"^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$",
        description="The name of the rule, unique in the policy. Logs, Events and commands show it.",
    )
    match: Match = Field(description="The objects that the rule matches.")
    when: AnyCondition | None = Field(
        default=None,
        description="A CEL expression over object, namespaceObject and outcome. The rule matches only if it is true. "
        "If it has no value for an object, the object is kept.",
    )
    ttl: AnyLasting | None = Field(
        default=None,
        description="The TTL: a duration or never, for all outcomes, or for each of succeeded and failed. Of the rules "
        "that match, the first with a ttl for the outcome sets the TTL.",
    )
    keep_last: int | None = Field(
        default=None,
        ge=1,
        le=1_000_000,
        description="The newest objects of a group that are kept, whatever their TTL is.",
    )
    keep_last_failed: int | None = Field(
        default=None,
        ge=1,
        le=1_000_000,
        description="The same for failed objects, which are then counted apart from the others.",
    )
    keep_last_by: AnyGrouping = Field(
        default=NAMESPACE,
        description="What makes a group: the owner, the namespace, a label, or a CEL expression. A group has objects "
        "of one kind in one namespace.",
    )
    min_age: Duration | None = Field(
        default=None,
        description="The time after its finish during which an object is kept, whatever sets its TTL. Of several rules "
        "that match, the largest value counts.",
    )
    propagation: Literal["Background", "Foreground", "Orphan"] | None = Field(
        default=None,
        description="The propagationPolicy of the DELETE. Needs ttl. The default is that of the kind rule.",
    )
    on_owned: Literal["keep", "delete"] | None = Field(
        default=None,
        description="Whether an object is deleted while its controller owner has not finished. Needs ttl. The default "
        "is keep. It does not apply to kinds whose rule has whileOwnerUnfinished: keep, such as Pod.",
    )
    on_dispatched: Literal["keep", "delete"] | None = Field(
        default=None,
        description="Whether an object is deleted that another cluster sent here. The default is keep. It cannot be "
        "combined with match.age.",
    )
    jitter: Duration | None = Field(
        default=None,
        description="The time over which the deletions are spread of objects that a sweep finds overdue. Needs ttl.",
    )

    @checked(mode="after")
    def _is_consistent(self) -> Self:
        if self.ttl is None and not self.constrains:
            raise ValueError("expected at least one of ttl, keepLast, keepLastFailed, minAge and onDispatched")
        if self.on_dispatched and self.match.age is not None:
            raise ValueError("onDispatched: expected no age in match; set minAge to keep such objects for a time")
        if self.ttl is None and (self.propagation or self.on_owned or self.jitter is not None):
            raise ValueError("propagation, onOwned and jitter: expected a ttl beside them")
        if not self.counts and self.keep_last_by.by != "namespace":
            raise ValueError("keepLastBy: expected keepLast or keepLastFailed beside it")
        return self

    @property
    def counts(self) -> bool:
        """Return whether it keeps the newest objects of a group."""
        return self.keep_last is not None or self.keep_last_failed is not None

    @property
    def constrains(self) -> bool:
        """Whether it has a field that applies whichever source sets the TTL."""
        return self.counts or self.min_age is not None or self.on_dispatched is not None

    @property
    def source(self) -> str:
        """The rule as messages and TTL sources name it."""
        return f"policy rule {self.name}"

    def counts_apart(self, outcome: Outcome | None) -> bool:
        """Return whether an object with this outcome is counted among the failed objects only."""
        return self.keep_last_failed is not None and outcome is Outcome.FAILED

    def kept_of(self, outcome: Outcome | None) -> int | None:
        """How many of the newest objects are kept in the group of an object with this outcome; None if not limited."""
        return self.keep_last_failed if self.counts_apart(outcome) else self.keep_last

    @cached_property
    def ttls(self) -> dict[Outcome | None, Ttl]:
        """The TTLs that it sets, by outcome."""
        by_outcome = self.ttl.by_outcome if self.ttl else ()
        return {outcome: Ttl(self.source, after=after, origin="policy") for outcome, after in by_outcome}


@dataclass(slots=True)
class Candidate:
    """A rule that matches a kind, prepared for many objects of that kind.

    Attributes:
        rule: The rule.
        tests: The tests that an object must pass, except for its age.
        ttls: The TTLs that it sets, by outcome; empty if the kind is opt-in and the rule does not name it.
        kept: How many of the newest objects of a group are kept, by outcome.
        constrains: Whether it has a field that applies whichever source sets the TTL.
    """

    rule: PolicyRule
    tests: tuple[Test, ...]
    ttls: dict[Outcome | None, Ttl]
    kept: dict[Outcome | None, int]
    constrains: bool


def prepare_rule(rule: PolicyRule, kind: KindRule) -> Candidate:
    """Prepare a rule that matches a kind."""
    tests = rule.match.tests()
    if (when := rule.when) is not None:
        tests = (*tests, lambda subject: when.of(subject) is True)
    may_set_ttl = not kind.opt_in or rule.match.names(kind)
    kept = {outcome: kept for outcome in OUTCOMES if (kept := rule.kept_of(outcome)) is not None}
    return Candidate(rule, tests, rule.ttls if may_set_ttl else {}, kept, rule.constrains)
