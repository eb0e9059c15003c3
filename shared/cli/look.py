"""Decide about objects without doing anything: what `plan` and `explain` show."""

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from shared.adapters.cluster import KubernetesCluster
from shared.cli.surroundings import Surroundings, find_owner, look_around, read_owner
from shared.core.decide import Context, Decision, Facts, Ignore, Reason, decide
from shared.core.finish import Finish, finish_of
from shared.core.kinds import Catalogue, KindRule
from shared.core.namespaces import plain_namespace
from shared.core.objects import ObjectRef, get_controller, ref_of
from shared.core.policy import NO_POLICY, Policy
from shared.errors import TtlError
from shared.ports import Snapshot
from shared.usecases.judge import Judge


@dataclass(frozen=True, slots=True)
class Finding:
    """One object, what is decided about it, and when; and for one alone, what stands around it."""

    ref: ObjectRef
    decision: Decision
    now: datetime
    around: Surroundings | None = None


async def find_all(
    cluster: KubernetesCluster, rule: KindRule, *, judge: Judge, namespace: str
) -> AsyncIterator[Finding]:
    """Every object of a kind, page by page."""
    token = ""
    while True:
        page = await cluster.list_page(rule, namespace=namespace, continue_token=token)
        await judge.namespaces.prime()
        for obj in page.items:
            decision = await judge.decide(Snapshot(obj, page.read_at), rule)
            yield Finding(ref_of(obj), decision, page.read_at)
        token = page.continue_token
        if not token:
            return


async def find_one(
    cluster: KubernetesCluster,
    rule: KindRule,
    *,
    kinds: Catalogue,
    namespace: str,
    name: str,
    policy: Callable[[], Policy] = lambda: NO_POLICY,
) -> Finding:
    """One object by its name.

    Raises:
        TtlError: There is none.
    """
    snapshot = await cluster.get(rule, ObjectRef(rule.api_version, rule.kind, namespace, name, ""))
    if snapshot is None:
        place = f" in namespace {namespace}" if namespace else ""
        raise TtlError(f"there is no {rule.kind} {name}{place}")
    decision = await Judge(cluster, kinds, policy).decide(snapshot, rule)
    owner = await read_owner(snapshot.obj, cluster=cluster, kinds=kinds)
    around = look_around(snapshot.obj, rule, decision.facts, owner)
    return Finding(ref_of(snapshot.obj), decision, snapshot.read_at, around)


def find_offline(documents: Sequence[dict[str, Any]], *, kinds: Catalogue, now: datetime) -> list[Finding]:
    """What would be decided about each document; an owner counts as finished only if it is among them."""
    finished = {ref_of(one).uid for one in documents if _is_finished(one, kinds)} - {""}
    return [_find_offline(one, documents, kinds, now, finished) for one in documents]


def _find_offline(
    obj: dict[str, Any], documents: Sequence[dict[str, Any]], kinds: Catalogue, now: datetime, finished: set[str]
) -> Finding:
    ref = ref_of(obj)
    rule = kinds.get(ref.api_version, ref.kind)
    if rule is None:
        problem = f"no kind rule for {ref.kind or 'nothing'} of {ref.api_version or 'no apiVersion'}"
        return Finding(ref, Ignore(Reason.UNKNOWN_SHAPE, Facts(Finish(finished=None), problem=problem)), now)
    owner = get_controller(obj)
    unfinished = owner is not None and owner.uid not in finished
    context = Context(namespace=plain_namespace(ref.namespace), owner_unfinished=unfinished)
    decision = decide(obj, rule, now, context)
    around = look_around(obj, rule, decision.facts, find_owner(obj, documents, kinds))
    return Finding(ref, decision, now, around)


def _is_finished(obj: dict[str, Any], kinds: Catalogue) -> bool:
    ref = ref_of(obj)
    rule = kinds.get(ref.api_version, ref.kind)
    return rule is not None and finish_of(obj, rule).finished is True
