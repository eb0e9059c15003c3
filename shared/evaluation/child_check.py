"""Find out what the children of an object wait for, before a DELETE of the object takes them along.

A child counts if it is held, or if the policy has it archived and its document is not acknowledged or its grace is not
over. Children are looked for among the kinds that the kind rule names, and among the enabled kinds that a policy rule
or the namespace has archived: any object may own one. All children are read in full, since only a whole object shows
whether a policy rule matches it.
"""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from dataclasses import InitVar, dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from shared.core.archive.archiving import ArchiveFact, Archiving, ChildrenFact
from shared.core.archive.decide_archive import ArchiveDecision, decide_archive, may_archive
from shared.core.archive.gate import find_archiving
from shared.core.decision.facts import Case, Context, Reason
from shared.core.decision.finish import finish_of
from shared.core.kinds.rule import Catalogue, ChildKind, KindRule
from shared.core.policy.archives import ArchiveDestination
from shared.core.policy.matching import NamespaceUnreadError
from shared.core.policy.policy import NO_POLICY, Policy
from shared.core.values.objects import ObjectRef, get_annotations, get_in, get_text, ref_of
from shared.core.values.timing import add
from shared.errors import PermanentError
from shared.evaluation.archive_check import ArchiveCheck
from shared.evaluation.children import CHILDREN_MAX, ChildPage, Children
from shared.evaluation.namespaces_and_owners import Namespaces
from shared.ports import Cluster, Snapshot, loop_now

CHILDREN_SECONDS_MAX = 6.0
"""How long the children of one object are checked in one attempt, well below the time for one timer."""

CONTINUED_SECONDS = 900.0
"""How long a document that was read back counts, if the attempt was cut off before all children were checked."""

CHECKS_AT_ONCE = 16
"""Documents of the children of one object that are read back at the same time."""

SLOW_NAMESPACE_SECONDS = 30.0
"""After an attempt that took too long, how long the check of other objects in its namespace is limited."""

SLOW_CHECKS_MAX = 2
"""Checks at the same time in such a namespace: each holds a place that deletions in other namespaces need, too."""

_UNKNOWN = (Reason.INVALID_ARCHIVE, Reason.INVALID_POLICY)
"""Why it is unknown whether a child is archived."""

_NAMESPACE_UNREAD = "its namespace was not read, and may have it archived"

_NO_GRACE = datetime.min.replace(tzinfo=UTC)


class _UnarchivedError(PermanentError):
    """A child has to be archived, and cannot be now."""


_Key = tuple[str, str, ArchiveDestination]
_Facts = dict[_Key, tuple[float, ArchiveFact]]
"""What was read back, and when: seconds of the event loop's clock."""


