"""An object changed: which timer does it need?"""

from typing import Any

from shared.core.decide import Expire, Ignore, Wait, decide
from shared.core.kinds import Catalogue
from shared.core.objects import quote, ref_of
from shared.errors import EventError
from shared.messages import Purpose, Timer, TimersSet
from shared.ports import Clock, Telemetry, Verdict


async def schedule(obj: Any, *, catalogue: Catalogue, clock: Clock, telemetry: Telemetry) -> TimersSet | None:
    """The timer for an object that an event reported, or None where it needs none.

    The event is a hint: a timer set by a stale or forged one costs a read when it fires, and no more. So the owner
    is not asked for here, and no API right is needed.

    Raises:
        EventError: The object has no name or uid, or one that no object can have.
    """
    ref = ref_of(obj)
    for field, value in (("name", ref.name), ("uid", ref.uid)):
        if not value or not value.isprintable():
            raise EventError(f"data.metadata.{field}: expected printable text that is not empty, got {quote(value)}")
    rule = catalogue.get(ref.api_version, ref.kind)
    if rule is None:
        telemetry.record(Verdict.KEPT, ref, "kind-not-enabled", by="schedule")
        return None
    match decide(obj, rule, clock.now(), owner_unfinished=False):
        case Ignore(reason, facts):
            telemetry.record(Verdict.KEPT, ref, reason, detail=facts.problem, by="schedule")
            return None
        case Wait(due_at, reason) | Expire(due_at, reason):
            telemetry.record(Verdict.TIMER_SET, ref, reason, by="schedule")
            return TimersSet(timers=(Timer(ref=ref, purpose=Purpose.EXPIRE, due_at=due_at),))
