"""Keep an object that has to be archived until the archive has acknowledged exactly this version of it.

The annotation `ttlafterfinished.dev/archive` of the object takes precedence, then that of its namespace, then the
first policy rule with an `archive` that matches. A value that cannot be read, or that names no archive, keeps the
object: whether it had to be archived is unknown then.

After a DELETE, the garbage collector also deletes what the object owns, whatever the policy says about that. So the
children that have to be archived, or that are held, keep their owner as they would keep themselves.
The grace counts from the acknowledgement. So after an outage of the archive not everything is deleted at once.

Whether Tekton Results has stored an object is read from the annotations of its watcher:

- `results.tekton.dev/stored: "true"`, once it has stored a finished run. If the annotation was written before the run
  completed, it does not count: it is a copy from an earlier run.
- If its logs API is enabled, it never writes `stored`. Then `results.tekton.dev/record` counts, but only after
  completionTime + `_STORE_DEADLINE`: until then the watcher may still be storing the last state.

Neither annotation has a time. The watcher writes them by server-side apply, so the time of the entry in managedFields
that owns the annotation is that of its last write: never before the acknowledgement. Without such an entry the newest
write of the object counts, which is not before it either.

`find_unarchived` is this gate for unused objects, which never finish. Annotations about archives do not count there.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from shared.core.archive.archiving import ArchiveFact, Archiving, ChildrenFact
from shared.core.decision.facts import Case, Facts, Reason, find_propagation
from shared.core.decision.namespaces import ARCHIVE
from shared.core.kinds.rule import KindRule
from shared.core.policy.archives import NATIVE_GROUP, ArchiveDestination
from shared.core.policy.matching import NamespaceUnreadError, Subject
from shared.core.policy.policy import Policy
from shared.core.policy.policy_rule import PolicyRule
from shared.core.policy.ruling import UnreadableRuleError, find_archive_rule, find_future_archive_rule
from shared.core.values.objects import (
    ANNOTATION_DOMAIN,
    format_instant,
    get_in,
    get_text,
    list_mappings,
    parse_instant,
    quote,
)
from shared.core.values.timing import add

AWAITS_ARCHIVE = (Reason.NOT_ARCHIVED, Reason.ARCHIVE_UNREAD)
"""Why an object is kept until its archive has acknowledged it."""

AWAITS_CHILDREN = (Reason.CHILD_NOT_ARCHIVED, Reason.CHILDREN_UNREAD)
"""Why an object is kept until its children are archived."""

CHILD_REASONS = (Reason.CHILD_HELD, *AWAITS_CHILDREN)
"""Why the children of an object keep it."""

_STORE_DEADLINE = timedelta(minutes=10)
"""The default of the watcher's `store_deadline`."""

_STORED = "results.tekton.dev/stored"
_RECORD = "results.tekton.dev/record"


def apply_gate(case: Case, facts: Facts) -> tuple[Reason | None, Facts]:
    """The reason to keep an object that nothing else keeps, and its facts with what is known about the archive. Total.

    Args:
        case: The object, which has finished.
        facts: The facts about it, with the instant at which it is due without an archive.

    Returns:
        The reason is None if no archive is wanted, or if it has acknowledged this version of the object. Then `due_at`
        is not before the end of the grace.
    """
    try:
        archiving = find_archiving(case)
    except InvalidArchiveError as error:
        about = case.namespace.ref if error.is_of_namespace and case.namespace else None
        return Reason.INVALID_ARCHIVE, replace(facts, problem=str(error), problem_of=about)
    except NamespaceUnreadError:
        return Reason.NAMESPACE_UNREAD, facts
    except UnreadableRuleError as error:
        return Reason.INVALID_POLICY, replace(facts, problem=str(error), unanswered=error.source)
    if archiving is None:
        return None, facts
    if archiving.audit:
        return None, replace(facts, archiving=archiving, audited_by=archiving.rule)
    fact = find_archive_fact(case, archiving)
    problem = fact.problem if fact is not None else ""
    facts = replace(facts, archiving=archiving, archived=fact, problem=problem or facts.problem)
    if fact is None or fact.acknowledged_at is None:
        return Reason.ARCHIVE_UNREAD if fact is None else Reason.NOT_ARCHIVED, facts
    ready_at = add(fact.acknowledged_at, archiving.grace)
    if facts.due_at is None or ready_at <= facts.due_at:
        return None, facts
    return None, replace(facts, due_at=ready_at, moved_by=f"the grace of the archive {archiving.to}")


