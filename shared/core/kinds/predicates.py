"""Tests of an object, and sources of its times, as data for kind rules.

`shared.core.kinds.rule` shows the whole schema.
"""

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    StringConstraints,
    Tag,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

from shared.core.values.expressions import Expression, ExpressionError, Returns, compile_expression
from shared.core.values.objects import get_in, get_text, list_mappings

Path = Annotated[str, StringConstraints(pattern=r"^[A-Za-z]\w*(\[\*\])?(\.[A-Za-z][\w-]*(\[\*\])?)+$")]
"""A dotted path from the object's root; `[*]` after a list means each of its elements: `status.parts[*].phase`."""

ApiVersion = Annotated[str, StringConstraints(pattern=r"^([a-z0-9.-]+/)?v[a-z0-9]+$")]

Word = Annotated[str, StringConstraints(min_length=1, max_length=1_000)]

Scalar = bool | int | float | str


class UnknownShapeError(ValueError):
    """A field of an object has a shape that the kind's rule does not expect."""


class RuleModel(BaseModel):
    """A frozen model with camelCase names in YAML; unknown fields are errors, so a typo cannot change a rule."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True)

    @model_validator(mode="before")
    @classmethod
    def _nothing_is_null(cls, value: Any) -> Any:
        """Reject a field without a value: it is a mistake, and ignoring it would remove the limit that it sets."""
        optional = {field.alias or "": field for field in cls.model_fields.values() if not field.is_required()}
        given = value if isinstance(value, dict) else {}
        empty = [name for name, field in optional.items() if name in given and _lacks_value(given[name], field)]
        if empty:
            names = {"names": ", ".join(empty)}
            raise PydanticCustomError("null", "expected a value for {names}, or no such field", names)
        return value


def _lacks_value(value: Any, field: FieldInfo) -> bool:
    """Return whether a value is null and null is the default, or is empty and must not be."""
    if value is None:
        return field.default is None
    return value in ([], {}) and any(getattr(one, "min_length", 0) for one in field.metadata)


class Narrowing(RuleModel):
    """A model that limits a rule to some objects; it must not be empty, since empty would mean all objects."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1})

    @model_validator(mode="before")
    @classmethod
    def _is_not_empty(cls, value: Any) -> Any:
        if value == {}:
            names = ", ".join(field.alias or name for name, field in cls.model_fields.items())
            raise PydanticCustomError("empty", "expected at least one of {names}, or no such field", {"names": names})
        return value


class Cel(str):
    """The text of a CEL expression, compiled on first use.

    An expression of an operator's own rule is compiled when the rule is loaded, so that errors show at once. One of a
    shipped rule is compiled when it is first evaluated, so that a process starts faster.
    """

    __slots__ = ("_compiled", "returns")
    returns: Returns
    _compiled: Expression

    @property
    def expression(self) -> Expression:
        """The compiled expression.

        Raises:
            ExpressionError: The text is not a valid CEL expression.
        """
        if not hasattr(self, "_compiled"):
            self._compiled = compile_expression(str(self), returns=self.returns)
        return self._compiled


class NamedKind(RuleModel):
    """The names of a kind; all its versions are of one group, the preferred one first."""

    api_versions: tuple[ApiVersion, ...] = Field(min_length=1)
    kind: str = Field(pattern=r"^[A-Z][A-Za-z0-9]*$")
    plural: str = Field(pattern=r"^[a-z][a-z0-9]*$")

    @field_validator("api_versions")
    @classmethod
    def _of_one_group(cls, versions: tuple[str, ...]) -> tuple[str, ...]:
        if len({version.rpartition("/")[0] for version in versions}) > 1:
            raise PydanticCustomError("one_group", "expected versions of one group")
        return versions

    @property
    def api_version(self) -> str:
        """The preferred version."""
        return self.api_versions[0]

    @property
    def group(self) -> str:
        """The API group; empty for the core group."""
        return self.api_version.rpartition("/")[0]

    @property
    def name(self) -> str:
        """The unique name of the kind: `jobs.batch`, `pods`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


class Predicate(RuleModel):
    """One test of an object: exactly one of condition, field, label, annotation, all, any, none and cel is set."""

    condition: str | None = None
    status: str | tuple[str, ...] = Field(default="True", min_length=1)
    reasons: tuple[str, ...] = Field(default=(), min_length=1)
    field: Path | None = None
    label: str | None = None
    annotation: str | None = None
    values: tuple[Scalar, ...] = Field(default=(), min_length=1)
    all: tuple["Predicate", ...] = ()
    any: tuple["Predicate", ...] = ()
    none: tuple["Predicate", ...] = ()
    cel: str | None = None

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        named = {"condition", "field", "label", "annotation", "all", "any", "none", "cel"} & self.model_fields_set
        empty = [name for name in named if not getattr(self, name)]
        if len(named) != 1 or empty:
            raise PydanticCustomError(
                "one_test", "expected exactly one of condition, field, label, annotation, all, any, none, cel"
            )
        (name,) = named
        allowed = {
            "condition": {"status", "reasons"},
            "field": {"values"},
            "label": {"values"},
            "annotation": {"values"},
        }
        beside = self.model_fields_set - {name} - allowed.get(name, set())
        if beside:
            raise PydanticCustomError(
                "beside", "expected nothing beside {name}, got {beside}", {"name": name, "beside": ", ".join(beside)}
            )
        return self

    @field_validator("cel")
    @classmethod
    def _is_cel(cls, text: str | None, info: ValidationInfo) -> str | None:
        return read_cel(text, "bool", info) if text is not None else None

    @property
    def statuses(self) -> tuple[str, ...]:
        """The statuses of the condition that the test accepts."""
        return (self.status,) if isinstance(self.status, str) else self.status


SHIPPED = "shipped"
"""Validation context of the rules in `shared/kinds/`, whose expressions the project's tests compile."""


