"""What a decision rests on: the reasons, what is known beside an object, and what was found out about it."""

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
    """What is known beside the object and its kind.

    Attributes:
        policy: The policy in force.
        namespace: The object's; None where it was not read. Objects of a kind without namespaces need none.
        owner_unfinished: Whether a controller owner exists that has not finished, or cannot be told to have.
            Whoever may delete must have looked; who only sets a timer may say False.
        aggregated: Whether an aggregated API server serves the kind, or may: it may ignore the preconditions of a
            DELETE. A caller that only sets a timer may pass False.
        newer: How many objects of the same keepLast group finished later; None where nobody counted.
    """

    policy: Policy = NO_POLICY
    namespace: Namespace | None = None
    owner_unfinished: bool = False
    aggregated: bool = False
    newer: int | None = None


NOTHING_KNOWN = Context()


@dataclass(frozen=True, slots=True)
class Facts:
    """What was found out about one object, for those who explain a decision.

    Attributes:
        finish: Whether, when and how the object finished.
        ttl: The TTL that counts; None where nothing speaks or what speaks cannot be read.
        due_at: When it is due by all that is known; None where it never is, or that cannot be told.
        problem: What cannot be read, and what was expected; empty where all can.
        problem_of: Whose problem that is, where it is not the object's own: its Namespace.
        policy_rule: The rule that says the TTL, if one does.
        keeper: The rule that keeps the newest of a group, if the object is counted by one.
        group: In which group of that rule it is counted.
        moved_by: What moved the due instant from where the TTL alone has it: a maximum, or a minimum age.
        overridden: The kind's own field, where its own controller acts on it earlier, whatever we say.
        owner: The controller owner that keeps it.
        newer: How many of its group finished later, where somebody counted.
        dispatcher: Who sent it here from another cluster, where that keeps it.
        unanswered: The policy rule that has no answer for this object; empty if each has one.
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
