"""A kind rule as CEL for an admission policy of Kubernetes: whether `oldObject` has finished.

The expressions never hold for an object that `finish_of` does not call finished. For an object whose fields have types
that the rule does not expect, one of them is false or an error, and both refuse the DELETE.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from shared.core.kinds.predicates import Predicate
from shared.core.kinds.rule import FinishedWhen, KindRule

_NULL = "dyn(null)"
_PLAIN = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_QUOTABLE = re.compile(r"[\w ./:@-]*", re.ASCII)
_RESERVED = frozenset(
    {"as", "break", "const", "continue", "else", "false", "for", "function", "if", "import", "in", "let", "loop"}
    | {"namespace", "null", "package", "return", "true", "var", "void", "while"}
)
_TOKEN = re.compile(
    r"""\s+|//[^\n]*|[rRbB]*(?:\"{3}[\s\S]*?\"{3}|'{3}[\s\S]*?'{3}|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')|\.\s*\??\s*\w+|\w+"""
)
_OF_RULE = {"api_versions", "kind", "plural", "scope", "finished", "observed_generation"}
_DIGITS = 12


@dataclass(frozen=True, slots=True)
class Expressions:
    """What an admission policy asks of the objects of one kind.

    Attributes:
        variables: Lists that the others speak of as `variables.NAME`, by name.
        shapes: Each holds where some fields have the types that the rule expects.
        finished: Holds where the object has finished.
    """

    variables: dict[str, str] = field(default_factory=dict)
    shapes: list[str] = field(default_factory=list)
    finished: str = "false"


def rule_version(rules: Iterable[KindRule]) -> str:
    """Names the version of what the rules of one kind say of its finish: the first digits of a SHA-256.

    Two rules that differ only in their TTL, finish time or notes have the same version.
    """
    parts = [rule.model_dump(mode="json", include=_OF_RULE, exclude_defaults=True) for rule in rules]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:_DIGITS]


def express(rules: Sequence[KindRule]) -> Expressions:
    """The expressions of one kind.

    Args:
        rules: All rules of the kind; they know different versions of it.
    """
    variables: dict[str, str] = {}
    shapes: dict[str, None] = {}
    finished = "false"
    for rule in reversed(rules):
        translation = _Translation(variables)
        said, is_known = translation.rule(rule), _knows_version(rule)
        finished = f"{is_known} && {said}" if finished == "false" else f"{is_known} ? {said} : {finished}"
        for shape in translation.shapes:
            shapes[shape if len(rules) == 1 else f"(!({is_known}) || {shape})"] = None
    return Expressions(variables, list(shapes), finished)


def _knows_version(rule: KindRule) -> str:
    if len(rule.api_versions) == 1:
        return f"oldObject.apiVersion == {_literal(rule.api_version)}"
    return f"oldObject.apiVersion in {list_of(rule.api_versions)}"


