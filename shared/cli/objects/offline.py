"""Decide about the objects of a file, without a cluster, for `explain -f`."""

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Any

from shared.cli.objects.own_deletion import with_own_deletion
from shared.cli.objects.preview import ObjectPreview
from shared.cli.objects.related import find_owner, find_related
from shared.core.decide import Facts, Ignore, Reason
from shared.core.finish import Finish
from shared.core.kinds.catalogue import Catalogue
from shared.core.kinds.rule import KindRule
from shared.core.namespaces import namespace_of, plain_namespace
from shared.core.objects import ObjectRef, get_text, ref_of
from shared.core.policy.policy import NO_POLICY, Policy
from shared.evaluation.batch import BatchEvaluator
from shared.evaluation.owners import is_unfinished_by_kind
from shared.evaluation.ttl_sources import find_among
from shared.ports import Snapshot


async def find_offline(
    documents: Sequence[dict[str, Any]], *, kinds: Catalogue, now: datetime, policy: Policy = NO_POLICY
) -> list[ObjectPreview]:
    """Decide about each document of a file, without a cluster.

    Owners, ranks, Namespaces and the objects that set inherited TTLs come from the file. An owner that is not in the
    file counts as unfinished; a Namespace that is not in it counts as one without annotations. An object is kept if it
    may inherit its TTL from one that is not in the file. Namespaces themselves are not in the result.
    """
    namespaces = {one.ref.name: one for one in map(namespace_of, filter(_is_namespace, documents))}
    with_rules = [(one, _rule_of(one, kinds)) for one in documents]
    by_uid = {get_text(obj, "metadata.uid"): (obj, rule) for obj, rule in reversed(with_rules) if rule is not None}
    objects = [(obj, rule) for obj, rule in with_rules if not _is_namespace(obj)]
    batch = BatchEvaluator([policy], partial(find_among, documents))
    for obj, rule in objects:
        if rule is not None:
            name = get_text(obj, "metadata.namespace")
            await batch.add(Snapshot(obj, now), rule, namespaces.get(name) or plain_namespace(name))

    async def is_unfinished(owner: ObjectRef) -> bool:
        return is_unfinished_by_kind(owner, kinds) is not False

    decided = iter(await batch.settle(is_unfinished))
    found = []
    for obj, rule in objects:
        if rule is None:
            found.append(_unknown(obj, now))
            continue
        one = next(decided)
        (decision,), (stop,) = one.decisions, one.stops
        decision = with_own_deletion(decision, rule)
        related = find_related(
            obj, rule, decision.facts, owner=find_owner(obj, by_uid), namespace=namespaces.get(one.ref.namespace)
        )
        found.append(ObjectPreview(one.ref, decision, now, related, stop))
    return found


def _is_namespace(obj: dict[str, Any]) -> bool:
    return (obj.get("apiVersion"), obj.get("kind")) == ("v1", "Namespace")


def _rule_of(obj: dict[str, Any], kinds: Catalogue) -> KindRule | None:
    return kinds.get(get_text(obj, "apiVersion"), get_text(obj, "kind"))


def _unknown(obj: dict[str, Any], now: datetime) -> ObjectPreview:
    ref = ref_of(obj)
    problem = f"no kind rule for kind {ref.kind or '(none)'} of apiVersion {ref.api_version or '(none)'}"
    return ObjectPreview(ref, Ignore(Reason.UNKNOWN_SHAPE, Facts(Finish(finished=None), problem=problem)), now)
