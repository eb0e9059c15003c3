"""Decide which objects a policy rule matches, by kinds, namespaces, labels and CEL, and read the times that it sets.

The fields of a rule are turned into tests once, when the policy is loaded. A test checks one object and never fails,
for any JSON. The types of a CEL expression are checked when the policy is loaded; it is evaluated for one object.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from fnmatch import translate
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, PlainValidator, WithJsonSchema, model_validator

from shared.core.decision.namespaces import TEXT_MAX, Namespace
from shared.core.kinds.predicates import Narrowing, RuleModel
from shared.core.kinds.rule import KindRule, Outcome
from shared.core.values.expressions import Expression, ExpressionError, Returns, compile_expression
from shared.core.values.objects import get_controller, get_in, quote
from shared.core.values.timing import format_duration, or_never, parse_duration

DURATION_SCHEMA = {
    "anyOf": [
        {"type": "string", "pattern": "^([0-9]+|([0-9]+w)?([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?)$"},
        {"type": "integer", "minimum": 0},
    ],
    "description": "Seconds, or a duration such as 90s, 1h30m, 2d or 1w.",
}


def read_duration(value: Any) -> timedelta:
    """Read a duration from YAML: a text, or a number of seconds.

    Raises:
        ValueError: The value is anything else.
    """
    if isinstance(value, timedelta):
        return value
    if isinstance(value, bool) or not isinstance(value, int | str):
        expected = "expected seconds (3600) or a duration such as 90s, 1h30m, 2d, 1w"
        raise ValueError(f"{expected}, got {quote(value)}")  # noqa: TRY004 - pydantic takes ValueError
    return parse_duration(str(value))


Duration = Annotated[
    timedelta,
    BeforeValidator(read_duration),
    WithJsonSchema(DURATION_SCHEMA),
]


@dataclass(slots=True)
class Subject:
    """One object, with what the tests need beside it.

    Attributes:
        obj: The object.
        outcome: How it ended; None if that is unknown.
        namespace: Its Namespace; None if it was not read.
        place: The name of its namespace; empty for a cluster-scoped object.
    """

    obj: Any
    outcome: Outcome | None
    namespace: Namespace | None
    place: str


class NamespaceUnreadError(LookupError):
    """A test needs the object's namespace, which was not read."""


Test = Callable[[Subject], bool]


class Requirement(RuleModel):
    """One of `matchExpressions`, as in Kubernetes: `NotIn` also matches objects without the label."""

    key: str = Field(min_length=1, description="The key of the label.")
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"] = Field(
        description="How the label is compared with the values."
    )
    values: tuple[str, ...] = Field(default=(), description="The values for In and NotIn. The others take none.")

    @model_validator(mode="after")
    def _has_values_if_needed(self) -> Self:
        if (self.operator in ("In", "NotIn")) != bool(self.values):
            raise ValueError("expected `values` with In and NotIn, and none with Exists and DoesNotExist")
        return self

    def holds(self, labels: Mapping[str, Any]) -> bool:
        """Return whether the labels meet the requirement."""
        match self.operator:
            case "In":
                return labels.get(self.key) in self.values
            case "NotIn":
                return labels.get(self.key) not in self.values
            case "Exists":
                return self.key in labels
            case "DoesNotExist":
                return self.key not in labels


class LabelSelector(Narrowing):
    """A label selector, as in Kubernetes: all of it must match. An empty selector is rejected."""

    match_labels: dict[str, str] = Field(
        default_factory=dict, min_length=1, description="Labels that the object must have, with their values."
    )
    match_expressions: tuple[Requirement, ...] = Field(
        default=(), min_length=1, description="Further conditions on the labels."
    )

    def selects(self, labels: Any) -> bool:
        """Return whether the labels are selected; a value that is no mapping counts as no labels."""
        labels = labels if isinstance(labels, dict) else {}
        return all(labels.get(key) == value for key, value in self.match_labels.items()) and all(
            requirement.holds(labels) for requirement in self.match_expressions
        )


