"""What is told about an object: as JSON, and in one sentence."""

from datetime import datetime, timedelta
from typing import Any

from shared.cli.deleters.obstacles import ExplainContext
from shared.cli.objects.related import RelatedFacts
from shared.core.decide import Decision, Expire, Facts, Ignore, Reason, Wait
from shared.core.objects import ObjectRef, format_instant
from shared.core.ttl.durations import format_duration

WORDS = {
    Reason.EXPIRED: "its time has come",
    Reason.NOT_DUE: "it has finished, and its time has not come",
    Reason.SERVER_CLOCK_AHEAD: (
        "it is due by the Date of the API server alone, which is more than 60 s ahead of this machine's clock"
    ),
    Reason.TERMINATING: "it is being deleted already",
    Reason.HELD: "held by annotation ttlafterfinished.dev/hold",
    Reason.INVALID_TTL: "kept, because what speaks of its TTL cannot be read",
    Reason.UNFINISHED: "it has not finished, and its TTL begins when it has",
    Reason.NEVER_FINISHES: "objects of its kind never finish",
    Reason.LEFT_TO_CONTROLLER: "its kind's own controller acts on its TTL field, and does more than delete",
    Reason.NO_TTL: "nothing gives it a TTL",
    Reason.NEVER: "it is never to be deleted",
    Reason.FINISH_TIME_UNKNOWN: "it finished, but nothing tells when",
    Reason.OWNER_UNFINISHED: "the owner that controls it has not finished, or cannot be told to have",
    Reason.DISPATCHED: "another cluster sent it here, and has to read its end first",
    Reason.AGGREGATED_API: "an aggregated API server serves its kind, or may, and may ignore preconditions",
    Reason.EXEMPT: "its namespace is exempt, by annotation ttlafterfinished.dev/exempt",
    Reason.INVALID_POLICY: "kept, because what is said for its namespace, or for many, cannot be read",
    Reason.NAMESPACE_UNREAD: "its namespace could not be read, which may exempt it",
    Reason.KEPT_LAST: "it is among the newest that a policy rule keeps, or nobody could count them",
    Reason.UNKNOWN_SHAPE: "its kind or its status is not one that is known here",
}


def as_json(
    ref: ObjectRef, decision: Decision, around: RelatedFacts | None = None, scene: ExplainContext | None = None
) -> dict[str, Any]:
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
        **(_scene_as_json(scene) if scene else {}),
    }


def _around_as_json(facts: Facts, around: RelatedFacts) -> dict[str, Any]:
    owner = around.owner
    return {
        "unfinished": around.unfinished.as_json() if around.unfinished else None,
        "hold": around.hold or None,
        "parkedTtl": around.saved or None,
        "powerlessAgainst": facts.overridden or None,
        "unknownAnnotations": list(around.slips),
        "neverFinishes": around.rule.never_finishes,
        "optIn": around.rule.opt_in,
        "deletedWith": [one.as_json() for one in around.deleting_owners],
        "owner": {"kind": owner.ref.kind, "name": owner.ref.name, "state": owner.state} if owner else None,
        "cleaners": [{"name": name, "does": does} for name, does in around.cleaners],
        "finalizers": [{"name": name, "does": does} for name, does in around.finalizers],
    }


def _scene_as_json(scene: ExplainContext) -> dict[str, Any]:
    named = scene.named
    policy = {
        "name": named.name or None,
        "known": named.is_known,
        "why": named.why or None,
        "differs": named.differs or None,
    }
    return {"policy": policy, "obstacles": [one.as_json() for one in scene.obstacles], "guard": scene.guard}


def describe_fate(decision: Decision, now: datetime) -> str:
    """What becomes of the object, in one sentence: `it is due in 5m, at …, by spec.ttlSecondsAfterFinished`."""
    source = f", by {decision.facts.ttl.source}" if decision.facts.ttl else ""
    match decision:
        case Ignore(reason):
            return f"it stays ({reason}): {WORDS[reason]}"
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
