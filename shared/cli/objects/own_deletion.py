"""Objects that the controller of their kind deletes by its TTL field, whatever ttl-after-finished decides."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from shared.core.archive.gate import AWAITS_ARCHIVE, CHILD_REASONS
from shared.core.decision.decide import Decision, Facts, Ignore
from shared.core.kinds.rule import KindRule
from shared.core.ttl.ttl import advise_overridden, describe_overridden, native_ttl
from shared.core.values.objects import ObjectRef, format_instant, get_in, quote
from shared.evaluation.batch import BatchResult

_WAITS = (*AWAITS_ARCHIVE, *CHILD_REASONS)

_MOVE_TTL = "set `ttl` in the policy rule"


def with_own_deletion(decision: Decision, rule: KindRule) -> Decision:
    """Set `overridden` if the kind's own controller deletes an object by its TTL field before the archive has it."""
    ttl = decision.facts.ttl
    is_own = ttl is not None and ttl.origin == "native" and rule.ttl is not None and rule.ttl.honoured_by is not None
    if not isinstance(decision, Ignore) or decision.reason not in _WAITS or ttl is None or not is_own:
        return decision
    return replace(decision, facts=replace(decision.facts, overridden=ttl.source))


def describe_own_deletion(obj: Mapping[str, Any], rule: KindRule, facts: Facts) -> str:
    """Say which controller deletes an object by which field, and when; an empty text if none deletes it earlier."""
    field = facts.overridden
    if not field:
        return ""
    native = native_ttl(obj, rule.ttl)
    due_at = native.due_at(facts.finish.at) if native and facts.finish.finished else None
    if due_at and _is_unarchived(facts) and not field.startswith("status."):
        deleted = f"{_controller(rule)} deletes it at {format_instant(due_at)}, archived or not"
        return f"{deleted}, by {field}: {quote(get_in(obj, field))}; remove the field, and {_MOVE_TTL}"
    when = f"; by that field it is due at {format_instant(due_at)}" if due_at else ""
    return f"{describe_overridden(obj, rule, field)}{when}; {advise_overridden(field)}"


def find_unarchived_deletions(objects: Sequence[BatchResult]) -> Iterator[tuple[str, Sequence[ObjectRef]]]:
    """Find the objects that the controller of their kind may delete before they are archived.

    Args:
        objects: The decisions about each object; the last one counts.

    Yields:
        What happens, for each controller and field, and the objects.
    """
    found: dict[tuple[str, str], list[ObjectRef]] = {}
    for one in objects:
        facts = one.decisions[-1].facts
        if facts.overridden and _is_unarchived(facts):
            found.setdefault((_controller(one.rule), facts.overridden), []).append(one.ref)
    for (controller, field), refs in found.items():
        yield f"{controller} deletes them by {field}, archived or not; remove the field, and {_MOVE_TTL}", refs


def _is_unarchived(facts: Facts) -> bool:
    is_acknowledged = facts.archived is not None and facts.archived.acknowledged_at is not None
    return facts.archiving is not None and not is_acknowledged


def _controller(rule: KindRule) -> str:
    return (rule.ttl and rule.ttl.honoured_by) or "another controller"
