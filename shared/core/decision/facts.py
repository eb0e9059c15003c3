"""The inputs and results of a decision.

A decision has the context beside an object, the facts about the object, and the case: the object with both, and the
reasons that keep it whatever its TTL or its deadline is. A fact that was not read may be missing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal

from shared.core.archive.archiving import ArchiveFact, Archiving, ChildrenFact
from shared.core.deadlines.deadline import Deadline, Mark, Stage
from shared.core.decision.capacity import Counted, QuotaPressure
from shared.core.decision.finish import Finish
from shared.core.decision.makers import Dispatcher
from shared.core.decision.namespaces import ARCHIVE, CLUSTER_SCOPED, Namespace
from shared.core.decision.reasons import Reason
from shared.core.kinds.rule import KindRule
from shared.core.kinds.ttl_and_deadline import Action
from shared.core.policy.policy import NO_POLICY, Policy
from shared.core.policy.policy_rule import PolicyRule
from shared.core.policy.ruling import Due
from shared.core.ttl.ttl import InheritedFact, InvalidTtlError, Ttl, find_ttl, find_ttl_source
from shared.core.values.objects import ObjectRef, format_instant, get_in


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


OWNER_REASONS = (Reason.OWNER_UNFINISHED, Reason.OWNER_UNKNOWN, Reason.OWNER_UNREAD)
"""Why the controller owner of an object keeps it."""


@dataclass(slots=True)
class Case:
    """One object, its kind rule, the context, its annotations without their domain, and its finish."""

    obj: Any
    rule: KindRule
    context: Context
    annotations: dict[str, Any]
    finish: Finish

    @property
    def namespace(self) -> Namespace | None:
        """The object's Namespace; None if it was not read. A cluster-scoped object has an empty one."""
        return CLUSTER_SCOPED if self.rule.scope == "Cluster" else self.context.namespace

    @property
    def may_be_archived(self) -> bool:
        """Whether the object, its namespace or the policy may want an archive; an unread namespace may."""
        namespace = self.namespace
        is_asked_for = ARCHIVE in self.annotations or bool(self.context.policy.archives)
        return is_asked_for or namespace is None or namespace.archive is not None

    def own_ttl(self) -> Ttl | None:
        """The TTL from the object's annotations or its kind's field, unless only its controller acts on that field.

        Raises:
            InvalidTtlError: An annotation or the field is malformed.
        """
        return find_ttl(self.obj, self.rule, self.finish.outcome, annotations=self.annotations)

    @property
    def inherited(self) -> InheritedFact | None:
        """What the object to which it refers sets; None if it refers to none, or if that one was not read."""
        fact = self.context.inherited
        return fact if fact is not None and fact.source == find_ttl_source(self.obj, self.rule.ttl) else None

    def inherited_ttl(self) -> Ttl | None:
        """The TTL of the object to which it refers, if that one was read.

        Raises:
            InvalidTtlError: The field of that object is malformed.
        """
        fact = self.inherited
        if fact is not None and fact.problem:
            raise InvalidTtlError(fact.problem)
        return fact.ttl if fact is not None else None

    def deliberate_reason(self) -> Reason | None:
        """The reason that keeps the object whatever its TTL is."""
        namespace = self.namespace
        if self.finish.finished is None:
            return Reason.UNKNOWN_SHAPE
        if get_in(self.obj, "metadata.deletionTimestamp") is not None:
            return Reason.TERMINATING
        if "hold" in self.annotations:
            return Reason.HELD
        if self.rule.never_finishes is not None:
            return Reason.NEVER_FINISHES
        if namespace is not None and (namespace.is_exempt or namespace.problem):
            return Reason.EXEMPT if namespace.is_exempt else Reason.INVALID_POLICY
        return None

    def is_kept_by_owner(self, due: Due) -> bool:
        """Return whether an unfinished or unread owner keeps it: by the kind rule, or if the object sets no TTL."""
        if self.context.owner_unfinished is False or self.annotations.get("owner") == "ignore":
            return False
        is_allowed = due.rule is not None and due.rule.on_owned == "delete"
        if self.rule.while_owner_unfinished == "keep":
            return not (is_allowed and self.context.owner_unknown)
        is_inherited = due.ttl is not None and due.ttl.origin == "inherited"
        return (is_inherited or self.is_due_by_others(due)) and not is_allowed

    def owner_reason(self) -> Reason:
        """The reason of an object that its owner keeps."""
        if self.context.owner_unfinished is None:
            return Reason.OWNER_UNREAD
        return Reason.OWNER_UNKNOWN if self.context.owner_unknown else Reason.OWNER_UNFINISHED

    def api_reason(self) -> Reason | None:
        """The reason to keep the object because of the API server of its kind."""
        if not self.rule.may_be_aggregated or self.context.aggregated is False:
            return None
        return Reason.API_UNREAD if self.context.aggregated is None else Reason.AGGREGATED_API

    def is_due_by_others(self, due: Due) -> bool:
        """Return whether a policy or the namespace sets when it is due: by a TTL, or by a max-ttl."""
        return due.ttl is not None and (due.ttl.origin in ("policy", "namespace") or self._is_shortened(due))

    def _is_shortened(self, due: Due) -> bool:
        """Return whether max-ttl makes the object due sooner than its TTL: max-ttl is not set on the object itself."""
        by_ttl = due.ttl.due_at(self.finish.at) if due.ttl else None
        return by_ttl is not None and due.at is not None and due.at < by_ttl


def is_of_kind(obj: Any, rule: KindRule) -> bool:
    """Return whether the rule fits the object's apiVersion and kind."""
    return (
        isinstance(obj, dict)
        and obj.get("apiVersion") in rule.api_versions
        and obj.get("kind") == rule.kind
        and isinstance(obj.get("metadata"), dict)
    )
