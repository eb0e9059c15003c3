"""Prepare the rules of a policy that match one kind for many objects of that kind."""

from collections.abc import Mapping
from dataclasses import dataclass

from shared.core.deadlines.deadline import Deadline, Stage
from shared.core.kinds.rule import KindRule, Outcome
from shared.core.policy.matching import Test
from shared.core.policy.outcome_ttl import OUTCOMES
from shared.core.policy.policy_rule import PolicyRule
from shared.core.ttl.ttl import Ttl


@dataclass(slots=True)
class Candidate:
    """A rule that matches a kind, prepared for many objects of that kind.

    Attributes:
        rule: The rule.
        tests: The tests that an object must pass, except for its age.
        lasting_tests: Those of them that do not depend on how the object ends: all but `when`.
        ttls: The TTLs that it sets, by outcome; empty if the kind is opt-in and the rule does not name it.
        kept: How many of the newest objects of a group are kept, by outcome.
        constrains: Whether it has a field that applies whichever source sets the TTL.
        deadlines: The deadlines that it sets, by the stage that they limit; empty if the kind is opt-in and the rule
            does not name it.
        limits: Whether it limits objects by count or by quota; False if the kind is opt-in and the rule does not name
            it.
        archives: Whether it has objects archived, also those of an opt-in kind that it does not name.
    """

    rule: PolicyRule
    tests: tuple[Test, ...]
    lasting_tests: tuple[Test, ...]
    ttls: dict[Outcome | None, Ttl]
    kept: dict[Outcome | None, int]
    constrains: bool
    deadlines: Mapping[Stage, Deadline]
    limits: bool
    archives: bool


def prepare_rule(rule: PolicyRule, kind: KindRule) -> Candidate:
    """Prepare a rule that matches a kind."""
    tests = lasting_tests = rule.match.tests()
    if (when := rule.when) is not None:
        tests = (*tests, lambda subject: when.of(subject) is True)
    may_set_ttl = not kind.opt_in or rule.match.names(kind)
    kept = {outcome: kept for outcome in OUTCOMES if (kept := rule.kept_of(outcome)) is not None}
    ttls, deadlines = (rule.ttls, rule.deadlines) if may_set_ttl else ({}, {})
    if kind.deadline is None or kind.deadline.pending is None:
        deadlines = {stage: one for stage, one in deadlines.items() if stage is not Stage.PENDING}
    limits, archives = may_set_ttl and rule.limits, rule.archive is not None
    return Candidate(rule, tests, lasting_tests, ttls, kept, rule.constrains, deadlines, limits, archives)
