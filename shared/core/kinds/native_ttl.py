"""The fields of a kind for a TTL or a deadline, and the references by which an object inherits a TTL from another.

`shared.core.kinds.rule` shows the whole schema.
"""

from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

from shared.core.kinds.predicates import ApiVersion, Path, Predicate, RuleModel, Word

_Reference = Annotated[str, StringConstraints(pattern=r"^[A-Za-z]\w*(\.[A-Za-z][\w-]*)+$")]
"""A dotted path without lists: an object refers to one other object."""


class TtlField(RuleModel):
    """A field of a kind that sets a TTL."""

    path: Path
    unit: Literal["seconds", "milliseconds", "duration"] = "seconds"
    when: Predicate | None = None


class TtlSourceKind(RuleModel):
    """A kind whose objects set the TTL of other objects."""

    api_versions: tuple[ApiVersion, ...] = Field(min_length=1)
    kind: str = Field(pattern=r"^[A-Z][A-Za-z0-9]*$")
    plural: str = Field(pattern=r"^[a-z][a-z0-9]*$")
    scope: Literal["Namespaced", "Cluster"] = "Namespaced"

    @property
    def group(self) -> str:
        """The API group; empty for the core group."""
        return self.api_versions[0].rpartition("/")[0]


class InheritedTtl(RuleModel):
    """Where an object without a TTL inherits one: a reference to another object, and the fields of that object."""

    ref: _Reference
    kinds: tuple[TtlSourceKind, ...] = Field(min_length=1)
    fields: tuple[TtlField, ...] = Field(min_length=1)

    def find_kind(self, group: str, kind: str) -> TtlSourceKind | None:
        """The kind that a reference names; None if the rule does not know it."""
        return next((one for one in self.kinds if (one.group, one.kind) == (group, kind)), None)


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
