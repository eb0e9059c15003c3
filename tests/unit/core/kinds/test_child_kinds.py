"""The `children` of kind rules."""

import pytest
from pydantic import ValidationError

from shared.core.kinds.rule import KindRule
from tests.builders import KINDS, read_yaml, shipped_kinds

CATALOGUE = shipped_kinds()
PARENTS = [rule for rule in CATALOGUE.rules if rule.children]
POD = {"apiVersions": ["v1"], "kind": "Pod", "plural": "pods"}

BOTH_WAYS = {("PipelineRun", "CustomRun"), ("CustomRun", "PipelineRun")}
"""A PipelineRun runs CustomRuns, which may run PipelineRuns: only one of the two can come first."""


def rule(**fields):
    return KindRule.model_validate({"apiVersions": ["example.com/v1"], "kind": "Lamp", "plural": "lamps", **fields})


def finishing(**fields):
    return rule(finished={"conditions": {"Done": "unknown"}}, finishedAt=["managed-fields"], **fields)


def test_rule_lists_kinds_of_children_with_their_group():
    pods, bulbs = finishing(
        children=[POD, {"apiVersions": ["example.com/v1"], "kind": "Bulb", "plural": "bulbs"}]
    ).children

    assert (pods.group, bulbs.group) == ("", "example.com")


def test_rule_without_children_has_none():
    assert finishing().children == ()


@pytest.mark.parametrize(
    ("children", "problem"),
    [
        ([POD, POD], "expected Pod once in children"),
        ([{"kind": "Pod", "plural": "pods"}], "apiVersions"),
        ([{**POD, "apiVersions": []}], "apiVersions"),
        ([{**POD, "kind": "pods"}], "kind"),
        ([{**POD, "scope": "Cluster"}], "scope"),
        ([None], "children"),
    ],
)
def test_invalid_children_are_rejected(children, problem):
    with pytest.raises(ValidationError, match=problem):
        finishing(children=children)


def test_versions_of_a_child_are_of_one_group():
    with pytest.raises(ValidationError, match="expected versions of one group"):
        finishing(children=[{**POD, "apiVersions": ["v1", "apps/v1"]}])


def test_kind_that_never_finishes_has_no_children():
    with pytest.raises(ValidationError, match="children beside neverFinishes"):
        rule(neverFinishes="why", children=[POD])


@pytest.mark.parametrize("parent", PARENTS, ids=lambda one: one.name)
def test_children_have_the_names_of_their_own_rules(parent):
    for child in parent.children:
        for own in CATALOGUE.of(child.group, child.kind):
            assert (own.plural, own.scope) == (child.plural, "Namespaced")
            assert set(own.api_versions) <= set(child.api_versions) or len(CATALOGUE.of(child.group, child.kind)) > 1


@pytest.mark.parametrize("parent", PARENTS, ids=lambda one: one.name)
def test_children_of_children_are_listed_after_their_owners(parent):
    names = [(child.group, child.kind) for child in parent.children]
    for place, child in enumerate(parent.children):
        for own in CATALOGUE.of(child.group, child.kind):
            for grandchild in own.children:
                is_either = (child.kind, grandchild.kind) in BOTH_WAYS
                later = names if is_either else names[place:]
                assert (grandchild.group, grandchild.kind) in later, f"{grandchild.kind}, which {child.kind} creates"


@pytest.mark.parametrize("name", ["cronjobs.batch", "cronworkflows.argoproj.io", "raycronjobs.ray.io"])
def test_schedule_has_no_children(name):
    """What a schedule has created finishes, and is archived, on its own."""
    assert not read_yaml(KINDS / f"{name}.yaml")[0].get("children")


@pytest.mark.parametrize(
    ("name", "children"),
    [
        ("jobs.batch", "Pod"),
        ("trainjobs.trainer.kubeflow.org", "JobSet Job Pod"),
        ("jobsets.jobset.x-k8s.io", "Job Pod"),
        ("pipelineruns.tekton.dev", "CustomRun PipelineRun TaskRun Pod"),
        ("taskruns.tekton.dev", "Pod"),
        ("rayjobs.ray.io", "RayCluster Job Pod"),
        ("pods", ""),
    ],
)
def test_kind_has_the_children_that_its_controller_creates(name, children):
    found = next(one for one in CATALOGUE.rules if one.name == name)

    assert [child.kind for child in found.children] == children.split()
