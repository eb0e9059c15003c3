"""Apply the rules of a policy to one object, and find the instant at which the object is due.

A rule with an `age` applies from an instant on, so the rule in force may change over time. An object that is due by one
rule may not be due by the next. The object is due at the first instant at which it is due by the rule in force at that
instant, so that a later evaluation never reaches another result.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from shared.core.expressions import ExpressionError
from shared.core.objects import get_in, parse_instant
from shared.core.policy.matching import Subject
from shared.core.policy.policy_rule import Candidate, PolicyRule
from shared.core.ttl.ttl import Ttl

ALWAYS = datetime.min.replace(tzinfo=UTC)
_STEADY = ((ALWAYS, None),)


class UnreadableRuleError(ValueError):
    """It is unknown whether a rule applies to an object, because a field of the rule has no result for the object.

    Attributes:
        source: The rule, as `policy rule NAME`.
    """

    def __init__(self, source: str, problem: str) -> None:
        super().__init__(f"{source}: {problem}")
        self.source = source


@dataclass(slots=True)
class RuleTtl:
    """A TTL that a rule sets from an instant on."""

    since: datetime
    rule: PolicyRule
    ttl: Ttl


@dataclass(slots=True)
class MinimumAge:
    """A minAge that a rule sets from an instant on: a finished object is kept at least that long."""

    since: datetime
    rule: PolicyRule
    least: timedelta


@dataclass(slots=True)
class Ruling:
    """What the matching rules of a policy set for one object.

    Attributes:
        ttls: The TTLs in the order of the rules, up to and including the first that always applies.
        minimum_ages: The minAge of each matching rule that sets one.
        keep_last_rule: The first rule whose keepLast or keepLastFailed counts the object, whatever its `age`.
        group: The group of that rule to which the object belongs.
        deletes_dispatched: Whether an object that another cluster sent here may be deleted.
        is_steady: Whether the rules in force never change over time.
    """

    ttls: list[RuleTtl] = field(default_factory=list)
    minimum_ages: list[MinimumAge] = field(default_factory=list)
    keep_last_rule: PolicyRule | None = None
    group: str = ""
    deletes_dispatched: bool = False
    is_steady: bool = True


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


def apply_rules(
    subject: Subject, candidates: tuple[Candidate, ...], *, has_ttl: bool, dispatched: bool = False
) -> Ruling:
    """Apply the rules that match the kind to one object.

    Args:
        subject: The object, which has finished.
        candidates: The rules that match its kind, in order.
        has_ttl: Whether the object itself sets a TTL, so that no rule does.
        dispatched: Whether another cluster sent the object here.

    Raises:
        UnreadableRuleError: A rule that may matter has no result for this object.
        NamespaceUnreadError: A rule that may matter needs the namespace, which was not read.
    """
    ruling, outcome = Ruling(), subject.outcome
    for candidate in candidates:
        if has_ttl and not candidate.constrains:
            continue
        ttl = None if has_ttl else candidate.ttls.get(outcome)
        rule = candidate.rule
        counts = ruling.keep_last_rule is None and outcome in candidate.kept
        is_about_dispatched = dispatched and rule.on_dispatched is not None
        is_needed = ttl is not None or rule.min_age is not None or counts or is_about_dispatched
        if not is_needed or not _matches(candidate, subject):
            continue
        if is_about_dispatched:
            ruling.deletes_dispatched, dispatched = rule.on_dispatched == "delete", False
        since = ALWAYS if rule.match.age is None else _since(rule, rule.match.age, subject)
        ruling.is_steady = ruling.is_steady and since is ALWAYS
        if ttl is not None:
            ruling.ttls.append(RuleTtl(since, rule, ttl))
            has_ttl = since is ALWAYS
        if rule.min_age is not None:
            ruling.minimum_ages.append(MinimumAge(since, rule, rule.min_age))
        if counts:
            ruling.keep_last_rule, ruling.group = rule, _group(rule, subject)
    return ruling


def _group(rule: PolicyRule, subject: Subject) -> str:
    try:
        return rule.keep_last_by.key(subject)
    except ExpressionError as error:
        raise UnreadableRuleError(rule.source, f"keepLastBy: {error}") from None


def _matches(candidate: Candidate, subject: Subject) -> bool:
    try:
        for test in candidate.tests:
            if not test(subject):
                return False
    except ExpressionError as error:
        raise UnreadableRuleError(candidate.rule.source, f"when: {error}") from None
    return True


def _since(rule: PolicyRule, age: timedelta, subject: Subject) -> datetime:
    try:
        return add(parse_instant(get_in(subject.obj, "metadata.creationTimestamp")), age)
    except ValueError as error:
        raise UnreadableRuleError(rule.source, f"age: metadata.creationTimestamp: {error}") from None


def find_due(ruling: Ruling, fallback: Ttl | None, *, finished_at: datetime | None, max_ttl: timedelta | None) -> Due:
    """Find the first instant at which the object is due by the rule in force at that instant.

    Args:
        ruling: What the rules set.
        fallback: The TTL if no rule sets one: the object's own TTL, or its namespace's default.
        finished_at: The finish time; None if it is unknown.
        max_ttl: The namespace's max-ttl; None for none.

    Returns:
        Without an instant, the TTL of the rule that is in force in the end.
    """
    found = Due(None, fallback)
    for since, until in _STEADY if ruling.is_steady else _spans(ruling):
        found = _due_in(since, ruling, fallback, finished_at=finished_at, max_ttl=max_ttl)
        if found.at is not None and (until is None or max(found.at, since) < until):
            return found if since <= found.at else replace(found, at=since)
    return found if found.at is None else replace(found, at=None)


def _due_in(
    since: datetime, ruling: Ruling, fallback: Ttl | None, *, finished_at: datetime | None, max_ttl: timedelta | None
) -> Due:
    """When the object is due by the rules that are in force at an instant."""
    ttl, rule = fallback, None
    for rule_ttl in ruling.ttls:
        if rule_ttl.since <= since:
            ttl, rule = rule_ttl.ttl, rule_ttl.rule
            break
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


def add(instant: datetime, duration: timedelta) -> datetime:
    """The sum, or the last instant that a datetime can hold."""
    try:
        return instant + duration
    except OverflowError:
        return datetime.max.replace(tzinfo=instant.tzinfo)


NO_RULING = Ruling()
"""The result if no rule matches a kind."""
