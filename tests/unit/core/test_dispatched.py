"""Objects that another cluster sent here: kept for it, unless a policy rule says otherwise."""

import pytest
from pydantic import ValidationError

from shared.core.cleaners import find_cleaners
from shared.core.decide import Context, Expire, Ignore, Reason, decide
from shared.core.dispatchers import DISPATCHERS, find_dispatcher
from shared.core.namespaces import namespace_of
from shared.core.policy.policy import NO_POLICY, Policy
from tests.builders import (
    JOB,
    NOW,
    POD,
    ago,
    annotated,
    ended,
    having,
    job,
    kind_rules,
    namespace,
    pod,
)

DONE = job(complete=ago(60), ttl=30)
ORIGIN = {"kueue.x-k8s.io/multikueue-origin": "multikueue"}
SENT = having(DONE, "metadata.labels", ORIGIN)
HOME = namespace_of(namespace())


def policy(*rules):
    said = [{"name": f"rule-{n}", "match": {"kinds": ["*"]}, **rule} for n, rule in enumerate(rules)]
    return Policy.model_validate({"rules": said})


def decided(obj, rules=NO_POLICY, kind=JOB, place=HOME, now=NOW):
    return decide(obj, kind, now, Context(rules, place))


@pytest.mark.parametrize("labels", [{one.label: one.value or "x"} for one in DISPATCHERS if one.label])
def test_a_due_object_that_another_cluster_sent_is_kept(labels):
    decision = decided(having(DONE, "metadata.labels", {"app": "x", **labels}))

    assert isinstance(decided(DONE), Expire)
    assert (type(decision), decision.reason) == (Ignore, Reason.DISPATCHED)
    assert decision.facts.dispatcher.label in labels
    assert decision.facts.due_at == ago(30)


def test_an_object_of_an_applied_manifest_work_is_kept():
    owner = {
        "apiVersion": "work.open-cluster-management.io/v1",
        "kind": "AppliedManifestWork",
        "name": "a",
        "uid": "u",
    }
    assert decided(having(DONE, "metadata.ownerReferences", [owner])).reason is Reason.DISPATCHED
    assert isinstance(decided(having(DONE, "metadata.ownerReferences", [owner | {"kind": "Other"}])), Expire)


@pytest.mark.parametrize("labels", [{"karmada.io/managed": "false"}, {"multikueue-origin": "x"}, None, [], {"a": 1}])
def test_other_labels_mean_nothing(labels):
    assert find_dispatcher(having(DONE, "metadata.labels", labels)) is None
    assert isinstance(decided(having(DONE, "metadata.labels", labels)), Expire)


@pytest.mark.parametrize("annotations", [{"ttl": "0s"}, {"expire-at": "2026-01-02T03:04:05Z"}, {"owner": "ignore"}])
def test_an_annotation_came_with_the_object_and_does_not_count(annotations):
    assert decided(annotated(SENT, **annotations)).reason is Reason.DISPATCHED


def test_the_rule_is_the_same_for_every_kind():
    for obj, kind in ((pod("Failed", containers=[ended(at=ago(60))], ttl="0"), POD), (DONE, JOB)):
        assert isinstance(decided(obj, kind=kind), Expire)
        assert decided(having(obj, "metadata.labels", ORIGIN), kind=kind).reason is Reason.DISPATCHED
    workload = kind_rules()["workloads.kueue.x-k8s.io"]
    assert workload.finished.unless is None, "one mechanism"


def test_what_would_not_be_deleted_anyway_has_its_own_reason():
    assert decided(having(job(), "metadata.labels", ORIGIN)).reason is Reason.UNFINISHED
    assert decided(having(job(complete=ago(60)), "metadata.labels", ORIGIN)).reason is Reason.NO_TTL
    assert decided(annotated(SENT, hold="why")).reason is Reason.HELD


def test_its_namespace_need_not_be_read():
    assert decided(SENT, place=None).reason is Reason.DISPATCHED


@pytest.mark.parametrize(
    ("rules", "goes"),
    [
        ([{"onDispatched": "delete"}], True),
        ([{"onDispatched": "keep"}], False),
        ([{"ttl": "1s"}], False),
        ([{"ttl": "1s", "onDispatched": "delete"}], True),
        ([{"onDispatched": "keep"}, {"onDispatched": "delete"}], False),
        ([{"onDispatched": "delete"}, {"onDispatched": "keep"}], True),
        ([{"onDispatched": "delete", "match": {"kinds": ["pods"]}}], False),
        ([{"onDispatched": "delete", "when": "outcome == 'failed'"}], False),
        ([{"onDispatched": "delete", "match": {"kinds": ["jobs"], "labels": {"matchLabels": ORIGIN}}}], True),
    ],
)
def test_first_matching_rule_with_on_dispatched_decides(rules, goes):
    assert isinstance(decided(SENT, policy(*rules)), Expire) is goes


def test_a_minimum_age_leaves_the_other_cluster_time_to_read_the_end():
    """What to do where that cluster may be gone for good."""
    rules = policy({"onDispatched": "delete", "minAge": "7d"})
    decision = decided(SENT, rules)
    assert decision.reason is Reason.NOT_DUE
    assert isinstance(decided(SENT, rules, now=decision.until), Expire)


def test_on_dispatched_does_not_apply_to_other_objects():
    unreadable = policy({"onDispatched": "delete", "when": "object.spec.absent == 1"})
    assert isinstance(decided(DONE, unreadable), Expire)
    assert decided(SENT, unreadable).reason is Reason.INVALID_POLICY


def test_an_age_is_refused_beside_it():
    with pytest.raises(ValidationError, match="expected no age"):
        policy({"onDispatched": "delete", "match": {"kinds": ["*"], "age": "7d"}})


def test_explain_names_the_dispatcher():
    (does,) = [does for name, does in find_cleaners(SENT, JOB) if name == "MultiKueue"]
    assert "runs it again" in does
    assert "MultiKueue" not in [name for name, _ in find_cleaners(DONE, JOB)]
