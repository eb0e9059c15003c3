"""An inherited TTL: which object sets it, what it sets, and its precedence."""

from datetime import timedelta

import pytest

from shared.core.decision.decide import Context, Reason, decide, may_expire
from shared.core.decision.facts import NOTHING_KNOWN
from shared.core.decision.namespaces import namespace_of, plain_namespace
from shared.core.policy.policy import NO_POLICY
from shared.core.ttl.ttl import InheritedFact, Ttl, find_ttl_source, read_ttl_of_source
from shared.core.values.objects import ObjectRef
from tests.builders import (
    JOB,
    NOW,
    TRAINJOB,
    ago,
    annotated,
    having,
    job,
    later,
    namespace,
    not_none,
    owned_by,
    runtime,
    trainjob,
    without,
)
from tests.unit.core.ttl.test_precedence import rules

GROUP = "trainer.kubeflow.org"
CLUSTER_RUNTIME = ObjectRef(f"{GROUP}/v1alpha1", "ClusterTrainingRuntime", "", "torch-distributed", "")
DONE = trainjob(complete=ago(60))
FIELD = "spec.ttlSecondsAfterFinished"
OF_RUNTIME = "spec.runPolicy.ttlSecondsAfterFinished"


def inherited(value, source=CLUSTER_RUNTIME):
    return read_ttl_of_source(source, runtime(value), not_none(TRAINJOB.ttl))


def decided(obj, fact=None, *, policy=NO_POLICY, place=None):
    return decide(obj, TRAINJOB, NOW, Context(policy, place or plain_namespace("ml"), inherited=fact))


@pytest.mark.parametrize(
    ("ref", "source"),
    [
        ({"name": "torch-distributed"}, CLUSTER_RUNTIME),
        ({"name": "torch-distributed", "kind": "ClusterTrainingRuntime", "apiGroup": GROUP}, CLUSTER_RUNTIME),
        (
            {"name": "mine", "kind": "TrainingRuntime"},
            ObjectRef(f"{GROUP}/v1alpha1", "TrainingRuntime", "ml", "mine", ""),
        ),
        ({"name": "s", "kind": "Slurm", "apiGroup": "x.io"}, ObjectRef("x.io/", "Slurm", "ml", "s", "")),
        ({"name": ["a"], "kind": 7}, ObjectRef(f"{GROUP}/", "", "ml", "", "")),
        ({}, ObjectRef(f"{GROUP}/v1alpha1", "ClusterTrainingRuntime", "", "", "")),
        ("torch", ObjectRef(f"{GROUP}/v1alpha1", "ClusterTrainingRuntime", "", "", "")),
        (None, None),
    ],
    ids=str,
)
def test_source_follows_from_the_reference(ref, source):
    assert find_ttl_source(having(DONE, "spec.runtimeRef", ref), TRAINJOB.ttl) == source


def test_kind_without_inheritance_has_no_source():
    assert find_ttl_source(having(job(), "spec.runtimeRef", {"name": "torch"}), JOB.ttl) is None
    assert find_ttl_source(DONE, None) is None


@pytest.mark.parametrize(("value", "after"), [(0, timedelta()), (90, timedelta(seconds=90))])
def test_runtime_sets_the_ttl(value, after):
    source = f"{OF_RUNTIME} of ClusterTrainingRuntime torch-distributed"

    assert inherited(value) == InheritedFact(CLUSTER_RUNTIME, Ttl(source, after=after, origin="inherited"))


def test_first_field_of_the_runtime_counts():
    flat = having(runtime(), FIELD, 30)
    both = having(runtime(90), FIELD, 30)
    found = [read_ttl_of_source(CLUSTER_RUNTIME, one, not_none(TRAINJOB.ttl)).ttl for one in (flat, both)]

    assert [not_none(one).after for one in found] == [timedelta(seconds=30), timedelta(seconds=90)]


def test_ttl_of_the_jobset_template_is_not_inherited():
    assert inherited(None) == InheritedFact(CLUSTER_RUNTIME)


