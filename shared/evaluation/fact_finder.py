"""Find the facts about one object that `decide` asks for."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from shared.core.capacity import QuotaPressure
from shared.core.decide import Context, Reason
from shared.core.finish import finish_of
from shared.core.kinds.rule import KindRule
from shared.core.objects import get_controller, get_text
from shared.core.ranks import RankedObject
from shared.evaluation.ranks import FALLEN_MAX
from shared.ports import Snapshot

if TYPE_CHECKING:
    from shared.evaluation.evaluator import Evaluator


@dataclass(slots=True)
class FactFinder:
    """Finds the facts about one object.

    Attributes:
        evaluator: What reads the facts, and caches them.
        snapshot: The object, and the API server's time.
        rule: The object's kind.
        fallen: Objects of its group that have to be evaluated because of this object.
    """

    evaluator: "Evaluator"
    snapshot: Snapshot
    rule: KindRule
    fallen: Sequence[RankedObject] = ()

    async def find(self, reason: Reason, context: Context) -> Context:
        """See `FindFact`."""
        context = await (self._find_rank if reason in _OF_RANKS else self._find)(reason, context)
        if reason is Reason.NAMESPACE_UNREAD or context.namespace is not None:
            # A slow read of another fact may have made the namespace too old.
            namespace = await self.evaluator.namespaces.get(get_text(self.snapshot.obj, "metadata.namespace"))
            context = replace(context, namespace=namespace)
        return context

    async def _find(self, reason: Reason, context: Context) -> Context:
        evaluator, obj = self.evaluator, self.snapshot.obj
        match reason:
            case Reason.OWNER_UNFINISHED:
                owner = get_controller(obj)
                is_unfinished = owner is not None and await evaluator.owners.is_unfinished(owner)
                return replace(context, owner_unfinished=is_unfinished)
            case Reason.INHERITED_UNREAD:
                return replace(context, inherited=await evaluator.ttl_sources.get(obj, self.rule))
            case Reason.AGGREGATED_API:
                return replace(context, aggregated=await evaluator.cluster.is_aggregated(self.rule))
            case Reason.CHILD_NOT_ARCHIVED:
                return replace(context, children=await evaluator.child_check.find(obj, self.rule, context))
            case Reason.NOT_ARCHIVED:
                return replace(context, archived=await evaluator.archive_check.find(obj, self.rule, context))
        return context

    async def _find_rank(self, reason: Reason, context: Context) -> Context:
        evaluator, obj, rule = self.evaluator, self.snapshot.obj, self.rule
        match reason:
            case Reason.KEPT_LAST:
                rank = await evaluator.ranks.rank(obj, rule, context)
                self.fallen = rank.fallen
                return replace(context, newer=rank.newer)
            case Reason.OVER_COUNT:
                rank = await evaluator.ranks.rank(obj, rule, context, "maxCount")
                self.fallen = (*self.fallen, *rank.fallen)
                return replace(context, counted=rank.counted)
        quotas = await evaluator.quotas.of(get_text(obj, "metadata.namespace"), rule, after=finish_of(obj, rule).at)
        pressure = QuotaPressure(quotas, read_at=self.snapshot.read_at)
        pressure, leaving = await evaluator.ranks.press(obj, rule, context, pressure)
        self.fallen = (*self.fallen, *leaving[:FALLEN_MAX])
        return replace(context, pressure=pressure)


_OF_RANKS = frozenset({Reason.KEPT_LAST, Reason.OVER_COUNT, Reason.OVER_QUOTA})
