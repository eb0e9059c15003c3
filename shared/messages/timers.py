"""The messages about timers."""

from enum import StrEnum
from typing import Annotated, ClassVar, NamedTuple

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer
from pydantic.json_schema import SkipJsonSchema

from shared.core.objects import ObjectRef
from shared.core.traceparent import find_traceparent
from shared.message_fields import Instant, identified_ref
from shared.messages.message import Message
from shared.messages.proofs import Proof

TIMERS_MAX = 500
"""Timers in one `timer.set`: as many as a page of a sweep has objects."""

ATTEMPTS_COUNTED_MAX = 1_000
"""Failed attempts that a timer counts; the back-off stops growing long before."""


class Purpose(StrEnum):
    """The purpose of a timer; an object has at most one pending timer for each purpose."""

    EXPIRE = "expire"
    """Delete the finished object."""
    ENFORCE = "enforce"
    """Stop the running object at its active deadline."""
    ARCHIVE = "archive"
    """Store the finished object in an archive."""
    WARN = "warn"
    """Send `object.warned` before the finished object is deleted."""

    @property
    def function(self) -> str:
        """The function that handles the timers of this purpose."""
        return Purpose.EXPIRE.value if self is Purpose.WARN else self.value


class TimerKey(NamedTuple):
    """The identity of a pending timer.

    Attributes:
        uid: The uid of the object.
        purpose: What the timer is for.
    """

    uid: str
    purpose: str


def _is_missing(proof: Proof | None) -> bool:
    return proof is None


class Timer(Message):
    """A timer of an object is due: the function of its purpose reads the object again and decides.

    The CloudEvent has the attribute `purpose`, on which the Triggers filter.

    Published by: timers.

    Attributes:
        ref: The identity of the object.
        purpose: What the timer is for.
        due_at: The instant at which the timer fires.
        attempts: How many attempts on this object failed so far; the back-off grows with it.
        traceparent: The span that set it; empty if there is none. The CloudEvent has it as an attribute only.
        proof: What `expire` needs to delete the object without reading it; absent if it has to be read.
    """

    type: ClassVar[str] = "dev.ttlafterfinished.timer.fired"
    ref: Annotated[ObjectRef, AfterValidator(identified_ref)]
    # As text, since a stored timer may have a purpose of a later version.
    purpose: Annotated[Purpose, PlainSerializer(str, when_used="json")]
    due_at: Instant
    attempts: int = Field(default=0, ge=0, le=ATTEMPTS_COUNTED_MAX)
    traceparent: SkipJsonSchema[Annotated[str, BeforeValidator(find_traceparent)]] = Field(default="", exclude=True)
    # Without a proof, the data is that of earlier versions. One that cannot be read counts as a missing one.
    proof: Annotated[Proof | None, BeforeValidator(Proof.read)] = Field(default=None, exclude_if=_is_missing)

    @property
    def key(self) -> TimerKey:
        """The uid and the purpose."""
        return TimerKey(self.ref.uid, str(self.purpose))

    @property
    def id(self) -> str:
        """Uid, purpose and instant, so that a redelivery has the id of the first delivery."""
        return f"{self.ref.uid}/{self.purpose}/{self.due_at.isoformat()}"

    @property
    def subject(self) -> str:
        """The object's uid."""
        return self.ref.uid

    @property
    def extensions(self) -> dict[str, str]:
        """The purpose."""
        return {"purpose": str(self.purpose)}


class TimersSet(Message):
    """Set timers; each replaces the pending timer of its uid and purpose.

    Published by: schedule, expire, enforce, archive and sweep.

    Attributes:
        timers: The timers, each with the fields of `dev.ttlafterfinished.timer.fired`.
    """

    type: ClassVar[str] = "dev.ttlafterfinished.timer.set"
    timers: tuple[Timer, ...] = Field(min_length=1, max_length=TIMERS_MAX)

    @property
    def id(self) -> str:
        """The id of the first timer, and the number of timers."""
        return f"{self.timers[0].id}/set/{len(self.timers)}"

    @property
    def subject(self) -> str:
        """The uid of the first timer's object."""
        return self.timers[0].ref.uid
