"""Limits and outlines of JSON on any value: the tables are in tests/unit/core/values/test_jsontext.py."""

import json
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shared.core.values import jsontext
from shared.core.values.jsontext import (
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


NUMBERS = st.integers() | st.integers(-(2**70), 2**70) | st.floats()
WIDE = st.recursive(
    st.none() | st.booleans() | NUMBERS | TRICKY | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TRICKY, inner, max_size=4),
    max_leaves=20,
)
WORDS = (
    r'{ } [ ] " : , \ \u d800 \ud83d\ude00 \ud800 - + . 0 00 1 1e5 1E400 -0 -0.0 0.1 1. .5 true null NaN -Infinity '
    "18446744073709551616 9007199254740993.0 2.2250738585072011e-308 4.9e-324"
)
CHARACTERS = " \n\x00\x0b\ufeff\xa0\x1f\x7fé"
PIECES = st.sampled_from([*WORDS.split(), *CHARACTERS, "9" * 4301])
TEXTS = st.lists(PIECES, max_size=8).map("".join).map(str.encode) | st.binary(max_size=8)


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
        patch.setattr(jsontext, "JSON_VALUES_MAX", 2 * values_of(value))  # an empty container counts twice
        check_json(text)
        patch.setattr(jsontext, "JSON_VALUES_MAX", values_of(value) - 1)
        with pytest.raises(JsonValuesError):
            check_json(text)


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


@UNHURRIED
@given(ANY)
def test_depth_of_a_parsed_value_is_exact(value):
    depth = depth_of(value)
    assert not is_nested_deeper(value, depth)
    assert not depth or is_nested_deeper(value, depth - 1)


def outcome(parse: Callable[[bytes], object], text: bytes) -> str:
    """What a reader makes of a text, with the types of its numbers and the order of its keys."""
    try:
        return repr(parse(text))
    except ValueError:
        return "refused"


def by_the_standard_library(text: bytes) -> object:
    return json.loads(text.decode())


@settings(UNHURRIED, max_examples=400)
@given(WIDE, st.booleans(), st.sampled_from([None, 2]), TEXTS, st.data())
def test_a_text_is_parsed_as_by_the_standard_library(value, is_ascii, indent, piece, data):
    text = json.dumps(value, ensure_ascii=is_ascii, indent=indent).encode(errors="surrogatepass")
    assert outcome(parse_json, text) == outcome(by_the_standard_library, text)
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 3)))
    broken = text[:start] + piece + text[end:]
    assert outcome(parse_json, broken) == outcome(by_the_standard_library, broken)


@settings(UNHURRIED, max_examples=400)
@given(TEXTS, st.sampled_from([b"%s", b"[%s]", b'"%s"', b'{"a":1,"%s":2,"a":3}', b'{"a":%s}']))
def test_a_text_of_any_pieces_is_parsed_as_by_the_standard_library(piece, around):
    text = around.replace(b"%s", piece)
    assert outcome(parse_json, text) == outcome(by_the_standard_library, text)
