"""Objects that a controller creates again: kept from a TTL of a policy or a namespace, unless a rule says otherwise."""

import pytest
from pydantic import ValidationError

from shared.core.deadlines.decide_stop import Stop, decide_stop
from shared.core.decision.capacity import Counted
from shared.core.decision.decide import Context, Expire, Ignore, Reason, Wait, decide
from shared.core.decision.makers import APPLIERS, find_applier, find_cleaners
from shared.core.decision.namespaces import namespace_of
from shared.core.policy.policy import NO_POLICY
from tests.builders import JOB, NOW, ago, annotated, condition, having, job, kind_rule, namespace, owned_by, stamp
from tests.unit.core.ttl.test_precedence import rules

DONE = job(complete=ago(60))
ARGO, FLUX, HELM = "argocd.argoproj.io", "kustomize.toolkit.fluxcd.io/name", "helm.toolkit.fluxcd.io/name"
ON_DEADLINE, ACTIVE_DEADLINE = "ttlafterfinished.dev/on-deadline", "ttlafterfinished.dev/active-deadline"
TRACKED = f"{ARGO}/tracking-id"
MINE = "shop:batch/Job:ci/build-42"
PIPELINERUN = kind_rule("pipelineruns.tekton.dev")
HOUR = {"ttl": "1s"}


def marked(obj=DONE, *, managers=(), labels=None, annotations=None):
    for path, value in (("labels", labels), ("annotations", annotations)):
        obj = having(obj, f"metadata.{path}", value) if value is not None else obj
    entries = [{"manager": one, "operation": "Apply", "time": stamp(ago(90))} for one in managers]
    return having(obj, "metadata.managedFields", entries) if entries else obj


APPLIED = marked(annotations={TRACKED: MINE})


def decided(obj, *policy, kind=JOB, now=NOW, **fields):
    place = namespace_of(namespace(**fields))
    return decide(obj, kind, now, Context(rules(*policy) if policy else NO_POLICY, place))


MARKS = {
    "Argo CD, by annotation": marked(annotations={TRACKED: MINE}),
    "Argo CD, by an annotation of another form": marked(annotations={TRACKED: "shop"}),
    "Argo CD, with a hook of Helm that it applies": marked(annotations={TRACKED: MINE, "helm.sh/hook": "crd-install"}),
    "Argo CD, by label": marked(labels={f"{ARGO}/instance": "shop"}),
    "Argo CD, by label and manager": marked(labels={f"{ARGO}/instance": "shop"}, managers=["argocd-controller"]),
    "Argo CD, by manager": marked(labels={"app.kubernetes.io/instance": "shop"}, managers=["argocd-controller"]),
    "Argo CD, replacing": marked(managers=["argocd-application-controller"]),
    "Flux": marked(labels={FLUX: "apps"}, managers=["kustomize-controller", "kube-controller-manager"]),
    "Flux, without managedFields": marked(labels={FLUX: "apps"}),
    "Flux, with an annotation of a hook of others": marked(labels={FLUX: "apps"}, annotations={f"{ARGO}/hook": "Sync"}),
    "Flux's Helm releases": marked(labels={HELM: "shop"}, managers=["helm-controller"]),
    "Config Sync": marked(annotations={"configsync.gke.io/resource-id": "batch_job_ci_build-42"}),
    "kapp": marked(annotations={"kapp.k14s.io/identity": "v1;ci/batch/Job/build-42;batch/v1"}),
    "Fleet": marked(managers=["fleetagent"]),
    "Sveltos": marked(annotations={"projectsveltos.io/owner-name": "shop"}),
    "The addon manager": marked(labels={"addonmanager.kubernetes.io/mode": "EnsureExists"}),
}
OTHERS = {
    "no mark": DONE,
    "a label that Helm sets, too": marked(labels={"app.kubernetes.io/instance": "shop"}, managers=["helm"]),
    "a hook of Argo CD": marked(annotations={TRACKED: MINE, f"{ARGO}/hook": "PreSync"}),
    "a hook of Helm under Argo CD": marked(annotations={TRACKED: MINE, "helm.sh/hook": "pre-upgrade"}),
    "a hook of a HelmRelease": marked(annotations={"helm.sh/hook": "pre-upgrade"}, managers=["helm-controller"]),
    "a child of a CronJob": owned_by(APPLIED, "CronJob"),
    "a copied annotation": marked(annotations={TRACKED: "shop:tekton.dev/Pipeline:ci/build"}),
    "the annotation of another object of the kind": marked(annotations={TRACKED: "shop:batch/Job:ci/other"}),
    "a copied label": marked(labels={FLUX: "apps"}, managers=["Go-http-client", "controller"]),
}


