"""Limits of JSON, measured on bytes, and the outline of a text that exceeds them."""

import json
from typing import Any

import pytest

from shared.core.values import jsontext
from shared.core.values.jsontext import (
    JSON_DEPTH_MAX,
    JsonDepthError,
    JsonValuesError,
    is_nested_deeper,
    outline,
    parse_json,
)


def nested(levels: int, innermost: object = 1) -> object:
    value = innermost
    for level in range(levels):
        value = [value] if level % 2 else {"a": value}
    return value


@pytest.mark.parametrize(
    "text",
    ["[" * 100_000, '{"a":' * 100_000, "[" * 100_000 + "]" * 100_000, '{"a":"]]]]","b":' * 9_000, "[{" * 9_000],
)
def test_text_that_is_nested_too_deeply_is_refused_before_it_is_parsed(text):
    with pytest.raises(JsonDepthError, match="at most 150 levels"):
        parse_json(text)
    with pytest.raises(JsonDepthError):
        parse_json(text.encode())


def test_limits_are_inclusive():
    deepest = json.dumps(nested(JSON_DEPTH_MAX))
    assert json.dumps(parse_json(deepest)) == deepest
    with pytest.raises(JsonDepthError):
        parse_json(json.dumps(nested(JSON_DEPTH_MAX + 1)))


@pytest.mark.parametrize("text", [b"[" + b"{}," * 400_000 + b"1]", b"[" + b"1," * 400_000 + b"1]"])
def test_dense_text_is_refused_before_it_is_parsed(text):
    with pytest.raises(JsonValuesError, match="at most 400000 values"):
        parse_json(text)


def test_commas_and_brackets_in_a_string_are_no_values():
    text = json.dumps({"a": "{},[]," * 200_000})
    assert parse_json(text) == json.loads(text)


@pytest.mark.parametrize(
    "text", [b"", b"{", b"}", b"[}", b"{]", b'"a', b'{"a":1}}', b"\xff", '{"a":1}'.encode("utf-16")]
)
def test_text_that_is_no_json_is_a_value_error(text):
    with pytest.raises(ValueError, match=r".") as raised:
        parse_json(text)
    assert not isinstance(raised.value, jsontext.JsonLimitError)


# Outlines


def test_outline_of_endless_nesting_uses_no_recursion():
    text = (
        b'{"metadata":{"managedFields":['
        + b'{"a":' * 50_000
        + b"1"
        + b"}" * 50_000
        + b'],"name":"deep"},"spec":[{},1]}'
    )
    assert json.loads(outline(text, b"metadata").text) == {
        "metadata": {"managedFields": [], "name": "deep"},
        "spec": [],
    }


def test_value_that_contains_itself_or_is_aliased_is_measured_fast():
    circle: list[Any] = []
    circle.append(circle)
    assert is_nested_deeper(circle, JSON_DEPTH_MAX)
    bomb: list[Any] = ["x"]
    for _ in range(100):
        bomb = [bomb] * 9
    assert not is_nested_deeper(bomb, JSON_DEPTH_MAX)
