"""Why an object has not finished, by its kind's rule."""

import pytest

from shared.core.decision.finish import finish_of
from shared.core.kinds.rule import KindRule
from shared.core.kinds.wording import FOUND_MAX, explain_unfinished
from tests.builders import JOB, POD, condition, having, job, kind_cases, kind_rule, not_none, pod

FAILED = {"field": "status.phase", "values": ["Failed"]}
CASES = {
    "kind": "Run",
    "plural": "runs",
    "apiVersions": ["example.com/v1"],
    "finished": {
        "cases": [
            {"when": {"condition": "Ready", "reasons": ["Done"]}, "outcome": "succeeded"},
            {"when": {"all": [FAILED, {"label": "final"}]}, "outcome": "failed"},
        ],
        "unless": {"field": "status.parts[*].phase", "values": ["Uploading"]},
    },
    "observedGeneration": "status.observedGeneration",
    "finishedAt": ["managed-fields"],
}
RULE = KindRule.model_validate(CASES)


def run(status, **metadata):
    return {"apiVersion": "example.com/v1", "kind": "Run", "metadata": metadata, "status": status}


@pytest.mark.parametrize(
    ("obj", "rule", "why"),
    [
        (job(), JOB, "no condition Complete or Failed with status True"),
        (
            job(conditions=[condition("Suspended", "2026-01-02T03:04:05Z", reason="JobSuspended")]),
            JOB,
            "no condition Complete or Failed with status True; condition Suspended is True (JobSuspended)",
        ),
        (pod("Running"), POD, "status.phase is Running, not Succeeded or Failed"),
        (pod(None), POD, "status.phase is not set, not Succeeded or Failed"),
        (
            run({"phase": "Running"}),
            RULE,
            (
                "there is no condition Ready; status.phase is Running; label final is not set; it finishes if "
                "condition Ready is True with reason Done or status.phase is Failed and label final is set"
            ),
        ),
        (
            run({"conditions": [condition("Ready", reason="Done")], "parts": [{"phase": "Uploading"}]}),
            RULE,
            "it has ended, but status.parts[*].phase is Uploading",
        ),
        (
            run({"observedGeneration": 3, "phase": "Failed"}, generation=4, labels={"final": "x"}),
            RULE,
            "status.observedGeneration is 3, behind metadata.generation 4: its status describes an older spec",
        ),
        (having(job(), "status.conditions", "none"), JOB, "status.conditions: expected a list"),
    ],
)
def test_missing_condition_or_field_is_named(obj, rule, why):
    assert str(not_none(explain_unfinished(obj, rule)).why) == why


def test_expected_and_found_values_are_in_the_json():
    assert not_none(explain_unfinished(pod("Running"), POD)).as_json() == {
        "why": "status.phase is Running, not Succeeded or Failed",
        "expected": ["status.phase is Succeeded", "status.phase is Failed"],
        "found": ["status.phase is Running"],
    }


def test_each_unfinished_fixture_has_an_explanation_and_no_finished_one():
    failures = []
    for name, cases in kind_cases().items():
        rule = kind_rule(name)
        for case in cases:
            reported = explain_unfinished(case["object"], rule)
            is_over = case["expect"]["finished"] or rule.never_finishes is not None
            is_short = reported is None or (reported.why and len(reported.found) <= FOUND_MAX)
            if (reported is None) is not is_over or not is_short:
                failures.append(f"{name}: {case['name']}: {reported}")
    assert failures == []


@pytest.mark.parametrize("status", [None, [], "text", {"conditions": [1, None]}, {"phase": {"a": []}}, {"parts": 3}])
def test_object_of_any_shape_has_an_explanation_if_unfinished(status):
    for rule in (RULE, JOB, POD):
        obj = run(status)
        assert (explain_unfinished(obj, rule) is None) is bool(finish_of(obj, rule).finished)


def test_long_value_is_cut_off():
    assert len(not_none(explain_unfinished(pod("x" * 10_000), POD)).why) < 200
