"""The cases of Kubeflow Trainer that say when a TrainJob has finished, and those of its proposal for a TTL.

kubeflow/trainer test/integration/controller/trainjob_controller_test.go and test/e2e/e2e_test.go, by their names: what
they leave in the status is what we decide on. No release has a TTL: the cases by the names of
pkg/controller/trainjob_ttl_test.go and of its integration tests are those of pull request 3065, and those of the value
resolution are those of proposals/2899-resource-timeouts/README.md in pull request 3824.
`tests/integration/test_trainjobs.py` has the same cases on a real API server.
"""

import pytest

from shared.core.decision.decide import Reason
from shared.core.decision.finish import Finish, finish_of
from shared.core.kinds.rule import Outcome
from shared.core.ttl.ttl import InheritedFact, find_ttl_source, read_ttl_of_source
from shared.core.values.objects import get_in
from tests.builders import TRAINJOB, ago, annotated, condition, having, later, not_none, runtime, trainjob, without
from tests.conformance.answers import answer, seconds

FIELD = "spec.ttlSecondsAfterFinished"
UNFINISHED = Finish(finished=False)
DEADLINE_EXCEEDED = condition("Failed", ago(60), reason="DeadlineExceeded")


def suspended(at, *, resumed=False):
    if resumed:
        return condition("Suspended", at, status="False", reason="Resumed")
    return condition("Suspended", at, reason="Suspended")


INTEGRATION = {
    "Should fail TrainJob with DeadlineExceeded when ActiveDeadlineSeconds expires": (
        trainjob(conditions=[DEADLINE_EXCEEDED]),
        Finish(True, ago(60), Outcome.FAILED),
    ),
    "Should not fail TrainJob if ActiveDeadlineSeconds is not exceeded": (
        having(trainjob(conditions=[]), "spec.activeDeadlineSeconds", 3600),
        UNFINISHED,
    ),
    "Should not start deadline timer if TrainJob is suspended": (
        trainjob(conditions=[suspended(ago(3600))]),
        UNFINISHED,
    ),
    "Should reset deadline timer upon resume": (  # codespell:ignore upon
        trainjob(conditions=[suspended(ago(62), resumed=True), DEADLINE_EXCEEDED]),
        Finish(True, ago(60), Outcome.FAILED),
    ),
    "Should succeeded to update JobSet when TrainJob is suspended": (
        trainjob(conditions=[suspended(ago(60), resumed=True)]),
        UNFINISHED,
    ),
    "Should succeeded to reconcile TrainJob conditions with Complete condition": (
        trainjob(conditions=[suspended(ago(90), resumed=True), condition("Complete", ago(60))]),
        Finish(True, ago(60), Outcome.SUCCEEDED),
    ),
    "Should succeeded to reconcile TrainJob conditions with Failed condition": (
        trainjob(conditions=[suspended(ago(90), resumed=True), condition("Failed", ago(60))]),
        Finish(True, ago(60), Outcome.FAILED),
    ),
    "Should not reconcile TrainJob managed by an external controller": (
        having(having(trainjob(conditions=[]), "status", {}), "spec.managedBy", "kueue.x-k8s.io/multikueue"),
        UNFINISHED,
    ),
    "should fail the TrainJob with DeadlineExceeded when active timeout expires": (
        having(trainjob(conditions=[DEADLINE_EXCEEDED]), "spec.activeDeadlineSeconds", 10),
        Finish(True, ago(60), Outcome.FAILED),
    ),
}


@pytest.mark.parametrize(("obj", "finish"), INTEGRATION.values(), ids=INTEGRATION)
def test_trainer_finish_matches_its_tests(obj, finish):
    assert finish_of(obj, TRAINJOB) == finish


DONE = trainjob(complete=ago(60))
EXCEEDED = having(trainjob(conditions=[DEADLINE_EXCEEDED]), "spec.activeDeadlineSeconds", 10)
PENDING = having(trainjob(conditions=[]), "spec.activeDeadlineSeconds", 3600)


def by_field(obj, value):
    return having(obj, FIELD, value)


FINISH_TIME = {
    "no conditions - returns nil": (trainjob(conditions=[]), UNFINISHED),
    "suspended condition only - returns nil": (trainjob(conditions=[suspended(ago(300))]), UNFINISHED),
    "complete condition with status true - returns finish time": (
        trainjob(complete=ago(300)),
        Finish(True, ago(300), Outcome.SUCCEEDED),
    ),
    "complete condition with status false - returns nil": (
        trainjob(conditions=[condition("Complete", ago(300), status="False")]),
        UNFINISHED,
    ),
    "failed condition with status true - returns finish time": (
        trainjob(failed=ago(300)),
        Finish(True, ago(300), Outcome.FAILED),
    ),
    "complete condition with zero time - returns nil": (
        trainjob(conditions=[condition("Complete", None)]),
        Finish(True, None, Outcome.SUCCEEDED),
    ),
}


@pytest.mark.parametrize(("obj", "finish"), FINISH_TIME.values(), ids=FINISH_TIME)
def test_trainjob_finish_time_matches_its_unit_tests(obj, finish):
    assert finish_of(obj, TRAINJOB) == finish