def test_each_applier_has_a_case():
    assert {one.name for one in APPLIERS} == {name.partition(",")[0] for name in MARKS}


@pytest.mark.parametrize("obj", MARKS.values(), ids=MARKS)
def test_object_that_a_controller_creates_again_is_kept_from_a_policy(obj):
    decision = decided(obj, HOUR)

    assert (type(decision), decision.reason) == (Ignore, Reason.RECREATED)
    assert decision.facts.due_at == ago(59)


@pytest.mark.parametrize(("name", "obj"), MARKS.items(), ids=MARKS)
def test_applier_is_listed_as_a_cleaner(name, obj):
    assert name.partition(",")[0] in [one for one, _ in find_cleaners(obj, JOB)]


@pytest.mark.parametrize("obj", OTHERS.values(), ids=OTHERS)
def test_other_object_is_deleted(obj):
    assert find_applier(obj) is None
    assert isinstance(decided(obj, HOUR), Expire)


def test_run_with_the_marks_of_its_pipeline_is_deleted():
    """Tekton copies labels and annotations of the Pipeline to its runs, which no applier creates again."""
    kapp = {"kapp.k14s.io/identity": "v1;ci/tekton.dev/Pipeline/build;v1"}
    copied = {TRACKED: "shop:tekton.dev/Pipeline:ci/build", **kapp}
    status = {"completionTime": stamp(ago(60)), "conditions": [condition("Succeeded", ago(60))]}
    metadata = {"name": "build-x7f2q", "namespace": "ci", "uid": "u", "creationTimestamp": stamp(ago(90))}
    run = {"apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "status": status, "metadata": metadata}
    run = marked(run, labels={FLUX: "apps"}, annotations=copied, managers=["Go-http-client"])

    assert isinstance(decided(run, {**HOUR, "match": {"kinds": ["pipelineruns"]}}, kind=PIPELINERUN), Expire)


@pytest.mark.parametrize(
    "metadata",
    [{"labels": []}, {"annotations": "x"}, {"managedFields": [{"manager": {}}, 7, {}]}],
)
def test_object_of_another_shape_has_no_applier(metadata):
    assert find_applier({"kind": "Job", "metadata": {"name": "a", **metadata}}) is None
    assert find_applier([]) is None


def test_default_of_the_namespace_keeps_the_object():
    assert isinstance(decided(DONE, default_ttl="1s"), Expire)
    assert decided(APPLIED, default_ttl="1s").reason is Reason.RECREATED


@pytest.mark.parametrize("obj", [annotated(APPLIED, ttl="1s"), having(APPLIED, "spec.ttlSecondsAfterFinished", 1)])
def test_ttl_of_the_object_itself_counts(obj):
    obj["metadata"]["annotations"][TRACKED] = MINE
    assert isinstance(decided(obj), Expire)
    assert isinstance(decided(obj, HOUR), Expire)
    assert isinstance(decided(obj, {"maxCount": 1}), Expire)


def test_maximum_of_the_namespace_makes_the_object_due_no_sooner_than_its_own_ttl():
    obj = annotated(DONE, ttl="30d")
    obj["metadata"]["annotations"][TRACKED] = MINE
    assert isinstance(decided(annotated(DONE, ttl="30d"), max_ttl="1s"), Expire)
    assert decided(obj, max_ttl="1s").reason is Reason.RECREATED


def test_limit_of_a_policy_makes_the_object_due_no_sooner_than_its_own_ttl():
    obj = annotated(DONE, ttl="1h")
    obj["metadata"]["annotations"][TRACKED] = MINE
    limited = Context(rules({"maxCount": 1}), namespace_of(namespace()), counted=Counted(newer=5, total=9))

    assert isinstance(decide(annotated(DONE, ttl="1h"), JOB, NOW, limited), Expire)
    assert isinstance(decide(obj, JOB, NOW, limited), Wait)


def test_limit_by_count_keeps_an_object_without_a_ttl():
    limited = Context(rules({"maxCount": 1}), namespace_of(namespace()), counted=Counted(newer=5, total=9))

    assert isinstance(decide(DONE, JOB, NOW, limited), Expire)
    assert decide(APPLIED, JOB, NOW, limited).reason is Reason.RECREATED


@pytest.mark.parametrize(
    ("policy", "is_deleted"),
    [
        ([{"ttl": "1s", "onRecreated": "delete"}], True),
        ([{"ttl": "1s", "onRecreated": "keep"}], False),
        ([{"ttl": "1s"}, {"onRecreated": "delete"}], True),
        ([{"onRecreated": "keep"}, {"ttl": "1s", "onRecreated": "delete"}], False),
        ([{"onRecreated": "delete"}, {"ttl": "1s", "onRecreated": "keep"}], True),
        ([{"ttl": "1s"}, {"onDispatched": "delete"}], False),
        ([{"ttl": "1s"}, {"onRecreated": "delete", "match": {"kinds": ["pods"]}}], False),
        ([{"ttl": "1s"}, {"onRecreated": "delete", "when": "outcome == 'failed'"}], False),
    ],
)
def test_first_matching_rule_with_on_recreated_decides(policy, is_deleted):
    assert isinstance(decided(APPLIED, *policy), Expire) is is_deleted


def test_on_recreated_lets_the_default_of_a_namespace_delete():
    assert isinstance(decided(APPLIED, {"onRecreated": "delete"}, default_ttl="1s"), Expire)


def test_on_recreated_does_not_apply_to_other_objects():
    unreadable = {"onRecreated": "delete", "when": "object.spec.absent == 1"}
    assert isinstance(decided(DONE, HOUR, unreadable), Expire)
    assert decided(APPLIED, HOUR, unreadable).reason is Reason.INVALID_POLICY


def test_on_recreated_with_an_age_is_rejected():
    with pytest.raises(ValidationError, match="onRecreated: expected no age"):
        rules({"onRecreated": "delete", "match": {"age": "7d"}})


@pytest.mark.parametrize(
    ("obj", "policy", "place", "expected"),
    [
        (marked(job(), annotations={TRACKED: MINE}), {"onDeadline": "delete"}, {}, Reason.RECREATED),
        (marked(job(), annotations={TRACKED: MINE}), {"onDeadline": "delete", "onRecreated": "delete"}, {}, None),
        (marked(job(), annotations={TRACKED: MINE}), {"onDeadline": "stop"}, {}, None),
        (marked(job(), annotations={TRACKED: MINE, ON_DEADLINE: "delete"}), {}, {}, Reason.RECREATED),
        (marked(job(), annotations={TRACKED: MINE, ON_DEADLINE: "delete", ACTIVE_DEADLINE: "1s"}), {}, {}, None),
        (
            marked(job(), annotations={TRACKED: MINE, ON_DEADLINE: "delete", ACTIVE_DEADLINE: "30d"}),
            {},
            {"max_active_deadline": "1s"},
            Reason.RECREATED,
        ),
        (
            marked(job(), annotations={ON_DEADLINE: "delete", ACTIVE_DEADLINE: "30d"}),
            {},
            {"max_active_deadline": "1s"},
            None,
        ),
        (job(), {"onDeadline": "delete"}, {}, None),
    ],
)
def test_deletion_at_the_deadline_of_others_keeps_the_object(obj, policy, place, expected):
    obj = having(obj, "status.startTime", stamp(ago(60)))
    context = Context(rules({"activeDeadline": "1s", **policy}), namespace_of(namespace(**place)))
    decision = decide_stop(obj, JOB, NOW, context)

    assert isinstance(decision, Stop) if expected is None else decision.reason is expected
