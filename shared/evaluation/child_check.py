"""Find out what the children of an object wait for, before a DELETE of the object takes them along.

A child counts if it is held, or if the policy has it archived and its document is not acknowledged or its grace is not
over. All children are read in full, since only a whole object shows whether a policy rule matches it.
"""

import asyncio
from collections import OrderedDict
from contextlib import aclosing
from dataclasses import InitVar, dataclass, field, replace
from typing import Any

from shared.core.archive.archiving import ArchiveFact, ChildrenFact
from shared.core.archive.decide_archive import ArchiveDecision, ToArchive, decide_archive
from shared.core.archive.wanted import find_archiving
from shared.core.case import Case
from shared.core.facts import Context, Reason
from shared.core.finish import finish_of
from shared.core.kinds.catalogue import Catalogue
from shared.core.kinds.rule import KindRule
from shared.core.objects import ObjectRef, get_annotations, get_text, ref_of
from shared.core.policy.policy import Policy
from shared.core.policy.ruling import add
from shared.errors import PermanentError
from shared.evaluation.archive_check import ArchiveCheck
from shared.evaluation.children import CHILDREN_MAX, READS_AT_ONCE, ChildPage, Children
from shared.evaluation.namespaces import Namespaces
from shared.ports import Cluster, Snapshot

CHILDREN_SECONDS_MAX = 10.0
"""How long the children of one object are checked in one attempt, well below the time for one timer."""

READ_BACK_SECONDS = 300.0
"""How long a child whose document was read back is not read back again, so that the next attempt comes further."""

_OTHERS_DECIDE = frozenset(
    {Reason.TERMINATING, Reason.NEVER_FINISHES, Reason.EXEMPT, Reason.NO_ARCHIVE, Reason.AUDIT_ONLY}
)
"""Why a child needs no archive: it is never archived, or it goes whatever happens to its owner."""

_Key = tuple[str, str, str]
_Checked = tuple[float, ArchiveFact]


@dataclass
class ChildCheck:
    """Checks the children of objects that are due.

    Attributes:
        archive_check: Reads back the documents of the children.
        namespaces: The namespaces of the children.
    """

    cluster: InitVar[Cluster]
    kinds: InitVar[Catalogue]
    archive_check: ArchiveCheck
    namespaces: Namespaces
    _children: Children = field(init=False)
    _checked: OrderedDict[_Key, _Checked] = field(init=False, default_factory=OrderedDict)

    def __post_init__(self, cluster: Cluster, kinds: Catalogue) -> None:
        self._children = Children(cluster, kinds)

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
        root = ref_of(obj)
        fact, count = ChildrenFact(root.uid, reason=None), 0
        try:
            async with asyncio.timeout(CHILDREN_SECONDS_MAX), aclosing(self._children.find(root, rule)) as pages:
                async for page in pages:
                    for unreadable in page.unreadable:
                        return _kept(fact, unreadable.ref, Reason.CHILD_NOT_ARCHIVED, unreadable.problem)
                    for start in range(0, len(page.children), READS_AT_ONCE):
                        found = await self._look(page, start, context.policy)
                        for ref, decision in found:
                            fact = _add(fact, ref, decision)
                            if fact.reason is not None:
                                return fact
                        count += len(found)
        except TimeoutError:
            problem = f"{count} of its children are checked after {CHILDREN_SECONDS_MAX:g} s, and not all"
            return replace(fact, reason=Reason.CHILD_NOT_ARCHIVED, problem=problem)
        return fact

    async def _look(
        self, page: ChildPage, start: int, policy: Policy
    ) -> list[tuple[ObjectRef, ArchiveDecision | PermanentError]]:
        some = page.children[start : start + READS_AT_ONCE]
        decided = await asyncio.gather(*(self._decide(one, page.rule, policy) for one in some))
        return list(zip((one.ref for one in some), decided, strict=True))

    async def _decide(self, child: Snapshot, rule: KindRule, policy: Policy) -> ArchiveDecision | PermanentError:
        """The decision about the archive of a child; of an unfinished one, as if it had finished."""
        try:
            context = Context(policy, await self.namespaces.get(child.ref.namespace))
            decision = decide_archive(child.obj, rule, child.read_at, context)
            if decision.reason in (Reason.UNFINISHED, Reason.UNKNOWN_SHAPE):
                return _decide_unfinished(child.obj, rule, context, decision)
            if not isinstance(decision, ToArchive):
                return decision
            context = replace(context, archived=await self._read_back(child.obj, rule, context, decision))
            return decide_archive(child.obj, rule, child.read_at, context)
        except PermanentError as error:
            return error

    async def _read_back(self, obj: Any, rule: KindRule, context: Context, decision: ToArchive) -> ArchiveFact | None:
        uid, version = get_text(obj, "metadata.uid"), get_text(obj, "metadata.resourceVersion")
        key, now = (decision.archiving.to, uid, version), asyncio.get_running_loop().time()
        at, fact = self._checked.get(key, (now, None))
        if fact is not None and now - at <= READ_BACK_SECONDS and fact.is_about(obj, decision.archiving):
            return fact
        fact = await self.archive_check.read_back(obj, rule, context)
        if fact is not None and fact.acknowledged_at is not None:
            self._checked[key] = asyncio.get_running_loop().time(), fact
            if len(self._checked) > CHILDREN_MAX:
                self._checked.popitem(last=False)
        return fact


