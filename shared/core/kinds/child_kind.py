"""The part of a kind rule about children; `shared.core.kinds.rule` shows the whole schema."""

from pydantic import Field, field_validator

from shared.core.kinds.api_versions import check_one_group
from shared.core.kinds.predicates import ApiVersion, RuleModel


class ChildKind(RuleModel):
    """A kind of which the controller of another kind creates objects, with an owner reference."""

    api_versions: tuple[ApiVersion, ...] = Field(min_length=1)
    kind: str = Field(pattern=r"^[A-Z][A-Za-z0-9]*$")
    plural: str = Field(pattern=r"^[a-z][a-z0-9]*$")

    @field_validator("api_versions")
    @classmethod
    def _of_one_group(cls, versions: tuple[str, ...]) -> tuple[str, ...]:
        return check_one_group(versions)

    @property
    def group(self) -> str:
        """The API group; empty for the core group."""
        return self.api_versions[0].rpartition("/")[0]