def find_archive_fact(case: Case, archiving: Archiving) -> ArchiveFact | None:
    """What is known about the acknowledgement of exactly this version of the object; None if it has to be read."""
    if archiving.native:
        uid, version = (get_text(case.obj, f"metadata.{part}") for part in ("uid", "resourceVersion"))
        at = find_stored_at(case.obj)
        return ArchiveFact(archiving.to, uid, version, at, is_read_back=True, children=True, logs=True)
    fact = case.context.archived
    return fact if fact is not None and fact.is_about(case.obj, archiving) else None


def apply_children_gate(obj: Any, rule: KindRule, fact: ChildrenFact, facts: Facts) -> tuple[Reason | None, Facts]:
    """The reason to keep an object that is due because of its children, and its facts with their grace. Total.

    Args:
        obj: The object.
        rule: The rule of its kind.
        fact: What is known about its children.
        facts: The facts about it.

    Returns:
        The reason is None if no child keeps the object. Then `due_at` is not before the end of each grace.
    """
    if find_propagation(facts, rule) == "Orphan":
        return None, facts
    if fact.uid != get_text(obj, "metadata.uid"):
        return Reason.CHILDREN_UNREAD, facts
    if fact.reason is not None:
        return fact.reason, replace(facts, problem=fact.problem or facts.problem)
    if fact.ready_at is None or (facts.due_at is not None and fact.ready_at <= facts.due_at):
        return None, facts
    return None, replace(facts, due_at=fact.ready_at, moved_by=fact.moved_by)


def find_stored_at(obj: Any) -> datetime | None:
    """When Tekton Results had stored an object; None if it has not, or if that is unknown. Total.

    The instant may lie in the future: the object counts as stored from then on.
    """
    annotations = get_in(obj, "metadata.annotations")
    if not isinstance(annotations, dict):
        return None
    completed_at = _instant(get_text(obj, "status.completionTime"))
    if _STORED in annotations:
        return _marked_at(obj, completed_at) if annotations[_STORED] == "true" else None
    record = annotations.get(_RECORD)
    if not isinstance(record, str) or not record or completed_at is None:
        return None
    written_at = _written_at(obj, _RECORD)
    try:
        return max(written_at, completed_at + _STORE_DEADLINE) if written_at else None
    except OverflowError:
        return None


def _marked_at(obj: Any, completed_at: datetime | None) -> datetime | None:
    """When `stored` was written; None if that was before the completion, or if one of both is unknown."""
    completed_at = completed_at or _condition_at(obj)
    written_at = _written_at(obj, _STORED)
    return written_at if written_at and completed_at and written_at >= completed_at else None


def _condition_at(obj: Any) -> datetime | None:
    """When the condition of the completion changed: the controller of a CustomRun may set no completionTime."""
    done = (one for one in list_mappings(obj, "status.conditions") if one.get("type") == "Succeeded")
    return next((_instant(one.get("lastTransitionTime")) for one in done), None)


def _written_at(obj: Any, annotation: str) -> datetime | None:
    """The last write of the client that owns an annotation, or else of any client."""
    field = f"f:{annotation}"
    owned, written = [], list(_writes(obj))
    for fields, at in written:
        names = get_in(fields, "f:metadata")
        annotated = names.get("f:annotations") if isinstance(names, dict) else None
        if isinstance(annotated, dict) and field in annotated:
            owned.append(at)
    return max(owned or [at for _, at in written], default=None)


def _writes(obj: Any) -> Iterator[tuple[Any, datetime]]:
    for entry in list_mappings(obj, "metadata.managedFields"):
        at = _instant(entry.get("time"))
        if at is not None:
            yield entry.get("fieldsV1"), at


def _instant(value: Any) -> datetime | None:
    try:
        return parse_instant(value)
    except ValueError:
        return None


_NO_SETTINGS = Archiving(to="", source="")
"""The settings of an archive that no rule sets."""


class InvalidArchiveError(ValueError):
    """An annotation about an archive cannot be read, or names no archive of the policy.

    Attributes:
        is_of_namespace: Whether the namespace has the annotation.
    """

    def __init__(self, message: str, *, is_of_namespace: bool = False) -> None:
        super().__init__(message)
        self.is_of_namespace = is_of_namespace


def find_archiving(case: Case) -> Archiving | None:
    """How an object is archived when it has finished; None if no archive is wanted.

    For a running object, each rule counts that may match at its finish.

    Raises:
        InvalidArchiveError: The annotation of the object or of its namespace has another value than expected.
        NamespaceUnreadError: The namespace may matter, and was not read.
        UnreadableRuleError: A policy rule that may matter has no result for the object.
    """
    archives = case.context.policy.archives
    value, is_of_namespace = _find_annotation(case)
    if value == "false" or (value is None and not archives):
        return None
    try:
        _check(value, archives)
        by_rule = _find_by_rule(case)
        if value is None:
            return by_rule
        return _annotated(case, value, by_rule, is_of_namespace=is_of_namespace)
    except InvalidArchiveError as error:
        where = f"namespace {case.namespace.ref.name}: " if is_of_namespace and case.namespace else ""
        raise InvalidArchiveError(f"{where}{error}", is_of_namespace=is_of_namespace) from None


