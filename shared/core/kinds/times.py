"""The sources of a finish time that a kind rule can name; `shared.core.kinds.rule` shows the whole schema."""

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag, ValidationInfo, field_validator

from shared.core.kinds.predicates import Path, RuleModel, Word, read_cel


class FinishSource(StrEnum):
    """Sources of a finish time that are one word; the schema in `shared.core.kinds.rule` defines each."""

    FINISHING_CONDITION = "finishing-condition"
    FINISHING_CONDITION_UPDATE = "finishing-condition-update"
    ALL_CONDITIONS = "all-conditions"
    ALL_CONTAINERS = "all-containers"
    CONTAINERS_AND_CONDITIONS = "containers-and-conditions"
    MANAGED_FIELDS = "managed-fields"
    ALL_MANAGED_FIELDS = "all-managed-fields"


class FieldTime(RuleModel):
    """An instant in a field, with the field's unit."""

    field: Path
    unit: Literal["rfc3339", "epoch-seconds", "epoch-milliseconds"] = "rfc3339"


class ConditionTime(RuleModel):
    """An instant in a condition of the object."""

    condition: Word
    status: str = "True"
    time: Literal["lastTransitionTime", "lastUpdateTime"] = "lastTransitionTime"


class CelTime(RuleModel):
    """An instant that a CEL expression returns."""

    cel: str

    @field_validator("cel")
    @classmethod
    def _is_cel(cls, text: str, info: ValidationInfo) -> str:
        return read_cel(text, "timestamp", info)


class LatestTime(RuleModel):
    """The newest instant of several sources."""

    latest: tuple["TimeSource", ...] = Field(min_length=1)


def _form_of(source: object) -> str | None:
    """The form of a source of times, so that pydantic reports the errors of that form only."""
    if isinstance(source, str):
        return "path" if "." in source else "word"
    names = source if isinstance(source, dict) else getattr(source, "model_fields_set", ())
    return next((name for name in ("field", "condition", "cel", "latest") if name in names), None)


TimeSource = Annotated[
    Annotated[FinishSource, Tag("word")]
    | Annotated[Path, Tag("path")]
    | Annotated[FieldTime, Tag("field")]
    | Annotated[ConditionTime, Tag("condition")]
    | Annotated[CelTime, Tag("cel")]
    | Annotated[LatestTime, Tag("latest")],
    Discriminator(
        _form_of,
        custom_error_type="time_source",
        custom_error_message="expected a source of times: a word, a path, or one of field, condition, cel, latest",
    ),
]
LatestTime.model_rebuild()


FROM_FINISHING_CONDITION = frozenset({FinishSource.FINISHING_CONDITION, FinishSource.FINISHING_CONDITION_UPDATE})
"""Sources that need a condition that marks the object as finished."""


def finish_sources(sources: Iterable[TimeSource]) -> Iterator[FinishSource]:
    """The sources that are one word, also those inside `latest`."""
    for source in sources:
        if isinstance(source, FinishSource):
            yield source
        elif isinstance(source, LatestTime):
            yield from finish_sources(source.latest)
