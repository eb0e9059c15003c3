"""The base of all messages, and the types of the fields of several; each refuses what could not be sent or logged."""

from datetime import UTC, datetime
from typing import Annotated, ClassVar

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from shared.core.values.objects import ObjectRef


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


def identified_ref(ref: ObjectRef) -> ObjectRef:
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
