"""The rows of the timer file, converted from timers and back.

Times are integer microseconds since 1970 in UTC, the resolution of `datetime`, so no time is rounded.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import cast

from pydantic import TypeAdapter
from pydantic_core import PydanticSerializationError

from shared.adapters.timers.places import Share
from shared.core.backoff import backoff_seconds
from shared.core.objects import ObjectRef
from shared.errors import EventError
from shared.messages import ATTEMPTS_MAX, Purpose, Timer

FOREVER_US = 2**63 - 1
"""A time that never comes: the largest integer of SQLite."""

SECOND_US = 1_000_000

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_REF = TypeAdapter(ObjectRef)
_PURPOSES = {purpose.value: purpose for purpose in Purpose}

Row = tuple[str, str, int, int, int, str]
"""uid, purpose, due_us, fire_us, attempts, ref."""


def to_us(instant: datetime) -> int:
    """Convert an aware time to microseconds since 1970, without rounding."""
    return (instant - _EPOCH) // _MICROSECOND


def from_us(instant_us: int) -> datetime:
    """Convert microseconds since 1970 to a time; the inverse of `to_us`."""
    return _EPOCH + instant_us * _MICROSECOND


def row_of(timer: Timer, now_us: int) -> Row:
    """Convert a timer to a row.

    A timer with failed attempts is not tried before its back-off ends by the engine's own clock: the clock of the
    process that set it may be behind.

    Raises:
        EventError: The reference is text that cannot be stored (half of a surrogate pair).
    """
    due_us = to_us(timer.due_at)
    try:
        ref = _REF.dump_json(timer.ref).decode()
    except PydanticSerializationError as error:
        raise EventError(f"ref: expected Unicode text, got {timer.ref!r}") from error
    fire_us = due_us
    if timer.attempts:
        fire_us = max(due_us, now_us + round(backoff_seconds(timer.attempts - 1, jitter=1.0) * SECOND_US))
    return timer.ref.uid, str(timer.purpose), due_us, fire_us, timer.attempts, ref


@dataclass(frozen=True, slots=True)
class StoredTimer:
    """A row of the timer file.

    Attributes:
        generation: Counts how often the timer was set; a delivery may end only the generation that it delivered.
        attempts: The attempts of the timer when it was set, plus the failed deliveries since.
        ref: JSON, decoded only for a delivery.
    """

    row_id: int
    uid: str
    purpose: str
    due_us: int
    fire_us: int
    attempts: int
    generation: int
    ref: str

    def timer(self) -> Timer:
        """Return the timer as it was set, plus the attempts that failed since.

        Raises:
            ValueError: Another program wrote the row.
        """
        # An unknown purpose is from a later version that used the file: the timer is delivered as it was set.
        purpose = cast(Purpose, _PURPOSES.get(self.purpose, self.purpose))
        return Timer.model_construct(
            ref=_REF.validate_json(self.ref),
            purpose=purpose,
            due_at=from_us(self.due_us),
            attempts=min(self.attempts, ATTEMPTS_MAX),
        )

    def share(self) -> Share:
        """Return the share whose place the delivery takes; empty if another program wrote the row."""
        try:
            ref = _REF.validate_json(self.ref)
        except ValueError:
            return "", ""
        return f"{ref.api_version} {ref.kind}", ref.namespace