def _find_annotation(case: Case) -> tuple[Any, bool]:
    """The value of the annotation that takes precedence, and whether the namespace has it."""
    if ARCHIVE in case.annotations:
        value = case.annotations[ARCHIVE]
        return ("" if value is None else value), False
    if case.namespace is None:
        raise NamespaceUnreadError
    return case.namespace.archive, True


def _check(value: Any, archives: Mapping[str, ArchiveDestination]) -> None:
    """Raise an error for a value that no policy rule can make valid."""
    if value in (None, "true") or (isinstance(value, str) and value in archives):
        return
    known = f", or one of the archives {', '.join(archives)}" if archives else "; the policy has no archives"
    raise InvalidArchiveError(f"{_source()}: expected true or false{known}, got {quote(value)}")


def _find_by_rule(case: Case) -> Archiving | None:
    candidates = case.context.policy.candidates(case.rule)
    if not any(one.archives for one in candidates):
        return None
    subject = Subject(case.obj, case.finish.outcome, case.namespace, get_text(case.obj, "metadata.namespace"))
    find_rule = find_archive_rule if case.finish.finished else find_future_archive_rule
    rule = find_rule(subject, candidates)
    if rule is None or rule.archive is None:
        return None
    wanted, target = rule.archive, case.context.policy.archives.get(rule.archive.to)
    is_native = target is not None and target.native is not None
    settings = Archiving(wanted.to, rule.source, rule.name, wanted.grace, native=is_native, audit=rule.audit)
    return replace(settings, logs=wanted.logs, children=wanted.children)


def _annotated(case: Case, value: str, by_rule: Archiving | None, *, is_of_namespace: bool) -> Archiving:
    """How an object is archived that an annotation opts in; the rule's other settings apply."""
    to, archives = value, case.context.policy.archives
    if value == "true":
        if by_rule is None and len(archives) != 1:
            expected = (
                f"the name of one of the archives {', '.join(archives)}" if archives else "archives in the policy"
            )
            raise InvalidArchiveError(
                f"{_source()}: expected {expected}, got 'true': no policy rule archives the object"
            )
        to = by_rule.to if by_rule else next(iter(archives))
    is_native = to in archives and archives[to].native is not None
    if is_native and case.rule.group != NATIVE_GROUP:
        expected = f"expected an archive that stores a {case.rule.kind}: Tekton Results stores only its own kinds"
        raise InvalidArchiveError(f"{_source()}: {expected}, got {quote(value)}")
    source = _source() + (" of the namespace" if is_of_namespace else "")
    return replace(by_rule or _NO_SETTINGS, to=to, source=source, native=is_native, audit=False)


def _source() -> str:
    return f"annotation {ANNOTATION_DOMAIN}/{ARCHIVE}"


@dataclass(frozen=True, slots=True)
class ArchiveProof:
    """What an archive holds of one object.

    Attributes:
        fact: Whether it has acknowledged the object, and which version.
        destination: The archive that was asked.
        seen_at: The API server's time of the read of the object.
    """

    fact: ArchiveFact
    destination: ArchiveDestination
    seen_at: datetime


def find_unused_archiving(rule: PolicyRule | None) -> Archiving | None:
    """How an object is archived before it is deleted by a rule with `unused`; None if it is not."""
    if rule is None or rule.archive is None:
        return None
    return Archiving(rule.archive.to, rule.source, rule.name, rule.archive.grace, children=False)


def find_unarchived(obj: Any, rule: PolicyRule | None, policy: Policy, proof: ArchiveProof | None) -> str:
    """Why an object that is due may not be deleted yet because of its archive; empty if it may.

    Args:
        obj: The version of the object that would be deleted.
        rule: The policy rule that has it deleted.
        policy: The policy in force.
        proof: What its archive holds; None if it was not asked.
    """
    archiving = find_unused_archiving(rule)
    if archiving is None:
        return ""
    missing = f"archive {archiving.to} has not acknowledged this version of it"
    if proof is None or proof.destination != policy.archives.get(archiving.to):
        return missing
    fact = proof.fact
    if not (fact.is_about(obj, archiving) and fact.is_read_back) or fact.acknowledged_at is None:
        return fact.problem or missing
    ready_at = add(fact.acknowledged_at, archiving.grace)
    if archiving.grace and proof.seen_at < ready_at:
        return f"the grace of archive {archiving.to} ends {format_instant(ready_at)}"
    return ""
