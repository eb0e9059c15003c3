"""What is told where a kind's own controller deletes an object sooner than what is asked for on it."""

import json
from typing import Any

from shared.core.kinds.rule import KindRule
from shared.core.objects import get_in


def describe_overridden(obj: Any, rule: KindRule, field: str) -> str:
    """Who acts on that field, whatever we say; one sentence without its end."""
    who = (rule.ttl and rule.ttl.honoured_by) or "another controller"
    return f"{who} acts on {field}: {json.dumps(get_in(obj, field))}, whatever else is said of it"


def advise_overridden(field: str) -> str:
    """What can be done about it."""
    if field.startswith("status."):
        return "it is a part of the status, which nobody else can change"
    return "change the field, or have it taken away with `kubectl ttl hold`"