class NamespaceMatch(Narrowing):
    """The namespaces of the objects. Objects of a kind without namespaces match none."""

    names: tuple[str, ...] = Field(
        default=(), min_length=1, description="Names or globs (`*`, `?`, `[a-z]`). The default is every namespace."
    )
    except_: tuple[str, ...] = Field(
        default=(), alias="except", min_length=1, description="Names or globs of namespaces that do not match."
    )
    selector: LabelSelector | None = Field(default=None, description="A selector on the labels of the Namespace.")

    def tests(self) -> Iterable[Test]:
        """The tests of an object's namespace, the cheapest first."""
        wanted, unwanted = _globs(self.names or ("*",)), _globs(self.except_)

        def has_name(subject: Subject) -> bool:
            place = subject.place
            return bool(place) and wanted(place) and not unwanted(place)

        yield has_name
        if self.selector is not None:
            yield self._is_selected

    def _is_selected(self, subject: Subject) -> bool:
        if subject.namespace is None:
            raise NamespaceUnreadError
        return self.selector is None or self.selector.selects(subject.namespace.labels)


class OwnerMatch(Narrowing):
    """The controller owner of the objects."""

    kind: str = Field(default="*", description="The kind of the owner, or a glob.")
    name: str = Field(default="*", description="The name of the owner, or a glob.")


class Match(RuleModel):
    """The objects that a rule matches. All fields that are set must match."""

    kinds: tuple[str, ...] = Field(
        min_length=1,
        description="Kinds by any of their names (jobs, Job, jobs.batch), or globs over PLURAL and PLURAL.GROUP. A "
        "glob sets no ttl for opt-in kinds.",
    )
    namespaces: NamespaceMatch | None = Field(default=None, description="The namespaces of the objects.")
    labels: LabelSelector | None = Field(default=None, description="A selector on the labels of the objects.")
    annotations: dict[str, str] = Field(
        default_factory=dict,
        min_length=1,
        description="Annotations that the object must have, with a glob for each value.",
    )
    owners: tuple[OwnerMatch, ...] | None = Field(
        default=None,
        description="The controller owner must match one of these. An empty list matches objects without one.",
    )
    age: Duration | None = Field(
        default=None,
        description="The rule sets a ttl or a minAge only from the creation of the object plus this time on.",
    )

    def names(self, rule: KindRule) -> bool:
        """Return whether `kinds` contains a name of this kind, and not only a pattern."""
        return any(not is_glob(word) and rule.has_name(word) for word in self.kinds)

    def is_about(self, rule: KindRule) -> bool:
        """Return whether `kinds` matches this kind, by a name or by a pattern."""
        group = rule.group
        globs = _globs(word.lower() for word in self.kinds if is_glob(word))
        return self.names(rule) or globs(rule.plural) or globs(f"{rule.plural}.{group}" if group else rule.plural)

    def tests(self) -> tuple[Test, ...]:
        """The tests that an object of these kinds must pass, except for its age; the cheapest first."""
        tests: list[Test] = [*(self.namespaces.tests() if self.namespaces else ())]
        if labels := self.labels:
            tests.insert(0, lambda subject: labels.selects(get_in(subject.obj, "metadata.labels")))
        if self.annotations:
            tests.insert(0, _annotation_test(self.annotations))
        if self.owners is not None:
            tests.insert(0, _owner_test(self.owners))
        return tuple(tests)


def is_glob(word: str) -> bool:
    """Return whether a word is a pattern rather than a name."""
    return bool({"*", "?", "["} & set(word))


def _annotation_test(wanted: Mapping[str, str]) -> Test:
    patterns = {key: _globs((pattern,)) for key, pattern in wanted.items()}

    def holds(subject: Subject) -> bool:
        annotations = get_in(subject.obj, "metadata.annotations")
        annotations = annotations if isinstance(annotations, dict) else {}
        return all(isinstance(value := annotations.get(key), str) and fits(value) for key, fits in patterns.items())

    return holds


