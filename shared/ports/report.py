"""What a person has to know about a decision on one object, as the journal records it."""

import hashlib
from datetime import datetime
from typing import Self

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from shared.core.objects import ObjectRef
from shared.ports.reasons import EventReason

_TEXT_CHARACTERS_MAX = 1_000


class Report(BaseModel):
    """A decision that is reported by an Event, such as that an object is kept because its TTL is malformed.

    Attributes:
        ref: The object, or its Namespace.
        reason: The reason of the Event.
        message: What was decided and why; at most 1,000 characters.
        reported_at: When it was reported, by this process's clock.
    """

    model_config = ConfigDict(frozen=True, alias_generator=to_camel, populate_by_name=True)

    ref: ObjectRef
    reason: EventReason
    message: str
    reported_at: datetime

    @classmethod
    def of(cls, ref: ObjectRef, reason: EventReason, message: str, *, at: datetime) -> Self:
        """Describe a decision about an object."""
        return cls(ref=ref, reason=reason, message=message[:_TEXT_CHARACTERS_MAX], reported_at=at)

    @property
    def id(self) -> str:
        """The uid, and a hash of what is reported without the time: each sweep finds the same again."""
        digest = hashlib.sha256(f"{self.ref}/{self.message}".encode(errors="replace")).hexdigest()[:16]
        return f"{self.ref.uid}/reported/{self.reason}/{digest}"
