"""The base of all messages, and the messages between the functions: about timers and sweeps.

The types of the fields refuse what could not be sent or logged.
"""

from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, ClassVar, NamedTuple, Self

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationError,
)
from pydantic.alias_generators import to_camel
from pydantic.json_schema import SkipJsonSchema

from shared.core.kinds.rule import Outcome
from shared.core.values.objects import ObjectRef
from shared.core.values.traceparent import find_traceparent


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
        """The CloudEvent subject: the uid of `ref`, if the message is about one object."""
        ref = getattr(self, "ref", None)
        return ref.uid if isinstance(ref, ObjectRef) else ""

    @property
    def occurred_at(self) -> datetime | None:
        """The CloudEvent time: when it occurred; None for a message that only asks for something."""
        return None

    @property
    def extensions(self) -> dict[str, str]:
        """Further attributes of the CloudEvent, on which a Trigger can filter."""
        return {}


NAME_CHARACTERS_MAX = 500
"""Characters of a name in a message: a sweep's id, or a field of a reference. The API server's names are shorter."""


def _in_utc(instant: datetime) -> datetime:
    try:
        return instant.astimezone(UTC)
    except OverflowError:
        raise ValueError("expected an instant between the years 1 and 9999 in UTC") from None


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("expected printable text")
    return text


Instant = Annotated[AwareDatetime, AfterValidator(_in_utc)]
Name = Annotated[str, Field(max_length=NAME_CHARACTERS_MAX), AfterValidator(_printable)]
"""A text of a message that log lines and Kubernetes Events quote."""


def _identified(ref: ObjectRef) -> ObjectRef:
    """Require a name and a uid, by which a timer finds its object, in text that can be sent and is not too long."""
    for field, value in (("apiVersion", ref.api_version), ("kind", ref.kind), ("name", ref.name), ("uid", ref.uid)):
        if not value or not value.isprintable():
            raise ValueError(f"{field}: expected printable text that is not empty")
    for field, value in (("apiVersion", ref.api_version), ("kind", ref.kind), ("uid", ref.uid), *_names(ref)):
        if len(value) > NAME_CHARACTERS_MAX:
            raise ValueError(f"{field}: expected at most {NAME_CHARACTERS_MAX} characters, got {len(value)}")
    for field, value in _names(ref):
        if {"/", "%"} & set(value):
            raise ValueError(f"{field}: expected a name without / and %")
    return ref


def _names(ref: ObjectRef) -> tuple[tuple[str, str], ...]:
    return ("namespace", ref.namespace), ("name", ref.name)


IdentifiedRef = Annotated[ObjectRef, AfterValidator(_identified)]


class Proof(BaseModel):
    """A decision about one version of an object, with the signature of the process that read this version.

    `expire` and `sweep`, and our own watch, make it. It is worth nothing without their common key.

    Attributes:
        resource_version: The version of the object that was read.
        due_at: When that version is due.
        finished_at: When the object finished; null if that is unknown.
        outcome: How the object ended; null if that is unknown.
        ttl_from: The annotation, field, policy rule or namespace default that sets the TTL.
        generate_name: `metadata.generateName` of the object; empty if it has none.
        signature: The HMAC-SHA256, in hexadecimal digits, of the identity of the object, the fields above and all that
            the decision rests on.
    """

    model_config = ConfigDict(frozen=True, alias_generator=to_camel, populate_by_name=True)
    resource_version: Annotated[Name, Field(min_length=1)]
    due_at: Instant
    finished_at: Instant | None = None
    outcome: Outcome | None = None
    ttl_from: Name = ""
    generate_name: Name = ""
    signature: str = Field(default="", pattern="^([0-9a-f]{64})?$")

    @classmethod
    def read(cls, value: Any) -> Self | None:
        """Read a proof from JSON; None if it is none, or has another form: then the object is read as without it."""
        try:
            return value if isinstance(value, cls) else cls.model_validate(value)
        except ValidationError:
            return None

    def dump(self) -> str:
        """Return it as compact JSON, about 300 bytes."""
        return self.model_dump_json(by_alias=True, exclude_defaults=True)


TIMERS_MAX = 500
"""Timers in one `timer.set`: as many as a page of a sweep has objects."""

ATTEMPTS_COUNTED_MAX = 1_000
"""Failed attempts that a timer counts; the back-off stops growing long before."""


class Purpose(StrEnum):
    """The purpose of a timer; for each, the newest timer of an object counts."""

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
    ref: IdentifiedRef
    # As text, since a stored timer may have a purpose of a later version.
    purpose: Annotated[Purpose, PlainSerializer(str, when_used="json")]
    due_at: Instant
    attempts: int = Field(default=0, ge=0, le=ATTEMPTS_COUNTED_MAX)
    traceparent: SkipJsonSchema[Annotated[str, BeforeValidator(find_traceparent)]] = Field(default="", exclude=True)
    # Without a proof, the data is that of earlier versions. One that cannot be read counts as a missing one.
    proof: Annotated[Proof | None, BeforeValidator(Proof.read)] = Field(
        default=None, exclude_if=lambda proof: proof is None
    )

    @property
    def key(self) -> TimerKey:
        """The uid and the purpose."""
        return TimerKey(self.ref.uid, str(self.purpose))

    @property
    def id(self) -> str:
        """Uid, purpose and instant, so that a redelivery has the id of the first delivery."""
        return f"{self.ref.uid}/{self.purpose}/{self.due_at.isoformat()}"

    @property
    def extensions(self) -> dict[str, str]:
        """The purpose."""
        return {"purpose": str(self.purpose)}


class TimersSet(Message):
    """Set timers; each fires at its due time, and an earlier timer of its uid and purpose may fire too.

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


SWEEP_COUNT_MAX = 10**12
"""Objects that a sweep counts; without a bound, a forged number could be too long for the log."""

STEPS_MAX = 1_000_000
"""Steps of one sweep: months of listing. Without a bound, a forged number could be too long to write."""


class SweepStep(Message):
    """The next step of a sweep.

    Published by: sweep and watch.

    Attributes:
        kinds: `apiVersion/Kind` of the kinds that are still to sweep, the present one first; empty for all kinds.
        continue_token: The continue token of the LIST; empty for the first page.
        sweep_id: The id of the sweep, the same in all its steps.
        step: The number of the step, from 0.
        whole: Whether the sweep began with all kinds; counts only in the process that sent the step.
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
