"""The cases of the TTL that Argo Workflows gives a Workflow, and Argo Rollouts an AnalysisRun, under their names.

argoproj/argo-workflows workflow/gccontroller/gc_controller_test.go; argoproj/argo-rollouts analysis/analysis_test.go.
Both delete a second late or more; ours is due on the second.
"""

import pytest

from shared.core.decision.decide import Reason
from tests.builders import LONG_AGO, ago, having, kind_rule, stamp, without
from tests.conformance.answers import answer, seconds

WORKFLOW, ANALYSISRUN = kind_rule("workflows.argoproj.io"), kind_rule("analysisruns.argoproj.io")
API = "argoproj.io/v1alpha1"
SUCCESS, FAILURE, COMPLETION = "secondsAfterSuccess", "secondsAfterFailure", "secondsAfterCompletion"


def workflow(phase, finished, *, own=None, template=None, **labels):
    done = {"workflows.argoproj.io/completed": "true", "workflows.argoproj.io/phase": phase}
    labels = done | {f"workflows.argoproj.io/{name.replace('_', '-')}": value for name, value in labels.items()}
    status = {"phase": phase, "finishedAt": stamp(finished)}
    if template is not None:
        status["storedWorkflowTemplateSpec"] = {"ttlStrategy": template}
    return {
        "apiVersion": API,
        "kind": "Workflow",
        "metadata": {"name": "build", "namespace": "ci", "labels": labels, "creationTimestamp": stamp(LONG_AGO)},
        "spec": {} if own is None else {"ttlStrategy": own},
        "status": status,
    }


def analysisrun(phase, finished, **ttl):
    return {
        "apiVersion": API,
        "kind": "AnalysisRun",
        "metadata": {"name": "web-1", "namespace": "shop", "creationTimestamp": stamp(LONG_AGO)},
        "spec": {"ttlStrategy": ttl} if ttl else {},
        "status": {"phase": phase, "completedAt": stamp(finished)},
    }


WORKFLOWS = {
    "TestTTLStrategySucceeded: 5 s of 10": (workflow("Succeeded", ago(5), own={SUCCESS: 10}), seconds(5)),
    "TestTTLStrategySucceeded: 11 s of 10": (workflow("Succeeded", ago(11), own={SUCCESS: 10}), seconds(-1)),
    "TestTTLStrategySucceeded: the template's": (
        workflow("Succeeded", ago(11), template={COMPLETION: 10}),
        seconds(-1),
    ),
    "TestTTLStrategySucceeded: its own over the template's": (
        workflow("Succeeded", ago(11), own={COMPLETION: 10}, template={COMPLETION: 3600}),
        seconds(-1),
    ),
    "TestTTLStrategyFailed: 5 s of 10": (workflow("Failed", ago(5), own={FAILURE: 10}), seconds(5)),
    "TestTTLStrategyFailed: 11 s of 10": (workflow("Failed", ago(11), own={FAILURE: 10}), seconds(-1)),
    "TestNoTTLStrategyFailed": (workflow("Failed", ago(11)), Reason.NO_TTL),
    "TestTTLStrategyFromUnstructured: failed, a TTL of success": (
        workflow("Failed", ago(6), own={SUCCESS: 5}),
        Reason.NO_TTL,
    ),
    "TestTTLlExpired: failed, of completion, 5 s of 10": (workflow("Failed", ago(5), own={COMPLETION: 10}), seconds(5)),
    "TestTTLlExpired: failed, of completion": (workflow("Failed", ago(11), own={COMPLETION: 10}), seconds(-1)),
    "TestGetTTLStrategy TTLInWfwithWorkflowTemplate: neither has one": (workflow("Succeeded", ago(11)), Reason.NO_TTL),
    "its own as a whole: the template's TTL of success does not show through": (
        workflow("Succeeded", ago(11), own={FAILURE: 10}, template={SUCCESS: 10}),
        Reason.NO_TTL,
    ),
    "an error is no failure": (workflow("Error", ago(11), own={FAILURE: 10}), Reason.NO_TTL),
    "an error is a completion": (workflow("Error", ago(11), own={FAILURE: 1, COMPLETION: 10}), seconds(-1)),
    "common.IsDone: it waits for the archive": (
        workflow("Succeeded", ago(11), own={SUCCESS: 10}, workflow_archiving_status="Pending"),
        Reason.UNFINISHED,
    ),
    "common.IsDone: archived": (
        workflow("Succeeded", ago(11), own={SUCCESS: 10}, workflow_archiving_status="Archived"),
        seconds(-1),
    ),
    "deleteWorkflow: retried since it was queued": (
        without(workflow("Failed", ago(11), own={FAILURE: 10}), "metadata.labels"),
        Reason.UNFINISHED,
    ),
    "deleteWorkflow: being deleted": (
        having(workflow("Failed", ago(11), own={FAILURE: 10}), "metadata.deletionTimestamp", stamp(ago(1))),
        Reason.TERMINATING,
    ),
}


@pytest.mark.parametrize(("obj", "expected"), WORKFLOWS.values(), ids=WORKFLOWS)
def test_argo_workflow_decision_matches(obj, expected):
    assert answer(obj, WORKFLOW) == expected


ANALYSISRUNS = {
    "TestExceededTtlChecked: succeeded": (analysisrun("Successful", ago(86401), **{SUCCESS: 86400}), seconds(-1)),
    "TestExceededTtlChecked: failed": (analysisrun("Failed", ago(86401), **{FAILURE: 86400}), seconds(-1)),
    "TestExceededTtlChecked: of completion": (analysisrun("Failed", ago(86401), **{COMPLETION: 86400}), seconds(-1)),
    "TestExceededTtlChecked: of success before that of completion": (
        analysisrun("Successful", ago(60), **{SUCCESS: 86400, COMPLETION: 1}),
        seconds(86340),
    ),
    "TestExceededTtlChecked: inconclusive": (
        analysisrun("Inconclusive", ago(60), **{FAILURE: 1, SUCCESS: 1}),
        Reason.NO_TTL,
    ),
    "TestTtlNotGCInProgressAnalysisRun": (analysisrun("Running", ago(86401), **{COMPLETION: 1}), Reason.UNFINISHED),
    "TestMaybeGarbageCollectAnalysisRunNoGCIfNotCompleted": (
        analysisrun("Pending", None, **{COMPLETION: 1}),
        Reason.UNFINISHED,
    ),
    "TestMaybeGarbageCollectAnalysisRunNoGCIfWithDeletionTimestamp": (
        having(analysisrun("Successful", ago(60), **{COMPLETION: 1}), "metadata.deletionTimestamp", stamp(ago(1))),
        Reason.TERMINATING,
    ),
    "TestMaybeGarbageCollectAnalysisRunNoGCIfNoTTLStrategy": (analysisrun("Successful", ago(86401)), Reason.NO_TTL),
    "TestMaybeGarbageCollectAnalysisRunNoGCIfNoCompletedAt": (
        analysisrun("Error", None, **{COMPLETION: 1}),
        Reason.FINISH_TIME_UNKNOWN,
    ),
}


@pytest.mark.parametrize(("obj", "expected"), ANALYSISRUNS.values(), ids=ANALYSISRUNS)
def test_argo_analysisrun_decision_matches(obj, expected):
    assert answer(obj, ANALYSISRUN) == expected
