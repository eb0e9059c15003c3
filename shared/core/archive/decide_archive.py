"""Decide whether an object is archived now: one pure function.

`decide_archive` has the form of `shared.core.decision.decide.decide`: it is total, deterministic and monotone in
`now`. It is about all finished objects for which an archive is wanted, whether or not a TTL is set for them: objects
are archived when they finish, and not when they are due. An object that is held, exempt or being deleted is left alone.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from shared.core.archive.archiving import Archiving
from shared.core.archive.gate import InvalidArchiveError, find_archive_fact, find_archiving
from shared.core.decision.decide import NOT_AHEAD, Ignore, find_audit
from shared.core.decision.facts import NOTHING_KNOWN, Case, Context, Facts, Reason, is_of_kind
from shared.core.decision.finish import Finish, finish_of
from shared.core.decision.namespaces import ARCHIVE
from shared.core.kinds.rule import KindRule
from shared.core.policy.matching import NamespaceUnreadError
from shared.core.policy.ruling import UnreadableRuleError
from shared.core.values.objects import get_annotations, get_in


@dataclass(frozen=True, slots=True)
class ToArchive:
    """Archive the object: it has finished, and this version of it is not known to be stored."""

    archiving: Archiving
    reason: Reason
    facts: Facts


ArchiveDecision = Ignore | ToArchive


def decide_archive(  # noqa: PLR0913 - the arguments of decide
    obj: Any,
    rule: KindRule,
    now: datetime,
    context: Context = NOTHING_KNOWN,
    *,
    finish: Finish | None = None,
    ahead: timedelta = NOT_AHEAD,  # noqa: ARG001 - the decision is the same at any time
) -> ArchiveDecision:
    """Decide whether one object is archived; the arguments are those of `shared.core.decision.decide.decide`.

    Returns:
        Ignore or ToArchive, each with its reason and facts. Without the fact `Context.archived` the object counts as
        not archived: to archive it again is harmless.
    """
    if not is_of_kind(obj, rule):
        expected = f"expected a {rule.kind} of {', '.join(rule.api_versions)}"
        return Ignore(Reason.UNKNOWN_SHAPE, Facts(Finish(finished=None), problem=expected))
    case = Case(obj, rule, context, get_annotations(obj), finish or finish_of(obj, rule))
    reason = case.deliberate_reason() or (None if case.finish.finished else Reason.UNFINISHED)
    if reason is not None:
        return Ignore(reason, Facts(case.finish))
    try:
        archiving = find_archiving(case)
    except InvalidArchiveError as error:
        return Ignore(Reason.INVALID_ARCHIVE, Facts(case.finish, problem=str(error)))
    except NamespaceUnreadError:
        # Without an archive in the policy, a namespace cannot have the object archived.
        unread = Reason.NAMESPACE_UNREAD if context.policy.archives else Reason.NO_ARCHIVE
        return Ignore(unread, Facts(case.finish))
    except UnreadableRuleError as error:
        return Ignore(Reason.INVALID_POLICY, Facts(case.finish, problem=str(error), unanswered=error.source))
    return Ignore(Reason.NO_ARCHIVE, Facts(case.finish)) if archiving is None else _decide_wanted(case, archiving, now)


def _decide_wanted(case: Case, archiving: Archiving, now: datetime) -> ArchiveDecision:
    fact = find_archive_fact(case, archiving)
    audited_by = archiving.rule if archiving.audit else ""
    facts = Facts(case.finish, archiving=archiving, archived=fact, audited_by=audited_by)
    if find_audit(facts, now, NOT_AHEAD) is not None:
        return Ignore(Reason.AUDIT_ONLY, facts)
    if fact is not None and fact.acknowledged_at is not None:
        return Ignore(Reason.ARCHIVED, facts)
    if archiving.native:  # only that archiver can store the object
        return Ignore(Reason.NOT_ARCHIVED, facts)
    return ToArchive(archiving, Reason.ARCHIVE_UNREAD if fact is None else Reason.NOT_ARCHIVED, facts)


def may_archive(obj: Any, rule: KindRule, context: Context = NOTHING_KNOWN) -> bool:
    """Return whether an archive may be wanted for an object; a cheap check of its metadata and the policy.

    If it returns False, `decide_archive` would return Ignore.
    """
    annotations = get_annotations(obj)
    if get_in(obj, "metadata.deletionTimestamp") is not None or rule.never_finishes or "hold" in annotations:
        return False
    if not context.policy.archives or annotations.get(ARCHIVE) == "false":
        return False
    if ARCHIVE in annotations or context.policy.archives_kind(rule):
        return True
    namespace = context.namespace
    return rule.scope == "Namespaced" and (namespace is None or namespace.archive is not None)
