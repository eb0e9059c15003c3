"""What the journal knows about one object, for `explain`: its deletion, or its last refusal if it still exists."""

import json
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from shared.adapters.clock import SystemClock
from shared.adapters.kubernetes.journal_reading import JournalEvent
from shared.cli.deleters.in_force import InForce
from shared.cli.deleters.obstacles import Obstacle, ObstacleReason
from shared.cli.journal.entry_text import WORDS, describe_counted, describe_deleted, entry_as_json
from shared.cli.journal.events import find_entries_of
from shared.cli.output.plural import plural
from shared.cli.output.time_text import describe_time, instant_as_json
from shared.cli.output.width import wrap_labelled
from shared.core.deadlines.decide_stop import StopDecision
from shared.core.decision.decide import Decision, Ignore
from shared.core.values.objects import ObjectRef, printable
from shared.errors import TtlError
from shared.ports import JournalAction

if TYPE_CHECKING:  # the client takes half a second to load
    from shared.adapters.kubernetes.cluster import KubernetesCluster


@dataclass(frozen=True, slots=True)
class DeletionRecord:
    """What the Events show about the deletion of an object.

    Attributes:
        newest: The newest deletion of an object of this name; None if no Event shows one.
        others: How many older ones there are.
        counted: How many deletions of its kind in its namespace have no name.
        kind: Its kind.
        problem: Why the Events could not be read; empty if they could.
    """

    newest: JournalEvent | None = None
    others: int = 0
    counted: int = 0
    kind: str = ""
    problem: str = ""

    def describe_absence(self) -> str:
        """Return, for an error message, what is known without an Event about the object."""
        if self.problem:
            return f"; its Events could not be read: {self.problem}"
        if self.counted:
            return f"; {describe_counted(self.counted, self.kind)}: run `kubectl ttl deleted`"
        return f"; no Event says that it was deleted: {WORDS[JournalAction.DELETE].unknown}" if self.kind else ""

    def lines(self, now: datetime) -> Iterator[tuple[str, str]]:
        """Yield the lines of `explain`, with their labels."""
        if self.newest is not None:
            yield "deleted", describe_deleted(self.newest, now)
        if self.others:
            yield "deleted", f"`kubectl ttl deleted` has {plural(self.others, 'older deletion')} of this name"

    def as_json(self) -> dict[str, Any]:
        """Return the field for `explain -o json`; none without an Event."""
        return {"deletion": entry_as_json(self.newest)} if self.newest else {}

    def echo(self, output: str) -> None:
        """Print an object of which only the journal knows."""
        if self.newest is None:
            return
        if output == "text":
            lines = [("decision", "gone: it does not exist any more"), *self.lines(SystemClock().now())]
            lines.append(("uid", self.newest.ref.uid))
            click.echo("\n".join((printable(str(self.newest.ref)), *wrap_labelled(lines))))
            return
        ref, data = self.newest.ref, self.newest.data
        found = {
            "apiVersion": ref.api_version,
            "kind": ref.kind,
            "namespace": ref.namespace or None,
            "name": ref.name,
            "finished": True if data.get("finishedAt") else None,
            "finishedAt": data.get("finishedAt"),
            "outcome": data.get("outcome"),
            "ttlFrom": data.get("ttlFrom") or None,
            "dueAt": data.get("dueAt"),
            "decision": "gone",
            "reason": "deleted",
            "deletedAt": instant_as_json(self.newest.at),
        }
        click.echo(json.dumps(found | self.as_json(), indent=2))


NO_RECORD = DeletionRecord()
"""What is known if the journal is not asked."""


async def find_record(cluster: "KubernetesCluster", ref: ObjectRef) -> DeletionRecord:
    """Find what the journal knows about the deletion of an object; its uid is ignored."""
    try:
        found = await find_entries_of(cluster, ref)
    except TtlError as error:
        return DeletionRecord(kind=ref.kind, problem=str(error))
    newest = found.named[0] if found.named else None
    return DeletionRecord(newest, max(len(found.named) - 1, 0), found.count, ref.kind)


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
