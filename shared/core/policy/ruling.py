"""What the rules of a policy say of one object, and when it is due by all that speaks.

A rule with an `age` speaks from an instant on, so the rule in force may change as time goes by, and what is due by one
may not be due by the next. An object is due at the first instant at which the rule then in force says so: whoever
looks later must not come to another answer.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from shared.core.expressions import ExpressionError
from shared.core.objects import get_in, parse_instant
from shared.core.policy.matching import Subject
from shared.core.policy.policy import Candidate, PolicyRule
from shared.core.ttl.ttl import Ttl

ALWAYS = datetime.min.replace(tzinfo=UTC)
_STEADY = ((ALWAYS, None),)


class UnreadableRuleError(ValueError):
    """A rule cannot be read for this object: not known to match, and not known not to.

    Attributes:
        source: The rule.
    """

    def __init__(self, source: str, problem: str) -> None:
        super().__init__(f"{source}: {problem}")
        self.source = source


@dataclass(slots=True)
class Spoken:
    """A rule that says how long, from an instant on."""

    since: datetime
    rule: PolicyRule
    ttl: Ttl


@dataclass(slots=True)
class Floor:
    """A rule that guards, from an instant on: a finished object stays at least that long."""

    since: datetime
    rule: PolicyRule
    least: timedelta


@dataclass(slots=True)
class Ruling:
    """What matches one object.

    Attributes:
        spoken: What says how long, in order; nothing after the first that always speaks.
        floors: What guards.
        keeper: The first rule that keeps the newest of a group among which the object is counted, its age aside.
        group: Which group of that rule.
        deletes_dispatched: Whether an object may go that another cluster sent here.
        is_steady: Whether what matches now has always matched.
    """

    spoken: list[Spoken] = field(default_factory=list)
    floors: list[Floor] = field(default_factory=list)
    keeper: PolicyRule | None = None
    group: str = ""
    deletes_dispatched: bool = False
    is_steady: bool = True


@dataclass(slots=True)
class Due:
    """When an object is due, and by what.

    Attributes:
        at: None for never, where nothing speaks, and where the finish time is needed and not known.
        ttl: The TTL that counts.
        rule: The rule that says it, if one does.
        moved_by: What moved the instant from where the TTL alone has it; empty where nothing did.
    """

    at: datetime | None
    ttl: Ttl | None
    rule: PolicyRule | None = None
    moved_by: str = ""


def rule_on(subject: Subject, candidates: tuple[Candidate, ...], *, settled: bool, dispatched: bool = False) -> Ruling:
    """What the rules say of one object.

    Args:
        subject: The object, which has finished.
        candidates: The rules that are about its kind, in order.
        settled: Whether the object itself says how long, so that rules only guard.
        dispatched: Whether another cluster sent the object here, and no rule has said yet what that means.

    Raises:
        UnreadableRuleError: A rule that may count cannot be read for this object.
        NamespaceUnreadError: A rule that may count asks for the namespace, which was not read.
    """
    ruling, outcome = Ruling(), subject.outcome
    for candidate in candidates:
        if settled and not candidate.guards:
            continue
        ttl = None if settled else candidate.ttls.get(outcome)
        rule = candidate.rule
        keeps = ruling.keeper is None and outcome in candidate.kept
        judges = dispatched and rule.on_dispatched is not None
        if (ttl is None and rule.min_age is None and not keeps and not judges) or not _matches(candidate, subject):
            continue
        if judges:
            ruling.deletes_dispatched, dispatched = rule.on_dispatched == "delete", False
        since = ALWAYS if rule.match.age is None else _since(rule, rule.match.age, subject)
        ruling.is_steady = ruling.is_steady and since is ALWAYS
        if ttl is not None:
            ruling.spoken.append(Spoken(since, rule, ttl))
            settled = since is ALWAYS
        if rule.min_age is not None:
            ruling.floors.append(Floor(since, rule, rule.min_age))
        if keeps:
            ruling.keeper, ruling.group = rule, _group(rule, subject)
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


def find_due(ruling: Ruling, fallback: Ttl | None, finished_at: datetime | None, max_ttl: timedelta | None) -> Due:
    """The first instant at which the rule then in force is due; the last rule's word where there is none.

    Args:
        ruling: What the rules say.
        fallback: What counts where no rule speaks: the object's own TTL, or its namespace's default.
        finished_at: None where nothing tells.
        max_ttl: The namespace's limit.
    """
    found = Due(None, fallback)
    for since, until in _STEADY if ruling.is_steady else _spans(ruling):
        found = _due_in(since, ruling, fallback, finished_at, max_ttl)
        if found.at is not None and (until is None or max(found.at, since) < until):
            return found if since <= found.at else replace(found, at=since)
    return found if found.at is None else replace(found, at=None)


def _due_in(
    since: datetime, ruling: Ruling, fallback: Ttl | None, finished_at: datetime | None, max_ttl: timedelta | None
) -> Due:
    """When it is due by the rules that are in force at an instant."""
    ttl, rule = fallback, None
    for spoken in ruling.spoken:
        if spoken.since <= since:
            ttl, rule = spoken.ttl, spoken.rule
            break
    floor = None
    for one in ruling.floors:
        if one.since <= since and (floor is None or one.least > floor.least):
            floor = one
    at, moved_by = _due_at(ttl, finished_at, max_ttl, floor)
    return Due(at, ttl, rule, moved_by)


def _spans(ruling: Ruling) -> Iterator[tuple[datetime, datetime | None]]:
    """The spans of time in each of which the same rules speak, the first since ever, the last without an end."""
    starts = sorted({ALWAYS, *(one.since for one in ruling.spoken), *(one.since for one in ruling.floors)})
    return zip(starts, (*starts[1:], None), strict=True)


def _due_at(
    ttl: Ttl | None, finished_at: datetime | None, max_ttl: timedelta | None, floor: Floor | None
) -> tuple[datetime | None, str]:
    at = ttl.due_at(finished_at) if ttl else None
    moved_by = ""
    if at is None or ((max_ttl is None or finished_at is None) and floor is None):
        return at, moved_by
    if max_ttl is not None and finished_at is not None and (latest := add(finished_at, max_ttl)) < at:
        at, moved_by = latest, "the namespace's max-ttl"
    if floor is None:
        return at, moved_by
    if finished_at is None:
        return None, ""
    if (earliest := add(finished_at, floor.least)) > at:
        at, moved_by = earliest, f"minAge of {floor.rule.source}"
    return at, moved_by


def add(instant: datetime, duration: timedelta) -> datetime:
    """The sum, or the last instant there is."""
    try:
        return instant + duration
    except OverflowError:
        return datetime.max.replace(tzinfo=instant.tzinfo)


NO_RULING = Ruling()
"""Where no rule is about a kind."""
