"""The fields of a kind for a TTL or a deadline; `shared.core.kinds.rule` shows the whole schema."""

from typing import Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from shared.core.kinds.inheritance import InheritedTtl, TtlField
from shared.core.kinds.predicates import RuleModel, Word


class NativeTtl(RuleModel):
    """The fields of a kind that set a TTL, and how to read them."""

    fields: tuple[TtlField, ...] = Field(min_length=1)
    zero: Literal["delete", "never"] = "delete"
    negative: Literal["invalid", "never", "delete"] = "invalid"
    honoured_by: Word | None = None
    native: Literal["act", "leave"] = "act"
    inherited: InheritedTtl | None = None

    @model_validator(mode="after")
    def _inherits_what_it_acts_on(self) -> Self:
        if self.inherited and self.native == "leave":
            raise PydanticCustomError("inherits", "expected `native: act` beside inherited")
        return self


class NativeDeadline(RuleModel):
    """The fields of a kind that set a deadline, how to read them, and the controller that enforces it."""

    fields: tuple[TtlField, ...] = Field(min_length=1)
    zero: Literal["now", "never"] = "now"
    negative: Literal["invalid", "never", "now"] = "invalid"
    honoured_by: Word
    defaulted: bool = False
