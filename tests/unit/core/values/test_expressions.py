"""CEL: expressions that are rejected when loaded, that have no result, or that need too much work."""

import re
import subprocess
import sys
from datetime import UTC, datetime

import pytest

from shared.core.values.expressions import CEL_CHARACTERS_MAX, ExpressionError, compile_expression

JOB = {"spec": {"backoffLimit": 0, "suspend": True}, "status": {"phase": "Done", "end": "2026-01-02T03:04:05Z"}}


@pytest.mark.parametrize(
    ("text", "returns", "value"),
    [
        ("object.status.phase == 'Done'", "bool", True),
        ("object.spec.suspend", "bool", True),
        ("has(object.status.reason) && object.status.reason == 'x'", "bool", False),
        ("object.spec.backoffLimit == 0 && !has(object.metadata)", "bool", True),
        ("object.status.phase + '!'", "string", "Done!"),
        ("timestamp(object.status.end)", "timestamp", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
        ("[1, 2].exists(n, n == 2)", "bool", True),
    ],
)
def test_expression_returns_its_value(text, returns, value):
    assert compile_expression(text, returns=returns).evaluate(object=JOB) == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected a CEL expression, got ''"),
        ("object.", "Syntax error"),
        ("object.status = 'x'", "Syntax error"),
        ("now > 1", "undeclared reference to 'now'"),
        ("object.status.phase.shout()", "undeclared reference to 'shout'"),
        ("1 + 1", "returns a bool, '1 + 1' returns a int"),
        ("'yes'", "returns a bool, \"'yes'\" returns a string"),
        ("x" * (CEL_CHARACTERS_MAX + 1), f"at most {CEL_CHARACTERS_MAX} characters"),
        ("(" * 300 + "true" + ")" * 300, "expected a CEL expression"),
        ("object.a == '\ud800'", "expected a CEL expression"),
    ],
    ids=lambda value: value[:30] if value.isascii() else "a lone surrogate",
)
def test_invalid_expression_is_rejected_when_it_is_loaded(text, message):
    with pytest.raises(ExpressionError, match=re.escape(message)) as error:
        compile_expression(text, returns="bool")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "obj"),
    [
        ("object.status.reason == 'x'", JOB),
        ("object.spec.backoffLimit", JOB),
        ("object.status.phase", JOB),
        ("object.items[3] == 1", {"items": []}),
        ("object.n == 1", {"n": 2**70}),
        ("object.text.matches(object.pattern)", {"text": "a", "pattern": "("}),
        ("object == object", {"x": {1, 2}}),
        ("object.x == 'a'", {"x": "\ud800"}),
        ("object.x == 'a'", None),
        ("object.x == 'a'", [1]),
        ("1 / object.n == 1", {"n": 0}),
    ],
    ids=str,
)
def test_expression_without_a_result_is_an_expression_error(text, obj):
    with pytest.raises(ExpressionError):
        compile_expression(text, returns="bool").evaluate(object=obj)


def test_error_value_is_not_returned_as_a_text():
    with pytest.raises(ExpressionError, match="NOT_FOUND"):
        compile_expression("object.x", returns="string").evaluate(object={})


class TestWork:
    """Any user may create an object, so the work of an expression on it is bounded before it starts."""

    @pytest.mark.parametrize(
        ("text", "obj"),
        [
            ("object.x.map(i, object.s + object.s).size() > 0", {"x": list(range(9_000)), "s": "a" * 100_000}),
            ("object.x.exists(i, object.s == 'b' && i < 0)", {"x": list(range(9_000)), "s": "a" * 100_000}),
            ("object.x.all(a, object.x.all(b, a + b >= 0))", {"x": list(range(9_000))}),
            ("object.x.map(a, object.x.map(b, object.x.map(c, c))).size() > 0", {"x": list(range(300))}),
            ("object.m.map(k, object.m).size() > 0", {"m": {str(n): n for n in range(9_000)}}),
            ("(object.x + object.x + object.x).map(i, i).size() > 0", {"x": list(range(5_000))}),
            (f"[{', '.join('0' * 100)}].map(i, object.s + object.s).size() > 0", {"s": "a" * 200_000}),
            (f"{[0] * 600}.map(i, object.s + object.s).size() > 0", {"s": "a" * 1_400_000}),
            ("object.x.//\nmap(i, object.s).size() > 0", {"x": list(range(9_000)), "s": "a" * 100_000}),
            (f"({') + ('.join([' + '.join(['object.s'] * 12)] * 12)}) != 'x'", {"s": "a" * 1_400_000}),
            (" + ".join(["object.x"] * 10) + " != [1]", {"x": [0] * 700_000}),
            ("object.s.matches('(a?){900}b')", {"s": "a" * 1_400_000}),
            ("object.s.matches('(a?)\\x7b900}b')", {"s": "a" * 1_400_000}),
            ("object.s.matches(object.p)", {"s": "a" * 100, "p": f"({'a?' * 340_000})"}),
        ],
        ids=lambda value: value[:40] if isinstance(value, str) else "",
    )
    def test_expensive_expression_is_rejected(self, text, obj):
        with pytest.raises(ExpressionError, match="too large for"):
            compile_expression(text, returns="bool").evaluate(object=obj)

    def test_loop_over_a_literal_list_is_rejected(self):
        numbers = str(list(range(100)))
        text = f"{numbers}.all(a, {numbers}.all(b, {numbers}.all(c, a + b + c >= 0)))"

        with pytest.raises(ExpressionError, match=r"Iteration budget|too large for"):
            compile_expression(text, returns="bool").evaluate(object={})

    def test_expression_on_usual_objects_is_accepted(self):
        conditions = [{"type": f"Step{n}", "status": "True", "message": "m" * 200} for n in range(100)]
        obj = {"metadata": {"annotations": {"last": "x" * 50_000}}, "status": {"conditions": conditions}}
        text = "object.status.conditions.exists(c, c.type == 'Step99' && c.status == 'True')"

        assert compile_expression(text, returns="bool").evaluate(object=obj)

    def test_pattern_with_nested_repetition_is_evaluated_in_linear_time(self):
        text = "object.s.matches('(a+)+$')"

        assert not compile_expression(text, returns="bool").evaluate(object={"s": "a" * 100_000 + "b"})


# Fields of any depth

_DEEP = """
import sys
from shared.core.values.expressions import ExpressionError, compile_expression

deep = {}
for _ in range(7_000):
    deep = {"f": deep}
obj = {"metadata": {"name": "x", "managedFields": [{"fieldsV1": deep}]}}
for text in ("object.metadata.name == 'x'", "object.metadata.all(key, key == 'name')"):
    assert compile_expression(text, returns="bool").evaluate(object=obj) is True
assert obj["metadata"]["managedFields"], "the object itself stays as it is"
print("alive")
"""


def test_managed_fields_of_any_depth_do_not_end_the_process():
    """The library's conversion descends in C: 7,000 levels are a segmentation fault, which is a negative code."""
    done = subprocess.run([sys.executable, "-c", _DEEP], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "alive\n"), done.stderr


@pytest.mark.parametrize("text", ["has(object.metadata.managedFields)", "object['metadata']['managedFields'] == []"])
def test_expression_about_managed_fields_is_refused(text):
    with pytest.raises(ExpressionError, match="expected CEL without managedFields"):
        compile_expression(text, returns="bool")
