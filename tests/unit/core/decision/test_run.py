"""Since when an object runs, whether it is suspended, and whether it has what a stop writes."""

import pytest

from shared.core.deadlines.deadline import is_merged
from shared.core.decision.finish import Run, run_of
from shared.core.kinds.ttl_and_deadline import DeadlineRule
from shared.core.values.objects import parse_instant

RULE = DeadlineRule.model_validate(
    {
        "startedAt": [{"condition": "Suspended", "status": "False"}, "metadata.creationTimestamp"],
        "suspended": {"any": [{"field": "spec.suspend", "values": [True]}, {"condition": "Suspended"}]},
        "stop": {"patch": {"spec": {"suspend": True}}},
    }
)
CREATED, RESUMED = "2026-01-02T03:00:00Z", "2026-01-02T03:30:00Z"


def obj(*conditions, suspend=None, created=CREATED):
    return {
        "metadata": {"creationTimestamp": created},
        "spec": {} if suspend is None else {"suspend": suspend},
        "status": {
            "conditions": [{"type": "Suspended", "status": one, "lastTransitionTime": at} for one, at in conditions]
        },
    }


@pytest.mark.parametrize(
    ("running", "started_at", "is_suspended"),
    [
        (obj(), CREATED, False),
        (obj(("False", RESUMED)), RESUMED, False),
        (obj(suspend=True), CREATED, True),
        (obj(("True", RESUMED)), CREATED, True),
        (obj(("True", RESUMED), suspend=False), CREATED, True),
        (obj(("False", "2026-01-02T02:59:59Z")), CREATED, False),
        (obj(("False", None)), CREATED, False),
        (obj(("False", "soon")), CREATED, False),
        (obj(created=None), None, False),
        ({}, None, False),
    ],
)
def test_run_starts_with_the_object_or_its_last_resume(running, started_at, is_suspended):
    assert run_of(running, RULE) == Run(started_at and parse_instant(started_at), is_suspended)


@pytest.mark.parametrize("running", [{"status": {"conditions": {}}}, {"spec": {"suspend": []}}])
def test_run_of_an_object_of_unknown_shape_is_unknown(running):
    assert run_of(running, RULE) is None


@pytest.mark.parametrize(
    ("present", "patch", "expected"),
    [
        ({"spec": {"suspend": True, "other": 1}}, {"spec": {"suspend": True}}, True),
        ({"spec": {"suspend": False}}, {"spec": {"suspend": True}}, False),
        ({"spec": {"suspend": "true"}}, {"spec": {"suspend": True}}, False),
        ({"spec": {"limit": True}}, {"spec": {"limit": 1}}, False),
        ({"spec": {"limit": 1.0}}, {"spec": {"limit": 1}}, False),
        ({"spec": {"limit": 1}}, {"spec": {"limit": 1}}, True),
        ({"spec": None}, {"spec": {"suspend": True}}, False),
        ({"spec": []}, {"spec": {"suspend": True}}, False),
        ({}, {"spec": {"suspend": True}}, False),
        ({"spec": {}}, {"spec": {"suspend": None}}, True),
        ({"spec": {"a": 1, "b": 2}}, {"spec": {"a": 1, "b": 3}}, False),
        (None, {"spec": {"suspend": True}}, False),
    ],
)
def test_patch_is_in_place_if_the_object_has_all_its_values(present, patch, expected):
    assert is_merged(present, patch) is expected
