"""One object in a decision, and the reasons that keep it whatever its TTL or its deadline is."""

from dataclasses import dataclass
from typing import Any

from shared.core.decision.facts import Context, Reason
from shared.core.decision.finish import Finish
from shared.core.decision.namespaces import ARCHIVE, CLUSTER_SCOPED, Namespace
from shared.core.kinds.rule import KindRule
from shared.core.policy.ruling import Due
from shared.core.ttl.ttl import InheritedFact, InvalidTtlError, Ttl, find_ttl, find_ttl_source
from shared.core.values.objects import get_in

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
