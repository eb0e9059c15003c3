"""The inputs and results of a decision: the context beside an object, the reasons, and the facts found about it."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from shared.core.dispatchers import Dispatcher
from shared.core.finish.finish import Finish
from shared.core.namespaces import Namespace
from shared.core.objects import ObjectRef, format_instant
from shared.core.policy.policy import NO_POLICY, Policy, PolicyRule
from shared.core.ttl.ttl import Ttl


class Reason(StrEnum):
    """Why an object stays or goes: the same word in log lines, metrics, Kubernetes Events and test ids."""

    EXPIRED = "expired"
    NOT_DUE = "not-due"
    SERVER_CLOCK_AHEAD = "server-clock-ahead"
    TERMINATING = "terminating"
    HELD = "held"
    NEVER_FINISHES = "never-finishes"
    EXEMPT = "exempt"
    INVALID_POLICY = "invalid-policy"
    INVALID_TTL = "invalid-ttl"
    UNFINISHED = "unfinished"
    LEFT_TO_CONTROLLER = "left-to-controller"
    NO_TTL = "no-ttl"
    NEVER = "never"
    FINISH_TIME_UNKNOWN = "finish-time-unknown"
    NAMESPACE_UNREAD = "namespace-unread"
    OWNER_UNFINISHED = "owner-unfinished"
    DISPATCHED = "dispatched"
    AGGREGATED_API = "aggregated-api"
    KEPT_LAST = "kept-last"
    UNKNOWN_SHAPE = "unknown-shape"


@dataclass(frozen=True, slots=True)
class Context:
    """The facts that a decision needs beside the object and its kind rule.

    Attributes:
        policy: The policy in force.
        namespace: The object's Namespace; None if it was not read. A cluster-scoped kind needs none.
        owner_unfinished: Whether a controller owner exists that has not finished, or of which this is unknown.
            A caller that may delete must have checked it; a caller that only sets a timer may pass False.
        aggregated: Whether an aggregated API server serves the kind, or may serve it: it may ignore the preconditions
            of a DELETE. A caller that only sets a timer may pass False.
        newer: How many objects of the same keepLast group finished later; None if they were not counted.
    """

    policy: Policy = NO_POLICY
    namespace: Namespace | None = None
    owner_unfinished: bool = False
    aggregated: bool = False
    newer: int | None = None


NOTHING_KNOWN = Context()


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts about one object that explain a decision.

    Attributes:
        finish: Whether, when and how the object finished.
        ttl: The TTL that takes precedence; None if no source sets one, or if the source cannot be read.
        due_at: When the object is due by all known facts; None if it is never due, or if that is unknown.
        problem: What cannot be read, and what was expected; empty if everything can be read.
        problem_of: The Namespace that has the problem; None if the object itself has it.
        policy_rule: The policy rule that sets the TTL, if one does.
        keeper: The policy rule whose keepLast or keepLastFailed counts the object, if one does.
        group: The group of that rule to which the object belongs.
        moved_by: The setting that moved `due_at` away from finish plus TTL: max-ttl or a minAge.
        overridden: The kind's own TTL field, if its controller acts on it before `due_at` or although a reason keeps
            the object.
        owner: The controller owner that keeps the object.
        newer: How many objects of the group finished later, if they were counted.
        dispatcher: The dispatcher that sent the object to this cluster, if that keeps the object.
        unanswered: The policy rule that has no result for this object; empty if each rule has one.
    """

    finish: Finish
    ttl: Ttl | None = None
    due_at: datetime | None = None
    problem: str = ""
    problem_of: ObjectRef | None = None
    policy_rule: PolicyRule | None = None
    keeper: PolicyRule | None = None
    group: str = ""
    moved_by: str = ""
    overridden: str = ""
    owner: ObjectRef | None = None
    newer: int | None = None
    dispatcher: Dispatcher | None = None
    unanswered: str = ""

    def summary(self) -> str:
        """`finished 2026-01-02T03:04:05Z, due 2026-01-02T04:04:05Z by spec.ttlSecondsAfterFinished`."""
        finished = f"finished {format_instant(self.finish.at)}" if self.finish.at else "finish time unknown"
        if self.ttl is None or self.due_at is None:
            return finished
        moved = f", moved by {self.moved_by}" if self.moved_by else ""
        return f"{finished}, due {format_instant(self.due_at)} by {self.ttl.source}{moved}"
