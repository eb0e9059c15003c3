"""Describe that a kind's own controller deletes an object before its TTL, or in spite of a hold."""

import json
from typing import Any

from shared.core.kinds.rule import KindRule
from shared.core.objects import get_in


def describe_overridden(obj: Any, rule: KindRule, field: str) -> str:
    """Which controller acts on a TTL field, whatever the other settings are; one sentence without a period."""
    controller = (rule.ttl and rule.ttl.honoured_by) or "another controller"
    return f"{controller} acts on {field}: {json.dumps(get_in(obj, field))}, whatever the other settings are"


def advise_overridden(field: str) -> str:
    """What an operator can do about it."""
    if field.startswith("status."):
        return "the field is part of the status, which only its controller can change"
    return "change the field, or remove it with `kubectl ttl hold`"
