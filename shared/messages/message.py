"""The base of all messages."""

from datetime import datetime
from typing import ClassVar

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


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
