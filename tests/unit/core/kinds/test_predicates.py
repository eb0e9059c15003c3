"""The tests of objects in kind rules."""

from typing import Any

import pytest
from pydantic import ValidationError

from shared.core.kinds.predicates import Predicate, UnknownShapeError, holds, values_at

OBJ: dict[str, Any] = {
    "metadata": {"labels": {"example.com/done": "true", "empty": ""}, "annotations": {"template": "yes"}},
    "spec": {"retries": 3, "suspend": False, "empty": "", "nothing": None},
    "status": {
        "phase": "Failed",
        "parts": [{"phase": "Done", "ends": ["a", "b"]}, {"phase": "Broken"}, {}],
        "conditions": [
            {"type": "Ready", "status": "False", "reason": "Denied"},
            {"type": "Odd"},
            "no condition",
            {"type": "Accepted", "status": "True"},
        ],
    },
}


@pytest.mark.parametrize(
    ("test", "holding"),
    [
        ({"condition": "Accepted"}, True),
        ({"condition": "Ready"}, False),
        ({"condition": "Ready", "status": "False"}, True),
        ({"condition": "Ready", "status": ["Unknown", "False"]}, True),
        ({"condition": "Ready", "status": "False", "reasons": ["Failed", "Denied"]}, True),
        ({"condition": "Ready", "status": "False", "reasons": ["Failed"]}, False),
        ({"condition": "Odd"}, False),
        ({"condition": "Missing"}, False),
        ({"field": "status.phase"}, True),
        ({"field": "status.phase", "values": ["Failed", "Error"]}, True),
        ({"field": "status.phase", "values": ["failed"]}, False),
        ({"field": "status.missing"}, False),
        ({"field": "spec.empty"}, False),
        ({"field": "spec.empty", "values": [""]}, True),
        ({"field": "spec.nothing"}, False),
        ({"field": "spec.retries", "values": [3]}, True),
        ({"field": "spec.retries", "values": ["3"]}, False),
        ({"field": "spec.suspend", "values": [False]}, True),
        ({"field": "spec.suspend", "values": [0]}, False),
        ({"field": "spec.suspend"}, True),
        ({"field": "status.parts[*].phase", "values": ["Broken"]}, True),
        ({"field": "status.parts[*].phase", "values": ["Lost"]}, False),
        ({"field": "status.parts[*].ends[*]", "values": ["b"]}, True),
        ({"field": "status.lost[*].phase"}, False),
        ({"label": "example.com/done", "values": ["true"]}, True),
        ({"label": "example.com/done", "values": ["false"]}, False),
        ({"label": "empty"}, False),
        ({"label": "missing"}, False),
        ({"annotation": "template"}, True),
        ({"annotation": "example.com/done"}, False),
        ({"all": [{"label": "example.com/done"}, {"annotation": "template"}]}, True),
        ({"all": [{"label": "example.com/done"}, {"annotation": "missing"}]}, False),
        ({"any": [{"annotation": "missing"}, {"label": "example.com/done"}]}, True),
        ({"any": [{"annotation": "missing"}, {"label": "missing"}]}, False),
        ({"none": [{"annotation": "missing"}, {"label": "missing"}]}, True),
        ({"none": [{"annotation": "missing"}, {"label": "example.com/done"}]}, False),
        ({"cel": "object.spec.retries > 2"}, True),
        ({"cel": "object.spec.retries > 3"}, False),
    ],
    ids=str,
)
def test_predicate_holds_if_the_object_matches(test, holding):
    assert holds(Predicate.model_validate(test), OBJ) is holding


@pytest.mark.parametrize(
    ("test", "obj"),
    [
        ({"condition": "Ready"}, {"status": {"conditions": {"Ready": True}}}),
        ({"field": "status.parts[*].phase"}, {"status": {"parts": {"one": {}}}}),
        ({"field": "status.phase", "values": ["Done"]}, {"status": {"phase": ["Done"]}}),
        ({"label": "a", "values": ["b"]}, {"metadata": {"labels": {"a": ["b"]}}}),
        ({"cel": "object.status.phase == 'x'"}, {}),
        ({"any": [{"label": "a"}, {"cel": "object.b"}]}, {"metadata": {"labels": {"a": "1"}}}),
        ({"all": [{"label": "a"}, {"cel": "object.b"}]}, {}),
        ({"none": [{"cel": "object.b"}]}, {}),
    ],
    ids=str,
)
def test_predicate_with_an_unknown_result_raises(test, obj):
    with pytest.raises(UnknownShapeError):
        holds(Predicate.model_validate(test), obj)


@pytest.mark.parametrize(
    "obj", [None, [], 7, "x", {"status": None}, {"status": []}, {"metadata": {"labels": []}}], ids=str
)
@pytest.mark.parametrize("test", [{"condition": "Ready"}, {"field": "status.parts[*].x"}, {"label": "a"}], ids=str)
def test_predicate_on_an_absent_value_does_not_hold(obj, test):
    assert not holds(Predicate.model_validate(test), obj)


@pytest.mark.parametrize(
    ("test", "field"),
    [
        ({"condition": "Ready", "status": []}, "status"),
        ({"condition": "Ready", "reasons": []}, "reasons"),
        ({"field": "status.phase", "values": []}, "values"),
        ({"label": "a", "values": []}, "values"),
    ],
    ids=str,
)
def test_predicate_with_an_empty_list_is_rejected(test, field):
    with pytest.raises(ValidationError, match=f"expected a value for {field}, or no such field"):
        Predicate.model_validate(test)


def test_path_through_nested_lists_returns_all_values():
    assert list(values_at(OBJ, "status.parts[*].ends[*]")) == ["a", "b"]
    assert list(values_at(OBJ, "status.parts[*].phase")) == ["Done", "Broken"]
