"""The cases of Kubeflow Trainer that tell when a TrainJob has finished, and those of its proposal for a TTL.

kubeflow/trainer test/integration/controller/trainjob_controller_test.go and test/e2e/e2e_test.go, by their names: what
they leave in the status is what we decide on. proposals/2899-resource-timeouts/README.md describes the TTL, which
Trainer does not have; ours comes from an annotation.
"""

import pytest

from shared.core.decide import Reason
from shared.core.finish import Finish, finish_of
from shared.core.kinds.rule import Outcome
from tests.builders import TRAINJOB, ago, condition, having, later, trainjob
from tests.conformance.answers import answer, seconds

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


TTL = {
    "TTL unset": (trainjob(complete=ago(3600)), Reason.NO_TTL),
    "TTL expired": (trainjob(complete=ago(60), ttl="30"), seconds(-30)),
    "TTL pending": (trainjob(complete=ago(60), ttl="90"), seconds(30)),
    "TTL of zero": (trainjob(complete=ago(60), ttl="0"), seconds(-60)),
    "TTL, unfinished": (trainjob(conditions=[], ttl="0"), Reason.UNFINISHED),
    "TTL, suspended": (trainjob(conditions=[suspended(ago(3600))], ttl="0"), Reason.UNFINISHED),
    "TTL and deadline, completed within it": (
        having(trainjob(complete=ago(60), ttl="90"), "spec.activeDeadlineSeconds", 3600),
        seconds(30),
    ),
    "TTL and deadline, exceeded: from the Failed condition": (
        having(trainjob(conditions=[DEADLINE_EXCEEDED], ttl="90"), "spec.activeDeadlineSeconds", 10),
        seconds(30),
    ),
    "finished in the future, by another clock: deferred": (trainjob(complete=later(5), ttl="10"), seconds(15)),
    "a TTL field, which Trainer does not have": (
        having(trainjob(complete=ago(60)), "spec.ttlSecondsAfterFinished", 0),
        Reason.NO_TTL,
    ),
}


@pytest.mark.parametrize(("obj", "expected"), TTL.values(), ids=TTL)
def test_trainjob_ttl_matches_its_proposal(obj, expected):
    assert answer(obj, TRAINJOB) == expected
