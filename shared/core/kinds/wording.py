"""Describe in words when objects of a kind finish, and why one object has not finished."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from shared.core.decision.finish import finish_of
from shared.core.kinds.predicates import Predicate, UnknownShapeError, conditions_of, values_at
from shared.core.kinds.rule import FinishedWhen, KindRule, Outcome
from shared.core.values.objects import get_in, get_text, list_mappings, quote


def describe_test(test: Predicate) -> str:
    """`status.phase is Succeeded or Failed`, `condition Ready is False with reason Denied`."""
    if test.condition is not None:
        reasons = f" with reason {any_of(test.reasons)}" if test.reasons else ""
        return f"condition {test.condition} is {any_of(test.statuses)}{reasons}"
    if test.cel is not None:
        return f"CEL: {' '.join(test.cel.split())}"
    for name, key in (("", test.field), ("label ", test.label), ("annotation ", test.annotation)):
        if key is not None:
            return f"{name}{key} is {any_of(test.values)}" if test.values else f"{name}{key} is set"
    if test.none:
        is_plain = len(test.none) == 1 and not (test.none[0].all or test.none[0].any or test.none[0].cel)
        grouped = _grouped(test.none, " or ")
        return grouped.replace(" is ", " is not ", 1) if is_plain else f"not {grouped}"
    return _joined(test.all, " and ") if test.all else _joined(test.any, " or ")


def describe_finished(when: FinishedWhen) -> Iterator[tuple[str, Outcome]]:
    """Each test that marks an object as finished, in words, with the outcome that it means."""
    if when.conditions:
        yield from ((f"condition {name} is True", outcome) for name, outcome in when.conditions.items())
    elif when.field is not None:
        for outcome in dict.fromkeys(when.values.values()):
            values = [value for value, meant in when.values.items() if meant == outcome]
            yield f"{when.field} is {any_of(values)}", outcome
    else:
        yield from ((describe_test(case.when), case.outcome) for case in when.cases)


def describe_replaced(rule: KindRule) -> str:
    """`its finished pods may be deleted, since it has replaced them`, of an owner whose rule has `replacesFinished`."""
    return f"its finished {any_of(rule.replaces_finished)} may be deleted, since it has replaced them"


def any_of(values: Sequence[Any]) -> str:
    """`A, B or C`."""
    texts = [str(value).lower() if isinstance(value, bool) else str(value) for value in values]
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} or {texts[-1]}"


def _joined(tests: Sequence[Predicate], word: str) -> str:
    return word.join(_grouped([one], word) for one in tests)


def _grouped(tests: Sequence[Predicate], word: str) -> str:
    """The tests joined by a word; in parentheses if they are more than one."""
    text = word.join(describe_test(one) for one in tests)
    several = len(tests) > 1 or any(len(one.all or one.any) > 1 for one in tests)
    return f"({text})" if several else text


FOUND_MAX = 8
"""The most facts to show about one object."""

_TEXT_MAX = 64


@dataclass(frozen=True, slots=True)
class Unfinished:
    """Why an object has not finished.

    Attributes:
        why: The reason, in one sentence without a period.
        expected: Each test that would mark the object as finished, in words. If the rule's `unless` test keeps it
            unfinished, the negation of that test.
        found: The values that the object has in the fields of these tests.
    """

    why: str
    expected: tuple[str, ...] = ()
    found: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The documented JSON of `explain`."""
        return {"why": self.why, "expected": list(self.expected), "found": list(self.found)}


def explain_unfinished(obj: Any, rule: KindRule) -> Unfinished | None:
    """Why `finish_of` does not report the object as finished. Total: it never raises.

    Returns:
        None for a finished object, and for a kind that never finishes.
    """
    when = rule.finished
    if when is None or finish_of(obj, rule).finished:
        return None
    try:
        return _explain_generation(obj, rule) or _explain(obj, rule, when)
    except UnknownShapeError as error:
        return Unfinished(str(error))


def _explain_generation(obj: Any, rule: KindRule) -> Unfinished | None:
    if rule.observed_generation is None:
        return None
    observed, generation = get_in(obj, rule.observed_generation), get_in(obj, "metadata.generation")
    if not (isinstance(observed, int) and isinstance(generation, int) and observed < generation):
        return None
    found = f"{rule.observed_generation} is {quote(observed)}, behind metadata.generation {quote(generation)}"
    expected = f"{rule.observed_generation} is {quote(generation)}"
    return Unfinished(f"{found}: its status describes an older spec", (expected,), (found,))


def _explain(obj: Any, rule: KindRule, when: FinishedWhen) -> Unfinished:
    ended = rule.model_copy(update={"finished": when.model_copy(update={"unless": None})})
    if when.unless is not None and finish_of(obj, ended).finished:
        test, found = describe_test(when.unless), _found([when.unless], obj)
        return Unfinished(f"it has ended, but {'; '.join(found) or test}", (f"not: {test}",), found)
    expected = tuple(test for test, _ in describe_finished(when))
    if when.conditions:
        found = tuple(islice(_conditions_that_hold(obj), FOUND_MAX))
        missing = f"no condition {any_of(list(when.conditions))} with status True"
        return Unfinished("; ".join((missing, *found)), expected, found)
    if when.field is not None:
        found = (_field(obj, when.field),)
        return Unfinished(f"{found[0]}, not {any_of(list(when.values))}", expected, found)
    found = _found([case.when for case in when.cases], obj)
    return Unfinished("; ".join((*found, f"it finishes if {any_of(expected)}")), expected, found)


def _conditions_that_hold(obj: Any) -> Iterator[str]:
    for condition in conditions_of(obj):
        if condition.get("status") == "True":
            yield _condition(condition)


def _found(tests: list[Predicate], obj: Any) -> tuple[str, ...]:
    """The values of the object in the fields that the tests read, each field once."""
    return tuple(islice(dict.fromkeys(one for test in tests for one in _observed(test, obj)), FOUND_MAX))


def _observed(test: Predicate, obj: Any) -> Iterator[str]:
    for part in (*test.all, *test.any, *test.none):
        yield from _observed(part, obj)
    if test.condition is not None:
        present = [one for one in list_mappings(obj, "status.conditions") if get_text(one, "type") == test.condition]
        yield from map(_condition, present)
        if not present:
            yield f"there is no condition {test.condition}"
    if test.field is not None:
        yield _field(obj, test.field)
    for name, key in (("label", test.label), ("annotation", test.annotation)):
        if key is not None:
            entries = get_in(obj, f"metadata.{name}s")
            yield _valued(f"{name} {key}", [entries[key]] if isinstance(entries, dict) and key in entries else [])


def _condition(condition: Any) -> str:
    reason = get_text(condition, "reason")
    text = f"condition {_text(condition.get('type'))} is {_text(condition.get('status'))}"
    return f"{text} ({_text(reason)})" if reason else text


def _field(obj: Any, path: str) -> str:
    return _valued(path, list(islice(values_at(obj, path), FOUND_MAX)))


def _valued(name: str, values: list[Any]) -> str:
    texts = list(dict.fromkeys(_text(value) for value in values if value != ""))
    return f"{name} is {', '.join(texts)}" if texts else f"{name} is not set"


def _text(value: Any) -> str:
    return value if isinstance(value, str) and len(value) <= _TEXT_MAX else quote(value)
