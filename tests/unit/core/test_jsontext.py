"""Limits of JSON, measured on bytes, and the outline of a text that exceeds them."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shared.core import jsontext
from shared.core.jsontext import (
    DEPTH_MAX,
    JsonDepthError,
    JsonValuesError,
    check_json,
    is_nested_deeper,
    outline,
    parse_json,
)

UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
TRICKY = st.text(alphabet='"\\{}[],:aé\U0001f600\n', max_size=12)
ANY = st.recursive(
    st.none() | st.integers() | TRICKY,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TRICKY, inner, max_size=4),
    max_leaves=40,
)


def nested(levels: int, innermost: object = 1) -> object:
    value = innermost
    for level in range(levels):
        value = [value] if level % 2 else {"a": value}
    return value


def depth_of(value: object) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(depth_of, inner), default=0)


def values_of(value: object) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(map(values_of, inner))


@UNHURRIED
@given(ANY, st.booleans(), st.sampled_from([None, 2]), st.integers(1, 9))
def test_depth_is_exact_for_any_strings_and_any_chunks(value, is_ascii, indent, chunk):
    text = json.dumps(value, ensure_ascii=is_ascii, indent=indent).encode()
    depth = depth_of(value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsontext, "_CHUNK", chunk)
        check_json(text, depth_max=depth)
        assert parse_json(text, depth_max=depth) == value
        if depth:
            with pytest.raises(JsonDepthError):
                check_json(text, depth_max=depth - 1)


@UNHURRIED
@given(ANY, st.integers(1, 9))
def test_values_are_counted_outside_of_strings(value, chunk):
    text = json.dumps(value).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsontext, "_CHUNK", chunk)
        patch.setattr(jsontext, "VALUES_MAX", 2 * values_of(value))  # an empty container counts twice
        check_json(text)
        patch.setattr(jsontext, "VALUES_MAX", values_of(value) - 1)
        with pytest.raises(JsonValuesError):
            check_json(text)


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
    deepest = json.dumps(nested(DEPTH_MAX))
    assert json.dumps(parse_json(deepest)) == deepest
    with pytest.raises(JsonDepthError):
        parse_json(json.dumps(nested(DEPTH_MAX + 1)))


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


@UNHURRIED
@given(ANY, TRICKY, st.data())
def test_outline_of_a_truncated_text_is_json_with_the_requested_keys(value, scalar, data):
    reported = {"a": value, "metadata": {"b": value, "name": scalar}, "c": {"metadata": value}, "d": scalar}
    text = json.dumps(reported).encode()
    found = json.loads(outline(text, b"metadata").text)
    assert found["metadata"]["name"] == found["d"] == scalar
    assert found["c"] == {}
    assert not any(inner for inner in (found["a"], found["metadata"]["b"]) if isinstance(inner, dict | list))
    end = data.draw(st.integers(1, len(text)))
    json.loads(outline(text[:end], b"metadata").text)


@UNHURRIED
@given(st.lists(st.dictionaries(TRICKY, ANY, min_size=1, max_size=3), max_size=5), ANY, st.booleans())
def test_outline_finds_the_items_of_a_list_at_any_position(items, other, is_last):
    page = {"kind": "XList", "metadata": {"continue": "next", "x": {"items": [{"a": 1}]}}}
    page = {**page, "items": items} if is_last else {"items": items, "other": other, **page}
    text = json.dumps(page).encode()
    found = outline(text, b"metadata", b"items")
    assert [json.loads(text[start:end]) for start, end in found.items] == items
    assert json.loads(found.text)["metadata"]["continue"] == "next"


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


@UNHURRIED
@given(ANY)
def test_depth_of_a_parsed_value_is_exact(value):
    depth = depth_of(value)
    assert not is_nested_deeper(value, depth)
    assert not depth or is_nested_deeper(value, depth - 1)


def test_value_that_contains_itself_or_is_aliased_is_measured_fast():
    circle: list[Any] = []
    circle.append(circle)
    assert is_nested_deeper(circle, DEPTH_MAX)
    bomb: list[Any] = ["x"]
    for _ in range(100):
        bomb = [bomb] * 9
    assert not is_nested_deeper(bomb, DEPTH_MAX)
