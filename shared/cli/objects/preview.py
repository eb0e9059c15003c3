"""Decide about objects without doing anything: what `plan` and `explain` show."""

import asyncio
import gc
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from shared.cli.objects.owners import find_deleting_owners
from shared.cli.objects.related import Owner, RelatedFacts, find_owner, look_around, read_owner
from shared.core.decide import Decision, Facts, Ignore, Reason
from shared.core.finish.finish import Finish
from shared.core.kinds.rule import Catalogue, KindRule
from shared.core.namespaces import Namespace, namespace_of, plain_namespace
from shared.core.objects import ObjectRef, get_text, ref_of
from shared.core.policy.policy import NO_POLICY, Policy
from shared.core.ttl.edits import describe_parked
from shared.errors import PermanentError, TtlError
from shared.evaluation.batch import BatchEvaluator, BatchResult
from shared.evaluation.evaluator import Evaluator, is_unfinished
from shared.evaluation.namespaces import Namespaces
from shared.ports import Page, Unreadable

if TYPE_CHECKING:  # the client takes half a second to load, and offline commands need none
    from shared.adapters.kubernetes.cluster import KubernetesCluster


LISTS_AT_ONCE = 4
"""Kinds that are listed side by side."""


@dataclass(frozen=True, slots=True)
class ObjectPreview:
    """One object, what is decided about it, and when; and for one alone, what stands around it."""

    ref: ObjectRef
    decision: Decision
    now: datetime
    around: RelatedFacts | None = None


@dataclass(frozen=True, slots=True)
class Preview:
    """All that could be seen of a cluster.

    Attributes:
        objects: What is decided about each object.
        refused: The kinds that could not be listed, and why.
        saved: Objects whose TTL a hold that is gone put aside.
        unreadable: Objects that cannot be read, and are kept.
    """

    objects: Sequence[BatchResult]
    refused: Sequence[tuple[KindRule, TtlError]]
    saved: Sequence[ObjectRef] = ()
    unreadable: Sequence[Unreadable] = ()


async def find_all(
    cluster: "KubernetesCluster",
    rules: Sequence[KindRule],
    *,
    policies: Sequence[Policy],
    kinds: Catalogue,
    namespace: str,
) -> Preview:
    """Every object of the kinds, each read once and judged under each policy."""
    batch, namespaces = BatchEvaluator(policies), Namespaces(cluster, only=namespace)
    refused: list[tuple[KindRule, TtlError]] = []
    saved: list[ObjectRef] = []
    unreadable: list[Unreadable] = []
    places = asyncio.Semaphore(LISTS_AT_ONCE)

    async def look(rule: KindRule) -> None:
        async with places:
            try:
                aggregated = await _is_aggregated(cluster, rule)
                async with aclosing(_pages(cluster, rule, namespaces)) as pages:
                    async for page in pages:
                        unreadable.extend(page.unreadable)
                        await _evaluate_page(page, rule, batch, namespaces, saved, aggregated=aggregated)
            except TtlError as error:
                refused.append((rule, error))

    with uncollected():
        await asyncio.gather(*map(look, rules))
        objects = await batch.settle(lambda owner: is_unfinished(owner, cluster=cluster, kinds=kinds))
    return Preview(objects, refused, saved, unreadable)


@contextmanager
def uncollected() -> Iterator[None]:
    """Without the cyclic collector: JSON has no cycles, and its walks through all that is remembered take 40 %."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


async def _pages(cluster: "KubernetesCluster", rule: KindRule, namespaces: Namespaces) -> AsyncGenerator[Page]:
    """Page by page; the next one is on its way while one is judged."""

    def ask(token: str) -> asyncio.Task[Page]:
        return asyncio.create_task(cluster.list_page(rule, namespace=namespaces.only, continue_token=token))

    asked: asyncio.Task[Page] | None = ask("")
    try:
        while asked is not None:
            page = await asked
            asked = ask(page.continue_token) if page.continue_token else None
            await asyncio.sleep(0)  # sends the request
            yield page
    finally:
        if asked is not None:
            asked.cancel()


async def _is_aggregated(cluster: "KubernetesCluster", rule: KindRule) -> bool:
    """Whether an aggregated API server serves the kind; what cannot be told keeps."""
    try:
        return await cluster.is_aggregated(rule)
    except PermanentError:
        return True


async def _evaluate_page(
    page: Page,
    rule: KindRule,
    batch: BatchEvaluator,
    namespaces: Namespaces,
    saved: list[ObjectRef],
    *,
    aggregated: bool,
) -> None:
    await namespaces.prime()
    for obj in page.items:
        known = await _read_namespace(namespaces, obj)
        batch.add(obj, rule, page.read_at, *known, aggregated=aggregated, ahead=page.ahead)
        if describe_parked(obj, rule):
            saved.append(ref_of(obj))


async def _read_namespace(namespaces: Namespaces, obj: dict[str, Any]) -> tuple[Namespace | None, str]:
    """The object's namespace, or why it cannot be told."""
    place = get_text(obj, "metadata.namespace")
    if not place:
        return None, ""
    try:
        found = namespaces.get_cached(place) or await namespaces.get(place)
    except PermanentError as error:
        return None, str(error)
    return found, "" if found else f"there is no namespace {place}"


