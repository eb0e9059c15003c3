"""A timer as an engine stores it: its times as integers, and its reference, its proof and its trace as JSON.

An integer is a number of microseconds since 1970 in UTC, the resolution of `datetime`, so no time is rounded.
"""

import hashlib
import math
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from pydantic import TypeAdapter
from pydantic_core import PydanticSerializationError

from shared.core.values.objects import ObjectRef
from shared.core.values.timing import backoff_seconds
from shared.core.values.traceparent import TRACEPARENT, find_traceparent
from shared.errors import EventError
from shared.messages import ATTEMPTS_COUNTED_MAX, Proof, Purpose, Timer

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_DOUBLINGS_MAX = 4  # 16 s, about a quarter of the longest back-off

_REF = TypeAdapter(ObjectRef)
_PURPOSES = {purpose.value: purpose for purpose in Purpose}


def microseconds(instant: datetime) -> int:
    """Return an aware time as an integer."""
    return (instant - _EPOCH) // _MICROSECOND


def instant_of(number: int) -> datetime:
    """Return the time of an integer; the inverse of `microseconds`.

    Raises:
        ValueError: There is no such time.
    """
    try:
        return _EPOCH + number * _MICROSECOND
    except OverflowError as error:
        raise ValueError(f"expected microseconds since 1970, got {number}") from error


def later(instant: datetime, by: timedelta) -> datetime:
    """Return a later time; the last one that there is if it would be beyond."""
    try:
        return instant + by
    except OverflowError:
        return datetime.max.replace(tzinfo=instant.tzinfo)


def first_attempt_at(timer: Timer, now: datetime) -> datetime:
    """Return when a timer that is set fires.

    A timer with failed attempts is not tried before its back-off ends by the engine's own clock: the clock of the
    process that set it may be behind.
    """
    if not timer.attempts:
        return timer.due_at
    return max(timer.due_at, later(now, timedelta(seconds=backoff_seconds(timer.attempts - 1, jitter=1.0))))


def key_of(timer: Timer) -> str:
    """Return a hash of the purpose and the uid."""
    return hashlib.sha256(f"{timer.purpose}/{timer.ref.uid}".encode(errors="replace")).hexdigest()[:32]


def sent_at(timer: Timer, at: datetime, pause: float = 0.0) -> datetime:
    """Return the first second of a grid that is not before an instant: there the retries of one object meet.

    An engine that keeps earlier timers needs it. The longer the pause, the coarser the grid: each second, or one in 2,
    4, 8 or 16 seconds, with an offset that depends on the key. So in the end, there are at most four a minute of it.
    Otherwise each sweep of an object whose timer always fails, and each event that arrives twice, would add a timer
    that is retried as long as it fails.

    Args:
        timer: The timer. If attempts failed, that was a pause, too.
        at: When it is to be sent.
        pause: The seconds that it waits until then, because it failed or found no permit.
    """
    doublings = max(timer.attempts - 2, int(math.log2(max(pause, 1.0))))
    period = timedelta(seconds=2 ** min(doublings, _DOUBLINGS_MAX))
    try:
        return at + (_EPOCH + timedelta(seconds=int(key_of(timer)[:8], 16)) - at) % period
    except OverflowError:
        return at


def ref_text(timer: Timer) -> str:
    """Return the reference of a timer as a JSON object.

    Raises:
        EventError: The reference is text that cannot be stored (half of a surrogate pair).
    """
    try:
        return _REF.dump_json(timer.ref).decode()
    except PydanticSerializationError as error:
        raise EventError(f"ref: expected Unicode text, got {timer.ref!r}") from error


def with_extras(stored: str, timer: Timer) -> str:
    """Return a JSON object, which is not empty, with the proof and the trace of a timer; older versions ignore them."""
    if timer.proof:
        stored = f'{stored[:-1]},"proof":{timer.proof.dump()}}}'
    return f'{stored[:-1]},"{TRACEPARENT}":"{timer.traceparent}"}}' if timer.traceparent else stored


def restored(purpose: str, due_us: int, attempts: int, ref: Any, extras: dict[str, Any]) -> Timer:
    """Return a timer that was stored.

    Args:
        purpose: Its purpose. An unknown one is from a later version: the timer is delivered as it was set.
        due_us: When it is due, in microseconds since 1970.
        attempts: Its failed attempts.
        ref: The parsed JSON of its reference.
        extras: The parsed JSON that has its proof and its trace; a value of another form counts as none.

    Raises:
        ValueError: Another program stored it.
    """
    return Timer.model_construct(
        ref=_REF.validate_python(ref),
        purpose=cast(Purpose, _PURPOSES.get(purpose, purpose)),
        due_at=instant_of(due_us),
        attempts=min(attempts, ATTEMPTS_COUNTED_MAX),
        proof=Proof.read(extras.get("proof")),
        traceparent=find_traceparent(extras.get(TRACEPARENT)),
    )
