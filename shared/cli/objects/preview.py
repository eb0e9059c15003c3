"""Decide about objects without deleting them, for `plan` and `explain`, and find the facts that could not be read.

The archives are asked about the objects of a page concurrently: one by one, `plan` of a fleet would take minutes.
"""

import asyncio
import gc
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from shared.cli.objects.archive_report import is_archived_first, with_own_deletion
from shared.cli.objects.related import RelatedFacts, find_deleting_owners, find_related, read_owner
from shared.core.archive.archiving import ArchiveFact
from shared.core.deadlines.decide_stop import StopDecision
from shared.core.decision.decide import Decision, Reason
from shared.core.decision.facts import Context, Fact
from shared.core.decision.finish import finish_of
from shared.core.decision.namespaces import Namespace
from shared.core.kinds.rule import Catalogue, KindRule
from shared.core.policy.policy import NO_POLICY, Policy
from shared.core.ttl.edits import describe_saved
from shared.core.values.objects import ObjectRef, get_text, ref_of
from shared.errors import PermanentError, TtlError
from shared.evaluation.archive_check import ArchiveCheck
from shared.evaluation.batch import BatchEvaluator, BatchResult
from shared.evaluation.evaluator import Evaluator, find_lacking
from shared.evaluation.namespaces_and_owners import Namespaces, Owners
from shared.evaluation.ranks import Quotas
from shared.evaluation.ttl_sources import TtlSources
from shared.ports import Archives, Cluster, Page, Snapshot, Unreadable

LOOKUPS_MAX = 64
"""Objects about which an archive is asked concurrently."""

_Key = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class UnreadFact:
    """A fact about an object that counts, and was not read.

    Attributes:
        what: The fact.
        right: The right that is missing.
    """

    what: str
    right: str


class AbsentObjectError(TtlError):
    """The object that a command asks for does not exist."""


LISTS_AT_ONCE = 4
"""Kinds that are listed concurrently."""


@dataclass(frozen=True, slots=True)
class ObjectPreview:
    """The decision about one object.

    Attributes:
        ref: The object.
        decision: The decision.
        now: The time of the decision.
        related: Its owner, cleaners and finalizers; None if its kind has no rule.
        stop: The decision about its active deadline; None if its kind has no rule.
    """

    ref: ObjectRef
    decision: Decision
    now: datetime
    related: RelatedFacts | None = None
    stop: StopDecision | None = None

    @property
    def unread(self) -> Sequence[UnreadFact]:
        """The facts that were not read, and may change the decisions."""
        if self.related is None:
            return ()
        owner = self.related.owner.ref if self.related.owner else None
        return tuple(find_unread(self.decision, self.stop, self.related.rule, owner))


@dataclass(frozen=True, slots=True)
class Preview:
    """The decisions about every object of a cluster that could be read.

    Attributes:
        objects: The decisions about each object, one for each policy.
        refused: The kinds that could not be listed, and why.
        saved: Objects with a TTL that a hold saved, whose hold was removed without a release.
        unreadable: Objects that could not be read, and are kept.
    """

    objects: Sequence[BatchResult]
    refused: Sequence[tuple[KindRule, TtlError]]
    saved: Sequence[ObjectRef] = ()
    unreadable: Sequence[Unreadable] = ()


