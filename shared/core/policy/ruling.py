"""Apply the rules of a policy to one object: which of them match it, from which instant on, and when it is due by them.

A rule with an `age` applies from an instant on, so the rule in force may change over time. An object that is due by one
rule may not be due by the next. The object is due at the first instant at which it is due by the rule in force at that
instant, so that a later evaluation never reaches another result.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from shared.core.deadlines.deadline import Stage
from shared.core.kinds.rule import Outcome
from shared.core.policy.matching import Grouping, Subject
from shared.core.policy.policy import Candidate
from shared.core.policy.policy_rule import PolicyRule
from shared.core.ttl.ttl import Ttl
from shared.core.values.expressions import ExpressionError
from shared.core.values.objects import get_in, parse_instant
from shared.core.values.timing import add

ALWAYS = datetime.min.replace(tzinfo=UTC)


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

    def shortens(self, other: Ttl | None, finished_at: datetime | None) -> bool:
        """Return whether an object is due sooner by this TTL than by another one, which is not `never`."""
        at, other_at = self.ttl.due_at(finished_at), other.due_at(finished_at) if other else None
        return at is not None and (other is None or (other_at is not None and at < other_at))


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
        count_rule: The first rule whose maxCount limits the object, whatever its `age`.
        count_group: The group of that rule to which the object belongs.
        quota_rule: The first rule whose whenQuotaAbove applies to the object, whatever its `age`.
        deletes_dispatched: Whether an object that another cluster sent here may be deleted; None if no rule says so.
        deletes_recreated: Whether an object that a controller creates again may be deleted; None if no rule says so.
        is_steady: Whether the rules in force never change over time.
    """

    ttls: list[RuleTtl] = field(default_factory=list)
    minimum_ages: list[MinimumAge] = field(default_factory=list)
    keep_last_rule: PolicyRule | None = None
    group: str = ""
    count_rule: PolicyRule | None = None
    count_group: str = ""
    quota_rule: PolicyRule | None = None
    deletes_dispatched: bool | None = None
    deletes_recreated: bool | None = None
    is_steady: bool = True

    def may_set_dispatched(self, rule: PolicyRule) -> bool:
        """Return whether a rule decides about dispatched objects, and no rule before it did."""
        return self.deletes_dispatched is None and rule.on_dispatched is not None

    def may_set_kept(self, rule: PolicyRule, outcome: Outcome | None) -> bool:
        """Return whether the rule's keepLast counts the object: the first rule's, with one exception.

        An object of unknown outcome may have succeeded. So a rule with keepLastFailed alone leaves it to a later rule
        with keepLast, which may keep more.
        """
        first = self.keep_last_rule
        return first is None or (outcome is None and first.keep_last is None and rule.keep_last is not None)

    def may_set_recreated(self, rule: PolicyRule) -> bool:
        """Return whether a rule decides about objects that a controller creates again, and no rule before it did."""
        return self.deletes_recreated is None and rule.on_recreated is not None