async def find_one(
    cluster: "KubernetesCluster",
    rule: KindRule,
    *,
    kinds: Catalogue,
    namespace: str,
    name: str,
    policy: Policy = NO_POLICY,
    flags: tuple[str, ...] = (),
) -> ObjectPreview:
    """One object by its name; `flags` lead kubectl to its cluster.

    Raises:
        TtlError: There is none.
    """
    snapshot = await cluster.get(rule, ObjectRef(rule.api_version, rule.kind, namespace, name, ""))
    if snapshot is None:
        place = f" in namespace {namespace}" if namespace else ""
        raise TtlError(f"there is no {rule.kind} {name}{place}")
    evaluator = Evaluator(cluster, kinds, lambda: policy)
    decision = await evaluator.decide(snapshot, rule)
    namespace_of_it, _ = await _read_namespace(evaluator.namespaces, snapshot.obj)
    owner = await read_owner(snapshot.obj, cluster=cluster, kinds=kinds)
    around = look_around(snapshot.obj, rule, decision.facts, owner, namespace_of_it)
    if decision.reason is Reason.HELD:
        deleting_owners = await find_deleting_owners(
            snapshot.obj, cluster=cluster, kinds=kinds, evaluator=evaluator, flags=flags
        )
        around = replace(around, deleting_owners=deleting_owners)
    return ObjectPreview(ref_of(snapshot.obj), decision, snapshot.read_at, around)


async def find_offline(
    documents: Sequence[dict[str, Any]], *, kinds: Catalogue, now: datetime, policy: Policy = NO_POLICY
) -> list[ObjectPreview]:
    """What would be decided about each document, by the owners, the siblings and the Namespaces that are among them.

    An owner that is not among them counts as unfinished, a namespace says nothing. Namespaces are not told of.
    """
    said = [namespace_of(one) for one in documents if _is_namespace(one)]
    namespaces = {one.ref.name: one for one in said}
    known = [(one, _rule_of(one, kinds)) for one in documents]
    by_uid = {get_text(obj, "metadata.uid"): (obj, rule) for obj, rule in reversed(known) if rule is not None}
    rules = [(obj, rule) for obj, rule in known if not _is_namespace(obj)]
    batch = BatchEvaluator([policy])
    for obj, rule in rules:
        if rule is not None:
            place = get_text(obj, "metadata.namespace")
            batch.add(obj, rule, now, namespaces.get(place) or plain_namespace(place))

    async def keeps(owner: ObjectRef) -> bool:
        return not any(rule.dependents == "free" for rule in kinds.of(owner.group, owner.kind))

    decided = iter(await batch.settle(keeps))
    return [
        _unknown(obj, now) if rule is None else _found(obj, rule, next(decided), find_owner(obj, by_uid), namespaces)
        for obj, rule in rules
    ]


def _is_namespace(obj: dict[str, Any]) -> bool:
    return (obj.get("apiVersion"), obj.get("kind")) == ("v1", "Namespace")


def _rule_of(obj: dict[str, Any], kinds: Catalogue) -> KindRule | None:
    return kinds.get(get_text(obj, "apiVersion"), get_text(obj, "kind"))


def _unknown(obj: dict[str, Any], now: datetime) -> ObjectPreview:
    ref = ref_of(obj)
    problem = f"no kind rule for {ref.kind or 'nothing'} of {ref.api_version or 'no apiVersion'}"
    return ObjectPreview(ref, Ignore(Reason.UNKNOWN_SHAPE, Facts(Finish(finished=None), problem=problem)), now)


def _found(
    obj: dict[str, Any], rule: KindRule, one: BatchResult, owner: Owner | None, namespaces: Mapping[str, Namespace]
) -> ObjectPreview:
    (decision,) = one.decisions
    around = look_around(obj, rule, decision.facts, owner, namespaces.get(one.ref.namespace))
    return ObjectPreview(one.ref, decision, one.now, around)
