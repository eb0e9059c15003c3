"""The last refusal of an object that still exists, for `explain`."""

import shlex
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING

from shared.cli.deleters.in_force import InForce
from shared.cli.deleters.obstacles import Obstacle, ObstacleReason
from shared.cli.journal.events import find_entries_of
from shared.cli.objects.time_text import describe_time
from shared.cli.output.plural import plural
from shared.core.deadlines.decide_stop import StopDecision
from shared.core.decide import Decision, Ignore
from shared.core.objects import ObjectRef
from shared.errors import TtlError
from shared.ports import JournalAction

if TYPE_CHECKING:  # the client takes half a second to load
    from shared.adapters.kubernetes.cluster import KubernetesCluster


async def find_last_refusal(
    cluster: "KubernetesCluster", found: InForce, ref: ObjectRef, *, decision: Decision | StopDecision, now: datetime
) -> tuple[Obstacle, ...]:
    """Find the newest refusal of exactly this object; none if the object is kept, or if the Events cannot be read.

    Args:
        cluster: The cluster.
        found: What is in force on the cluster.
        ref: The object.
        decision: The decision about it.
        now: The time by the API server's clock.
    """
    if isinstance(decision, Ignore):
        return ()
    try:
        entries = await find_entries_of(cluster, ref, JournalAction.REFUSE)
    except TtlError:  # its other obstacles do not depend on the Events
        return ()
    doctor = shlex.join(("kubectl", "ttl", "doctor", "-n", found.home, *found.flags))
    cure = f"follow the answer; to check the rights: `{doctor}`"

    def obstacles() -> Iterator[Obstacle]:
        for one in entries.named:
            if one.ref.uid == ref.uid:
                message = f"{one.note.replace('refused', f'refused {describe_time(one.at, now)}', 1)} ({one.reason})"
                yield Obstacle(ObstacleReason.REFUSED, message, cure, since=one.at)
                return
        if entries.counted:
            count = plural(entries.count, f"refusal of kind {ref.kind}", f"refusals of kind {ref.kind}")
            message = f"it may be among {count} in its namespace that Events only count"
            yield Obstacle(ObstacleReason.REFUSED, message, cure, since=entries.counted[0].at)

    return tuple(obstacles())
