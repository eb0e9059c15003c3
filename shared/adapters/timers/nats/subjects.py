"""The subjects of the stream, of which each timer key has three forms.

    STREAM.PURPOSE.UID.pending.ORDER      a schedule: the timer waits
    STREAM.PURPOSE.UID.cancelled.ORDER    a schedule that replaces a cancelled timer for a while
    STREAM.PURPOSE.UID.fired              where the server publishes a schedule that is due

Each set or cancellation of a key has a number, its order, which is higher than that of what it replaces:

- The sequences in the stream do not say which timer was set later. A fired timer has the sequence of its firing, and a
  server may fire a newer timer before an older one that it brought back. The order does say it: the server names the
  subject of the schedule in the fired timer.
- When the server fires a schedule, it removes what is stored under the subject of the schedule, even if that was
  replaced in the meantime. With one subject for all sets, the replacement would be lost: nats-server 2.15.2 lost 5,000
  of 40,000 timers that were replaced while they fired.
"""

import hashlib
import re
from dataclasses import dataclass

from shared.errors import EventError
from shared.messages import TimerKey

TOKEN_CHARACTERS_MAX = 120
"""The longest token that stays readable; a longer one becomes its hash, since a subject has a limited length."""

PENDING, CANCELLED, FIRED = "pending", "cancelled", "fired"

_ORDER_DIGITS = 19
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


@dataclass(frozen=True, slots=True)
class KeySubjects:
    """The subjects of one timer key.

    Attributes:
        base: `STREAM.PURPOSE.UID`.
    """

    base: str

    @property
    def every(self) -> str:
        """Everything of the key. All writes name this filter in their expectation, so the server orders them."""
        return f"{self.base}.>"

    @property
    def heads(self) -> str:
        """The schedules of the key: the pending timer, or what replaces a cancelled one."""
        return f"{self.base}.*.*"

    @property
    def fired(self) -> str:
        """Where the server publishes the timer when it is due."""
        return f"{self.base}.{FIRED}"

    def pending(self, order: int) -> str:
        """Return the subject of a schedule."""
        return f"{self.base}.{PENDING}.{order}"

    def cancelled(self, order: int) -> str:
        """Return the subject of the schedule that replaces a cancelled timer."""
        return f"{self.base}.{CANCELLED}.{order}"


def subjects_of(stream: str, key: TimerKey) -> KeySubjects:
    """Return the subjects of a timer key.

    Raises:
        EventError: The uid is text that cannot be stored.
    """
    return KeySubjects(f"{stream}.{token_of(key.purpose)}.{token_of(key.uid)}")


def fired_subjects(stream: str, consumer: str) -> str:
    """Return the filter of the fired timers of a consumer; `*` for those of all."""
    return f"{stream}.{consumer}.*.{FIRED}"


def key_subjects(subject: str) -> KeySubjects:
    """Return the subjects of the key that a subject belongs to."""
    return KeySubjects(".".join(subject.split(".")[:3]))


def is_head(subject: str) -> bool:
    """Return whether a message under the subject is a schedule."""
    return not subject.endswith(f".{FIRED}")


def order_of(schedule: str) -> int:
    """Return the order of a schedule by its subject; 0 if another program made it."""
    text = schedule.rpartition(".")[2]
    return int(text) if text.isdecimal() and len(text) <= _ORDER_DIGITS else 0


def is_cancelled(subject: str) -> bool:
    """Return whether a message under the subject replaces a cancelled timer."""
    return subject.split(".")[3:4] == [CANCELLED]
