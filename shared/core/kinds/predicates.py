"""Tests of an object, as data: what kind rules are made of. The schema is at the top of `shared.core.kinds.rule`."""

from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationInfo, field_validator, model_validator
from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

from shared.core.expressions import Expression, ExpressionError, Returns, compile_expression
from shared.core.objects import get_in, get_text, list_mappings

Path = Annotated[str, StringConstraints(pattern=r"^[A-Za-z]\w*(\[\*\])?(\.[A-Za-z][\w-]*(\[\*\])?)+$")]
"""Dotted, from the object's root; `[*]` after a list stands for each of its elements: `status.parts[*].phase`."""

Scalar = bool | int | float | str


class UnknownShapeError(ValueError):
    """What an object holds has a shape that its rule does not know."""


class RuleModel(BaseModel):
    """Frozen, camelCase in YAML, and strict about unknown fields: a typo must not silently change a rule."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True)

    @model_validator(mode="before")
    @classmethod
    def _nothing_is_null(cls, value: Any) -> Any:
        """A field with nothing after its colon is a slip: what it was to limit must not go unlimited."""
        optional = {field.alias or "": field for field in cls.model_fields.values() if not field.is_required()}
        said = value if isinstance(value, dict) else {}
        empty = [name for name, field in optional.items() if name in said and _is_slip(said[name], field)]
        if empty:
            told = {"names": ", ".join(empty)}
            raise PydanticCustomError("null", "expected a value for {names}, or no such field", told)
        return value


def _is_slip(value: Any, field: FieldInfo) -> bool:
    """Whether it is null where null is the default, or is empty and must not be."""
    if value is None:
        return field.default is None
    return value in ([], {}) and any(getattr(one, "min_length", 0) for one in field.metadata)


class Narrowing(RuleModel):
    """What limits a rule to some objects: to say nothing would mean all of them, and is a slip, too."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1})

    @model_validator(mode="before")
    @classmethod
    def _says_something(cls, value: Any) -> Any:
        if value == {}:
            names = ", ".join(field.alias or name for name, field in cls.model_fields.items())
            raise PydanticCustomError("empty", "expected at least one of {names}, or no such field", {"names": names})
        return value


class Cel(str):
    """The text of a CEL expression, compiled when it is first wanted.

    Of a user's rule that is when it is loaded, for errors; of a shipped one when it is asked, for a quick start.
    """

    __slots__ = ("_compiled", "returns")
    returns: Returns
    _compiled: Expression

    @property
    def expression(self) -> Expression:
        """The same, compiled.

        Raises:
            ExpressionError: It is none.
        """
        if not hasattr(self, "_compiled"):
            self._compiled = compile_expression(str(self), returns=self.returns)
        return self._compiled


class Predicate(RuleModel):
    """One test; exactly one of `condition`, `field`, `label`, `annotation`, `all`, `any`, `none` and `cel` is set."""

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
        """What the condition's status may be."""
        return (self.status,) if isinstance(self.status, str) else self.status


SHIPPED = "shipped"
"""Validation context of rules that travel with the code: their expressions were compiled by its tests."""


def read_cel(text: str, returns: Returns, info: ValidationInfo) -> Cel:
    """A CEL expression over `object`, in a rule.

    Raises:
        PydanticCustomError: It is none; pydantic tells it with the place.
    """
    cel = Cel(text)
    cel.returns = returns
    try:
        _ = None if info.context == SHIPPED else cel.expression
    except ExpressionError as error:
        raise PydanticCustomError("cel", "{error}", {"error": str(error)}) from None
    return cel


def holds(test: Predicate, obj: Any) -> bool:
    """Whether a test holds for an object.

    Raises:
        UnknownShapeError: It cannot be told, since the object has another shape than the test expects.
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
    # Each is asked: one part that cannot be told leaves the whole untold.
    answers = [holds(one, obj) for one in test.all or test.any or test.none]
    if test.all:
        return all(answers)
    return any(answers) is bool(test.any)


def matching_conditions(test: Predicate, obj: Any) -> Iterator[Any]:
    """The conditions of an object that a test of conditions speaks of, in list order."""
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
        UnknownShapeError: They are no list.
    """
    if not isinstance(get_in(obj, "status.conditions"), list | None):
        raise UnknownShapeError("status.conditions: expected a list")
    return list_mappings(obj, "status.conditions")


def values_at(obj: Any, path: str) -> Iterator[Any]:
    """What is at a path: one value, or one for each element where the path has `[*]`; nulls are absent.

    Raises:
        UnknownShapeError: There is something else than a list where the path has `[*]`.
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
    """Whether one of the values is one that is wanted, or where none is named, whether there is any.

    Raises:
        UnknownShapeError: A value is to be compared that is a list or a mapping.
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
