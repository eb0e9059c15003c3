"""Translate a kind rule into CEL for an admission policy of Kubernetes: whether `oldObject` has finished.

The expressions never all hold for an object that `finish_of` does not report as finished. If fields have types that the
rule does not expect, one expression is false or an error; both reject the DELETE.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from shared.core.kinds.cel_text import (
    NULL,
    is_marked,
    is_merged,
    is_one_of,
    is_scalar,
    is_text,
    is_value,
    list_of,
    literal,
    negate,
    of_old_object,
    optional_entry,
    optional_field,
)
from shared.core.kinds.predicates import Predicate
from shared.core.kinds.rule import FinishedWhen, KindRule

_OF_FINISH = ("api_versions", "kind", "plural", "scope", "finished", "observed_generation")
_OF_RULE: dict[str, Any] = {**dict.fromkeys(_OF_FINISH, True), "deadline": {"stop", "suspend", "exception", "pending"}}
_DIGITS = 12


@dataclass(frozen=True, slots=True)
class Expressions:
    """The CEL expressions of an admission policy for one kind.

    Attributes:
        variables: Expressions of lists, by name; the other expressions refer to them as `variables.NAME`.
        shapes: Each is true if some fields have the types that the rule expects.
        finished: True if the object has finished.
        stoppable: True if nothing in the object makes a stop wrong; empty if the rules name nothing that would.
        pending: True if the object has never started, and does not wait on purpose; empty if the rules do not show it.
    """

    variables: dict[str, str] = field(default_factory=dict)
    shapes: list[str] = field(default_factory=list)
    finished: str = "false"
    stoppable: str = ""
    pending: str = ""


def rule_version(rules: Iterable[KindRule]) -> str:
    """A digest of how the rules of one kind detect the finish and stop an object: the first digits of a SHA-256.

    Two rules that differ only in their TTL, finish time, start or notes have the same digest.
    """
    parts = [rule.model_dump(mode="json", include=_OF_RULE, exclude_defaults=True) for rule in rules]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:_DIGITS]


def express(rules: Sequence[KindRule], *, of_stops: bool = False) -> Expressions:
    """Translate the rules of one kind into CEL expressions.

    Args:
        rules: All rules of the kind; each covers different versions of it.
        of_stops: Whether `stoppable` is needed, with its variables and shapes.
    """
    variables: dict[str, str] = {}
    shapes: dict[str, None] = {}
    finished, stoppable, pending = "false", list[str](), list[str]()
    for rule in reversed(rules):
        translation = _Translation(variables)
        translated, is_known = translation.rule(rule), _has_version_of(rule)
        for test in translation.stoppable(rule) if of_stops else ():
            stoppable.append(test if len(rules) == 1 else f"(!({is_known}) || {test})")
        finished = f"{is_known} && {translated}" if finished == "false" else f"{is_known} ? {translated} : {finished}"
        pending += [f"({is_known} && {one})" for one in translation.pending(rule)]
        for shape in translation.shapes:
            shapes[shape if len(rules) == 1 else f"(!({is_known}) || {shape})"] = None
    return Expressions(variables, list(shapes), finished, " && ".join(stoppable), " || ".join(pending))


def _has_version_of(rule: KindRule) -> str:
    """Return whether the object's apiVersion is one of the rule's."""
    if len(rule.api_versions) == 1:
        return f"oldObject.apiVersion == {literal(rule.api_version)}"
    return f"oldObject.apiVersion in {list_of(rule.api_versions)}"


@dataclass(slots=True)
class _Translation:
    """The translation of one rule. Each expression that starts with a parenthesis ends with its counterpart.

    A test with `refutes` may make the object count as finished by being false. A test with `negated` makes the object
    count as unfinished by being true.
    """

    variables: dict[str, str]
    shapes: dict[str, None] = field(default_factory=dict)

    def rule(self, rule: KindRule) -> str:
        """The expression that is true if the object has finished by this rule."""
        if rule.finished is None:
            return "false"
        if not _needs_status(rule.finished):
            self.shapes["type(oldObject.?status.orValue({})) in [dyn(map), dyn(null_type)]"] = None
        if any(map(_has_cel, _tests_of(rule.finished))):
            # `has` of a field of a scalar is false on the API server, and an error for `finish_of`.
            self.shapes["type(oldObject.?spec.orValue({})) in [dyn(map), dyn(null_type)]"] = None
        parts = [_is_current(rule.observed_generation)] if rule.observed_generation else []
        stop = rule.deadline.suspending if rule.deadline else None
        if stop is not None and stop.ends is not None:
            parts.append(self.ended_or_stopped(rule.finished, stop.patch, stop.ends))
        else:
            parts += self.finished(rule.finished)
        return f"({' && '.join(parts)})" if len(parts) > 1 else parts[0]

    def stoppable(self, rule: KindRule) -> Iterator[str]:
        """Yield the expressions that must all be true of an object that is stopped.

        A stop by the deadline field of the kind must not be written while the object is suspended: it would fail as
        soon as a person resumes it. While that field is set, the controller of the kind alone acts.
        """
        deadline = rule.deadline
        if deadline is None:
            return
        if deadline.sets_native:
            if deadline.suspended is not None:
                yield negate(self.test(deadline.suspended, refutes=True, negated=True))
            for native in deadline.native.fields if deadline.native else ():
                yield f"{optional_field('oldObject', native.path)}.orValue({NULL}) == {NULL}"
        if deadline.exception is not None:
            yield negate(self.test(deadline.exception.when, refutes=True, negated=True))

    def pending(self, rule: KindRule) -> Iterator[str]:
        """Yield the expression that an object has never started, and does not wait on purpose, if the rule shows it.

        A shape that the rule does not expect makes it false, whatever else is asked of the object.
        """
        pending = rule.deadline.pending if rule.deadline else None
        if pending is None:
            return
        own = _Translation(self.variables)
        parts = [own.test(pending.when, refutes=True)]
        if pending.suspended is not None:
            parts.append(negate(own.test(pending.suspended, refutes=True, negated=True)))
        yield f"({' && '.join([*own.shapes, *parts])})"

    def finished(self, finished: FinishedWhen) -> list[str]:
        unless = finished.unless
        is_over = [] if unless is None else [negate(self.test(unless, refutes=True, negated=True))]
        return [self.ended(finished), *is_over]

    def ended_or_stopped(self, finished: FinishedWhen, patch: Mapping[str, Any], ends: Predicate) -> str:
        """The end that the kind reports, or else a stop by `enforce` that is still in place; see `finish_of`."""
        self.shapes["type(oldObject.?status.orValue({})) in [dyn(map), dyn(null_type)]"] = None
        if finished.field is not None:
            value = f"{optional_field('oldObject', finished.field)}.orValue({NULL})"
            self.shapes[f"type({value}) in [dyn(string), dyn(null_type)]"] = None
        is_stopped = [*is_marked(), *is_merged("oldObject", patch), self.test(ends, refutes=True)]
        # An error in the end that the kind reports must be an error of the whole expression.
        for case in finished.cases:
            self.test(case.when, refutes=True)  # for the shapes that it needs
        parts = self.finished(finished)
        reported = f"[{', '.join(parts)}].all(x, x)" if len(parts) > 1 else parts[0]
        return f"({reported} ? true : ({' && '.join(is_stopped)}))"

    def ended(self, finished: FinishedWhen) -> str:
        if finished.conditions:
            is_final = f"{is_one_of('c.?type', tuple(finished.conditions))} && c.?status.orValue('') == 'True'"
            return f"oldObject.?status.?conditions.orValue([]).exists(c, {is_final})"
        if finished.field is not None:
            return is_text(optional_field("oldObject", finished.field), tuple(finished.values))
        tests = _without_implied([case.when for case in finished.cases])
        *first, last = [self.test(test, refutes=len(tests) > 1) for test in tests]
        if not any(map(_has_cel, tests[:-1])):
            return f"({' || '.join((*first, last))})" if first else last
        # An error in an earlier case must be an error of the whole expression; `||` would skip the error.
        for one in reversed(first):
            last = f"({one} ? true : {last})"
        return last

    def test(self, test: Predicate, *, refutes: bool, negated: bool = False) -> str:
        if test.condition is not None:
            return self.condition(test)
        if test.field is not None:
            return self.field(test.field, test.values, refutes=refutes)
        if test.label is not None:
            return is_value(optional_entry("oldObject.metadata.?labels", test.label), test.values)
        if test.annotation is not None:
            return is_value(optional_entry("oldObject.metadata.?annotations", test.annotation), test.values)
        if test.cel is not None:
            return f"({of_old_object(test.cel)})"
        return self.several(test, refutes=refutes, negated=negated)

    def several(self, test: Predicate, *, refutes: bool, negated: bool) -> str:
        tests = test.all or test.any or test.none
        inside = negated is not bool(test.none)
        parts = [self.test(one, refutes=refutes or not test.all, negated=inside) for one in tests]
        # `&&` and `||` skip an error if another test decides the result. If that result makes the object count as
        # finished, a list evaluates every test: one error is then an error of the whole expression.
        if len(parts) == 1:
            whole = parts[0]
        elif any(map(_has_cel, tests)) and inside is bool(test.all):
            whole = f"[{', '.join(parts)}].{'all' if test.all else 'exists'}(x, x)"
        else:
            whole = f"({(' && ' if test.all else ' || ').join(parts)})"
        return negate(whole) if test.none else whole

    def condition(self, test: Predicate) -> str:
        parts = [is_one_of("c.?type", (test.condition,)), is_one_of("c.?status", test.statuses)]
        parts += [is_one_of("c.?reason", test.reasons)] if test.reasons else []
        return f"{self.elements('status.conditions')}.exists(c, {' && '.join(parts)})"

    def field(self, path: str, values: Sequence[object], *, refutes: bool) -> str:
        """Return whether a value at a path is one of `values`; `[*]` tests each element of a list."""
        before, star, after = path.partition("[*]")
        if star:
            is_any, shape = _each(self.elements(before), after, values)
            self.shapes |= {shape: None} if values else {}
            return is_any
        optional = optional_field("oldObject", before)
        if values and refutes:
            self.shapes[is_scalar(f"{optional}.orValue({NULL})")] = None
        return is_value(optional, values)

    def elements(self, path: str) -> str:
        """A variable for the list at a path; an absent list and null count as the empty list."""
        name = re.sub(r"\W", "_", path.removeprefix("status."))
        value = f"{optional_field('oldObject', path)}.orValue({NULL})"
        self.variables[name] = f"{value} == null ? [] : {value}"
        self.shapes[f"type(variables.{name}) == list"] = None
        return f"variables.{name}"


def _each(elements: str, after: str, values: Sequence[object], *, depth: int = 0) -> tuple[str, str]:
    """Return whether a value below an element of a list is one of `values`, and whether all such values are scalars."""
    one = f"x{depth or ''}"
    before, star, rest = after.removeprefix(".").partition("[*]")
    if star:
        is_wanted, shape = _each(f"({optional_field(one, before)}.orValue([]) + [])", rest, values, depth=depth + 1)
    elif before:
        is_wanted, shape = (
            is_value(optional_field(one, before), values),
            is_scalar(f"{optional_field(one, before)}.orValue({NULL})"),
        )
    else:
        is_wanted, shape = (f"{one} in {list_of(values)}" if values else f"{one} != ''"), is_scalar(one)
    return f"{elements}.exists({one}, {is_wanted})", f"{elements}.all({one}, {shape})"


def _is_current(observed_generation: str) -> str:
    """True unless the status is known to describe an older spec."""
    observed = f"{optional_field('oldObject', observed_generation)}.orValue({NULL})"
    return f"(type({observed}) != int || {observed} >= oldObject.metadata.?generation.orValue(-1))"


def _needs_status(finished: FinishedWhen) -> bool:
    """Return whether an object whose status is no mapping can never count as finished."""
    if finished.cases:
        return all(_asks_status(case.when) for case in finished.cases)
    return bool(finished.conditions) or (finished.field or "").startswith("status.")


def _asks_status(test: Predicate) -> bool:
    if test.all or test.any:
        return any(map(_asks_status, test.all)) or (bool(test.any) and all(map(_asks_status, test.any)))
    return test.condition is not None or (test.field or "").startswith("status.")


def _tests_of(finished: FinishedWhen) -> list[Predicate]:
    return [*(case.when for case in finished.cases), *([finished.unless] if finished.unless else [])]


def _has_cel(test: Predicate) -> bool:
    return test.cel is not None or any(map(_has_cel, test.all or test.any or test.none))


def _without_implied(tests: list[Predicate]) -> list[Predicate]:
    """Drop tests of a condition with reasons if another test accepts the same condition with any reason."""
    enough = {(test.condition, test.statuses) for test in tests if test.condition and not test.reasons}
    return [test for test in tests if not test.reasons or (test.condition, test.statuses) not in enough]
