"""The judges of one process, and what each could know when it judged: the measure of what is then deleted."""

from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from shared.core.kinds import KindRule
from shared.ports import Snapshot
from shared.usecases.judge import Judge, Judgement
from tests.simulation.mounts import Mount
from tests.simulation.rules import Policy


@dataclass(frozen=True)
class Judged:
    """When the last judgement of a task began, by the loop's time, and what policies could be in force then.

    Attributes:
        sent_at: When a DELETE was sent by it.
    """

    at: float
    policies: tuple[Policy, ...]
    sent_at: float


judged: ContextVar[Judged | None] = ContextVar("judged", default=None)


@dataclass
class WatchedJudge(Judge):
    """The real one; whoever looks at what is deleted by its word is told when it began.

    Attributes:
        world: Where.
        mount: Its policy file; None where there is none.
    """

    world: Any = None
    mount: Mount | None = None

    async def judge(self, snapshot: Snapshot, rule: KindRule) -> Judgement:
        now = self.world.loop.time()
        policies = self.mount.in_force() if self.mount else (Policy(""),)
        judged.set(Judged(now, policies, now))
        return await super().judge(snapshot, rule)


def judges_of(world: Any, cluster: Any) -> dict[str, Judge]:
    """By function: one for all that share a policy file.

    Raises:
        FileError: A file is bad, and so the process does not start.
    """
    made: dict[Mount | None, Judge] = {}
    for mount in world.lawgiver.mounts.values():
        if mount not in made:
            parts = {"policy": mount.open(world.mutant.policies).policy} if mount else {}
            made[mount] = world.mutant.judge(cluster, world.catalogue, **parts, world=world, mount=mount)
    return {function: made[mount] for function, mount in world.lawgiver.mounts.items()}
