"""The subjects of the stream: purpose and uid, and below them what a message is.

    STREAM.PURPOSE.UID.pending.DUE      a schedule: a timer that waits for its due time, in microseconds since 1970
    STREAM.PURPOSE.UID.pending.retry    a schedule: the next attempt after a failed delivery
    STREAM.PURPOSE.UID.fired            where the servers publish a schedule that is due

A schedule replaces the one under its subject. So a timer that is set twice is one schedule, and the retries of one uid
and purpose meet.

When the servers fire a schedule, they remove what is under its subject at that moment. This may be a schedule that was
stored after the firing began. Then its timer is due as well, or a retry: the timer that fires arrives after it was
stored, and is the same hint. A schedule with another due time has another subject, and stays.
"""

import hashlib
import re

from shared.adapters.timers.nats.records import microseconds
from shared.errors import EventError
from shared.messages import Timer

TOKEN_CHARACTERS_MAX = 120
"""The longest token that stays readable; a longer one becomes its hash, since a subject has a limited length."""

_FIRED = "fired"
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")
_ESCAPED = re.compile(r"=([0-9A-F]{2})")


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


def schedule_subject(stream: str, timer: Timer) -> str:
    """Return the subject of a timer that is set.

    Raises:
        EventError: The uid is text that cannot be stored.
    """
    return f"{_key_subject(stream, timer)}.pending.{microseconds(timer.due_at)}"


def retry_subject(stream: str, timer: Timer) -> str:
    """Return the subject of the next attempt of a timer."""
    return f"{_key_subject(stream, timer)}.pending.retry"


def fired_subject(stream: str, timer: Timer) -> str:
    """Return the subject under which the servers publish a timer that is due."""
    return f"{_key_subject(stream, timer)}.{_FIRED}"


def fired_subjects(stream: str, consumer: str) -> str:
    """Return the filter of the fired timers of a consumer; `*` for those of all."""
    return f"{stream}.{consumer}.*.{_FIRED}"


def _key_subject(stream: str, timer: Timer) -> str:
    return f"{stream}.{token_of(timer.purpose)}.{token_of(timer.ref.uid)}"