@dataclass(slots=True)
class _Translation:
    """Of one rule. What starts with a parenthesis ends with its counterpart.

    `refutes` says of a test that the object may count as finished where the test is false; `negated`, that the object
    counts as unfinished where the test holds.
    """

    variables: dict[str, str]
    shapes: dict[str, None] = field(default_factory=dict)

    def rule(self, rule: KindRule) -> str:
        """All that must hold."""
        if rule.finished is None:
            return "false"
        if not _needs_status(rule.finished):
            self.shapes["type(oldObject.?status.orValue({})) in [dyn(map), dyn(null_type)]"] = None
        parts = [_is_current(rule.observed_generation)] if rule.observed_generation else []
        parts.append(self.ended(rule.finished))
        if rule.finished.unless is not None:
            parts.append(_not(self.test(rule.finished.unless, refutes=True, negated=True)))
        return f"({' && '.join(parts)})" if len(parts) > 1 else parts[0]

    def ended(self, finished: FinishedWhen) -> str:
        if finished.conditions:
            asked = f"{_is_one_of('c.?type', tuple(finished.conditions))} && c.?status.orValue('') == 'True'"
            return f"oldObject.?status.?conditions.orValue([]).exists(c, {asked})"
        if finished.field is not None:
            return _is_text(_field("oldObject", finished.field), tuple(finished.values))
        tests = _without_implied([case.when for case in finished.cases])
        *first, last = [self.test(test, refutes=len(tests) > 1) for test in tests]
        if not any(map(_has_cel, tests[:-1])):
            return f"({' || '.join((*first, last))})" if first else last
        # An earlier case that is an error leaves the later ones untold; `||` would pass over the error.
        for one in reversed(first):
            last = f"({one} ? true : {last})"
        return last

    def test(self, test: Predicate, *, refutes: bool, negated: bool = False) -> str:
        if test.condition is not None:
            return self.condition(test)
        if test.field is not None:
            return self.field(test.field, test.values, refutes=refutes)
        if test.label is not None:
            return _is_value(_key("oldObject.metadata.?labels", test.label), test.values)
        if test.annotation is not None:
            return _is_value(_key("oldObject.metadata.?annotations", test.annotation), test.values)
        if test.cel is not None:
            return f"({_of_old_object(test.cel)})"
        return self.several(test, refutes=refutes, negated=negated)

    def several(self, test: Predicate, *, refutes: bool, negated: bool) -> str:
        tests = test.all or test.any or test.none
        inside = negated is not bool(test.none)
        asked = [self.test(one, refutes=refutes or not test.all, negated=inside) for one in tests]
        # `&&` and `||` pass over an error where another test settles the answer. Where that answer lets an object count
        # as finished each is asked, in a list: one error is then an error of the whole.
        if len(asked) == 1:
            whole = asked[0]
        elif any(map(_has_cel, tests)) and inside is bool(test.all):
            whole = f"[{', '.join(asked)}].{'all' if test.all else 'exists'}(x, x)"
        else:
            whole = f"({(' && ' if test.all else ' || ').join(asked)})"
        return _not(whole) if test.none else whole

    def condition(self, test: Predicate) -> str:
        asked = [_is_one_of("c.?type", (test.condition,)), _is_one_of("c.?status", test.statuses)]
        asked += [_is_one_of("c.?reason", test.reasons)] if test.reasons else []
        return f"{self.elements('status.conditions')}.exists(c, {' && '.join(asked)})"

    def field(self, path: str, values: Sequence[object], *, refutes: bool) -> str:
        """Whether a value at a path is wanted; `[*]` asks each element of a list."""
        before, star, after = path.partition("[*]")
        if star:
            asked, shape = _each(self.elements(before), after, values)
            self.shapes |= {shape: None} if values else {}
            return asked
        optional = _field("oldObject", before)
        if values and refutes:
            self.shapes[_is_scalar(f"{optional}.orValue({_NULL})")] = None
        return _is_value(optional, values)

    def elements(self, path: str) -> str:
        """A list that may be absent or null."""
        name = re.sub(r"\W", "_", path.removeprefix("status."))
        value = f"{_field('oldObject', path)}.orValue({_NULL})"
        self.variables[name] = f"{value} == null ? [] : {value}"
        self.shapes[f"type(variables.{name}) == list"] = None
        return f"variables.{name}"


def _each(elements: str, after: str, values: Sequence[object], depth: int = 0) -> tuple[str, str]:
    """Whether a value below an element of a list is wanted, and whether all of them are scalars."""
    one = f"x{depth or ''}"
    before, star, rest = after.removeprefix(".").partition("[*]")
    if star:
        asked, shape = _each(f"({_field(one, before)}.orValue([]) + [])", rest, values, depth + 1)
    elif before:
        asked, shape = _is_value(_field(one, before), values), _is_scalar(f"{_field(one, before)}.orValue({_NULL})")
    else:
        asked, shape = (f"{one} in {list_of(values)}" if values else f"{one} != ''"), _is_scalar(one)
    return f"{elements}.exists({one}, {asked})", f"{elements}.all({one}, {shape})"


