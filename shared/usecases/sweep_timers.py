"""The timers that a sweep sets for what is due soon, and for what it could not handle."""

from collections.abc import Sequence
from datetime import datetime

from shared.core.finish import finish_of
from shared.core.kinds.rule import KindRule
from shared.core.objects import ObjectRef
from shared.errors import ConflictError, TryLaterError, TtlError
from shared.messages import TIMERS_MAX, Purpose, Timer, TimersSet
from shared.ports import Publisher, Snapshot, Telemetry
from shared.usecases.next_timers import retry_of


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


async def publish_timers(timers: Sequence[Timer], *, publisher: Publisher, telemetry: Telemetry) -> None:
    """Publish the timers; a failure is reported and the sweep continues, since a later sweep finds the objects.

    After a failure the rest of the timers is not published: each attempt may last as long as the Broker's retries.
    """
    for start in range(0, len(timers), TIMERS_MAX):
        try:
            await publisher.publish(TimersSet(timers=tuple(timers[start : start + TIMERS_MAX])))
        except TtlError as error:
            unset = len(timers) - start
            telemetry.problem("sweep could not set timers", timers=unset, error=str(error))
            return
