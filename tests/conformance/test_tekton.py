"""The cases of Tekton Results and of Tekton Pruner that tell whether and when a run is deleted, under their names.

tektoncd/results pkg/watcher/reconciler/dynamic/dynamic_test.go (TestReconcile_TaskRun): its grace period is our TTL,
counted from the completion time as there. tektoncd/pruner pkg/config/ttl_handler_test.go and
pkg/reconciler/taskrun/reconciler_test.go. Where ours differs on purpose, the case says so.
"""

from datetime import timedelta

import pytest

from shared.core.decision.decide import Reason
from shared.core.decision.finish import Finish, finish_of
from shared.core.decision.namespaces import namespace_of
from shared.core.kinds.rule import Outcome
from shared.core.policy.policy import Policy
from tests.builders import (
    LONG_AGO,
    NOW,
    ago,
    annotated,
    condition,
    having,
    kind_rule,
    later,
    namespace,
    owned_by,
    stamp,
)
from tests.conformance.answers import answer, seconds

TASKRUN, PIPELINERUN, CUSTOMRUN = (kind_rule(f"{kind}s.tekton.dev") for kind in ("taskrun", "pipelinerun", "customrun"))
TEKTON = "tekton.dev/v1"


def run(kind="TaskRun", *, api_version=TEKTON, done=None, at=None, conditions=None, **annotations):
    """A run, done where its outcome is given ("True", "False"), with its completion time where one is."""
    if conditions is None:
        conditions = [condition("Succeeded", at or ago(60), status=done or "Unknown")]
    status = {"startTime": stamp(LONG_AGO), "conditions": conditions}
    if at is not None:
        status["completionTime"] = stamp(at)
    metadata = {"name": "build-1", "namespace": "ci", "uid": "run-uid", "creationTimestamp": stamp(LONG_AGO)}
    obj = {"apiVersion": api_version, "kind": kind, "metadata": metadata, "status": status}
    return annotated(obj, **annotations)


RESULTS = {
    "delete object once grace period elapses: before": (run(done="True", at=NOW, ttl="1s"), seconds(1)),
    "delete object once grace period elapses: after": (run(done="True", at=ago(2), ttl="1s"), seconds(-1)),
    "delete failed runs": (run(done="False", at=ago(2), ttl="1s"), seconds(-1)),
    "a grace period of 0 disables deletion: no TTL, ours of 0 is at once": (run(done="True", at=ago(2)), Reason.NO_TTL),
    "a negative grace period deletes at once: a TTL of 0 with us": (run(done="True", at=NOW, ttl="0"), seconds(0)),
    "a negative TTL is none": (run(done="True", at=NOW, ttl="-1s"), Reason.INVALID_TTL),
    "not done: no condition": (run(conditions=[], ttl="0"), Reason.UNFINISHED),
    "not done: Succeeded is Unknown": (run(ttl="0"), Reason.UNFINISHED),
    "not done: Succeeded is Unknown, with a completion time": (run(at=ago(60), ttl="0"), Reason.UNFINISHED),
    "no completion time: waits for one there; the condition's counts here": (run(done="True", ttl="90s"), seconds(30)),
    "after an outage longer than the grace period: at once": (
        run(done="True", at=ago(86400), ttl="1h"),
        seconds(-82800),
    ),
}


@pytest.mark.parametrize(("obj", "expected"), RESULTS.values(), ids=RESULTS)
def test_tekton_results_decision_matches(obj, expected):
    assert answer(obj, TASKRUN) == expected


@pytest.mark.parametrize(
    ("kind", "rule", "api_version"),
    [
        ("PipelineRun", PIPELINERUN, TEKTON),
        ("PipelineRun", PIPELINERUN, "tekton.dev/v1beta1"),
        ("TaskRun", TASKRUN, "tekton.dev/v1beta1"),
        ("CustomRun", CUSTOMRUN, "tekton.dev/v1beta1"),
    ],
)
def test_tekton_results_decision_matches_for_each_kind_and_version(kind, rule, api_version):
    obj = run(kind, api_version=api_version, done="True", at=ago(2), ttl="1s")

    assert answer(obj, having_version(rule, api_version)) == seconds(-1)


def having_version(rule, api_version):
    return rule.model_copy(update={"api_versions": (api_version,)})