def read_cel(text: str, returns: Returns, info: ValidationInfo) -> Cel:
    """Read a CEL expression over `object` in a rule.

    Raises:
        PydanticCustomError: The text is not valid CEL; pydantic adds its path in the file.
    """
    cel = Cel(text)
    cel.returns = returns
    try:
        _ = None if info.context == SHIPPED else cel.expression
    except ExpressionError as error:
        raise PydanticCustomError("cel", "{error}", {"error": str(error)}) from None
    return cel


def holds(test: Predicate, obj: Any) -> bool:
    """Return whether a test holds for an object.

    Raises:
        UnknownShapeError: The result is unknown, because the object has a shape that the test does not expect.
    """
    if test.condition is not None:
        return any(True for _ in matching_conditions(test, obj))
    if test.field is not None:
        return _is_among(values_at(obj, test.field), test.values)
    if test.label is not None:
        return _is_among(_entry(obj, "metadata.labels", test.label), test.values)
    if test.annotation is not None:
        return _is_among(_entry(obj, "metadata.annotations", test.annotation), test.values)
    if isinstance(test.cel, Cel):
        try:
            return bool(test.cel.expression.evaluate(object=obj))
        except ExpressionError as error:
            raise UnknownShapeError(str(error)) from None
    # Every part is evaluated: if one result is unknown, the whole result is unknown.
    results = [holds(one, obj) for one in test.all or test.any or test.none]
    if test.all:
        return all(results)
    return any(results) is bool(test.any)


def matching_conditions(test: Predicate, obj: Any) -> Iterator[Any]:
    """The conditions of an object that match a test of a condition, in list order."""
    for condition in conditions_of(obj):
        if (
            get_text(condition, "type") == test.condition
            and condition.get("status") in test.statuses
            and (not test.reasons or condition.get("reason") in test.reasons)
        ):
            yield condition


def conditions_of(obj: Any) -> Iterator[Any]:
    """The object's conditions.

    Raises:
        UnknownShapeError: `status.conditions` is not a list.
    """
    if not isinstance(get_in(obj, "status.conditions"), list | None):
        raise UnknownShapeError("status.conditions: expected a list")
    return list_mappings(obj, "status.conditions")


def values_at(obj: Any, path: str) -> Iterator[Any]:
    """The value at a path, or one value for each element if the path has `[*]`; null counts as absent.

    Raises:
        UnknownShapeError: The path has `[*]` after a value that is not a list.
    """
    before, star, after = path.partition("[*]")
    value = get_in(obj, before)
    if value is None:
        return
    if not star:
        yield value
        return
    if not isinstance(value, list):
        raise UnknownShapeError(f"{before}: expected a list")
    for element in value:
        if not after:
            yield element
        else:
            yield from values_at(element, after.removeprefix("."))


def _entry(obj: Any, path: str, key: str) -> tuple[Any, ...]:
    entries = get_in(obj, path)
    return (entries[key],) if isinstance(entries, dict) and entries.get(key) is not None else ()


def _is_among(found: Iterable[Any], wanted: tuple[Scalar, ...]) -> bool:
    """Return whether one of the values is wanted; if `wanted` is empty, whether any value is set and not empty.

    Raises:
        UnknownShapeError: A value to compare is a list or a mapping.
    """
    for value in found:
        if not wanted:
            if value != "":
                return True
        elif isinstance(value, dict | list):
            raise UnknownShapeError("expected a text, a number or a bool")
        elif any(type(value) is type(one) and value == one for one in wanted):
            return True
    return False


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
