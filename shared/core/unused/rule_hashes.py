"""Hash the rules with `unused` of a policy: by its hash, a plan that an operator has accepted counts for a rule."""

import json
from collections.abc import Mapping
from hashlib import sha256

from shared.core.policy.policy import Policy
from shared.core.policy.policy_rule import PolicyRule

DIGITS = 32
"""Hexadecimal digits of a hash."""


def hash_unused_rules(policy: Policy) -> Mapping[str, str]:
    """Return a hash of each rule with `unused`, by the name of the rule.

    Of the rules that match an object, the first counts. So a hash includes the rules with `unused` before it: if one of
    them changes, the later rule may delete other objects.
    """
    hashes: dict[str, str] = {}
    text = ""
    for rule in policy.rules:
        if rule.unused is not None:
            text = sha256((text + _text_of(rule)).encode()).hexdigest()[:DIGITS]
            hashes[rule.name] = text
    return hashes


def _text_of(rule: PolicyRule) -> str:
    """The canonical text of a rule; its expression counts as it is written."""
    fields = rule.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude={"when"})
    return json.dumps([fields, rule.when.text if rule.when else ""], sort_keys=True, separators=(",", ":"))
