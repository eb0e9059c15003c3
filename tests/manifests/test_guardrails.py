"""The guard rails as manifests: what they match, and how they fail. tests/integration covers their messages."""

from itertools import product

import pytest

from tests.builders import shipped_kinds
from tests.manifests.composed import composed
from tests.manifests.test_manifests import KNATIVE, Object, build, of_kind

POLICIES = of_kind(build(KNATIVE / "components/guardrails"), "ValidatingAdmissionPolicy")
BINDINGS = of_kind(build(KNATIVE / "components/guardrails"), "ValidatingAdmissionPolicyBinding")
EVERYWHERE = ["ttl-after-finished-hints", "ttl-after-finished-holds", "ttl-after-finished-values"]
FINISHING = [rule for rule in shipped_kinds().rules if not rule.never_finishes]
WARNED = {"ttl-after-finished-hints", "ttl-after-finished-templates"}


def names(rules: list[Object], group: str, plural: str) -> bool:
    """Whether one of the rules names a resource."""
    return any(
        (given_group, given) in {(group, plural), ("*", "*"), (group, "*")}
        for rule in rules
        for given_group, given in product(rule["apiGroups"], rule["resources"])
    )


def test_overlay_has_the_objects_of_the_component():
    alone = build(KNATIVE / "components/guardrails")
    added = [obj for obj in composed("guardrails") if obj not in composed()]
    assert sorted((obj["kind"], obj["metadata"]["name"]) for obj in added) == sorted(
        (obj["kind"], obj["metadata"]["name"]) for obj in alone
    )


def test_each_policy_has_a_binding_and_only_hints_just_warn():
    assert {binding["spec"]["policyName"]: name for name, binding in BINDINGS.items()} == {n: n for n in POLICIES}
    actions = {name: binding["spec"]["validationActions"] for name, binding in BINDINGS.items()}
    assert actions == {name: ["Warn"] if name in WARNED else ["Deny"] for name in POLICIES}


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_policy_matches_no_deletion_and_no_subresource(name):
    rules = POLICIES[name]["spec"]["matchConstraints"]["resourceRules"]
    assert {operation for rule in rules for operation in rule["operations"]} == {"CREATE", "UPDATE"}
    assert not [resource for rule in rules for resource in rule["resources"] if "/" in resource]


@pytest.mark.parametrize("name", EVERYWHERE)
def test_policy_on_all_kinds_ignores_its_failures(name):
    assert POLICIES[name]["spec"]["failurePolicy"] == "Ignore"
    assert "paramKind" not in POLICIES[name]["spec"]  # one that is lost stops what has no condition yet


@pytest.mark.parametrize("name", EVERYWHERE)
def test_policy_matches_every_kind_that_finishes(name):
    constraints = POLICIES[name]["spec"]["matchConstraints"]
    resources = [(rule.group, rule.plural) for rule in FINISHING]
    assert [one for one in resources if not names(constraints["resourceRules"], *one)] == []
    assert [one for one in resources if names(constraints["excludeResourceRules"], *one)] == []


def test_groups_are_the_first_variable_of_the_policy():
    groups = POLICIES["ttl-after-finished-holds"]["spec"]["variables"][0]
    assert groups == {"name": "groups", "expression": "['system:masters', 'kubeadm:cluster-admins']"}
