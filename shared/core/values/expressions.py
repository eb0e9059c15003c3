"""Compile and evaluate the CEL expressions of kind rules and policies, with Google's implementation.

An expression is compiled when its file is loaded; unknown variables and a result of the wrong type are errors. It runs
on objects that any user of the cluster may have created, so its cost is bounded before it runs. The implementation
stops loops at 10,000 steps, but copies the values that a step touches: a large object in a loop would take minutes and
gigabytes. A sum of many large parts, or a pattern with many repetitions, would take as much without any loop.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any, Literal

CEL_CHARACTERS_MAX = 2_000
"""The most characters of an expression."""

WORK_MAX = 25_000_000
"""The most work of an expression: the steps of its loops times the characters and values that a step may touch."""

Returns = Literal["bool", "string", "timestamp"]
_PYTHON = {"bool": bool, "string": str, "timestamp": datetime}
# The words count wherever they appear: a comment may separate a macro's name from its parenthesis.
_LOOPS = re.compile(r"\b(?:map|filter|all|exists|exists_one)\b")
_MATCHES = re.compile(r"\bmatches\b")
_MATCHES_LITERAL = re.compile(r"""\bmatches\s*\(\s*r?(?:"[^"\n]*"|'[^'\n]*')\s*\)""")
_REPEATS = re.compile(r"\{|\\[xXuU0-3]")
_REPEATS_MAX = 1_000  # the limit of RE2 for one pattern
_MANAGED_FIELDS = "managedFields"
_SUM = 4  # joined values are copied, and a number in a list takes more than a character


class ExpressionError(ValueError):
    """An expression is invalid, or has no result for an object; the message says what was expected."""


@dataclass(frozen=True, slots=True)
class Expression:
    """A compiled expression.

    Attributes:
        text: Its source.
        returns: The type of its result.
        loops: The most macros in it that iterate over a list or a map.
        sums: The most places in it that join two texts or lists.
        patterns: The most regular expressions in it.
    """

    text: str
    returns: Returns
    loops: int
    sums: int
    patterns: int
    _compiled: Any

    def evaluate(self, **variables: Any) -> Any:
        """The result of the expression: a bool, a str or an aware datetime.

        Args:
            variables: JSON values, by the names that the expression was compiled for. Their `metadata.managedFields` is
                left out: it is half of an object, and any client may nest it deeply.

        Raises:
            ExpressionError: The expression has no result: a field is missing, a value has another type, or the object
                is too large for its loops. No other exception is raised, for any variables.
        """
        variables = {name: _without_managed_fields(value) for name, value in variables.items()}
        if self.loops or self.sums or self.patterns:
            self._check_work(variables.values())
        try:
            value = self._compiled.eval(data=variables)
            kind, plain = value.type().name(), value.plain_value()
        except Exception as error:  # noqa: BLE001 - the library raises RuntimeError and others, for odd text and depth
            raise ExpressionError(f"CEL {self.text!r}: {_one_line(error)}") from None
        if kind == "ERROR" or not isinstance(plain, _PYTHON[self.returns]):  # the plain value of an error is a text
            problem = _one_line(plain) if kind == "ERROR" else f"expected a {self.returns}, got a {kind.lower()}"
            raise ExpressionError(f"CEL {self.text!r}: {problem}")
        return plain

    def _check_work(self, variables: Iterable[Any]) -> None:
        weight, longest = _measure(variables)
        # The expression itself may contain a list, and may join lists.
        longest = max(longest, 1 + self.text.count(",")) * (1 + self.sums)
        work = weight + longest + self._pattern_work(weight)
        if self.sums:
            work = max(work, _SUM * weight * (1 + self.sums) ** 2)
        if longest**self.loops * work > WORK_MAX:
            parts = f"{self.loops} loops, {self.sums} sums and {self.patterns} patterns"
            raise ExpressionError(f"CEL {self.text!r}: the object is too large for {parts}")

    def _pattern_work(self, weight: int) -> int:
        """The work of matching a text with each step of a pattern; a pattern from the object may be as long as it."""
        if not self.patterns:
            return 0
        is_literal = len(_MATCHES_LITERAL.findall(self.text)) == self.patterns
        steps = len(self.text) + (_REPEATS_MAX if not is_literal or _REPEATS.search(self.text) else 0)
        return weight * (steps if is_literal else steps + weight)


def compile_expression(text: str, *, returns: Returns, variables: tuple[str, ...] = ("object",)) -> Expression:
    """Compile and check an expression.

    Args:
        text: The source.
        returns: The type that the result must have.
        variables: The names of the variables that the expression may use.

    Raises:
        ExpressionError: The expression cannot be parsed, uses another variable, reads `managedFields`, is too long, or
            returns another type.
    """
    if len(text) > CEL_CHARACTERS_MAX:
        raise ExpressionError(f"expected a CEL expression of at most {CEL_CHARACTERS_MAX} characters, got {len(text)}")
    if _MANAGED_FIELDS in text:
        raise ExpressionError(f"expected CEL without {_MANAGED_FIELDS}, which is left out of objects, got {text!r}")
    try:
        compiled = _environment(variables).compile(text)
    except Exception as error:  # noqa: BLE001 - RuntimeError for an invalid expression, others for odd text
        raise ExpressionError(f"expected a CEL expression, got {text!r}: {_one_line(error)}") from None
    kind = compiled.return_type().name().lower()
    if kind not in (returns, "dyn"):
        raise ExpressionError(f"expected a CEL expression that returns a {returns}, {text!r} returns a {kind}")
    loops, sums, patterns = len(_LOOPS.findall(text)), text.count("+"), len(_MATCHES.findall(text))
    return Expression(text, returns, loops, sums, patterns, compiled)


@cache
def _environment(variables: tuple[str, ...]) -> Any:
    from cel_expr_python import cel  # noqa: PLC0415 - without expressions it is not loaded

    return cel.NewEnv(variables=dict.fromkeys(variables, cel.Type.DYN))


def _without_managed_fields(value: Any) -> Any:
    """A copy of an object without `metadata.managedFields`; the object itself is unchanged."""
    metadata = value.get("metadata") if isinstance(value, dict) else None
    if not isinstance(metadata, dict) or _MANAGED_FIELDS not in metadata:
        return value
    return {**value, "metadata": {name: one for name, one in metadata.items() if name != _MANAGED_FIELDS}}


def _measure(values: Iterable[Any]) -> tuple[int, int]:
    """The number of characters and values in JSON, and the length of its longest list or map."""
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
    """The first line of the library's error message, without the source excerpt below it."""
    first = str(error).partition("\n")[0]
    return re.sub(r"^INVALID_ARGUMENT: (ERROR: )?|\s*\[\w+\]$", "", first)[:300]
