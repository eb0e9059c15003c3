"""The core of the project: one pure function decides what happens to an object.

`decide` is total (it never raises, for any JSON), deterministic and monotone in `now`: once it says Expire, a later
`now` says so too. Every function, the sweep and the command line ask it; nobody else decides.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from shared.core.finish import Finish, finish_of
from shared.core.kinds import KindRule
from shared.core.native import has_native_ttl, is_left_to_controller
from shared.core.objects import format_instant, get_annotations, get_in
from shared.core.powerless import powerless_against
from shared.core.ttl import TTL_ANNOTATIONS, InvalidTtlError, Ttl, find_ttl


class Reason(StrEnum):
    """Why an object stays or goes: the same word in log lines, metrics, Kubernetes Events and test ids."""

    EXPIRED = "expired"
    NOT_DUE = "not-due"
    TERMINATING = "terminating"
    HELD = "held"
    INVALID_TTL = "invalid-ttl"
    UNFINISHED = "unfinished"
    NEVER_FINISHES = "never-finishes"
    LEFT_TO_CONTROLLER = "left-to-controller"
    NO_TTL = "no-ttl"
    NEVER = "never"
    FINISH_TIME_UNKNOWN = "finish-time-unknown"
    OWNER_UNFINISHED = "owner-unfinished"
    UNKNOWN_SHAPE = "unknown-shape"


@dataclass(frozen=True, slots=True)
class Facts:
    """What a decision rests on, for those who explain it.

    Attributes:
        finish: Whether, when and how the object finished.
        ttl: The TTL that counts; None where nothing speaks or what speaks cannot be read.
        due_at: Finish + TTL, where both are known.
        problem: What cannot be read, and what was expected; empty where all can.
        powerless: The kind's own field, where its own controller acts on it earlier, whatever we say.
    """

    finish: Finish
    ttl: Ttl | None = None
    due_at: datetime | None = None
    problem: str = ""
    powerless: str = ""

    def summary(self) -> str:
        """`finished 2026-01-02T03:04:05Z, due 2026-01-02T04:04:05Z by spec.ttlSecondsAfterFinished`."""
        finished = f"finished {format_instant(self.finish.at)}" if self.finish.at else "finish time unknown"
        if self.ttl is None or self.due_at is None:
            return finished
        return f"{finished}, due {format_instant(self.due_at)} by {self.ttl.source}"


@dataclass(frozen=True, slots=True)
class Ignore:
    """The object stays; nothing but a change of it, or of its owner, can alter that."""

    reason: Reason
    facts: Facts


@dataclass(frozen=True, slots=True)
class Wait:
    """The object is due later."""

    until: datetime
    reason: Reason
    facts: Facts


@dataclass(frozen=True, slots=True)
class Expire:
    """The object is due since that instant: delete it."""

    since: datetime
    reason: Reason
    facts: Facts


Decision = Ignore | Wait | Expire


def decide(obj: Any, rule: KindRule, now: datetime, *, owner_unfinished: bool) -> Decision:
    """Decide what happens to one object.

    Args:
        obj: The object as the API server sent it; any JSON is accepted.
        rule: How its kind finishes.
        now: The current instant, aware; to delete by the answer it must be the API server's.
        owner_unfinished: Whether a controller owner exists that has not finished, or cannot be told to have.
            Whoever may delete must have looked; who only sets a timer may say False.

    Returns:
        Ignore, Wait or Expire, each with its reason and the facts it rests on. Exactly due is expired.
    """
    facts = gather(obj, rule)
    reason = _reason_to_keep(obj, rule, facts, owner_unfinished=owner_unfinished)
    if reason is not None or facts.due_at is None:
        return Ignore(reason or Reason.FINISH_TIME_UNKNOWN, facts)
    if now < facts.due_at:
        return Wait(facts.due_at, Reason.NOT_DUE, facts)
    return Expire(facts.due_at, Reason.EXPIRED, facts)


def gather(obj: Any, rule: KindRule) -> Facts:
    """What is known of one object, without a clock. Total, as `decide` is."""
    if not _is_of_kind(obj, rule):
        return Facts(Finish(finished=None), problem=f"expected a {rule.kind} of {rule.api_version}")
    finish = finish_of(obj, rule)
    try:
        ttl = find_ttl(obj, rule, finish.outcome)
    except InvalidTtlError as error:
        powerless = powerless_against(obj, rule, finish, None, unreadable=True)
        return Facts(finish, problem=str(error), powerless=powerless)
    due_at = ttl.due_at(finish.at) if ttl and finish.finished else None
    return Facts(finish, ttl, due_at, powerless=powerless_against(obj, rule, finish, ttl))


def is_open(obj: Any, rule: KindRule) -> bool:
    """Whether an object may be due now or later as far as its metadata tells; spec and status are not needed.

    Cheap, and only ever wrong in one direction: what is not open would be ignored by `decide`, and needs no report.
    """
    annotations = get_annotations(obj)
    if get_in(obj, "metadata.deletionTimestamp") is not None:
        return False
    has_field = has_native_ttl(obj, rule.ttl)
    if "hold" in annotations:
        # Its own controller may act on the field all the same: that has to be reported.
        return has_field and rule.ttl is not None and rule.ttl.honoured_by is not None
    return has_field or any(name in annotations for name in TTL_ANNOTATIONS)


def _is_of_kind(obj: Any, rule: KindRule) -> bool:
    return (
        isinstance(obj, dict)
        and obj.get("apiVersion") in rule.api_versions
        and obj.get("kind") == rule.kind
        and isinstance(obj.get("metadata"), dict)
    )


def _reason_to_keep(obj: Any, rule: KindRule, facts: Facts, *, owner_unfinished: bool) -> Reason | None:
    """The first reason that holds, the most deliberate first: what somebody said comes before what is missing."""
    annotations = get_annotations(obj)
    owner_counts = rule.while_owner_unfinished == "keep" and annotations.get("owner") != "ignore"
    reasons = {
        Reason.UNKNOWN_SHAPE: facts.finish.finished is None,
        Reason.TERMINATING: get_in(obj, "metadata.deletionTimestamp") is not None,
        Reason.HELD: "hold" in annotations,
        Reason.NEVER_FINISHES: rule.never_finishes is not None,
        Reason.INVALID_TTL: bool(facts.problem),
        Reason.UNFINISHED: not facts.finish.finished,
        Reason.LEFT_TO_CONTROLLER: facts.ttl is None and is_left_to_controller(obj, rule.ttl),
        Reason.NO_TTL: facts.ttl is None,
        Reason.NEVER: facts.ttl is not None and facts.ttl.is_never,
        Reason.FINISH_TIME_UNKNOWN: facts.due_at is None,
        Reason.OWNER_UNFINISHED: owner_unfinished and owner_counts,
    }
    return next((reason for reason, holds in reasons.items() if holds), None)
