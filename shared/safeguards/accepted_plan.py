"""The plan of unused objects that an operator has accepted: a value of the shared state, for `doctor` only.

    accepted-plan    {"at": "2026-01-02T03:04:05Z", "by": "ann", "rules": ["0f3c..."]}   hashes of the rules

No process that deletes reads it. A value that cannot be read counts as none. The plan counts for the rules with
`unused` that it showed, by their hashes.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256

from shared.core.policy.policy import Policy
from shared.core.policy.policy_rule import PolicyRule
from shared.core.values.objects import format_instant, get_in, get_text, parse_instant, printable
from shared.safeguards.state_schema import Data, compact, read_json

ACCEPTED_PLAN = "accepted-plan"

_DIGITS = 32
"""Hexadecimal digits of a hash."""


@dataclass(frozen=True, slots=True)
class AcceptedPlan:
    """A plan that was accepted.

    Attributes:
        at: When, by the API server's clock.
        by: The user name of the operator.
        rules: The hashes of the rules with `unused` that it showed, see `hash_unused_rules`.
    """

    at: datetime
    by: str
    rules: frozenset[str]

    def __str__(self) -> str:
        """`on 2026-01-02T03:04:05Z by ann`."""
        return printable(f"on {format_instant(self.at)} by {self.by}")


def parse_accepted_plan(data: Mapping[str, object]) -> AcceptedPlan | None:
    """Parse the value; None without one, and with one that cannot be read, since a user may have edited it."""
    text = data.get(ACCEPTED_PLAN)
    value = read_json(text) if isinstance(text, str) else None
    rules = get_in(value, "rules")
    if not isinstance(rules, list):
        return None
    try:
        at = parse_instant(get_text(value, "at"))
    except ValueError:
        return None
    return AcceptedPlan(at, get_text(value, "by"), frozenset(one for one in rules if isinstance(one, str)))


def with_accepted_plan(data: Data, plan: AcceptedPlan) -> dict[str, str]:
    """Return the data with this plan, which replaces an earlier one."""
    value = {"at": format_instant(plan.at), "by": plan.by, "rules": sorted(plan.rules)}
    return {**data, ACCEPTED_PLAN: compact(value)}


def hash_unused_rules(policy: Policy) -> Mapping[str, str]:
    """Return a hash of each rule with `unused`, by the name of the rule.

    Of the rules that match an object, the first counts. So a hash includes the rules with `unused` before it: if one of
    them changes, the later rule may delete other objects.
    """
    hashes: dict[str, str] = {}
    text = ""
    for rule in policy.rules:
        if rule.unused is not None:
            text = sha256((text + _text_of(rule)).encode()).hexdigest()[:_DIGITS]
            hashes[rule.name] = text
    return hashes


def _text_of(rule: PolicyRule) -> str:
    """The canonical text of a rule; its expression counts as it is written."""
    fields = rule.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude={"when"})
    return json.dumps([fields, rule.when.text if rule.when else ""], sort_keys=True, separators=(",", ":"))
