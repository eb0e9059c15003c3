"""Strict YAML: values that YAML versions read differently are rejected, with their line."""

import json
from typing import Any

import pytest
from pydantic import BaseModel

from shared.adapters.config.kind_files import read_catalogue
from shared.adapters.config.policy_file import parse_policy
from shared.adapters.config.yaml_file import ERRORS_SHOWN_MAX, FileError, parse_model


class Written(BaseModel):
    """A model of any value."""

    a: Any


def read(text: str) -> Any:
    return parse_model(text, Written, name="policy.yaml").a


def reported(text: str) -> str:
    with pytest.raises(FileError) as error:
        read(text)
    return str(error.value)


@pytest.mark.parametrize(
    "text",
    [
        *("010", "08", "-07", "0755", "0o10", "0b10", "-0x1f", "1_000", "1_0.5", "1:30", "-1:30:00", "1:30.5"),
        *("yes", "No", "ON", "off", "2026-01-02", "2026-01-02T03:04:05Z", "2026-13-45"),
    ],
)
def test_unquoted_value_that_yaml_versions_read_differently_is_rejected(text):
    expected = f"policy.yaml:3: '{text}': expected quotes around it, or a plain number, true or false"

    assert reported(f"# a line\n\na: {text}").startswith(expected)
    assert reported(f"a: 1\n\n{text}: 1").startswith(expected)
    assert reported(f"a: 1\n\nb: [{{c: {text}}}]").startswith(expected)
    assert read(f"a: '{text}'") == text
    assert read(f"a: |-\n  {text}") == text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("-1", -1),
        ("3600", 3600),
        ("0x1F", 31),
        ("0.50", 0.5),
        ("-.5", -0.5),
        ("1e-05", 1e-05),
        ("1E+3", 1000.0),
        ("true", True),
        ("False", False),
        ("~", None),
        ("1h30m", "1h30m"),
        ("50%", "50%"),
        ("7d", "7d"),
        ("1.2.3", "1.2.3"),
        ("e3", "e3"),
        ("yes please", "yes please"),
    ],
)
def test_unquoted_value_that_yaml_versions_read_alike_is_accepted(text, value):
    assert read(f"a: {text}") == value


def test_json_is_read_as_json():
    document = {"a": [1e-05, 1e300, -1.5e-7, 0, -1, 2.0, True, None, "010", "yes", "2026-01-02", "1:30", ""]}

    assert read(json.dumps(document)) == document["a"]
    assert read(json.dumps(document, indent=2)) == document["a"]


def test_duplicate_key_is_rejected_at_any_depth():
    assert reported('{"a": {"x": 1, "x": 2}}') == "policy.yaml:1: x: expected it once, got it twice"
    assert reported("a:\n- b: 1\n  'b': 2") == "policy.yaml:3: b: expected it once, got it twice"


def test_merged_key_may_be_overridden():
    assert read("b: &b {x: 1}\na: {<<: *b, x: 2}") == {"x": 2}


def test_errors_are_reported_in_order_and_an_aliased_one_once():
    assert [line.split(": ")[:2] for line in reported("a: &a [on, 010]\nb: *a\nc:\n  off: 1").splitlines()] == [
        ["policy.yaml:1", "'010'"],
        ["policy.yaml:1", "'on'"],
        ["policy.yaml:4", "'off'"],
    ]
    many = reported("\n".join(f"- 0{number}" for number in range(10, 30))).splitlines()
    assert len(many) == ERRORS_SHOWN_MAX + 1
    assert many[-1] == "policy.yaml: and 10 more"


@pytest.mark.parametrize("ttl", ["010", "1:30", "1_000", "2026-01-02", "{succeeded: 010}"])
def test_policy_with_an_ambiguous_unquoted_ttl_is_rejected(ttl):
    text = f"rules: [{{name: a, match: {{kinds: [jobs]}}, ttl: {ttl}}}]"

    with pytest.raises(FileError, match=r"policy\.yaml:1: .*expected quotes around it"):
        parse_policy(text, read_catalogue(), name="policy.yaml")


def test_kind_rule_with_an_unquoted_yes_is_rejected(tmp_path):
    (tmp_path / "gizmo.yaml").write_text("finished: {field: status.done, values: {yes: succeeded}}")

    with pytest.raises(FileError, match=r"gizmo\.yaml:1: 'yes': expected quotes"):
        read_catalogue(tmp_path)


def test_nested_aliases_are_rejected_before_they_are_expanded():
    levels = [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9)]
    with pytest.raises(FileError, match="at most 100000 values, with aliases expanded"):
        parse_model("\n".join(["a0: &a0 [x]", *levels]), BaseModel, name="bomb.yaml")