def apply_rules(
    subject: Subject,
    candidates: tuple[Candidate, ...],
    *,
    has_ttl: bool,
    dispatched: bool = False,
    recreated: bool = False,
) -> Ruling:
    """Apply the rules that match the kind to one object.

    Args:
        subject: The object, which has finished.
        candidates: The rules that match its kind, in order.
        has_ttl: Whether the object itself sets a TTL, so that no rule does.
        dispatched: Whether another cluster sent the object here.
        recreated: Whether a controller creates the object again.

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
        counts = outcome in candidate.kept and ruling.may_set_kept(rule, outcome)
        is_about_maker = (dispatched and ruling.may_set_dispatched(rule)) or (
            recreated and ruling.may_set_recreated(rule)
        )
        is_needed = ttl is not None or rule.min_age is not None or counts or is_about_maker or candidate.limits
        if not is_needed or not matches(candidate, subject):
            continue
        _apply_makers(ruling, rule)
        since = ALWAYS if rule.match.age is None else _since(rule, rule.match.age, subject)
        ruling.is_steady = ruling.is_steady and since is ALWAYS
        if ttl is not None:
            ruling.ttls.append(RuleTtl(since, rule, ttl))
            has_ttl = since is ALWAYS
        if rule.min_age is not None:
            ruling.minimum_ages.append(MinimumAge(since, rule, rule.min_age))
        if counts:
            ruling.keep_last_rule, ruling.group = rule, _group(rule, "keepLastBy", rule.keep_last_by, subject)
        _apply_limits(ruling, candidate, subject)
    return ruling


def _apply_makers(ruling: Ruling, rule: PolicyRule) -> None:
    if ruling.may_set_dispatched(rule):
        ruling.deletes_dispatched = rule.on_dispatched == "delete"
    if ruling.may_set_recreated(rule):
        ruling.deletes_recreated = rule.on_recreated == "delete"


def _apply_limits(ruling: Ruling, candidate: Candidate, subject: Subject) -> None:
    rule = candidate.rule
    if not candidate.limits:
        return
    if rule.max_count is not None and ruling.count_rule is None:
        ruling.count_rule, ruling.count_group = rule, _group(rule, "countBy", rule.count_by, subject)
    if rule.when_quota_above is not None and ruling.quota_rule is None:
        ruling.quota_rule = rule


def _group(rule: PolicyRule, field: str, grouping: Grouping, subject: Subject) -> str:
    try:
        return grouping.key(subject)
    except ExpressionError as error:
        raise UnreadableRuleError(rule.source, f"{field}: {error}") from None


def find_deadline_rule(subject: Subject, candidates: tuple[Candidate, ...], stage: Stage) -> PolicyRule | None:
    """The first matching rule that sets the deadline of a stage; None if no rule does.

    Args:
        subject: The object, which has not finished.
        candidates: The rules that match its kind, in order.
        stage: The stage that the deadline limits.

    Raises:
        UnreadableRuleError: A rule that may matter has no result for this object.
        NamespaceUnreadError: A rule that may matter needs the namespace, which was not read.
    """
    setting = (one for one in candidates if stage in one.deadlines)
    return next((one.rule for one in setting if matches(one, subject)), None)


def find_archive_rule(subject: Subject, candidates: tuple[Candidate, ...]) -> PolicyRule | None:
    """The first matching rule that has objects archived; None if no rule does.

    Raises:
        UnreadableRuleError: A rule that may matter has no result for this object.
        NamespaceUnreadError: A rule that may matter needs the namespace, which was not read.
    """
    return next((one.rule for one in candidates if one.archives and matches(one, subject)), None)


def find_unused_rule(subject: Subject, candidates: tuple[Candidate, ...]) -> PolicyRule | None:
    """The first matching rule that has unused objects deleted; None if no rule does.

    Raises:
        UnreadableRuleError: A rule that may matter has no result for this object.
        NamespaceUnreadError: A rule that may matter needs the namespace, which was not read.
    """
    return next((one.rule for one in candidates if one.rule.unused is not None and matches(one, subject)), None)


def find_future_archive_rule(subject: Subject, candidates: tuple[Candidate, ...]) -> PolicyRule | None:
    """The first rule that may have a running object archived when it finishes; None if no rule may.

    What `when` then returns is unknown, since it may test the status or the outcome.

    Raises:
        NamespaceUnreadError: A rule that may matter needs the namespace, which was not read.
    """
    archiving = (one for one in candidates if one.archives)
    return next((one.rule for one in archiving if all(test(subject) for test in one.lasting_tests)), None)


def matches(candidate: Candidate, subject: Subject) -> bool:
    """Return whether an object passes the tests of a rule, except for its age.

    Raises:
        UnreadableRuleError: A test has no result for this object.
        NamespaceUnreadError: A test needs the namespace, which was not read.
    """
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


NO_RULING = Ruling()
"""The result if no rule matches a kind."""


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
