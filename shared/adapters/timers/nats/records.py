"""Timers as messages of the stream.

The body has all of the timer; the headers have what the server needs.
"""

import json
from datetime import UTC, datetime

from shared.adapters.timers.stored import ref_text, restored, with_extras
from shared.adapters.timers.times import microseconds
from shared.core.values.jsontext import parse_json
from shared.errors import EventError
from shared.messages import Timer

BODY_BYTES_MAX = 48 * 1024
"""The largest body: 60 times that of a usual timer. With its headers it stays below the limit of the stream."""

_FIRST = datetime(2000, 1, 1, tzinfo=UTC)
_LAST = datetime(2200, 1, 1, tzinfo=UTC)  # the server counts nanoseconds in 64 bits, until 2262


def body_of(timer: Timer) -> bytes:
    """Return the body of a timer's message.

    Raises:
        EventError: The reference is too long, or text that cannot be stored.
    """
    purpose, due_us = json.dumps(str(timer.purpose)), microseconds(timer.due_at)
    text = f'{{"purpose":{purpose},"dueUs":{due_us},"attempts":{timer.attempts},"ref":{ref_text(timer)}}}'
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
        fields = parse_json(body)
        return restored(fields["purpose"], int(fields["dueUs"]), int(fields["attempts"]), fields["ref"], fields)
    except (KeyError, TypeError, OverflowError) as error:
        raise ValueError(f"expected a timer, got {body[:100]!r}") from error


def schedule_headers(at: datetime, target: str) -> dict[str, str]:
    """Return the headers by which the server publishes a message at a time, within the years that the server knows.

    Args:
        at: The time.
        target: The subject under which the server publishes it.
    """
    instant = min(max(at, _FIRST), _LAST).isoformat().replace("+00:00", "Z")
    return {"Nats-Schedule": f"@at {instant}", "Nats-Schedule-Target": target}
