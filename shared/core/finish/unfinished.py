"""Explain why an object has not finished: what the kind rule expects, and what the object has instead."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from shared.core.finish.finish import finish_of
from shared.core.kinds.predicates import Predicate, UnknownShapeError, conditions_of, values_at
from shared.core.kinds.rule import FinishedWhen, KindRule
from shared.core.kinds.wording import any_of, describe_finished, describe_test
from shared.core.objects import get_in, get_text, list_mappings, quote

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