def _not(expression: str) -> str:
    return f"!{expression}" if expression.startswith("(") else f"!({expression})"


def _is_scalar(value: str) -> str:
    return f"!(type({value}) in [dyn(map), dyn(list)])"


def _is_current(observed_generation: str) -> str:
    """Whether the status is not known to be about an older spec."""
    observed = f"{_field('oldObject', observed_generation)}.orValue({_NULL})"
    return f"(type({observed}) != int || {observed} >= oldObject.metadata.?generation.orValue(-1))"


def _needs_status(finished: FinishedWhen) -> bool:
    """Whether nothing finishes whose status is no mapping."""
    if finished.cases:
        return all(_asks_status(case.when) for case in finished.cases)
    return bool(finished.conditions) or (finished.field or "").startswith("status.")


def _asks_status(test: Predicate) -> bool:
    if test.all or test.any:
        return any(map(_asks_status, test.all)) or (bool(test.any) and all(map(_asks_status, test.any)))
    return test.condition is not None or (test.field or "").startswith("status.")


def _has_cel(test: Predicate) -> bool:
    return test.cel is not None or any(map(_has_cel, test.all or test.any or test.none))


def _without_implied(tests: list[Predicate]) -> list[Predicate]:
    """Without the tests of a condition's reasons where the same condition is enough for any reason."""
    enough = {(test.condition, test.statuses) for test in tests if test.condition and not test.reasons}
    return [test for test in tests if not test.reasons or (test.condition, test.statuses) not in enough]


def _is_text(optional: str, values: Sequence[str]) -> str:
    """Whether a text is one of these; an absent one, and null, is the empty one."""
    if "" in values:
        return f"{optional}.orValue({_NULL}) in {list_of([*values, None])}"
    return _is_one_of(optional, values)


def _is_value(optional: str, values: Sequence[object]) -> str:
    """Whether a value is one of these, or where none is named, whether there is one that is not empty."""
    return _is_one_of(optional, values) if values else f"!({optional}.orValue({_NULL}) in [dyn(''), {_NULL}])"


def _is_one_of(optional: str, values: Sequence[object]) -> str:
    """Whether a value is there and one of these; one of another type is none of them."""
    absent = "''" if all(isinstance(value, str) and value for value in values) else _NULL
    if len(values) == 1:
        return f"{optional}.orValue({absent}) == {_literal(values[0])}"
    return f"{optional}.orValue({absent}) in {list_of(values)}"


def _field(root: str, path: str) -> str:
    """An optional value at a dotted path; a step that is absent, null or no mapping makes it absent."""
    for name in path.split("."):
        root = f"{root}.?{name}" if _PLAIN.fullmatch(name) and name not in _RESERVED else _key(root, name)
    return root


def _key(optional: str, key: str) -> str:
    return f"{optional}[?{_literal(key)}]"


def list_of(values: Sequence[object]) -> str:
    """A list literal; Kubernetes takes values of different types only where each is `dyn`."""
    literals = [_literal(value) for value in values]
    if len({type(value) for value in values}) > 1:
        literals = [f"dyn({literal})" for literal in literals]
    return f"[{', '.join(literals)}]"


def _literal(value: object) -> str:
    if isinstance(value, str) and _QUOTABLE.fullmatch(value):
        return f"'{value}'"
    return json.dumps(value, ensure_ascii=False)


def _of_old_object(expression: str) -> str:
    """An expression of a rule, which speaks of `object`, as one of `oldObject`; texts and fields stay as they are."""

    def rename(token: re.Match[str]) -> str:
        text = token[0]
        if text.isspace() or text.startswith("//"):
            return " "
        return "oldObject" if text == "object" else text

    return _TOKEN.sub(rename, expression)
