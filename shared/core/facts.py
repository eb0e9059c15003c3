"""The inputs and results of a decision: the context beside an object, the reasons, and the facts found about it."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from shared.core.dispatchers import Dispatcher
from shared.core.finish import Finish
from shared.core.namespaces import Namespace
from shared.core.objects import ObjectRef, format_instant
from shared.core.policy.policy import NO_POLICY, Policy
from shared.core.policy.policy_rule import PolicyRule
from shared.core.ttl.ttl import Ttl


class Reason(StrEnum):
    """Why an object is kept or deleted: the same word in log lines, metrics, JSON output and test ids.

    The text of each member is its meaning, and what an operator can do: docs/reference/reasons.md is made from it.
    """

    EXPIRED = "expired"
    """The TTL of the object is over. The object is deleted, unless a safeguard denies or delays the DELETE.

    To keep the object, run `kubectl ttl hold KIND/NAME --reason WHY`.
    """
    NOT_DUE = "not-due"
    """The object finished, and its TTL is not over yet.

    To keep the object longer, run `kubectl ttl set KIND/NAME TIME` or `kubectl ttl hold KIND/NAME --reason WHY`.
    """
    SERVER_CLOCK_AHEAD = "server-clock-ahead"
    """The API server's clock is more than 60 s ahead of the clock of this process. The object is due by the first clock
    only. It is kept until it is due by both.

    Compare the clocks with `kubectl ttl doctor`, and set the clock that is wrong.
    """
    TERMINATING = "terminating"
    """The object has a `metadata.deletionTimestamp`. A DELETE of it was accepted before.

    If the object does not go, `kubectl ttl explain KIND/NAME` prints which finalizers it waits for.
    """
    HELD = "held"
    """The object has the annotation `ttlafterfinished.dev/hold`.

    To end the hold, run `kubectl ttl release KIND/NAME`.
    """
    NEVER_FINISHES = "never-finishes"
    """The kind rule has `neverFinishes`. Objects of the kind are never deleted.

    Nothing. `kubectl ttl kinds KIND` prints why the kind never finishes.
    """
    EXEMPT = "exempt"
    """The namespace has the annotation `ttlafterfinished.dev/exempt: "true"`.

    To end the exemption, run `kubectl annotate namespace NAME ttlafterfinished.dev/exempt-`.
    """
    INVALID_POLICY = "invalid-policy"
    """An annotation of the namespace has a malformed value, or a policy rule cannot be evaluated for the object.

    Correct the value. The Event `InvalidPolicy` and `kubectl ttl explain KIND/NAME` name it.
    """
    INVALID_TTL = "invalid-ttl"
    """A TTL annotation of the object, or the TTL field of its kind, has a malformed value.

    Correct the value. To remove the annotations, run `kubectl ttl set KIND/NAME --unset`.
    """
    UNFINISHED = "unfinished"
    """The object has not finished.

    Nothing. `kubectl ttl kinds KIND` prints when objects of the kind count as finished.
    """
    LEFT_TO_CONTROLLER = "left-to-controller"
    """The TTL field of the kind is set. The controller of the kind acts on it, and the kind rule has `native: leave`.

    To set a TTL for ttl-after-finished, run `kubectl ttl set KIND/NAME TIME`.
    """
    NO_TTL = "no-ttl"
    """No annotation, TTL field, policy rule or namespace default sets a TTL for the object.

    Set a TTL on the object with `kubectl ttl set KIND/NAME TIME`, in a policy rule, or as the default of the namespace.
    """
    NEVER = "never"
    """The TTL of the object is `never`.

    To set another TTL, run `kubectl ttl set KIND/NAME TIME`.
    """
    FINISH_TIME_UNKNOWN = "finish-time-unknown"
    """The object finished, and no field shows when.

    Set an instant, which needs no finish time: `kubectl ttl set KIND/NAME 2026-01-02T03:04:05Z`.
    """
    NAMESPACE_UNREAD = "namespace-unread"
    """The Namespace was not read. It may be exempt, set a default, or set a maximum.

    Allow `get` and `list` on namespaces to the process, or to the person who runs the command.
    """
    OWNER_UNFINISHED = "owner-unfinished"
    """The controller owner of the object has not finished, or its state is unknown.

    Wait for the owner. To delete the object before its owner, set `ttlafterfinished.dev/owner: ignore` on the object.
    """
    DISPATCHED = "dispatched"
    """Another cluster created the object here, and still has to read its result.

    Set the TTL on the original, or allow the deletion by a policy rule with `onDispatched: delete`.
    """
    AGGREGATED_API = "aggregated-api"
    """An aggregated API server serves the kind, or may serve it, and may ignore the preconditions of a DELETE.

    Allow `list` on APIServices. If the server checks the preconditions, set `preconditions: honoured` in a kind rule.
    """
    KEPT_LAST = "kept-last"
    """A policy rule with `keepLast` or `keepLastFailed` keeps the object as one of the newest of its group.

    Wait: the object is due once enough newer objects of the group have finished.
    """
    UNKNOWN_SHAPE = "unknown-shape"
    """The object does not have the shape that the rule of its kind expects.

    Compare the object with `kubectl ttl kinds KIND`. If your version of the kind differs, write a kind rule.
    """


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
        keep_last_rule: The policy rule whose keepLast or keepLastFailed counts the object, if one does.
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
    keep_last_rule: PolicyRule | None = None
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