def _owner_test(wanted: tuple[OwnerMatch, ...]) -> Test:
    """A test of the controller owner; without wanted owners, only objects without a controller owner match."""
    patterns = [(_globs((one.kind,)), _globs((one.name,))) for one in wanted]

    def holds(subject: Subject) -> bool:
        owner = get_controller(subject.obj)
        if owner is None or not patterns:
            return owner is None and not patterns
        return any(kind(owner.kind) and name(owner.name) for kind, name in patterns)

    return holds


def _globs(patterns: Iterable[str]) -> Callable[[str], bool]:
    """A test whether a text matches any of the patterns; without patterns, no text matches."""
    given = tuple(patterns)
    if "*" in given:
        return lambda _: True
    if not given:
        return lambda _: False
    if not any(map(is_glob, given)):
        return frozenset(given).__contains__
    fits = re.compile("|".join(map(translate, given))).match
    return lambda text: fits(text) is not None


_NAMESPACE = "namespaceObject"
"""The name that Kubernetes' admission policies use: `namespace` is a reserved word of CEL."""

_WITHOUT_ANNOTATIONS = re.compile(rf"\b{_NAMESPACE}\.metadata\.(labels|name)\b")
"""References that read no annotation; any other reference to the namespace may read one."""

VARIABLES = ("object", _NAMESPACE, "outcome")
"""The variables of an expression. The time is none of them: a decision must not change only because time passes."""

_CEL = {
    "type": "string",
    "minLength": 1,
    "description": "A CEL expression over object, namespaceObject (metadata: name, labels, annotations) and outcome.",
}


@dataclass(frozen=True, slots=True)
class PolicyExpression:
    """A CEL expression of a policy.

    Attributes:
        text: The text in the policy.
        expression: The compiled expression.
    """

    text: str
    expression: Expression

    def of(self, subject: Subject) -> Any:
        """The value for one object.

        Raises:
            ExpressionError: The expression has no value for this object.
            NamespaceUnreadError: The expression may read the namespace, which was not read.
        """
        namespace = subject.namespace
        if namespace is None and _NAMESPACE in self.text:
            raise NamespaceUnreadError
        metadata = {
            "name": subject.place,
            "labels": dict(namespace.labels) if namespace else {},
            "annotations": dict(namespace.annotations) if namespace else {},
        }
        if namespace and namespace.is_cut and _NAMESPACE in _WITHOUT_ANNOTATIONS.sub("", self.text):
            problem = f"the annotations of namespace {subject.place} have more than {TEXT_MAX} characters"
            expected = f"expected an expression that reads only name and labels of {_NAMESPACE}.metadata"
            raise ExpressionError(f"CEL {self.text!r}: {problem}; {expected}")
        outcome = str(subject.outcome or "")
        return self.expression.evaluate(object=subject.obj, namespaceObject={"metadata": metadata}, outcome=outcome)


def _read_expression(value: Any, returns: Returns = "bool") -> PolicyExpression:
    if isinstance(value, PolicyExpression):
        return value
    if not isinstance(value, str):
        raise ValueError(f"expected a CEL expression, got {quote(value)}")  # noqa: TRY004 - pydantic takes ValueError
    return PolicyExpression(value, compile_expression(value, returns=returns, variables=VARIABLES))


AnyCondition = Annotated[PolicyExpression, PlainValidator(_read_expression), WithJsonSchema(_CEL)]
"""A field of a policy: an expression that returns true or false."""


