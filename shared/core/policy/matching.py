"""Decide which objects a policy rule matches: by kinds, namespaces, labels, annotations and owners.

The fields of a rule are turned into tests once, when the policy is loaded. A test checks one object and never fails,
for any JSON.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from fnmatch import translate
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from shared.core.decision.namespaces import Namespace
from shared.core.kinds.predicates import Narrowing, RuleModel
from shared.core.kinds.rule import KindRule, Outcome
from shared.core.ttl.durations import parse_duration
from shared.core.values.objects import get_controller, get_in, quote

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