TTL = {
    "TTL not set - returns false": (trainjob(complete=ago(300)), None, Reason.NO_TTL),
    "TTL set but job not finished - returns false": (
        trainjob(conditions=[suspended(ago(300), resumed=True)]),
        60,
        Reason.UNFINISHED,
    ),
    "TTL set and job completed - returns true": (trainjob(complete=ago(300)), 60, seconds(-240)),
    "TTL set and job failed - returns true": (trainjob(failed=ago(300)), 60, seconds(-240)),
    "TTL = 0 and job completed - returns true": (trainjob(complete=ago(300)), 0, seconds(-300)),
    "Should not delete TrainJob when TTL is not set": (DONE, None, Reason.NO_TTL),
    "Should delete TrainJob after TTL expires": (by_field(DONE, 3), None, seconds(-57)),
    "Should delete TrainJob after TTL expires (from TrainingRuntime)": (DONE, 3, seconds(-57)),
    "Should handle TTL=0 for immediate deletion": (DONE, 0, seconds(-60)),
    "Value resolution: TrainJob value set, runtime default ignored": (by_field(DONE, 90), 30, seconds(30)),
    "Value resolution: TrainJob value unset, runtime default used": (DONE, 30, seconds(-30)),
    "Value resolution: neither set, feature disabled": (DONE, None, Reason.NO_TTL),
    "TTL unset": (DONE, None, Reason.NO_TTL),
    "TTL expired": (by_field(DONE, 30), None, seconds(-30)),
    "TTL expired at this instant": (by_field(DONE, 60), None, seconds(0)),
    "TTL pending: the exact remaining time": (by_field(DONE, 90), None, seconds(30)),
    "TTL of zero: at once": (by_field(DONE, 0), None, seconds(-60)),
    "TTL, unfinished": (by_field(trainjob(conditions=[]), 0), None, Reason.UNFINISHED),
    "TTL, suspended": (by_field(trainjob(conditions=[suspended(ago(3600))]), 0), None, Reason.UNFINISHED),
    "TTL, managed by Kueue, finished": (
        having(by_field(DONE, 30), "spec.managedBy", "kueue.x-k8s.io/multikueue"),
        None,
        seconds(-30),
    ),
    "finished in the future, by another clock: deferred": (
        by_field(trainjob(complete=later(5)), 10),
        None,
        seconds(15),
    ),
    "runtime: TTL expired": (DONE, 30, seconds(-30)),
    "runtime: TTL pending": (DONE, 90, seconds(30)),
    "runtime: TTL of zero": (DONE, 0, seconds(-60)),
    "runtime: TTL, unfinished": (trainjob(conditions=[]), 0, Reason.UNFINISHED),
    "both set: the TrainJob's own, longer": (by_field(DONE, 90), 0, seconds(30)),
    "both set: the TrainJob's own, shorter": (by_field(DONE, 0), 90, seconds(-60)),
    "annotation and both set: the annotation": (annotated(by_field(DONE, 0), ttl="90s"), 0, seconds(30)),
    "malformed: kept": (by_field(DONE, -1), None, Reason.INVALID_TTL),
    "runtime: malformed: kept": (DONE, "1h", Reason.INVALID_TTL),
    "malformed runtime, and an own TTL": (by_field(DONE, 90), "1h", seconds(30)),
    "TTL and deadline, running": (by_field(PENDING, 0), None, Reason.UNFINISHED),
    "TTL and deadline, completed within it": (
        by_field(having(DONE, "spec.activeDeadlineSeconds", 3600), 90),
        None,
        seconds(30),
    ),
    "DeadlineExceeded, then TTL: from the Failed condition": (by_field(EXCEEDED, 90), None, seconds(30)),
    "DeadlineExceeded, then TTL of zero": (by_field(EXCEEDED, 0), None, seconds(-60)),
    "DeadlineExceeded, then the runtime's TTL": (EXCEEDED, 90, seconds(30)),
    "DeadlineExceeded after a resume, then TTL": (
        by_field(trainjob(conditions=[suspended(ago(62), resumed=True), DEADLINE_EXCEEDED]), 90),
        None,
        seconds(30),
    ),
}


@pytest.mark.parametrize(("obj", "of_runtime", "expected"), TTL.values(), ids=TTL)
def test_trainjob_ttl_matches_its_proposal(obj, of_runtime, expected):
    source = not_none(find_ttl_source(obj, TRAINJOB.ttl))
    fact = read_ttl_of_source(source, runtime(of_runtime), not_none(TRAINJOB.ttl))

    assert answer(obj, TRAINJOB, inherited=fact) == expected


@pytest.mark.parametrize("name", [name for name, (_, of_runtime, _) in TTL.items() if of_runtime is None])
def test_ttl_by_annotation_matches_the_ttl_by_field(name):
    """Where the CRD has no field, the annotation takes its place."""
    obj, _, expected = TTL[name]
    value = get_in(obj, FIELD)
    obj = without(obj, FIELD)
    obj = obj if value is None else annotated(obj, ttl=str(value))
    source = not_none(find_ttl_source(obj, TRAINJOB.ttl))

    assert answer(obj, TRAINJOB, inherited=InheritedFact(source)) == expected
