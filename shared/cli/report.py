"""What is told about an object: the same facts as JSON and for people."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from shared.cli.surroundings import Surroundings
from shared.core.conditions import Grouping
from shared.core.decide import Decision, Expire, Facts, Ignore, Reason, Wait
from shared.core.durations import format_duration
from shared.core.objects import ObjectRef, format_instant, printable
from shared.core.policy import PolicyRule

_WORDS = {
    Reason.EXPIRED: "it is due: it goes now, unless a budget, an open breaker or a recreate loop holds it back",
    Reason.NOT_DUE: "it is not due yet",
    Reason.TERMINATING: "it is being deleted already",
    Reason.HELD: "held by annotation ttlafterfinished.dev/hold",
    Reason.INVALID_TTL: "kept, because what speaks of its TTL cannot be read",
    Reason.UNFINISHED: "it has not finished",
    Reason.NEVER_FINISHES: "objects of its kind never finish",
    Reason.LEFT_TO_CONTROLLER: "its kind's own controller acts on its TTL field, and does more than delete",
    Reason.NO_TTL: "nothing gives it a TTL",
    Reason.NEVER: "it is never to be deleted",
    Reason.FINISH_TIME_UNKNOWN: "it finished, but nothing tells when",
    Reason.OWNER_UNFINISHED: "the owner that controls it has not finished, or cannot be told to have",
    Reason.EXEMPT: "its namespace is exempt, by annotation ttlafterfinished.dev/exempt",
    Reason.INVALID_POLICY: "kept, because what is said for its namespace, or for many, cannot be read",
    Reason.NAMESPACE_UNREAD: "its namespace could not be read, which may exempt it",
    Reason.KEPT_LAST: "it is among the newest that a policy rule keeps, or nobody could count them",
    Reason.UNKNOWN_SHAPE: "its kind or its status is not one that is known here",
}

_HOW_TO_OPT_IN = (
    "so nothing but its own annotation has it deleted, or a policy rule that names its kind: "
    "`kubectl ttl set KIND/NAME 30d` asks for it"
)


def as_json(ref: ObjectRef, decision: Decision, around: Surroundings | None = None) -> dict[str, Any]:
    """The documented JSON of one object; instants are RFC 3339 in UTC, what is unknown is null."""
    facts = decision.facts
    return {
        "apiVersion": ref.api_version,
        "kind": ref.kind,
        "namespace": ref.namespace or None,
        "name": ref.name,
        "finished": facts.finish.finished,
        "finishedAt": _instant(facts.finish.at),
        "outcome": facts.finish.outcome,
        "ttlSeconds": _seconds(facts),
        "ttlFrom": facts.ttl.source if facts.ttl else None,
        "dueAt": _instant(facts.due_at),
        "movedBy": facts.moved_by or None,
        "policyRule": facts.policy_rule.name if facts.policy_rule else None,
        "keeper": _keeper_as_json(facts),
        "decision": type(decision).__name__.lower(),
        "reason": str(decision.reason),
        **({"problem": facts.problem} if facts.problem else {}),
        **(_around_as_json(facts, around) if around else {}),
    }


def as_text(ref: ObjectRef, decision: Decision, now: datetime, around: Surroundings | None = None) -> str:
    """A few lines for people: what is known, what follows from it, and why."""
    facts = decision.facts
    lines = [
        str(ref),
        f"  finished  {_finished(facts, now)}",
        f"  ttl       {_ttl(facts)}",
        f"  due       {_due(facts, now)}",
        f"  decision  {type(decision).__name__.lower()} ({decision.reason}): {_WORDS[decision.reason]}",
    ]
    if facts.keeper:
        lines.insert(-1, f"  keeper    {_keeper(facts, facts.keeper)}")
    if facts.problem:
        lines.append(f"  problem   {facts.problem}")
    if around:
        lines += [f"  {name:9} {printable(told)}" for name, told in _around_as_lines(decision, around)]
    return "\n".join(lines)


def _around_as_lines(decision: Decision, around: Surroundings) -> Iterator[tuple[str, str]]:
    rule = around.rule
    yield from (("problem", slip) for slip in around.slips)
    if around.hold:
        yield "hold", around.hold
    if around.powerless:
        yield "powerless", around.powerless
    if rule.never_finishes:
        yield "kind", rule.never_finishes
    if rule.opt_in and not rule.never_finishes:
        yield "opt-in", f"{rule.opt_in}; {_HOW_TO_OPT_IN}" if decision.reason is Reason.NO_TTL else rule.opt_in
    if around.owner:
        yield "owner", f"{around.owner.ref}: {around.owner.state}"
    names = ["others", *[""] * len(around.cleaners)]
    yield from ((name, f"{who}: {does}") for name, (who, does) in zip(names, around.cleaners, strict=False))
    names = ["finalizer", *[""] * len(around.finalizers)]
    yield from ((name, f"{who}: {does}") for name, (who, does) in zip(names, around.finalizers, strict=False))
    if rule.notes:
        yield "note", rule.notes


def _around_as_json(facts: Facts, around: Surroundings) -> dict[str, Any]:
    owner = around.owner
    return {
        "hold": around.hold or None,
        "powerlessAgainst": facts.powerless or None,
        "unknownAnnotations": list(around.slips),
        "neverFinishes": around.rule.never_finishes,
        "optIn": around.rule.opt_in,
        "owner": {"kind": owner.ref.kind, "name": owner.ref.name, "state": owner.state} if owner else None,
        "cleaners": [{"name": name, "does": does} for name, does in around.cleaners],
        "finalizers": [{"name": name, "does": does} for name, does in around.finalizers],
    }


def describe_fate(decision: Decision, now: datetime) -> str:
    """What becomes of the object, in one sentence: `it is due in 5m, at …, by spec.ttlSecondsAfterFinished`."""
    source = f", by {decision.facts.ttl.source}" if decision.facts.ttl else ""
    match decision:
        case Ignore(reason):
            return f"it stays ({reason}): {_WORDS[reason]}"
        case Wait(until):
            return f"it is due {describe_time(until, now)}, at {format_instant(until)}{source}"
        case Expire(since):
            return f"it is due since {format_instant(since)}, {describe_time(since, now)}{source}: it can go at once"


def describe_time(instant: datetime, now: datetime) -> str:
    """`in 5m` or `3h ago`."""
    distance = instant - now
    if distance < timedelta(0):
        return f"{format_duration(now - instant)} ago"
    return f"in {format_duration(distance)}"


def _finished(facts: Facts, now: datetime) -> str:
    if not facts.finish.finished:
        return "no" if facts.finish.finished is False else "unknown"
    outcome = facts.finish.outcome or "yes"
    if facts.finish.at is None:
        return f"{outcome}, nothing tells when"
    return f"{outcome} at {format_instant(facts.finish.at)} ({describe_time(facts.finish.at, now)})"


def _ttl(facts: Facts) -> str:
    if facts.ttl is None:
        return "unreadable" if facts.problem and facts.finish.finished is not None else "none"
    if facts.ttl.is_never:
        return f"never, by {facts.ttl.source}"
    what = format_duration(facts.ttl.after) if facts.ttl.after is not None else f"until {_instant(facts.ttl.at)}"
    return f"{what}, by {facts.ttl.source}"


def _due(facts: Facts, now: datetime) -> str:
    if facts.due_at is None:
        return "-"
    moved = f", moved by {facts.moved_by}" if facts.moved_by else ""
    return f"{format_instant(facts.due_at)} ({describe_time(facts.due_at, now)}){moved}"


def _keeper(facts: Facts, rule: PolicyRule) -> str:
    """`policy rule ci keeps the newest 3 by owner, and 1 is newer`."""
    what = "failed ones" if rule.counts_apart(facts.finish.outcome) else "of its kind in this namespace"
    by = "" if rule.keep_last_by.by == "namespace" else f", by {_grouping(rule.keep_last_by)}"
    newer = "nobody counted how many are newer" if facts.newer is None else f"{facts.newer or 'none'} finished later"
    return f"{rule.source} keeps the newest {rule.kept_of(facts.finish.outcome)} {what}{by}; {newer}"


def _grouping(by: Grouping) -> str:
    return f"label {by.label}" if by.label else "a CEL expression" if by.by == "cel" else by.by


def _keeper_as_json(facts: Facts) -> dict[str, Any] | None:
    if facts.keeper is None:
        return None
    kept = facts.keeper.kept_of(facts.finish.outcome)
    return {"rule": facts.keeper.name, "keeps": kept, "newer": facts.newer}


def _seconds(facts: Facts) -> int | None:
    if facts.ttl is None or facts.ttl.after is None:
        return None
    return int(facts.ttl.after.total_seconds())


def _instant(instant: datetime | None) -> str | None:
    return None if instant is None else format_instant(instant)


def is_ahead(decision: Decision) -> bool:
    """Whether the object will be deleted, now or later, if nothing changes."""
    match decision:
        case Ignore():
            return False
        case Wait() | Expire():
            return True