@dataclass(frozen=True, slots=True)
class Grouping:
    """How the objects of one kind in one namespace are divided into groups for keepLast.

    Attributes:
        by: `namespace`, `owner`, `label` or `cel`.
        label: The key of the label, for `label`.
        expression: The expression, for `cel`.
    """

    by: str
    label: str = ""
    expression: PolicyExpression | None = None

    def key(self, subject: Subject) -> str:
        """The name of an object's group; the objects without an owner, or without the label, are one group.

        Raises:
            ExpressionError: The expression has no value for this object.
            NamespaceUnreadError: The expression may read the namespace, which was not read.
        """
        if self.by == "owner":
            owner = get_controller(subject.obj)
            return owner.uid if owner else ""
        if self.by == "label":
            labels = get_in(subject.obj, "metadata.labels")
            return quote(labels.get(self.label)) if isinstance(labels, dict) else quote(None)
        return str(self.expression.of(subject)) if self.expression else ""


def _read_grouping(value: Any) -> Grouping:
    if isinstance(value, Grouping):
        return value
    if value in ("owner", "namespace"):
        return Grouping(value)
    if isinstance(value, dict) and set(value) == {"label"} and isinstance(value["label"], str) and value["label"]:
        return Grouping("label", label=value["label"])
    if isinstance(value, dict) and set(value) == {"cel"}:
        return Grouping("cel", expression=_read_expression(value["cel"], "string"))
    raise ValueError(f'expected owner, namespace, {{label: app}} or {{cel: "..."}}, got {quote(value)}')


_GROUPING = {
    "anyOf": [
        {"enum": ["owner", "namespace"]},
        {"type": "object", "properties": {"label": {"type": "string"}}, "required": ["label"]},
        {"type": "object", "properties": {"cel": _CEL}, "required": ["cel"]},
    ]
}

AnyGrouping = Annotated[Grouping, PlainValidator(_read_grouping), WithJsonSchema(_GROUPING)]
"""A field of a policy: a grouping."""

NAMESPACE = Grouping("namespace")


OUTCOMES: tuple[Outcome | None, ...] = (Outcome.SUCCEEDED, Outcome.FAILED, None)
_AFTER = {"anyOf": [*DURATION_SCHEMA["anyOf"], {"const": "never"}]}
_BY_OUTCOME = {
    "type": "object",
    "properties": {"succeeded": _AFTER, "failed": _AFTER},
    "additionalProperties": False,
    "minProperties": 1,
}


@dataclass(frozen=True, slots=True)
class OutcomeTtl:
    """The TTL that a rule sets, by outcome; None means `never`. For an absent outcome the rule sets no TTL."""

    by_outcome: tuple[tuple[Outcome | None, timedelta | None], ...]

    def __str__(self) -> str:
        texts = {outcome: "never" if after is None else format_duration(after) for outcome, after in self.by_outcome}
        return texts.get(None) or ", ".join(f"{outcome}: {after}" for outcome, after in texts.items())


def _read_outcome_ttl(value: Any) -> OutcomeTtl:
    if isinstance(value, OutcomeTtl):
        return value
    if not isinstance(value, dict):
        after = _read_after(value)
        return OutcomeTtl(tuple((outcome, after) for outcome in OUTCOMES))
    if not value or not set(value) <= {"succeeded", "failed"}:
        raise ValueError("expected a duration, never, or one of them for each of succeeded and failed")
    return OutcomeTtl(tuple((Outcome(outcome), _read_after(after)) for outcome, after in value.items()))


def _read_after(value: Any) -> timedelta | None:
    try:
        return None if value == "never" else read_duration(value)
    except ValueError as error:
        raise ValueError(or_never(error)) from None


AnyLasting = Annotated[
    OutcomeTtl, PlainValidator(_read_outcome_ttl), WithJsonSchema({"anyOf": [*_AFTER["anyOf"], _BY_OUTCOME]})
]
"""A field of a policy: a TTL by outcome."""


def _read_deadline(value: Any) -> timedelta | Literal["never"]:
    after = value if isinstance(value, timedelta) else _read_after(value)
    if after is not None and not after:
        raise ValueError(f"expected never, or a duration of more than 0, got {quote(value)}")
    return "never" if after is None else after


AnyDeadline = Annotated[timedelta | Literal["never"], PlainValidator(_read_deadline), WithJsonSchema(_AFTER)]
"""A field of a policy: how long an object may run, or never."""