@dataclass
class ChildCheck:
    """Checks the children of objects that are due.

    Attributes:
        archive_check: Reads back the documents of the children.
        namespaces: The namespaces of the children.
        kinds: All known kinds.
        enabled: The kinds that this process may delete, and that it has the rights to list.
    """

    cluster: InitVar[Cluster]
    kinds: Catalogue
    enabled: Catalogue
    archive_check: ArchiveCheck
    namespaces: Namespaces
    _children: Children = field(init=False)
    _archived: tuple[Policy, tuple[ChildKind, ...]] = field(init=False, default=(NO_POLICY, ()))
    _continued: OrderedDict[str, _Facts] = field(init=False, default_factory=OrderedDict)
    _slow: dict[tuple[str, bool], float] = field(init=False, default_factory=dict)
    _running: Counter[tuple[str, bool]] = field(init=False, default_factory=Counter)

    def __post_init__(self, cluster: Cluster) -> None:
        self._children = Children(cluster, self.kinds)

    @cached_property
    def _every(self) -> tuple[ChildKind, ...]:
        """All enabled kinds, made when they are first needed: most processes have no archives."""
        return _as_children(self.enabled.rules)

    async def find(self, obj: Any, rule: KindRule, context: Context) -> ChildrenFact:
        """Return what the children of an object wait for; the first one that keeps the object is named.

        Args:
            obj: The object, which is due.
            rule: The rule of its kind.
            context: The policy; its other facts are about the object, and not about the children.

        Returns:
            What the first child that keeps the object waits for. It also keeps the object if not all children could be
            checked within `CHILDREN_SECONDS_MAX`; the next attempt then comes further.

        Raises:
            TryLaterError: The API server is busy or away.
            PermanentError: The children may not be read, or there are too many.
        """
        root, key = ref_of(obj), _key_of(obj, rule)
        cut_off = ChildrenFact(root.uid, is_cut_off=True)
        facts = _Facts()
        # Its LIST and its documents may be slow; an object whose LIST has ended does not wait for the LISTs of others.
        place = root.namespace, self._children.is_found(key)
        is_slow = self._slow.get(place, 0) > loop_now() and self._running[place] >= SLOW_CHECKS_MAX
        self._running[place] += 1
        try:
            async with asyncio.timeout(CHILDREN_SECONDS_MAX):
                also = await self._find_kinds(root, rule, context.policy)
                if is_slow:
                    if key:
                        await self._children.begin(root, rule, also, key=key)
                    problem = f"children in namespace {root.namespace} take long to check, and others are checked now"
                    return replace(cut_off, problem=problem)
                facts = self._take_continued(root.uid)
                pages = self._children.find(root, rule, also, key=key)
                return await self._check_all(root, pages, context.policy, facts)
        except TimeoutError:
            now = loop_now()
            self._slow = {one: until for one, until in self._slow.items() if until > now}
            self._slow[place] = now + SLOW_NAMESPACE_SECONDS
            if facts:
                self._continued[root.uid] = facts
            while sum(len(known) for known in self._continued.values()) > CHILDREN_MAX:
                self._continued.popitem(last=False)
            return replace(cut_off, problem=f"its children could not all be checked within {CHILDREN_SECONDS_MAX:g} s")
        finally:
            self._running[place] -= 1
            if not self._running[place]:
                del self._running[place]

    def _take_continued(self, uid: str) -> _Facts:
        """What the attempts before have read back, if the last one was cut off; a document counts only so long."""
        since = loop_now() - CONTINUED_SECONDS
        known = self._continued.pop(uid, _Facts())
        return {key: (at, fact) for key, (at, fact) in known.items() if at >= since}

    async def _check_all(
        self, root: ObjectRef, found_pages: AsyncGenerator[ChildPage], policy: Policy, facts: _Facts
    ) -> ChildrenFact:
        found = ChildrenFact(root.uid, reason=None)
        async with aclosing(found_pages) as pages:
            async for page in pages:
                for unreadable in page.unreadable:
                    problem = f"it may be a child, and cannot be read: {unreadable.problem}"
                    return _kept(found, unreadable.ref, problem, Reason.CHILDREN_UNREAD)
                for start in range(0, len(page.children), CHECKS_AT_ONCE):
                    some = page.children[start : start + CHECKS_AT_ONCE]
                    looks = (self._look(found, one, page.rule, policy, facts) for one in some)
                    for fact in await asyncio.gather(*looks):
                        if fact.reason is not None:
                            return fact
                        found = max(found, fact, key=lambda one: one.ready_at or _NO_GRACE)
        return found

    async def _find_kinds(self, root: ObjectRef, rule: KindRule, policy: Policy) -> tuple[ChildKind, ...]:
        """The enabled kinds of which the namespace or a policy rule has objects archived.

        The children of a cluster-scoped object may be in any namespace, so all enabled kinds count.
        """
        if rule.scope != "Namespaced" or (await self.namespaces.get(root.namespace)).archive not in (None, "false"):
            return self._every
        if self._archived[0] is not policy:
            self._archived = policy, _as_children(one for one in self.enabled.rules if policy.archives_kind(one))
        return self._archived[1]

    async def _look(
        self, nothing: ChildrenFact, child: Snapshot, rule: KindRule, policy: Policy, facts: _Facts
    ) -> ChildrenFact:
        """What one child waits for."""
        if get_in(child.obj, "metadata.deletionTimestamp") is not None:
            return nothing  # it goes whatever happens to its owner
        if "hold" in get_annotations(child.obj):
            return _kept(nothing, child.ref, "it is held", Reason.CHILD_HELD)
        try:
            namespace = await self.namespaces.get(child.ref.namespace) if rule.scope == "Namespaced" else None
            context = Context(policy, namespace)
            decision = self._decide(child, rule, context)
            archiving, fact = decision.facts.archiving, decision.facts.archived
            if archiving is None or decision.reason is Reason.AUDIT_ONLY:
                return nothing
            if fact is None:
                fact = await self._read_back(child.obj, rule, context, archiving, facts)
        except _UnarchivedError as error:
            return _kept(nothing, child.ref, str(error))
        except PermanentError as error:
            return _kept(nothing, child.ref, str(error), Reason.CHILDREN_UNREAD)
        if fact.acknowledged_at is None:
            waits = f"archive {archiving.to} has not acknowledged this version of it"
            return _kept(nothing, child.ref, fact.problem or waits)
        moved_by = f"the grace of the archive {archiving.to} for its child {child.ref.kind} {child.ref.name}"
        return replace(nothing, ready_at=add(fact.acknowledged_at, archiving.grace), moved_by=moved_by)

    def _decide(self, child: Snapshot, rule: KindRule, context: Context) -> ArchiveDecision:
        """The decision about the archive of a child; its facts have no `archiving` if no archive is wanted for it.

        Raises:
            _UnarchivedError: It cannot be archived now, or it is unknown whether it is.
            PermanentError: No kind rule can read it, or its namespace was not read.
        """
        known = self.kinds.of(rule.group, rule.kind)
        is_unknown = bool(known) and self.kinds.get(rule.api_version, rule.kind) is None
        if is_unknown and any(may_archive(child.obj, one, context) for one in known):
            raise PermanentError(f"no kind rule knows its version {rule.api_version}")
        decision = decide_archive(child.obj, rule, child.read_at, context)
        if decision.reason in (Reason.UNFINISHED, Reason.UNKNOWN_SHAPE) and not rule.never_finishes:
            _check_unfinished(child.obj, rule, context)
        if decision.reason is Reason.NAMESPACE_UNREAD:
            raise PermanentError(_NAMESPACE_UNREAD)
        if decision.reason in _UNKNOWN:
            raise _UnarchivedError(decision.facts.problem or f"whether it is archived is unknown ({decision.reason})")
        return decision

    async def _read_back(
        self, obj: Any, rule: KindRule, context: Context, archiving: Archiving, facts: _Facts
    ) -> ArchiveFact:
        """What the archive has of a child. Its own children are checked for themselves, so its document needs none."""
        alone, destination = replace(archiving, children=False), context.policy.archives[archiving.to]
        key = get_text(obj, "metadata.uid"), get_text(obj, "metadata.resourceVersion"), destination
        if (known := facts.get(key)) is not None and known[1].is_about(obj, alone):
            return known[1]
        at = loop_now()
        fact = await self.archive_check.read_back_as(alone, obj, rule, context)
        if fact.acknowledged_at is not None:
            facts[key] = at, fact
        return fact


