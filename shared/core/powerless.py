"""When the kind's own controller deletes an object sooner than what is asked for on it."""

import json
from datetime import datetime
from typing import Any

from shared.core.finish import Finish
from shared.core.kinds import KindRule
from shared.core.native import InvalidFieldError, read_native_ttl
from shared.core.objects import get_annotations, get_in
from shared.core.ttl import Ttl


def powerless_against(obj: Any, rule: KindRule, finish: Finish, ttl: Ttl | None, *, unreadable: bool = False) -> str:
    """The kind's own field that its own controller acts on earlier, whatever we say; empty where none does.

    Args:
        obj: The object.
        rule: Its kind.
        finish: When it finished, if it did.
        ttl: The TTL that counts here.
        unreadable: Whether an annotation cannot be read, and so keeps the object here.
    """
    if rule.ttl is None or rule.ttl.honoured_by is None:
        return ""
    try:
        spoken = read_native_ttl(obj, rule.ttl)
    except InvalidFieldError:
        return ""
    if spoken is None or spoken[1] is None:
        return ""
    native = Ttl(spoken[0], after=spoken[1])
    stays = unreadable or "hold" in get_annotations(obj)
    return native.source if stays or (ttl is not None and _is_longer(ttl, native, finish.at)) else ""


def describe_powerless(obj: Any, rule: KindRule, field: str) -> str:
    """Who acts on that field, whatever we say; one sentence without its end."""
    who = (rule.ttl and rule.ttl.honoured_by) or "another controller"
    return f"{who} acts on {field}: {json.dumps(get_in(obj, field))}, whatever the annotations say"


def advise_powerless(field: str) -> str:
    """What can be done about it."""
    if field.startswith("status."):
        return "it is a part of the status, which nobody else can change"
    return "change the field, or have it taken away with `kubectl ttl hold`"


def _is_longer(ttl: Ttl, native: Ttl, finished_at: datetime | None) -> bool:
    if ttl.is_never:
        return True
    if ttl.after is not None and native.after is not None:
        return ttl.after > native.after
    due_at, native_due_at = ttl.due_at(finished_at), native.due_at(finished_at)
    return due_at is not None and native_due_at is not None and due_at > native_due_at
