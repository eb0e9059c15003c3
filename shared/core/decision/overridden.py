"""Find out whether the controller of a kind acts on its TTL field although the object is kept, or is due later."""

from dataclasses import replace
from typing import Any

from shared.core.decision.case import OWNER_REASONS
from shared.core.decision.facts import Facts, Reason
from shared.core.kinds.rule import KindRule
from shared.core.ttl.ttl import InvalidTtlError, Ttl, native_ttl

_KEPT_ON_REQUEST = frozenset(
    {
        Reason.HELD,
        Reason.EXEMPT,
        Reason.INVALID_POLICY,
        Reason.INVALID_TTL,
        Reason.INVALID_ARCHIVE,
        Reason.NEVER,
    }
)
_KEPT_FOR_OTHERS = frozenset({Reason.DISPATCHED, *OWNER_REASONS, Reason.KEPT_LAST, Reason.RANK_UNREAD})


def with_overridden(obj: Any, rule: KindRule, reason: Reason | None, facts: Facts) -> Facts:
    """Set `overridden` if the kind's own controller acts on its TTL field before the object is due."""
    finish = facts.finish
    if facts.ttl is not None and facts.ttl.origin == "native" and reason is None and not facts.moved_by:
        return facts
    try:
        native = native_ttl(obj, rule.ttl)
    except InvalidTtlError:
        return facts
    if native is None or native.is_never:
        return facts
    native_due_at = native.due_at(finish.at) if finish.finished else None
    is_kept = reason in _KEPT_ON_REQUEST or (reason in _KEPT_FOR_OTHERS and native_due_at is not None)
    is_later = facts.due_at is not None and native_due_at is not None and native_due_at < facts.due_at
    is_longer = not finish.finished and _is_longer(facts.ttl, native)
    return replace(facts, overridden=native.source) if is_kept or is_later or is_longer else facts


def _is_longer(ttl: Ttl | None, native: Ttl) -> bool:
    """Return whether a TTL is longer than that of the kind's field; an absolute instant is not compared."""
    if ttl is None or ttl.at is not None or native.after is None:
        return False
    return ttl.after is None or ttl.after > native.after
