"""The other cleaners of an object, and its finalizers, as found in its metadata."""

import pytest

from shared.core.decision.makers import CLEANERS, UNKNOWN_FINALIZER, find_cleaners, find_finalizers
from shared.core.kinds.predicates import Predicate
from shared.core.kinds.rule import Cleaner
from tests.builders import JOB, POD, having, job, owned_by, pod

PLAIN = POD.model_copy(update={"cleaners": (), "finalizers": {}})


def names(obj, rule=PLAIN):
    return [name for name, _ in find_cleaners(obj, rule)]


@pytest.mark.parametrize(
    ("kind", "key", "value", "name"),
    [
        ("annotations", "meta.helm.sh/release-name", "web", "Helm"),
        ("labels", "app.kubernetes.io/managed-by", "Helm", "Helm"),
        ("annotations", "helm.sh/hook", "post-install", "Helm's hooks"),
        ("annotations", "argocd.argoproj.io/hook", "Sync", "Argo CD's hooks"),
        ("labels", "olm.owner", "web.v1", "OLM"),
        ("labels", "applyset.kubernetes.io/part-of", "id", "kubectl apply --prune"),
        ("labels", "cleanup.kyverno.io/ttl", "1h", "Kyverno"),
        ("annotations", "janitor/ttl", "1h", "kube-janitor"),
        ("annotations", "k8s-ttl-controller.twin.sh/ttl", "1h", "k8s-ttl-controller"),
    ],
)
def test_cleaner_is_found_by_its_label_or_annotation(kind, key, value, name):
    obj = pod()
    obj["metadata"][kind] = {key: value}
    assert names(obj) == [name]


def test_object_without_known_labels_has_no_other_cleaner():
    marked = pod()
    marked["metadata"]["labels"] = {"app.kubernetes.io/managed-by": "kustomize", "app.kubernetes.io/instance": "web"}
    assert names(pod()) == names(marked) == []


def test_garbage_collector_is_listed_if_the_object_has_an_owner():
    assert names(owned_by(pod(), "Job")) == ["The garbage collector"]


def test_native_controller_is_listed_first_if_its_field_is_set():
    found = list(find_cleaners(job(ttl=60), JOB))
    assert found[0][0] == "kube-controller-manager"
    assert "spec.ttlSecondsAfterFinished: 60" in found[0][1]
    assert "kube-controller-manager" not in names(job(), JOB)
    assert "kube-controller-manager" not in names(job(ttl="soon"), JOB)


def test_cleaner_of_the_rule_is_listed_if_its_test_holds():
    limits = Cleaner(name="its history limits", does="x", when=Predicate(label="cron"))
    broken = Cleaner(name="odd", does="x", when=Predicate(field="metadata.name[*].x"))
    rule = PLAIN.model_copy(update={"cleaners": (limits, broken)})
    obj = pod()
    assert names(obj, rule) == []
    obj["metadata"]["labels"] = {"cron": "nightly"}
    assert names(obj, rule) == ["its history limits"]


def test_each_cleaner_has_a_condition():
    assert all(one.when for one in CLEANERS)


def test_finalizer_of_the_rule_takes_precedence_over_the_general_ones():
    rule = PLAIN.model_copy(update={"finalizers": {"example.com/data": "deletes the data"}})
    obj = having(pod(), "metadata.finalizers", ["example.com/data", "foregroundDeletion", "example.com/x", 7])
    assert list(find_finalizers(obj, rule)) == [
        ("example.com/data", "deletes the data"),
        ("foregroundDeletion", "the garbage collector deletes its dependents first"),
        ("example.com/x", UNKNOWN_FINALIZER),
    ]


@pytest.mark.parametrize("finalizers", [None, "x", {"a": 1}])
def test_malformed_finalizers_count_as_none(finalizers):
    assert list(find_finalizers(having(pod(), "metadata.finalizers", finalizers), PLAIN)) == []
