"""The evaluators of one process; they record what each evaluation could know, for the checks of deletions."""

from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

from shared.core.decision.decide import Decision
from shared.core.kinds.rule import KindRule
from shared.evaluation.evaluator import AnyEvaluation, Evaluation, Evaluator
from shared.ports import Snapshot
from tests.simulation.calls import invocation
from tests.simulation.mounts import Mount
from tests.simulation.rules import Policy


@dataclass(frozen=True)
class Evaluated:
    """When the last evaluation of a task began, by the loop's time, and by which policy file.

    Attributes:
        sent_at: When a DELETE was sent by it.
        policies: What could be in force then: a policy that was reloaded after the evaluation counts.
    """

    at: float
    mount: Mount | None
    sent_at: float = 0.0
    policies: tuple[Policy, ...] = ()

    def sent(self, now: float) -> "Evaluated":
        """The same, as a DELETE is sent."""
        return replace(self, sent_at=now, policies=self.mount.in_force() if self.mount else (Policy(""),))


evaluated: ContextVar[Evaluated | None] = ContextVar("evaluated", default=None)


@dataclass
class RecordingEvaluator(Evaluator):
    """The real evaluator; it records when each evaluation began, for the checks of deletions.

    Attributes:
        world: Where.
        mount: Its policy file; None where there is none.
    """

    world: Any = None
    mount: Mount | None = None

    async def evaluate(self, snapshot: Snapshot, rule: KindRule) -> Evaluation[Decision]:
        evaluated.set(Evaluated(self.world.loop.time(), self.mount))
        return await super().evaluate(snapshot, rule)

    def is_still_due(self, evaluation: AnyEvaluation, snapshot: Snapshot, rule: KindRule) -> bool:
        is_due = super().is_still_due(evaluation, snapshot, rule)
        if not is_due and (call := invocation.get()):
            call.outdated += 1
        return is_due


def evaluators_of(world: Any, cluster: Any) -> dict[str, Evaluator]:
    """By function: one for all that share a policy file.

    Raises:
        FileError: A file is bad, and so the process does not start.
    """
    made: dict[Mount | None, Evaluator] = {}
    for mount in world.operators.mounts.values():
        if mount not in made:
            parts = {"policy": mount.open(world.mutant.policies).policy} if mount else {}
            made[mount] = world.mutant.evaluator(cluster, world.known_kinds, **parts, world=world, mount=mount)
    return {function: made[mount] for function, mount in world.operators.mounts.items()}
