"""Why an object has not finished: what its kind's rule expects, and what the object has instead."""

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
"""Facts about one object; more would not be read."""

_TEXT_MAX = 64


@dataclass(frozen=True, slots=True)
class Unfinished:
    """Why an object has not finished.

    Attributes:
        why: In one sentence without its end.
        expected: Each test that would end it, in words; of what keeps it from its end, what must not hold.
        found: What the object has at the places that these tests read.
    """

    why: str
    expected: tuple[str, ...] = ()
    found: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The documented JSON."""
        return {"why": self.why, "expected": list(self.expected), "found": list(self.found)}


def explain_unfinished(obj: Any, rule: KindRule) -> Unfinished | None:
    """Why `finish_of` does not say that the object finished; None where it does, and for a kind that never finishes.

    Total: whatever the object is, this never raises.
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
    return Unfinished(f"{found}: its status is about an older spec", (expected,), (found,))


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
    """What the object has at the places that the tests read, each place once."""
    return tuple(islice(dict.fromkeys(one for test in tests for one in _observed(test, obj)), FOUND_MAX))


def _observed(test: Predicate, obj: Any) -> Iterator[str]:
    for part in (*test.all, *test.any, *test.none):
        yield from _observed(part, obj)
    if test.condition is not None:
        told = [one for one in list_mappings(obj, "status.conditions") if get_text(one, "type") == test.condition]
        yield from map(_condition, told)
        if not told:
            yield f"there is no condition {test.condition}"
    if test.field is not None:
        yield _field(obj, test.field)
    for name, key in (("label", test.label), ("annotation", test.annotation)):
        if key is not None:
            entries = get_in(obj, f"metadata.{name}s")
            yield _valued(f"{name} {key}", [entries[key]] if isinstance(entries, dict) and key in entries else [])


def _condition(condition: Any) -> str:
    reason = get_text(condition, "reason")
    told = f"condition {_text(condition.get('type'))} is {_text(condition.get('status'))}"
    return f"{told} ({_text(reason)})" if reason else told


def _field(obj: Any, path: str) -> str:
    return _valued(path, list(islice(values_at(obj, path), FOUND_MAX)))


def _valued(name: str, values: list[Any]) -> str:
    told = list(dict.fromkeys(_text(value) for value in values if value != ""))
    return f"{name} is {', '.join(told)}" if told else f"{name} is not set"


def _text(value: Any) -> str:
    return value if isinstance(value, str) and len(value) <= _TEXT_MAX else quote(value)
