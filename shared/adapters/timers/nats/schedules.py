"""Timers as messages of the stream: their subjects, their headers for the server, and their bodies.

    STREAM.PURPOSE.UID.pending.TIME-REF   a schedule: a timer that fires at TIME, in microseconds since 1970
    STREAM.PURPOSE.UID.fired              where the servers publish a schedule that is due

A schedule replaces the one under its subject. So a timer that is set twice is one schedule. A timer that failed fires
at `sent_at`, so the retries of one object meet. REF is a hash of the reference: a timer that names another object
replaces none.

When the servers fire a schedule, they remove what is under its subject at that moment, also a schedule that was stored
after the firing began. That one was for the same time, and the timer that fires is delivered after it was stored.
"""

import hashlib
import json
import re
from datetime import UTC, datetime

from shared.adapters.timers.nats.connection import NatsRequest
from shared.adapters.timers.stored import microseconds, ref_text, restored, sent_at, with_extras
from shared.core.values.jsontext import parse_json
from shared.errors import EventError
from shared.messages import Timer

TOKEN_CHARACTERS_MAX = 120
"""The longest token that stays readable; a longer one becomes its hash, since a subject has a limited length."""

_FIRED = "fired"
_REF_DIGITS = 16
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")
_ESCAPED = re.compile(r"=([0-9A-F]{2})")

BODY_BYTES_MAX = 48 * 1024
"""The largest body: 60 times that of a usual timer. With its headers it stays below the limit of the stream."""

_FIRST = datetime(2000, 1, 1, tzinfo=UTC)
_LAST = datetime(2200, 1, 1, tzinfo=UTC)  # the server counts nanoseconds in 64 bits, until 2262


def token_of(text: str) -> str:
    """Return a text as one token of a subject: letters, digits, `-` and `_` stay as they are.

    Raises:
        EventError: The text is no Unicode (half of a surrogate pair).
    """
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        raise EventError(f"uid: expected Unicode text, got {text!r}") from error
    token = _UNSAFE.sub(lambda found: "".join(f"={byte:02X}" for byte in found[0].encode()), text) or "="
    return token if len(token) <= TOKEN_CHARACTERS_MAX else f"=={hashlib.sha256(data).hexdigest()}"


def text_of(token: str) -> str:
    """Return the text of a token that is no hash; the inverse of `token_of`."""
    data = _ESCAPED.sub(lambda found: chr(int(found[1], 16)), token)
    return data.encode("latin-1", errors="replace").decode(errors="replace")


def message_of(stream: str, timer: Timer, at: datetime, pause: float = 0.0) -> NatsRequest:
    """Return the message that lets the servers fire a timer.

    Args:
        stream: The name of the stream.
        timer: The timer.
        at: When it fires; later by up to 16 s if attempts failed.
        pause: The seconds that it waits until then, if it failed.

    Raises:
        EventError: The reference is text that cannot be stored, or too long.
    """
    if timer.attempts:
        at = sent_at(timer, at, pause)
    body, ref = body_of(timer), timer.ref
    names = f"{ref.api_version}/{ref.kind}/{ref.namespace}/{ref.name}"
    key = f"{stream}.{token_of(timer.purpose)}.{token_of(ref.uid)}"
    subject = f"{key}.pending.{microseconds(at)}-{hashlib.sha256(names.encode()).hexdigest()[:_REF_DIGITS]}"
    return NatsRequest(subject, body, schedule_headers(at, f"{key}.{_FIRED}"))


def fired_subjects(stream: str, consumer: str) -> str:
    """Return the filter of the fired timers of a consumer; `*` for those of all."""
    return f"{stream}.{consumer}.*.{_FIRED}"


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
