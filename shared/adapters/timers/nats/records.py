"""Timers as messages of the stream.

The body has all of the timer; the headers have what the server needs. Times are microseconds since 1970, the
resolution of `datetime`, so no time is rounded.
"""

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from pydantic import TypeAdapter
from pydantic_core import PydanticSerializationError

from shared.core.objects import ObjectRef
from shared.core.timing import backoff_seconds
from shared.errors import EventError
from shared.messages import ATTEMPTS_COUNTED_MAX, Purpose, Timer

BODY_BYTES_MAX = 48 * 1024
"""The largest body: 60 times that of a usual timer. With its headers it stays below the limit of the stream."""

CANCELLED_HEADER = "Ttl-Cancelled"
"""Marks what replaces a cancelled timer: it is dropped when it fires."""

CANCELLED_FOR = timedelta(minutes=2)
"""How long a cancellation stays: longer than the server takes from the start of a firing to its end (20 s for 10^6)."""

SCHEDULE_HEADER, CLEARS_HEADER = "Nats-Schedule", "Nats-Schedule-Rollup"

_AT = re.compile(rf"\n{SCHEDULE_HEADER}: ?@at (\S+)")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_FIRST = datetime(2000, 1, 1, tzinfo=UTC)
_LAST = datetime(2200, 1, 1, tzinfo=UTC)  # the server counts nanoseconds in 64 bits, until 2262
_REF = TypeAdapter(ObjectRef)
_PURPOSES = {purpose.value: purpose for purpose in Purpose}


def body_of(timer: Timer) -> bytes:
    """Return the body of a timer's message.

    Raises:
        EventError: The reference is too long, or text that cannot be stored (half of a surrogate pair).
    """
    try:
        ref = _REF.dump_json(timer.ref).decode()
    except PydanticSerializationError as error:
        raise EventError(f"ref: expected Unicode text, got {timer.ref!r}") from error
    due_us = (timer.due_at - _EPOCH) // _MICROSECOND
    purpose = json.dumps(str(timer.purpose))
    body = f'{{"purpose":{purpose},"dueUs":{due_us},"attempts":{timer.attempts},"ref":{ref}}}'.encode()
    if len(body) > BODY_BYTES_MAX:
        raise EventError(f"ref: expected at most {BODY_BYTES_MAX} bytes, got {len(body)}", status=413)
    return body


def timer_of(body: bytes) -> Timer:
    """Return the timer of a body.

    Raises:
        ValueError: Another program wrote the message.
    """
    try:
        fields: dict[str, Any] = json.loads(body)
        # An unknown purpose is from a later version: the timer is delivered as it was set.
        purpose = cast(Purpose, _PURPOSES.get(fields["purpose"], fields["purpose"]))
        return Timer.model_construct(
            ref=_REF.validate_python(fields["ref"]),
            purpose=purpose,
            due_at=_EPOCH + int(fields["dueUs"]) * _MICROSECOND,
            attempts=min(int(fields["attempts"]), ATTEMPTS_COUNTED_MAX),
        )
    except (KeyError, TypeError, OverflowError, RecursionError) as error:
        raise ValueError(f"expected a timer, got {body[:100]!r}") from error


def fire_at(timer: Timer, now: datetime) -> datetime:
    """Return when a timer that is set fires.

    A timer with failed attempts is not tried before its back-off ends by the engine's own clock: the clock of the
    process that set it may be behind.
    """
    if not timer.attempts:
        return timer.due_at
    return max(timer.due_at, now + timedelta(seconds=backoff_seconds(timer.attempts - 1, jitter=1.0)))


def schedule_headers(at: datetime, target: str, *, clears: bool) -> dict[str, str]:
    """Return the headers by which the server fires a message at a time, within the years that the server knows.

    Args:
        at: The time.
        target: Where the server publishes it.
        clears: Whether the fired message removes an older fired message of its key that waits. So a timer that was
            replaced or cancelled is never the newest of its key again. For each such firing, the server writes all
            that the consumers have not acknowledged.
    """
    instant = min(max(at, _FIRST), _LAST).isoformat().replace("+00:00", "Z")
    headers = {SCHEDULE_HEADER: f"@at {instant}", "Nats-Schedule-Target": target}
    return headers | {CLEARS_HEADER: "sub"} if clears else headers


def may_leave_fired(headers: str, now: datetime) -> bool:
    """Return whether a fired message of the key may wait, or be about to be stored, although its schedule is replaced.

    Args:
        headers: The headers of the schedule, as the server stores them.
        now: The current instant.
    """
    if f"\n{CLEARS_HEADER}:" in headers:
        return True
    found = _AT.search(headers)
    return not found or datetime.fromisoformat(found[1]) < now + CANCELLED_FOR


def is_cancellation(headers: Mapping[str, str] | None) -> bool:
    """Return whether a fired message replaces a cancelled timer."""
    return bool(headers and CANCELLED_HEADER in headers)
