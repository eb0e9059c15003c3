"""Find out whether an object has to be archived before it is deleted, and where.

The annotation `ttlafterfinished.dev/archive` of the object takes precedence, then that of its namespace, then the
first policy rule with an `archive` that matches. A value that cannot be read, or that names no archive, keeps the
object: whether it had to be archived is unknown then.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from shared.core.archive.archiving import Archiving
from shared.core.decision.case import Case
from shared.core.decision.namespaces import ARCHIVE
from shared.core.policy.archives import NATIVE_GROUP, ArchiveDestination
from shared.core.policy.matching import NamespaceUnreadError, Subject
from shared.core.policy.ruling import find_archive_rule, find_future_archive_rule
from shared.core.values.objects import ANNOTATION_DOMAIN, get_text, quote

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
