"""What the API server or an archive refused for good, as the journal records it."""

from datetime import datetime
from typing import Self

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from shared.core.objects import ObjectRef
from shared.errors import PermanentError
from shared.ports.reasons import EventReason

_MESSAGE_CHARACTERS_MAX = 1_000


class Refusal(BaseModel):
    """A permanent error about one object.

    Attributes:
        ref: The object.
        reason: The reason of the Event about it.
        error: The class of the error, such as `ForbiddenError`.
        message: The answer of the API server or of the archive; at most 1,000 characters.
        refused_at: When the answer came, by this process's clock.
    """

    model_config = ConfigDict(frozen=True, alias_generator=to_camel, populate_by_name=True)

    ref: ObjectRef
    reason: EventReason
    error: str
    message: str
    refused_at: datetime

    @classmethod
    def of(cls, ref: ObjectRef, reason: EventReason, error: PermanentError, *, at: datetime) -> Self:
        """Describe a permanent error about an object."""
        message = str(error)[:_MESSAGE_CHARACTERS_MAX]
        return cls(ref=ref, reason=reason, error=type(error).__name__, message=message, refused_at=at)

    @property
    def id(self) -> str:
        """The uid, and what was refused when: an object may be refused again."""
        return f"{self.ref.uid}/refused/{self.reason}/{self.refused_at.isoformat()}"
