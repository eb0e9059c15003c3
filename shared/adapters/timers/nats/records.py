"""Timers as messages of the stream.

The body has all of the timer; the headers have what the server needs. Times are microseconds since 1970, the
resolution of `datetime`, so no time is rounded.
"""

import json
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from pydantic import TypeAdapter
from pydantic_core import PydanticSerializationError

from shared.adapters.timers.stored_extras import read_extras, with_extras
from shared.core.values.jsontext import parse_json
from shared.core.values.objects import ObjectRef
from shared.core.values.timing import backoff_seconds
from shared.errors import EventError
from shared.messages import ATTEMPTS_COUNTED_MAX, Purpose, Timer

BODY_BYTES_MAX = 48 * 1024
"""The largest body: 60 times that of a usual timer. With its headers it stays below the limit of the stream."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_FIRST = datetime(2000, 1, 1, tzinfo=UTC)
_LAST = datetime(2200, 1, 1, tzinfo=UTC)  # the server counts nanoseconds in 64 bits, until 2262
_REF = TypeAdapter(ObjectRef)
_PURPOSES = {purpose.value: purpose for purpose in Purpose}


def microseconds(instant: datetime) -> int:
    """Return the microseconds since 1970."""
    return (instant - _EPOCH) // _MICROSECOND


def body_of(timer: Timer) -> bytes:
    """Return the body of a timer's message.

    Raises:
        EventError: The reference is too long, or text that cannot be stored (half of a surrogate pair).
    """
    try:
        ref = _REF.dump_json(timer.ref).decode()
    except PydanticSerializationError as error:
        raise EventError(f"ref: expected Unicode text, got {timer.ref!r}") from error
    due_us = microseconds(timer.due_at)
    purpose = json.dumps(str(timer.purpose))
    text = f'{{"purpose":{purpose},"dueUs":{due_us},"attempts":{timer.attempts},"ref":{ref}}}'
    body = with_extras(text, timer).encode()
    if len(body) > BODY_BYTES_MAX:
        raise EventError(f"ref: expected at most {BODY_BYTES_MAX} bytes, got {len(body)}", status=413)
    return body


def timer_of(body: bytes) -> Timer:
    """Return the timer of a body.

    Raises:
        ValueError: Another program wrote the message.
    """
    try:
        fields: dict[str, Any] = parse_json(body)
        # An unknown purpose is from a later version: the timer is delivered as it was set.
        purpose = cast(Purpose, _PURPOSES.get(fields["purpose"], fields["purpose"]))
        proof, traceparent = read_extras(fields)
        return Timer.model_construct(
            ref=_REF.validate_python(fields["ref"]),
            purpose=purpose,
            due_at=_EPOCH + int(fields["dueUs"]) * _MICROSECOND,
            attempts=min(int(fields["attempts"]), ATTEMPTS_COUNTED_MAX),
            proof=proof,
            traceparent=traceparent,
        )
    except (KeyError, TypeError, OverflowError) as error:
        raise ValueError(f"expected a timer, got {body[:100]!r}") from error


def fire_at(timer: Timer, now: datetime) -> datetime:
    """Return when a timer that is set fires.

    A timer with failed attempts is not tried before its back-off ends by the engine's own clock: the clock of the
    process that set it may be behind.
    """
    if not timer.attempts:
        return timer.due_at
    return max(timer.due_at, now + timedelta(seconds=backoff_seconds(timer.attempts - 1, jitter=1.0)))


def schedule_headers(at: datetime, target: str) -> dict[str, str]:
    """Return the headers by which the server publishes a message at a time, within the years that the server knows.

    Args:
        at: The time.
        target: The subject under which the server publishes it.
    """
    instant = min(max(at, _FIRST), _LAST).isoformat().replace("+00:00", "Z")
    return {"Nats-Schedule": f"@at {instant}", "Nats-Schedule-Target": target}
