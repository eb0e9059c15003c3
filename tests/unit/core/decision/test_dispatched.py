"""Objects that another cluster sent here: kept for it, unless a policy rule says otherwise."""

import pytest
from pydantic import ValidationError

from shared.core.decision.decide import Context, Expire, Ignore, Reason, decide
from shared.core.decision.makers import DISPATCHERS, find_cleaners, find_dispatcher
from shared.core.decision.namespaces import namespace_of
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
    not_none,
    pod,
)

DONE = job(complete=ago(60), ttl=30)
ORIGIN = {"kueue.x-k8s.io/multikueue-origin": "multikueue"}
SENT = having(DONE, "metadata.labels", ORIGIN)
HOME = namespace_of(namespace())


def policy(*rules):
    named = [{"name": f"rule-{n}", "match": {"kinds": ["*"]}, **rule} for n, rule in enumerate(rules)]
    return Policy.model_validate({"rules": named})


def decided(obj, rules=NO_POLICY, kind=JOB, place=HOME, now=NOW):
    return decide(obj, kind, now, Context(rules, place))


@pytest.mark.parametrize("labels", [{one.label: one.value or "x"} for one in DISPATCHERS if one.label])
def test_due_object_that_another_cluster_sent_is_kept(labels):
    decision = decided(having(DONE, "metadata.labels", {"app": "x", **labels}))

    assert isinstance(decided(DONE), Expire)
    assert (type(decision), decision.reason) == (Ignore, Reason.DISPATCHED)
    assert decision.facts.dispatcher.label in labels
    assert decision.facts.due_at == ago(30)


def test_due_object_of_an_applied_manifest_work_is_kept():
    owner = {
        "apiVersion": "work.open-cluster-management.io/v1",
        "kind": "AppliedManifestWork",
        "name": "a",
        "uid": "u",
    }
    assert decided(having(DONE, "metadata.ownerReferences", [owner])).reason is Reason.DISPATCHED
    assert isinstance(decided(having(DONE, "metadata.ownerReferences", [owner | {"kind": "Other"}])), Expire)


@pytest.mark.parametrize("labels", [{"karmada.io/managed": "false"}, {"multikueue-origin": "x"}, None, [], {"a": 1}])
def test_object_with_other_labels_is_not_dispatched(labels):
    assert find_dispatcher(having(DONE, "metadata.labels", labels)) is None
    assert isinstance(decided(having(DONE, "metadata.labels", labels)), Expire)


@pytest.mark.parametrize("annotations", [{"ttl": "0s"}, {"expire-at": "2026-01-02T03:04:05Z"}, {"owner": "ignore"}])
def test_annotation_on_a_dispatched_object_does_not_delete_it(annotations):
    assert decided(annotated(SENT, **annotations)).reason is Reason.DISPATCHED


def test_dispatched_object_of_each_kind_is_kept():
    for obj, kind in ((pod("Failed", containers=[ended(at=ago(60))], ttl="0"), POD), (DONE, JOB)):
        assert isinstance(decided(obj, kind=kind), Expire)
        assert decided(having(obj, "metadata.labels", ORIGIN), kind=kind).reason is Reason.DISPATCHED
    workload = kind_rules()["workloads.kueue.x-k8s.io"]
    assert not_none(workload.finished).unless is None, "one mechanism"


def test_dispatched_object_that_is_kept_anyway_has_the_other_reason():
    assert decided(having(job(), "metadata.labels", ORIGIN)).reason is Reason.UNFINISHED
    assert decided(having(job(complete=ago(60)), "metadata.labels", ORIGIN)).reason is Reason.NO_TTL
    assert decided(annotated(SENT, hold="why")).reason is Reason.HELD


def test_dispatched_object_is_kept_without_its_namespace():
    assert decided(SENT, place=None).reason is Reason.DISPATCHED


@pytest.mark.parametrize(
    ("rules", "is_deleted"),
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
def test_first_matching_rule_with_on_dispatched_decides(rules, is_deleted):
    assert isinstance(decided(SENT, policy(*rules)), Expire) is is_deleted


def test_min_age_delays_the_deletion_of_a_dispatched_object():
    """The setting to use if that cluster may never return."""
    rules = policy({"onDispatched": "delete", "minAge": "7d"})
    decision = decided(SENT, rules)
    assert decision.reason is Reason.NOT_DUE
    assert isinstance(decided(SENT, rules, now=decision.until), Expire)


def test_on_dispatched_does_not_apply_to_other_objects():
    unreadable = policy({"onDispatched": "delete", "when": "object.spec.absent == 1"})
    assert isinstance(decided(DONE, unreadable), Expire)
    assert decided(SENT, unreadable).reason is Reason.INVALID_POLICY


def test_on_dispatched_with_an_age_is_rejected():
    with pytest.raises(ValidationError, match="expected no age"):
        policy({"onDispatched": "delete", "match": {"kinds": ["*"], "age": "7d"}})


def test_dispatcher_is_listed_as_a_cleaner():
    (does,) = [does for name, does in find_cleaners(SENT, JOB) if name == "MultiKueue"]
    assert "runs it again" in does
    assert "MultiKueue" not in [name for name, _ in find_cleaners(DONE, JOB)]
