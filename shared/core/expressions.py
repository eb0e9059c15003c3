"""CEL for what data cannot say: in kind rules and in policies, Google's own implementation.

An expression is compiled when its file is loaded, where unknown variables and a result of the wrong type are errors.
It runs on objects that anybody may have made, so it is bounded before it runs: the implementation cuts loops off at
10,000 steps, but copies what a step touches, so a large object in a loop would take minutes and gigabytes. So would a
sum of many large parts, and a pattern with many repetitions, without any loop.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any, Literal

LENGTH_MAX = 2_000
"""Characters of an expression."""

WORK_MAX = 25_000_000
"""Steps of an expression's loops times what a step may touch (characters and values); more is refused."""

Returns = Literal["bool", "string", "timestamp"]
_PYTHON = {"bool": bool, "string": str, "timestamp": datetime}
# Wherever the words stand: a comment may come between them and what makes macros of them.
_LOOPS = re.compile(r"\b(?:map|filter|all|exists|exists_one)\b")
_MATCHES = re.compile(r"\bmatches\b")
_MATCHES_LITERAL = re.compile(r"""\bmatches\s*\(\s*r?(?:"[^"\n]*"|'[^'\n]*')\s*\)""")
_REPEATS = re.compile(r"\{|\\[xXuU0-3]")
_REPEATS_MAX = 1_000  # in one pattern, as RE2 has it
_MANAGED_FIELDS = "managedFields"
_SUM = 4  # what is joined is copied, and a number in a list takes more than a character


class ExpressionError(ValueError):
    """An expression is wrong, or has no answer for an object; the message says what was expected."""


@dataclass(frozen=True, slots=True)
class Expression:
    """A compiled expression.

    Attributes:
        text: As it was written.
        returns: What it gives.
        loops: How many macros it may have that go through a list or a map.
        sums: How many times it may join two texts or lists.
        patterns: How many regular expressions it may have.
    """

    text: str
    returns: Returns
    loops: int
    sums: int
    patterns: int
    _compiled: Any

    def evaluate(self, **variables: Any) -> Any:
        """What the expression gives: a bool, a str or an aware datetime.

        Args:
            variables: JSON values, by the names that it was compiled for. Their `metadata.managedFields` is left out:
                half of an object, and nested as deeply as its writer likes.

        Raises:
            ExpressionError: It has no answer: a field is missing, a value has another type, the object is too large
                for its loops. Never anything else, whatever the variables hold.
        """
        variables = {name: _without_managed_fields(value) for name, value in variables.items()}
        if self.loops or self.sums or self.patterns:
            self._check_work(variables.values())
        try:
            value = self._compiled.eval(data=variables)
            kind, plain = value.type().name(), value.plain_value()
        except Exception as error:  # noqa: BLE001 - the library raises RuntimeError and others, for odd text and depth
            raise ExpressionError(f"CEL {self.text!r}: {_one_line(error)}") from None
        if kind == "ERROR" or not isinstance(plain, _PYTHON[self.returns]):  # an error reads as a text
            told = _one_line(plain) if kind == "ERROR" else f"expected a {self.returns}, got a {kind.lower()}"
            raise ExpressionError(f"CEL {self.text!r}: {told}")
        return plain

    def _check_work(self, variables: Iterable[Any]) -> None:
        weight, longest = _measure(variables)
        # A list may stand in the expression itself; and lists can be joined.
        longest = max(longest, 1 + self.text.count(",")) * (1 + self.sums)
        work = weight + longest + self._pattern_work(weight)
        if self.sums:
            work = max(work, _SUM * weight * (1 + self.sums) ** 2)
        if longest**self.loops * work > WORK_MAX:
            told = f"{self.loops} loops, {self.sums} sums and {self.patterns} patterns"
            raise ExpressionError(f"CEL {self.text!r}: the object is too large for {told}")

    def _pattern_work(self, weight: int) -> int:
        """What a text takes, for each step of a pattern; one that stands in the object may be as long as that."""
        if not self.patterns:
            return 0
        is_literal = len(_MATCHES_LITERAL.findall(self.text)) == self.patterns
        steps = len(self.text) + (_REPEATS_MAX if not is_literal or _REPEATS.search(self.text) else 0)
        return weight * (steps if is_literal else steps + weight)


def compile_expression(text: str, *, returns: Returns, variables: tuple[str, ...] = ("object",)) -> Expression:
    """An expression, checked.

    Args:
        text: The source.
        returns: What it has to give.
        variables: What it may speak of.

    Raises:
        ExpressionError: It cannot be parsed, names anything else, reads `managedFields`, is too long, or gives another
            type.
    """
    if len(text) > LENGTH_MAX:
        raise ExpressionError(f"expected a CEL expression of at most {LENGTH_MAX} characters, got {len(text)}")
    if _MANAGED_FIELDS in text:
        raise ExpressionError(f"expected CEL without {_MANAGED_FIELDS}, which is left out of objects, got {text!r}")
    try:
        compiled = _environment(variables).compile(text)
    except Exception as error:  # noqa: BLE001 - RuntimeError for what is wrong, others for odd text
        raise ExpressionError(f"expected a CEL expression, got {text!r}: {_one_line(error)}") from None
    kind = compiled.return_type().name().lower()
    if kind not in (returns, "dyn"):
        raise ExpressionError(f"expected a CEL expression that gives a {returns}, {text!r} gives a {kind}")
    loops, sums, patterns = len(_LOOPS.findall(text)), text.count("+"), len(_MATCHES.findall(text))
    return Expression(text, returns, loops, sums, patterns, compiled)


@cache
def _environment(variables: tuple[str, ...]) -> Any:
    from cel_expr_python import cel  # noqa: PLC0415 - a cluster without expressions need not load it

    return cel.NewEnv(variables=dict.fromkeys(variables, cel.Type.DYN))


def _without_managed_fields(value: Any) -> Any:
    """Without the entries of each writer's fields; the object itself stays as it is."""
    metadata = value.get("metadata") if isinstance(value, dict) else None
    if not isinstance(metadata, dict) or _MANAGED_FIELDS not in metadata:
        return value
    return {**value, "metadata": {name: one for name, one in metadata.items() if name != _MANAGED_FIELDS}}


def _measure(values: Iterable[Any]) -> tuple[int, int]:
    """Characters and values in JSON, and the length of its longest list or map."""
    weight, longest, pending = 0, 0, list(values)
    while pending:
        value = pending.pop()
        weight += 1
        if isinstance(value, str):
            weight += len(value)
        elif isinstance(value, dict | list):
            longest = max(longest, len(value))
            pending.extend(value)
            if isinstance(value, dict):
                pending.extend(value.values())
    return weight, longest


def _one_line(error: object) -> str:
    """What the library says, without the drawing of the place below it."""
    first = str(error).partition("\n")[0]
    return re.sub(r"^INVALID_ARGUMENT: (ERROR: )?|\s*\[\w+\]$", "", first)[:300]