DUE = run(done="True", at=ago(2), ttl="1s")
OWNED = owned_by(DUE, "PipelineRun", api_version=TEKTON)
OWNERS = {
    # check_owner is false there; here the owner is looked at, and one that is done does not keep what it owns.
    "delete object with owner references when owner check is disabled": (
        annotated(owned_by(DUE, "Deployment", api_version="apps/v1"), owner="ignore"),
        True,
        seconds(-1),
    ),
    "do not delete object with owner references has PipelineRun object and owner check is disabled": (
        OWNED,
        True,
        Reason.OWNER_UNFINISHED,
    ),
    "the same, and the PipelineRun is done: kept there, goes here by its own TTL": (OWNED, False, seconds(-1)),
    "do not delete object with owner references when owner check is enabled": (
        owned_by(DUE, "Deployment", api_version="apps/v1"),
        True,
        Reason.OWNER_UNFINISHED,
    ),
    "an owner that is no controller is none": (
        owned_by(DUE, "ConfigMap", api_version="v1", controller=False),
        False,
        seconds(-1),
    ),
}


@pytest.mark.parametrize(("obj", "owner_unfinished", "expected"), OWNERS.values(), ids=OWNERS)
def test_tekton_results_decision_matches_for_owned_runs(obj, owner_unfinished, expected):
    assert answer(obj, TASKRUN, owner_unfinished=owner_unfinished) == expected


def test_run_owned_by_a_pipelinerun_is_unfinished():
    """deleteUponCompletion, before it looks at check_owner: for a PipelineRun in a PipelineRun too."""
    child = owned_by(run("PipelineRun", done="True", at=ago(2), ttl="1s"), "PipelineRun", api_version=TEKTON)

    assert answer(child, PIPELINERUN, owner_unfinished=False) == Reason.UNFINISHED


PRUNER_COMPLETED = {
    "Completed with CompletionTime": (run(done="True", at=ago(60)), Finish(True, ago(60), Outcome.SUCCEEDED)),
    # There a completion time alone completes; Tekton's own IsDone asks for the condition, and so do we.
    "Completed with CompletionTime: without the condition": (run(at=ago(60), conditions=[]), Finish(finished=False)),
    "Completed with Succeeded condition": (run(done="True"), Finish(True, ago(60), Outcome.SUCCEEDED)),
    "Not completed - no start time": ({**run(), "status": {}}, Finish(finished=False)),
    "Not completed - pending": (run(), Finish(finished=False)),
    "a run that failed before its start: never pruned there": (
        {**run(), "status": {"conditions": [condition("Succeeded", ago(60), status="False")]}},
        Finish(True, ago(60), Outcome.FAILED),
    ),
}


@pytest.mark.parametrize(("obj", "finish"), PRUNER_COMPLETED.values(), ids=PRUNER_COMPLETED)
def test_tekton_pruner_finish_matches(obj, finish):
    assert finish_of(obj, TASKRUN) == finish


PRUNER = {
    "Resource not completed": (run(ttl="60"), Reason.UNFINISHED),
    "Resource completed and TTL expired": (run(done="True", at=ago(7200), ttl="1h"), seconds(-3600)),
    "No annotations": (run(done="True", at=ago(60)), Reason.NO_TTL),
    "Has TTL annotation but not completed": (run(ttl="60"), Reason.UNFINISHED),
    "Has TTL annotation and completed - global enforcement": (run(done="True", at=NOW, ttl="60"), seconds(60)),
    "Has TTL=-1 annotation - resource enforcement: `never` with us": (
        run(done="True", at=ago(60), ttl="never"),
        Reason.NEVER,
    ),
    "TTL=-1 is no TTL of ours": (run(done="True", at=ago(60), ttl="-1"), Reason.INVALID_TTL),
    "Has TTL annotation matching config - resource enforcement": (run(done="True", at=ago(59), ttl="60"), seconds(1)),
    "Empty TTL annotation": (run(done="True", at=ago(60), ttl=""), Reason.INVALID_TTL),
    "completed in the future, by another clock: deferred": (run(done="True", at=later(5), ttl="10"), seconds(15)),
}


@pytest.mark.parametrize(("obj", "expected"), PRUNER.values(), ids=PRUNER)
def test_tekton_pruner_decision_matches(obj, expected):
    assert answer(obj, TASKRUN) == expected


