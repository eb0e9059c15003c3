"""The path of a field, as the API server names it."""

from typing import Any

import pytest

from shared.core.archive.draft import find_named, parse_field_path, without_fields
from tests.builders import copied

OBJ: dict[str, Any] = {
    "kind": "Pod",
    "metadata": {"name": "a", "labels": {"example.com/team": "x", "b": "y"}},
    "spec": {
        "tolerations": [{"key": "a"}, {"key": "b"}, {"key": "c", "operator": "Exists"}],
        "priorityClassName": "high",
        "overhead": {"cpu": "1"},
        "containers": [{"name": "c"}],
    },
}


@pytest.mark.parametrize(
    ("paths", "place", "left"),
    [
        (["spec.overhead"], "overhead", None),
        (["spec.overhead.cpu"], "overhead", {}),
        (["spec.tolerations[0]", "spec.tolerations[1]"], "tolerations", [{"key": "c", "operator": "Exists"}]),
        (["spec.tolerations[2].operator"], "tolerations", [{"key": "a"}, {"key": "b"}, {"key": "c"}]),
        (["spec.tolerations", "spec.tolerations[1]"], "tolerations", None),
        (["spec.tolerations[3]", "spec.absent.deep", "spec.overhead.cpu.x"], "overhead", {"cpu": "1"}),
    ],
)
def test_fields_are_left_out(paths: list[str], place: str, left: Any) -> None:
    before = copied(OBJ)
    after = without_fields(OBJ, [parse_field_path(path) for path in paths])
    assert before == OBJ
    assert after["spec"].get(place) == left


def test_label_is_left_out_by_its_name_in_brackets() -> None:
    after = without_fields(OBJ, [parse_field_path("metadata.labels[example.com/team]")])
    assert after["metadata"] == {"name": "a", "labels": {"b": "y"}}


@pytest.mark.parametrize("text", ["", ".", "spec.", "spec..a", "spec[", "spec[]", "a b", "spec.a]"])
def test_text_that_is_no_path_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="expected the path of a field"):
        parse_field_path(text)


@pytest.mark.parametrize("text", ["kind", "apiVersion", "metadata", "metadata.name", "metadata[namespace]"])
def test_identity_of_an_object_cannot_be_left_out(text: str) -> None:
    with pytest.raises(ValueError, match="says which object it is"):
        parse_field_path(text)


@pytest.mark.parametrize(
    ("message", "named"),
    [
        ('Pod "a" is invalid: spec.tolerations[1].key: Invalid value: "b"', ["spec.tolerations[1].key"]),
        (
            "[metadata.labels[example.com/team]: Invalid, spec.overhead: x]",
            ["metadata.labels[example.com/team]", "spec.overhead"],
        ),
        ("spec.hostname: Invalid value", []),
        ('pods "a" is forbidden: no PriorityClass with name high was found', ["spec.priorityClassName"]),
        ("Pod's Overhead doesn't match RuntimeClass's defined Overhead", ["spec.overhead"]),
        ("pod tolerations conflict with its namespace allowlist", ["spec.tolerations"]),
        ("the image of a container is not signed", []),
        ("namespaces x not found", []),
    ],
)
def test_refusal_names_fields_that_the_object_has(message: str, named: list[str]) -> None:
    assert find_named(message, OBJ) == named
