"""Find the instant at which an object is due by the rules of a policy.

A rule with an `age` applies from an instant on, so the rule in force may change over time. An object that is due by one
rule may not be due by the next. The object is due at the first instant at which it is due by the rule in force at that
instant, so that a later evaluation never reaches another result.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from shared.core.policy.policy_rule import PolicyRule
from shared.core.policy.ruling import ALWAYS, MinimumAge, RuleTtl, Ruling, add
from shared.core.ttl.ttl import Ttl

_STEADY = ((ALWAYS, None),)


@dataclass(slots=True)
class Due:
    """When an object is due, and which TTL sets that.

    Attributes:
        at: The due instant; None for `never`, without a TTL, and if the finish time is needed and unknown.
        ttl: The TTL that takes precedence.
        rule: The rule that sets it, if one does.
        moved_by: The setting that moved `at` away from finish plus TTL; empty if none did.
    """

    at: datetime | None
    ttl: Ttl | None
    rule: PolicyRule | None = None
    moved_by: str = ""


def find_due(
    ruling: Ruling,
    fallback: Ttl | None,
    *,
    finished_at: datetime | None,
    max_ttl: timedelta | None,
    early: RuleTtl | None = None,
) -> Due:
    """Find the first instant at which the object is due by the rule in force at that instant.

    Args:
        ruling: What the rules set.
        fallback: The TTL if no rule sets one: the object's own TTL, or its namespace's default.
        finished_at: The finish time; None if it is unknown.
        max_ttl: The namespace's max-ttl; None for none.
        early: The TTL of a limit by count or by quota that takes effect; it shortens every TTL except `never`.

    Returns:
        Without an instant, the TTL of the rule that is in force in the end.
    """
    found = Due(None, fallback)
    for since, until in _STEADY if ruling.is_steady else _spans(ruling):
        found = _due_in(since, ruling, fallback, finished_at=finished_at, max_ttl=max_ttl, early=early)
        if found.at is not None and (until is None or max(found.at, since) < until):
            return found if since <= found.at else replace(found, at=since)
    return found if found.at is None else replace(found, at=None)


def _due_in(  # noqa: PLR0913 - as above, and the start of a span
    since: datetime,
    ruling: Ruling,
    fallback: Ttl | None,
    *,
    finished_at: datetime | None,
    max_ttl: timedelta | None,
    early: RuleTtl | None,
) -> Due:
    """When the object is due by the rules that are in force at an instant."""
    ttl, rule = fallback, None
    for rule_ttl in ruling.ttls:
        if rule_ttl.since <= since:
            ttl, rule = rule_ttl.ttl, rule_ttl.rule
            break
    if early is not None and early.shortens(ttl, finished_at):
        ttl, rule = early.ttl, early.rule
    minimum_age = None
    for one in ruling.minimum_ages:
        if one.since <= since and (minimum_age is None or one.least > minimum_age.least):
            minimum_age = one
    at, moved_by = _due_at(ttl, finished_at, max_ttl=max_ttl, minimum_age=minimum_age)
    return Due(at, ttl, rule, moved_by)


def _spans(ruling: Ruling) -> Iterator[tuple[datetime, datetime | None]]:
    """The spans of time in which the same rules are in force; the first has no start, the last has no end."""
    starts = sorted({ALWAYS, *(one.since for one in ruling.ttls), *(one.since for one in ruling.minimum_ages)})
    return zip(starts, (*starts[1:], None), strict=True)


def _due_at(
    ttl: Ttl | None, finished_at: datetime | None, *, max_ttl: timedelta | None, minimum_age: MinimumAge | None
) -> tuple[datetime | None, str]:
    """The due instant, and the setting that moved it away from finish plus TTL."""
    at = ttl.due_at(finished_at) if ttl else None
    moved_by = ""
    if at is None or ((max_ttl is None or finished_at is None) and minimum_age is None):
        return at, moved_by
    if max_ttl is not None and finished_at is not None and (latest := add(finished_at, max_ttl)) < at:
        at, moved_by = latest, "the namespace's max-ttl"
    if minimum_age is None:
        return at, moved_by
    if finished_at is None:
        return None, ""
    if (earliest := add(finished_at, minimum_age.least)) > at:
        at, moved_by = earliest, f"minAge of {minimum_age.rule.source}"
    return at, moved_by