def test_annotation_of_the_tekton_pruner_is_ignored():
    obj = having(
        run(done="True", at=ago(60)), "metadata.annotations", {"pruner.tekton.dev/ttlSecondsAfterFinished": "0"}
    )

    assert answer(obj, TASKRUN) == Reason.NO_TTL


def test_run_is_due_at_the_exact_instant():
    assert answer(run(done="True", at=ago(60), ttl="60"), TASKRUN) == timedelta(0)


def ruled(**rule):
    return Policy.model_validate({"rules": [{"name": "results", "match": {"kinds": ["taskruns"]}, **rule}]})


def labelled(obj, **labels):
    return having(obj, "metadata.labels", labels)


DONE = run(done="True", at=ago(2))
GRACE = {"ttl": "1s"}
SELECTING = {**GRACE, "match": {"kinds": ["taskruns"], "labels": {"matchLabels": {"foo": "bar"}}}}
OF_A_DEPLOYMENT = owned_by(DONE, "Deployment", api_version="apps/v1")
FLAGS = {
    "delete object once grace period elapses: a flag for all": (DONE, GRACE, False, seconds(-1)),
    "label selector does not match": (labelled(DONE, foo="other"), SELECTING, False, Reason.NO_TTL),
    "label selector matches, also where the label came late": (
        labelled(DONE, foo="bar"),
        SELECTING,
        False,
        seconds(-1),
    ),
    "owner references when owner check is enabled": (OF_A_DEPLOYMENT, GRACE, True, Reason.OWNER_UNFINISHED),
    "owner references when owner check is disabled: kept by the kind, since its owner runs it again": (
        OF_A_DEPLOYMENT,
        {**GRACE, "onOwned": "delete"},
        True,
        Reason.OWNER_UNFINISHED,
    ),
    "a PipelineRun when owner check is disabled": (
        owned_by(DONE, "PipelineRun", api_version=TEKTON),
        {**GRACE, "onOwned": "delete"},
        True,
        Reason.OWNER_UNFINISHED,
    ),
    "the run's own word is before the flag": (annotated(DONE, ttl="never"), GRACE, False, Reason.NEVER),
}


@pytest.mark.parametrize(("obj", "rule", "owner_unfinished", "expected"), FLAGS.values(), ids=FLAGS)
def test_policy_matches_the_flags_of_tekton_results(obj, rule, owner_unfinished, expected):
    assert answer(obj, TASKRUN, owner_unfinished=owner_unfinished, policy=ruled(**rule)) == expected


HISTORY = {"ttl": "0s", "keepLast": 2, "keepLastFailed": 1, "keepLastBy": {"label": "tekton.dev/pipeline"}}
FAILED = run(done="False", at=ago(2))
LIMITS = {
    "successfulHistoryLimit 2: the newest": (DONE, 0, Reason.KEPT_LAST),
    "successfulHistoryLimit 2: the second": (DONE, 1, Reason.KEPT_LAST),
    "successfulHistoryLimit 2: the third": (DONE, 2, seconds(-2)),
    "failedHistoryLimit 1: the newest": (FAILED, 0, Reason.KEPT_LAST),
    "failedHistoryLimit 1: the second": (FAILED, 1, seconds(-2)),
    "a run that is not completed counts for nothing": (run(), 5, Reason.UNFINISHED),
}


@pytest.mark.parametrize(("obj", "newer", "expected"), LIMITS.values(), ids=LIMITS)
def test_policy_matches_the_history_limits_of_the_tekton_pruner(obj, newer, expected):
    assert answer(obj, TASKRUN, policy=ruled(**HISTORY), newer=newer) == expected


LEVELS = {
    "global": ({}, {}, seconds(58)),
    "namespace": ({"default_ttl": "30"}, {}, seconds(58)),
    "resource": ({}, {"ttl": "10"}, seconds(8)),
}


@pytest.mark.parametrize(("space", "own", "expected"), LEVELS.values(), ids=LEVELS)
def test_policy_order_matches_the_levels_of_the_tekton_pruner(space, own, expected):
    """There the enforced level is a setting; here the object is before the policy, and that before the namespace."""
    reported = answer(annotated(DONE, **own), TASKRUN, policy=ruled(ttl="60s"), space=namespace_of(namespace(**space)))

    assert reported == expected