async def find_all(
    cluster: Cluster,
    rules: Sequence[KindRule],
    *,
    policies: Sequence[Policy],
    kinds: Catalogue,
    namespace: str,
    archives: Archives | None = None,
    on_read: Callable[[int], object] = bool,
) -> Preview:
    """List every object of the kinds once, and decide about it under each policy.

    `archives` is asked if needed; `on_read` is called with the number of objects of each page.
    """
    lookups = ArchiveLookups(ArchiveCheck(archives)) if archives else None
    batch = BatchEvaluator(policies, kinds, TtlSources(cluster).get, lookups.find if lookups else None)
    namespaces = Namespaces(cluster, only=namespace)
    quotas = Quotas(cluster)
    refused: list[tuple[KindRule, TtlError]] = []
    saved: list[ObjectRef] = []
    unreadable: list[Unreadable] = []
    slots = asyncio.Semaphore(LISTS_AT_ONCE)

    async def evaluate_page(page: Page, rule: KindRule, *, aggregated: bool | None) -> None:
        unreadable.extend(page.unreadable)
        on_read(len(page.items))
        await namespaces.prime()
        read = [await _read_namespace(namespaces, obj) for obj in page.items]
        if lookups:
            of_page = [(obj, found) for obj, (found, _) in zip(page.items, read, strict=True)]
            await lookups.prime([(obj, rule, Context(one, found)) for obj, found in of_page for one in policies])
        for obj, (of_object, problem) in zip(page.items, read, strict=True):
            snapshot = Snapshot(obj, page.read_at, page.ahead)
            is_limited = any(one.limits_by_quota(rule) for one in policies)
            known = await quotas.find(get_text(obj, "metadata.namespace"), rule) if is_limited else ()
            await batch.add(snapshot, rule, of_object, problem=problem, aggregated=aggregated, quotas=known)
            if describe_saved(obj, rule):
                saved.append(ref_of(obj))

    async def evaluate_kind(rule: KindRule) -> None:
        async with slots:
            try:
                aggregated = await _is_aggregated(cluster, rule)
                async with aclosing(_pages(cluster, rule, namespaces)) as pages:
                    async for page in pages:
                        await evaluate_page(page, rule, aggregated=aggregated)
            except TtlError as error:
                refused.append((rule, error))

    with no_cyclic_collection():
        await asyncio.gather(*map(evaluate_kind, rules))
        objects = await batch.settle(Owners(cluster, kinds).find_unfinished)
    return Preview([_with_own_deletions(one) for one in objects], refused, saved, unreadable)


def _with_own_deletions(one: BatchResult) -> BatchResult:
    if not any(map(is_archived_first, one.decisions)):
        return one
    return replace(one, decisions=tuple(with_own_deletion(decision, one.rule) for decision in one.decisions))


@contextmanager
def no_cyclic_collection() -> Iterator[None]:
    """Disable the cyclic garbage collector: JSON has no cycles, and collecting takes 40 % of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


async def _pages(cluster: Cluster, rule: KindRule, namespaces: Namespaces) -> AsyncGenerator[Page]:
    """Yield each page; the next page is requested while one is evaluated."""

    def request_page(token: str) -> asyncio.Task[Page]:
        return asyncio.create_task(cluster.list_page(rule, namespace=namespaces.only, continue_token=token))

    pending: asyncio.Task[Page] | None = request_page("")
    try:
        while pending is not None:
            page = await pending
            pending = request_page(page.continue_token) if page.continue_token else None
            await asyncio.sleep(0)  # sends the request
            yield page
    finally:
        if pending is not None:
            pending.cancel()


async def _is_aggregated(cluster: Cluster, rule: KindRule) -> bool | None:
    """Return whether an aggregated API server serves the kind; None if that may not be read."""
    try:
        return await cluster.is_aggregated(rule)
    except PermanentError:
        return None


async def _read_namespace(namespaces: Namespaces, obj: dict[str, Any]) -> tuple[Namespace | None, str]:
    """Return the object's namespace, or why it could not be read."""
    name = get_text(obj, "metadata.namespace")
    if not name:
        return None, ""
    try:
        return namespaces.get_cached(name) or await namespaces.get(name), ""
    except PermanentError as error:
        return None, str(error)


async def find_one(
    cluster: Cluster,
    rule: KindRule,
    *,
    kinds: Catalogue,
    enabled: Catalogue | None = None,
    namespace: str,
    name: str,
    policy: Policy = NO_POLICY,
    flags: tuple[str, ...] = (),
    archives: Archives | None = None,
) -> ObjectPreview:
    """Read one object by its name, and decide about it.

    Args:
        cluster: The cluster.
        rule: The rule of its kind.
        kinds: All kind rules.
        enabled: The kinds that are deleted, whose objects may be archived; None for all.
        namespace: Its namespace; empty if it is cluster-scoped.
        name: Its name.
        policy: The policy to apply.
        flags: The flags that make kubectl use this cluster, for suggested commands.
        archives: The archives of the policy; None if it has none.

    Raises:
        AbsentObjectError: It does not exist.
    """
    snapshot = await cluster.get(rule, ObjectRef(rule.api_version, rule.kind, namespace, name, ""))
    if snapshot is None:
        place = f" in namespace {namespace}" if namespace else ""
        raise AbsentObjectError(f"{rule.kind} {name} does not exist{place}")
    evaluator = Evaluator(cluster, kinds, lambda: policy, archives=archives, enabled=enabled)
    decision = await evaluator.decide(snapshot, rule)
    if archives is not None and decision.facts.archiving is None:
        decision = await _with_archive(decision, evaluator, snapshot, rule)
    decision = with_own_deletion(decision, rule)
    its_namespace, _ = await _read_namespace(evaluator.namespaces, snapshot.obj)
    stop = (await evaluator.evaluate_stop(snapshot, rule)).decision
    owner = await read_owner(snapshot.obj, evaluator.owners)
    related = find_related(snapshot.obj, rule, decision.facts, owner=owner, namespace=its_namespace)
    if decision.reason is Reason.HELD:
        deleting_owners = await find_deleting_owners(snapshot.obj, evaluator, flags=flags)
        related = replace(related, deleting_owners=deleting_owners)
    return ObjectPreview(snapshot.ref, decision, snapshot.read_at, related, stop)