@pytest.mark.parametrize("value", [-1, "soon", 1.5, True, [], 10**20])
def test_malformed_ttl_of_a_runtime_keeps_the_object(value):
    decision = decided(DONE, inherited(value), policy=rules(ttl="1s"))

    assert decision.reason is Reason.INVALID_TTL
    assert decision.facts.problem.startswith(
        f"ClusterTrainingRuntime torch-distributed: {OF_RUNTIME}: expected whole seconds"
    )


PRECEDENCE = {
    "the annotation": (annotated(having(DONE, FIELD, 200), ttl="100s"), 300, 40),
    "the object's own field": (having(DONE, FIELD, 200), 300, 140),
    "the inherited field": (DONE, 300, 240),
    "the policy": (DONE, None, 340),
    "a reference to nothing: the policy": (without(DONE, "spec.runtimeRef"), None, 340),
}


@pytest.mark.parametrize(("obj", "value", "remaining"), PRECEDENCE.values(), ids=PRECEDENCE)
def test_first_source_sets_the_ttl(obj, value, remaining):
    policy, place = rules(match={"kinds": ["trainjobs"]}, ttl="400s"), namespace_of(namespace("ml", default_ttl="500s"))

    decision = decided(obj, inherited(value), policy=policy, place=place)

    assert decision.facts.due_at == later(remaining)


def test_default_of_the_namespace_applies_after_the_inherited_ttl():
    place = namespace_of(namespace("ml", default_ttl="500s"))

    assert decided(DONE, inherited(300), place=place).facts.due_at == later(240)
    assert decided(DONE, inherited(None), place=place).facts.due_at == later(440)


def test_max_ttl_of_the_namespace_shortens_an_inherited_ttl():
    place = namespace_of(namespace("ml", max_ttl="100s"))

    assert decided(DONE, inherited(300), place=place).facts.due_at == later(40)


@pytest.mark.parametrize("policy", [NO_POLICY, rules(match={"kinds": ["trainjobs"]}, ttl="1s")], ids=["none", "policy"])
def test_unread_source_keeps_the_object(policy):
    """The runtime may set a longer TTL than the policy."""
    assert decided(DONE, policy=policy).reason is Reason.INHERITED_UNREAD


def test_source_of_another_object_does_not_count():
    other = inherited(0, ObjectRef(f"{GROUP}/v1alpha1", "ClusterTrainingRuntime", "", "other", ""))

    assert decided(DONE, other).reason is Reason.INHERITED_UNREAD
    assert decided(having(DONE, FIELD, 0), other).reason is Reason.EXPIRED


@pytest.mark.parametrize(
    ("obj", "reason"),
    [
        (trainjob(conditions=[]), Reason.UNFINISHED),
        (annotated(DONE, hold="audit"), Reason.HELD),
        (annotated(DONE, ttl="never"), Reason.NEVER),
        (annotated(DONE, ttl="soon"), Reason.INVALID_TTL),
        (having(DONE, FIELD, -1), Reason.INVALID_TTL),
        (having(DONE, "metadata.deletionTimestamp", "2026-03-14T15:00:00Z"), Reason.TERMINATING),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_source_is_not_read_if_another_reason_keeps_the_object(obj, reason):
    assert decided(obj).reason is reason


def test_unfinished_owner_keeps_an_object_with_an_inherited_ttl():
    obj = owned_by(DONE, "OptimizationJob")
    context = Context(namespace=plain_namespace("ml"), owner_unfinished=True, inherited=inherited(0))

    assert decide(obj, TRAINJOB, NOW, context).reason is Reason.OWNER_UNFINISHED
    assert decide(having(obj, FIELD, 0), TRAINJOB, NOW, context).reason is Reason.EXPIRED


def test_rank_is_known_although_the_source_was_not_read():
    policy = rules(match={"kinds": ["trainjobs"]}, keepLast=2)

    assert decided(DONE, policy=policy).facts.keep_last_rule is policy.rules[0]
    assert decided(DONE, inherited(0), policy=policy).reason is Reason.RANK_UNREAD


def test_object_that_may_inherit_may_expire():
    place = plain_namespace("ml")

    assert may_expire(DONE, TRAINJOB, Context(namespace=place))
    assert not may_expire(without(DONE, "spec.runtimeRef"), TRAINJOB, Context(namespace=place))
    assert not may_expire(annotated(DONE, hold="audit"), TRAINJOB, NOTHING_KNOWN)