def _key_of(owner: Any, rule: KindRule) -> str:
    """The version of a finished owner, by which a search is continued; empty for an owner that may get new children.

    A Workflow that ran again has new children, and another version.
    """
    if not finish_of(owner, rule).finished:
        return ""
    return f"{get_text(owner, 'metadata.uid')}/{get_text(owner, 'metadata.resourceVersion')}"


def _as_children(rules: Iterable[KindRule]) -> tuple[ChildKind, ...]:
    """The kinds of some rules, each once."""
    kinds: dict[tuple[str, str], ChildKind] = {}
    for rule in rules:
        child = ChildKind(api_versions=rule.api_versions, kind=rule.kind, plural=rule.plural)
        kinds.setdefault((rule.group, rule.kind), child)
    return tuple(kinds.values())


def _check_unfinished(obj: Any, rule: KindRule, context: Context) -> None:
    """Check a child that has not finished, or of which that is unknown.

    Raises:
        _UnarchivedError: It is archived when it finishes, or it is invalid what archives it.
        PermanentError: Its namespace was not read.
    """
    try:
        archiving = find_archiving(Case(obj, rule, context, get_annotations(obj), finish_of(obj, rule)))
    except NamespaceUnreadError:
        raise PermanentError(_NAMESPACE_UNREAD) from None
    except ValueError as error:
        raise _UnarchivedError(str(error)) from None
    if archiving is not None and not archiving.audit:
        raise _UnarchivedError(f"it has not finished, and {archiving.source} has it archived when it finishes")


def _kept(
    nothing: ChildrenFact, ref: ObjectRef, problem: str, reason: Reason = Reason.CHILD_NOT_ARCHIVED
) -> ChildrenFact:
    return replace(nothing, reason=reason, problem=f"child {ref.kind} {ref.name}: {problem}")
