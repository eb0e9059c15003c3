"""Describe the tests of a kind rule in words."""

from collections.abc import Iterator, Sequence
from typing import Any

from shared.core.kinds.predicates import Predicate
from shared.core.kinds.rule import FinishedWhen, Outcome


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
        return f"not {_grouped(test.none, ' or ')}"
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