async def _with_archive(decision: Decision, evaluator: Evaluator, snapshot: Snapshot, rule: KindRule) -> Decision:
    """The decision with what is known about the archive, also if another reason keeps the object."""
    facts = (await evaluator.evaluate_archive(snapshot, rule)).decision.facts
    if facts.archiving is None:
        return decision
    problem = decision.facts.problem or facts.problem
    known = replace(decision.facts, archiving=facts.archiving, archived=facts.archived, problem=problem)
    return replace(decision, facts=known)


@dataclass
class ArchiveLookups:
    """Remembers what the archives answered about the objects of the present pages.

    Attributes:
        check: Asks the archives.
    """

    check: ArchiveCheck
    _answers: dict[_Key, ArchiveFact | PermanentError | None] = field(default_factory=dict)

    async def prime(self, found: Sequence[tuple[Any, KindRule, Context]]) -> None:
        """Ask about all finished objects that may be archived; `find` then forgets each answer that it returns.

        Args:
            found: The objects of a page, each with its rule and with each policy and its namespace.
        """
        slots = asyncio.Semaphore(LOOKUPS_MAX)

        async def ask(obj: Any, rule: KindRule, context: Context) -> None:
            if not context.policy.archives or not finish_of(obj, rule).finished:
                return
            async with slots:
                try:
                    self._answers[_key(obj, context.policy)] = await self.check.find(obj, rule, context)
                except PermanentError as error:
                    self._answers[_key(obj, context.policy)] = error

        await asyncio.gather(*(ask(*one) for one in found))

    async def find(self, obj: Any, rule: KindRule, context: Context) -> ArchiveFact | None:
        """See `shared.evaluation.archive_check.ArchiveCheck.find`."""
        key = _key(obj, context.policy)
        if key not in self._answers:
            return await self.check.find(obj, rule, context)
        answer = self._answers.pop(key)
        if isinstance(answer, PermanentError):
            raise answer
        return answer


def _key(obj: Any, policy: Policy) -> _Key:
    return get_text(obj, "metadata.uid"), get_text(obj, "metadata.resourceVersion"), policy.digest


def find_unread(
    decision: Decision, stop: StopDecision | None, rule: KindRule, owner: ObjectRef | None
) -> Iterator[UnreadFact]:
    """Find the facts that were not read, and without which the decisions about an object are not certain.

    Args:
        decision: The decision about its TTL.
        stop: The decision about its deadline; None if its kind has no rule.
        rule: The rule of its kind.
        owner: Its controller owner; None if it has none.
    """
    lacking = {*find_lacking(decision), *(find_lacking(stop) if stop else ())}
    if Fact.NAMESPACE in lacking:
        yield UnreadFact("its namespace", "`get` on namespaces")
    if Fact.INHERITED in lacking:
        yield UnreadFact("the object from which it inherits its TTL", "`get` on the kind of that object")
    if Fact.OWNER in lacking and owner is not None:
        of_group = f" of {owner.group}" if owner.group else ""
        yield UnreadFact("the state of its owner", f"`get` on {owner.kind}{of_group}")
    if Fact.RANK in lacking:
        yield UnreadFact("its rank for keepLast", f"`list` on {rule.name}")
    if Fact.PLACE in lacking:
        yield UnreadFact("its place for maxCount", f"`list` on {rule.name}")
    if Fact.QUOTAS in lacking:
        yield UnreadFact("the quotas of its namespace", f"`list` on resourcequotas and {rule.name}")


def describe_unread(objects: Sequence[BatchResult]) -> Iterator[str]:
    """Say for each unread fact how many objects need it under the last policy, and which right is missing."""
    found = Counter(
        fact for one in objects for fact in find_unread(one.decisions[-1], one.stops[-1], one.rule, one.owner)
    )
    for fact, count in found.items():
        yield (
            f"unknown whether {count} {'object is' if count == 1 else 'objects are'} deleted or stopped, and when: "
            f"{fact.what} could not be read; the right {fact.right} is missing"
        )
