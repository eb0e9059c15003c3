"""The CloudEvents that the functions send: the contract between the functions, and with other subscribers.

    dev.ttlafterfinished.timer.set        TimersSet      schedule, expire, enforce, sweep → timers
    dev.ttlafterfinished.timer.fired      Timer          timers → expire or enforce, by the attribute `purpose`
    dev.ttlafterfinished.object.deleted   ObjectDeleted  expire, enforce, sweep → subscribers
    dev.ttlafterfinished.object.stopped   ObjectStopped  enforce → subscribers
    dev.ttlafterfinished.sweep.continue   SweepStep      sweep → sweep, until the last page of the last kind

In the event data, names are camelCase and instants are RFC 3339 in UTC. An event is only a hint: before a DELETE, the
object is read from the API server.
"""

from enum import StrEnum
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from shared.core.kinds.rule import Outcome
from shared.core.objects import ObjectRef
from shared.message_fields import Instant, Name, identified_ref

TIMERS_MAX = 500
"""Timers in one `timer.set`: as many as a page of a sweep has objects."""

ATTEMPTS_COUNTED_MAX = 1_000
"""Failed attempts that a timer counts; the back-off stops growing long before."""

SWEEP_COUNT_MAX = 10**12
"""Objects that a sweep counts; without a bound, a forged number could be too long for the log."""

STEPS_MAX = 1_000_000
"""Steps of one sweep: months of listing. Without a bound, a forged number could be too long to write."""


class Purpose(StrEnum):
    """The purpose of a timer; an object has at most one pending timer for each purpose."""

    EXPIRE = "expire"
    """Delete the finished object."""
    ENFORCE = "enforce"
    """Stop the running object at its active deadline."""


class Message(BaseModel):
    """The base of all messages: frozen, with camelCase names in the event data, and one CloudEvent type each."""

    model_config = ConfigDict(frozen=True, alias_generator=to_camel, populate_by_name=True)
    type: ClassVar[str]

    @property
    def id(self) -> str:
        """The CloudEvent id: the same for the same fact, so that subscribers recognize duplicates."""
        raise NotImplementedError

    @property
    def subject(self) -> str:
        """The CloudEvent subject: the object's uid, if the message is about one object."""
        return ""

    @property
    def extensions(self) -> dict[str, str]:
        """Further attributes of the CloudEvent, on which a Trigger can filter."""
        return {}


class Timer(Message):
    """A timer of an object is due: the function of its purpose reads the object again and decides.

    The CloudEvent has the attribute `purpose`, on which the Triggers filter.

    Published by: timers.

    Attributes:
        ref: The identity of the object.
        purpose: What the timer is for.
        due_at: The instant at which the timer fires.
        attempts: How many attempts on this object failed so far; the back-off grows with it.
    """

    type: ClassVar[str] = "dev.ttlafterfinished.timer.fired"
    ref: Annotated[ObjectRef, AfterValidator(identified_ref)]
    purpose: Purpose
    due_at: Instant
    attempts: int = Field(default=0, ge=0, le=ATTEMPTS_COUNTED_MAX)

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
        return {"purpose": self.purpose.value}


class TimersSet(Message):
    """Set timers; each replaces the pending timer of its uid and purpose.

    Published by: schedule, expire, enforce and sweep.

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


class ObjectDeleted(Message):
    """The API server accepted the DELETE of a due object.

    Published by: expire, sweep, and enforce for objects with on-deadline: delete.

    Attributes:
        ref: The identity of the object.
        outcome: How the object ended.
        finished_at: When the object finished; null if that is unknown, and for an object deleted at its deadline.
        ttl_from: The annotation, field, policy rule or namespace default that sets the TTL or the deadline.
        due_at: When the object was due.
        deleted_at: When the DELETE was accepted, by this process's clock.
        lateness_seconds: `deletedAt` - `dueAt`, in seconds.
        reason: Why the object was due: `expired`, `over-count`, `over-quota` or `deadline-exceeded`.
    """

    type: ClassVar[str] = "dev.ttlafterfinished.object.deleted"
    ref: ObjectRef
    outcome: Outcome | None
    finished_at: Instant | None
    ttl_from: str
    due_at: Instant
    deleted_at: Instant
    lateness_seconds: float
    reason: Literal["expired", "over-count", "over-quota", "deadline-exceeded"] = "expired"

    @property
    def id(self) -> str:
        """The uid, which is deleted once."""
        return f"{self.ref.uid}/deleted"

    @property
    def subject(self) -> str:
        """The object's uid."""
        return self.ref.uid


class ObjectStopped(Message):
    """The API server accepted the patch that stops an object at its active deadline.

    Published by: enforce.

    Attributes:
        ref: The identity of the object.
        started_at: When the object started, or was resumed the last time.
        deadline_from: The annotation, policy rule or namespace default that sets the deadline.
        due_at: When the deadline was over.
        stopped_at: When the patch was accepted, by this process's clock.
        lateness_seconds: `stoppedAt` - `dueAt`, in seconds.
        stops: How often the object was stopped so far.
    """

    type: ClassVar[str] = "dev.ttlafterfinished.object.stopped"
    ref: ObjectRef
    started_at: Instant | None
    deadline_from: str
    due_at: Instant
    stopped_at: Instant
    lateness_seconds: float
    stops: int

    @property
    def id(self) -> str:
        """The uid, and the number of the stop."""
        return f"{self.ref.uid}/stopped/{self.stops}"

    @property
    def subject(self) -> str:
        """The object's uid."""
        return self.ref.uid


class SweepStep(Message):
    """The next step of a sweep.

    Published by: sweep and watch.

    Attributes:
        kinds: `apiVersion/Kind` of the kinds that are still to sweep, the present one first; empty for all kinds.
        continue_token: The continue token of the LIST; empty for the first page.
        sweep_id: The id of the sweep, the same in all its steps.
        step: The number of the step, from 0.
        whole: Whether the sweep began with all kinds.
        passed_over: The kinds that the sweep could not list.
        counts: How many objects the steps before handled, for the log.
    """

    type: ClassVar[str] = "dev.ttlafterfinished.sweep.continue"
    kinds: tuple[Name, ...] = Field(default=(), max_length=1_000)
    continue_token: str = ""
    sweep_id: Name = ""
    step: int = Field(default=0, ge=0, le=STEPS_MAX)
    whole: bool = False
    passed_over: tuple[Name, ...] = Field(default=(), max_length=1_000)
    counts: dict[str, Annotated[int, Field(ge=0, le=SWEEP_COUNT_MAX)]] = Field(default={}, max_length=10)

    @property
    def id(self) -> str:
        """The id of the sweep, and the number of the step."""
        return f"{self.sweep_id}/{self.step}"