def may_keep(rule: KindRule, policy: Policy) -> bool:
    """Return whether the children of objects of a kind are read before a DELETE: the policy has archives for them."""
    return bool(policy.archives) and bool(rule.children)


def _decide_unfinished(obj: Any, rule: KindRule, context: Context, decision: ArchiveDecision) -> ArchiveDecision:
    """The decision about a child that has not finished, or of which that is unknown.

    Raises:
        PermanentError: It is archived when it finishes, or that is unknown.
    """
    try:
        archiving = find_archiving(Case(obj, rule, context, get_annotations(obj), finish_of(obj, rule)))
    except (ValueError, LookupError) as error:
        raise PermanentError(f"{error}") from None
    if archiving is None or archiving.audit:
        return decision
    raise PermanentError(f"it has not finished, and {archiving.source} has it archived when it finishes")


def _add(fact: ChildrenFact, ref: ObjectRef, decision: ArchiveDecision | PermanentError) -> ChildrenFact:
    """The fact with one more child."""
    if isinstance(decision, PermanentError):
        return _kept(fact, ref, Reason.CHILD_NOT_ARCHIVED, str(decision))
    facts = decision.facts
    match decision.reason:
        case Reason.HELD:
            return _kept(fact, ref, Reason.CHILD_HELD, "it is held")
        case Reason.ARCHIVED if facts.archived and facts.archived.acknowledged_at and facts.archiving:
            ready_at = add(facts.archived.acknowledged_at, facts.archiving.grace)
            if fact.ready_at is not None and ready_at <= fact.ready_at:
                return fact
            moved_by = f"the grace of the archive {facts.archiving.to} for its child {ref.kind} {ref.name}"
            return replace(fact, ready_at=ready_at, moved_by=moved_by)
        case Reason.UNFINISHED | Reason.UNKNOWN_SHAPE:
            return fact  # no archive is wanted for it
        case reason if reason in _OTHERS_DECIDE:
            return fact
    problem = facts.archived.problem if facts.archived else facts.problem
    to = facts.archiving.to if facts.archiving else ""
    waits = f"archive {to} has not acknowledged this version of it" if to else "whether it is archived is unknown"
    return _kept(fact, ref, Reason.CHILD_NOT_ARCHIVED, problem or waits)


def _kept(fact: ChildrenFact, ref: ObjectRef, reason: Reason, problem: str) -> ChildrenFact:
    return replace(fact, reason=reason, problem=f"child {ref.kind} {ref.name}: {problem}")
