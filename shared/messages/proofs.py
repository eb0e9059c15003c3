"""What a timer can carry of the decision that set it, so that its object need not be read again when it is due."""

from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from shared.core.kinds.rule import Outcome
from shared.message_fields import Instant, Name


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
