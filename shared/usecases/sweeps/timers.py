"""The timers that a sweep sets for what is due soon, and for what it could not handle."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from shared.core.decision.finish import finish_of
from shared.core.kinds.rule import KindRule
from shared.core.values.objects import ObjectRef
from shared.errors import ConflictError, TryLaterError, TtlError
from shared.messages import TIMERS_MAX, Purpose, Timer, TimersSet
from shared.ports import Publisher, Snapshot, Telemetry
from shared.usecases.timers import retry_of


def retries_of(
    ref: ObjectRef, rule: KindRule, snapshot: Snapshot | None, error: ConflictError | TryLaterError, *, now: datetime
) -> list[Timer]:
    """The timers that handle one object again: of the purpose that it needs, or of both if it could not be read."""
    least = error.retry_after_seconds if isinstance(error, TryLaterError) else 0.0
    if snapshot is None:
        purposes: tuple[Purpose, ...] = (Purpose.EXPIRE, *((Purpose.ENFORCE,) if rule.deadline else ()))
    else:
        is_running = finish_of(snapshot.obj, rule).finished is False
        purposes = (Purpose.ENFORCE if is_running else Purpose.EXPIRE,)
    return [retry_of(Timer(ref=ref, purpose=one, due_at=now), least=least, now=now) for one in purposes]


@dataclass(slots=True)
class WantedTimers:
    """The timers of one step, in the order in which the objects were handled.

    Attributes:
        timers: The timers.
    """

    timers: list[Timer] = field(default_factory=list)
    _ends: list[tuple[str, int]] = field(default_factory=list)

    def add(self, ref: ObjectRef, timers: Sequence[Timer]) -> None:
        """Add the timers that follow from one object of a page."""
        self.timers.extend(timers)
        if timers:
            self._ends.append((ref.uid, len(self.timers)))

    @property
    def uids(self) -> list[str]:
        """The objects that need timers."""
        return [uid for uid, _ in self._ends]

    async def publish(self, publisher: Publisher, telemetry: Telemetry) -> set[str]:
        """Publish the timers; a failure is reported and the sweep continues, since a later sweep finds the objects.

        After a failure the rest of the timers is not published: the next message would fail too, and may last long.

        Returns:
            The uids of the objects whose timers are all published.
        """
        published = 0
        try:
            while part := self.timers[published : published + TIMERS_MAX]:
                await publisher.publish(TimersSet(timers=tuple(part)))
                published += len(part)
        except TtlError as error:
            telemetry.problem("sweep could not set timers", timers=len(self.timers) - published, error=str(error))
        return {uid for uid, end in self._ends if end <= published}
