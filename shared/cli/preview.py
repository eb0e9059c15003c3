"""Decide about objects without doing anything: what `plan` and `explain` show."""

import asyncio
import gc
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from shared.cli.owners import find_takers
from shared.cli.related import Owner, Surroundings, find_owner, look_around, read_owner
from shared.core.decide import Decision, Facts, Ignore, Reason
from shared.core.finish.finish import Finish
from shared.core.kinds.rule import Catalogue, KindRule
from shared.core.namespaces import Namespace, namespace_of, plain_namespace
from shared.core.objects import ObjectRef, get_text, ref_of
from shared.core.policy.policy import NO_POLICY, Policy
from shared.core.ttl.edits import describe_parked
from shared.errors import PermanentError, TtlError
from shared.evaluation.batch import Survey, Surveyed
from shared.evaluation.evaluator import Judge, is_unfinished
from shared.evaluation.namespaces import Namespaces
from shared.ports import Page, Unreadable

if TYPE_CHECKING:  # the client takes half a second to load, and offline commands need none
    from shared.adapters.kubernetes.cluster import KubernetesCluster


LISTS_AT_ONCE = 4
"""Kinds that are listed side by side."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One object, what is decided about it, and when; and for one alone, what stands around it."""

    ref: ObjectRef
    decision: Decision
    now: datetime
    around: Surroundings | None = None


@dataclass(frozen=True, slots=True)
class Sight:
    """All that could be seen of a cluster.

    Attributes:
        objects: What is decided about each object.
        refused: The kinds that could not be listed, and why.
        parked: Objects whose TTL a hold that is gone put aside.
        unreadable: Objects that cannot be read, and are kept.
    """

    objects: Sequence[Surveyed]
    refused: Sequence[tuple[KindRule, TtlError]]
    parked: Sequence[ObjectRef] = ()
    unreadable: Sequence[Unreadable] = ()


async def find_all(
    cluster: "KubernetesCluster",
    rules: Sequence[KindRule],
    *,
    policies: Sequence[Policy],
    kinds: Catalogue,
    namespace: str,
) -> Sight:
    """Every object of the kinds, each read once and judged under each policy."""
    survey, namespaces = Survey(policies), Namespaces(cluster, only=namespace)
    refused: list[tuple[KindRule, TtlError]] = []
    parked: list[ObjectRef] = []
    unreadable: list[Unreadable] = []
    places = asyncio.Semaphore(LISTS_AT_ONCE)

    async def look(rule: KindRule) -> None:
        async with places:
            try:
                aggregated = await _is_aggregated(cluster, rule)
                async with aclosing(_pages(cluster, rule, namespaces)) as pages:
                    async for page in pages:
                        unreadable.extend(page.unreadable)
                        await _survey_page(page, rule, survey, namespaces, parked, aggregated=aggregated)
            except TtlError as error:
                refused.append((rule, error))

    with uncollected():
        await asyncio.gather(*map(look, rules))
        objects = await survey.settle(lambda owner: is_unfinished(owner, cluster=cluster, kinds=kinds))
    return Sight(objects, refused, parked, unreadable)


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


async def _survey_page(
    page: Page, rule: KindRule, survey: Survey, namespaces: Namespaces, parked: list[ObjectRef], *, aggregated: bool
) -> None:
    await namespaces.prime()
    for obj in page.items:
        known = await _read_namespace(namespaces, obj)
        survey.add(obj, rule, page.read_at, *known, aggregated=aggregated, ahead=page.ahead)
        if describe_parked(obj, rule):
            parked.append(ref_of(obj))


async def _read_namespace(namespaces: Namespaces, obj: dict[str, Any]) -> tuple[Namespace | None, str]:
    """The object's namespace, or why it cannot be told."""
    place = get_text(obj, "metadata.namespace")
    if not place:
        return None, ""
    try:
        found = namespaces.recall(place) or await namespaces.get(place)
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
) -> Finding:
    """One object by its name; `flags` lead kubectl to its cluster.

    Raises:
        TtlError: There is none.
    """
    snapshot = await cluster.get(rule, ObjectRef(rule.api_version, rule.kind, namespace, name, ""))
    if snapshot is None:
        place = f" in namespace {namespace}" if namespace else ""
        raise TtlError(f"there is no {rule.kind} {name}{place}")
    judge = Judge(cluster, kinds, lambda: policy)
    decision = await judge.decide(snapshot, rule)
    namespace_of_it, _ = await _read_namespace(judge.namespaces, snapshot.obj)
    owner = await read_owner(snapshot.obj, cluster=cluster, kinds=kinds)
    around = look_around(snapshot.obj, rule, decision.facts, owner, namespace_of_it)
    if decision.reason is Reason.HELD:
        takers = await find_takers(snapshot.obj, cluster=cluster, kinds=kinds, judge=judge, flags=flags)
        around = replace(around, takers=takers)
    return Finding(ref_of(snapshot.obj), decision, snapshot.read_at, around)


async def find_offline(
    documents: Sequence[dict[str, Any]], *, kinds: Catalogue, now: datetime, policy: Policy = NO_POLICY
) -> list[Finding]:
    """What would be decided about each document, by the owners, the siblings and the Namespaces that are among them.

    An owner that is not among them counts as unfinished, a namespace says nothing. Namespaces are not told of.
    """
    said = [namespace_of(one) for one in documents if _is_namespace(one)]
    namespaces = {one.ref.name: one for one in said}
    known = [(one, _rule_of(one, kinds)) for one in documents]
    by_uid = {get_text(obj, "metadata.uid"): (obj, rule) for obj, rule in reversed(known) if rule is not None}
    rules = [(obj, rule) for obj, rule in known if not _is_namespace(obj)]
    survey = Survey([policy])
    for obj, rule in rules:
        if rule is not None:
            place = get_text(obj, "metadata.namespace")
            survey.add(obj, rule, now, namespaces.get(place) or plain_namespace(place))

    async def keeps(owner: ObjectRef) -> bool:
        return not any(rule.dependents == "free" for rule in kinds.of(owner.group, owner.kind))

    decided = iter(await survey.settle(keeps))
    return [
        _unknown(obj, now) if rule is None else _found(obj, rule, next(decided), find_owner(obj, by_uid), namespaces)
        for obj, rule in rules
    ]


def _is_namespace(obj: dict[str, Any]) -> bool:
    return (obj.get("apiVersion"), obj.get("kind")) == ("v1", "Namespace")


def _rule_of(obj: dict[str, Any], kinds: Catalogue) -> KindRule | None:
    return kinds.get(get_text(obj, "apiVersion"), get_text(obj, "kind"))


def _unknown(obj: dict[str, Any], now: datetime) -> Finding:
    ref = ref_of(obj)
    problem = f"no kind rule for {ref.kind or 'nothing'} of {ref.api_version or 'no apiVersion'}"
    return Finding(ref, Ignore(Reason.UNKNOWN_SHAPE, Facts(Finish(finished=None), problem=problem)), now)


def _found(
    obj: dict[str, Any], rule: KindRule, one: Surveyed, owner: Owner | None, namespaces: Mapping[str, Namespace]
) -> Finding:
    (decision,) = one.decisions
    around = look_around(obj, rule, decision.facts, owner, namespaces.get(one.ref.namespace))
    return Finding(one.ref, decision, one.now, around)
