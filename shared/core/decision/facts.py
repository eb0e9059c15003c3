"""The inputs and results of a decision: the context beside an object, the facts about it, and those that may lack."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Literal

from shared.core.archive.archiving import ArchiveFact, Archiving, ChildrenFact
from shared.core.deadlines.deadline import Deadline, Stage
from shared.core.deadlines.mark import Mark
from shared.core.decision.capacity import Counted, QuotaPressure
from shared.core.decision.finish import Finish
from shared.core.decision.makers import Dispatcher
from shared.core.decision.namespaces import Namespace
from shared.core.decision.reasons import Reason
from shared.core.kinds.deadline_rule import Action
from shared.core.kinds.rule import KindRule
from shared.core.policy.policy import NO_POLICY, Policy
from shared.core.policy.policy_rule import PolicyRule
from shared.core.ttl.ttl import InheritedFact, Ttl
from shared.core.values.objects import ObjectRef, format_instant


class Fact(StrEnum):
    """A fact beside an object. A caller that can read it decides again with it."""

    NAMESPACE = "namespace"
    INHERITED = "inherited"
    """The TTL of the object to which this one refers."""
    OWNER = "owner"
    """Whether the controller owner has finished."""
    API = "api"
    """Whether an aggregated API server serves the kind."""
    RANK = "rank"
    """How many objects of the keepLast group finished later."""
    PLACE = "place"
    """The place in the maxCount group."""
    QUOTAS = "quotas"
    """The quotas that limit the number of objects of the kind."""
    ARCHIVE = "archive"
    """Whether the archive has acknowledged the object."""
    CHILDREN = "children"
    """What the children of the object wait for."""


MISSING: Mapping[Reason, Fact] = {
    Reason.NAMESPACE_UNREAD: Fact.NAMESPACE,
    Reason.INHERITED_UNREAD: Fact.INHERITED,
    Reason.OWNER_UNREAD: Fact.OWNER,
    Reason.API_UNREAD: Fact.API,
    Reason.RANK_UNREAD: Fact.RANK,
    Reason.ARCHIVE_UNREAD: Fact.ARCHIVE,
    Reason.CHILDREN_UNREAD: Fact.CHILDREN,
}
"""The fact without which a decision keeps the object for now, by its reason. No other reason depends on a fact that
was not read."""


__all__ = ["NOTHING_KNOWN", "NO_DEADLINE_FACTS", "UNREAD_CHILDREN", "Context", "DeadlineFacts", "Facts", "Reason"]


@dataclass(frozen=True, slots=True)
class Context:
    """The facts that a decision needs beside the object and its kind rule.

    Attributes:
        policy: The policy in force.
        namespace: The object's Namespace; None if it was not read. A cluster-scoped kind needs none.
        owner_unfinished: Whether a controller owner exists that counts as unfinished; None if there is one that was not
            read. A caller that only sets a timer may pass False.
        owner_unknown: Whether the kind of that owner has no rule. Only then, `onOwned: delete` in a policy rule applies
            to kinds with `whileOwnerUnfinished: keep`, too.
        aggregated: Whether an aggregated API server serves the kind: it may ignore the preconditions of a DELETE. None
            if that was not read. A caller that only sets a timer may pass False.
        newer: How many objects of the same keepLast group finished later; None if they were not counted.
        inherited: What an object sets for the objects that refer to it; None if it was not read. It counts only for the
            objects that refer to that object.
        counted: The place in the group that maxCount limits; None if it was not counted.
        pressure: The quotas that limit the number of objects of the kind; None if they were not read.
        archived: Whether an archive has acknowledged the object; None if that was not read. It counts only for the
            resource version that it names.
        children: What the children of the object wait for. A caller that may delete must have set it, if the policy has
            archives: `UNREAD_CHILDREN` until they are read. A caller that only sets a timer may pass None.
    """

    policy: Policy = NO_POLICY
    namespace: Namespace | None = None
    owner_unfinished: bool | None = False
    owner_unknown: bool = False
    aggregated: bool | None = False
    newer: int | None = None
    inherited: InheritedFact | None = None
    counted: Counted | None = None
    pressure: QuotaPressure | None = None
    archived: ArchiveFact | None = None
    children: ChildrenFact | None = None


NOTHING_KNOWN = Context()

UNREAD_CHILDREN = ChildrenFact(uid="")
"""Of an object whose children may keep it, and were not read."""


@dataclass(frozen=True, slots=True)
class DeadlineFacts:
    """The facts about the deadline of one object that applies: the pending one before its start, or the active one.

    Attributes:
        deadline: The deadline that takes precedence; None if no source sets one, or if it cannot be read.
        counts_from: When its clock started: when the object started, or was resumed the last time; before its start,
            since when it waits. None if that is unknown.
        moved_by: The setting that made the deadline shorter: max-active-deadline of the namespace.
        enforced_by: The controller that enforces the deadline field of the kind, if that field is set.
        mark: The last stop of the object at a deadline; None if it was never stopped.
        action: What is done with the object at its deadline.
        stage: Which of its deadlines this is.
    """

    deadline: Deadline | None = None
    counts_from: datetime | None = None
    moved_by: str = ""
    enforced_by: str = ""
    mark: Mark | None = None
    action: Action = "stop"
    stage: Stage = Stage.ACTIVE

    @property
    def is_pending(self) -> bool:
        """Return whether it is the deadline of an object that has never started."""
        return self.stage is Stage.PENDING

    @property
    def started_at(self) -> datetime | None:
        """When the object started, or was resumed the last time; None if that is unknown, or if it never started."""
        return None if self.is_pending else self.counts_from

    @property
    def deletes(self) -> bool:
        """Return whether the object is deleted at its deadline."""
        return self.action == "delete"


NO_DEADLINE_FACTS = DeadlineFacts()


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
        moved_by: The setting that moved `due_at` away from finish plus TTL: max-ttl, a minAge, or the grace of an
            archive, also of that of a child.
        overridden: The kind's own TTL field, if its controller acts on it before `due_at` or although a reason keeps
            the object.
        owner: The controller owner that keeps the object, or may keep it until it is read.
        newer: How many objects of the group finished later, if they were counted.
        dispatcher: The dispatcher that sent the object to this cluster, if that keeps the object.
        unanswered: The policy rule that has no result for this object; empty if each rule has one.
        active: The facts about the deadline that applies now; without any in a decision about the TTL.
        count_rule: The policy rule whose maxCount limits the object, if one does.
        count_group: The group of that rule to which the object belongs.
        counted: The place in that group, if it was counted.
        quota_rule: The policy rule whose whenQuotaAbove applies to the object, if one does.
        pressure: The quotas, if they were read.
        early: The limit by which the object is due before its time; None if no limit takes effect.
        unread: The facts that were not read, and may make the object due sooner, in the order in which to read them.
        archiving: How the object is archived before it is deleted; None if no archive is wanted, or if another reason
            keeps the object.
        archived: What is known about the acknowledgement of that archive; None if that was not found out.
        audited_by: The name of the policy rule with `audit: true` that only reports the object; empty if none does.
        otherwise: If only a limit of that rule makes the object due: the facts without that limit, by which the object
            is due as well, now or later; None if it is not.
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
    active: DeadlineFacts = NO_DEADLINE_FACTS
    count_rule: PolicyRule | None = None
    count_group: str = ""
    counted: Counted | None = None
    quota_rule: PolicyRule | None = None
    pressure: QuotaPressure | None = None
    early: Reason | None = None
    unread: tuple[Fact, ...] = ()
    archiving: Archiving | None = None
    archived: ArchiveFact | None = None
    audited_by: str = ""
    otherwise: "Facts | None" = None

    def summary(self) -> str:
        """`finished 2026-01-02T03:04:05Z, due 2026-01-02T04:04:05Z by spec.ttlSecondsAfterFinished`."""
        if self.active.deadline is not None and self.due_at is not None:
            return f"deadline over {format_instant(self.due_at)} by {self.active.deadline.source}"
        finished = f"finished {format_instant(self.finish.at)}" if self.finish.at else "finish time unknown"
        if self.ttl is None or self.due_at is None:
            return finished
        moved = f", moved by {self.moved_by}" if self.moved_by else ""
        return f"{finished}, due {format_instant(self.due_at)} by {self.ttl.source}{moved}"


@dataclass(frozen=True, slots=True)
class Audited:
    """What a policy rule with `audit: true` would do to an object that is due: logs, metrics and reports show it.

    Attributes:
        rule: The name of the policy rule.
        due_at: When the object was due; None for an object that would be archived.
        summary: When it finished, or since when it runs, and which source sets that it is due.
    """

    rule: str
    due_at: datetime | None
    summary: str


def audited_of(facts: Facts) -> Audited:
    """What the rule of `facts.audited_by` would do."""
    return Audited(facts.audited_by, facts.due_at, facts.summary())


def find_propagation(facts: Facts, rule: KindRule) -> Literal["Background", "Foreground", "Orphan"]:
    """The propagationPolicy of the DELETE: of the policy rule that sets the TTL or the deadline, else of the kind."""
    return (facts.policy_rule.propagation if facts.policy_rule else None) or rule.propagation
