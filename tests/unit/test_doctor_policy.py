"""What doctor says of a mounted policy."""

import pytest

from shared.core.kinds.catalogue import Catalogue
from shared.core.policy.policy import NO_POLICY
from shared.doctor.findings import Level, Place
from shared.doctor.policies import check_policies
from shared.errors import TtlError
from shared.installation.inventory import OURS, Inventory, Listed
from shared.installation.mounted import read_policy
from tests.builders import JOB

GOOD = "rules: [{name: one, match: {kinds: [jobs]}, ttl: 1h}]"
PLACE = Place("ttl-after-finished", "knative")


def deployment(name="standalone", config="policy-1", path="/etc/ttl/policy.yaml"):
    container = {
        "env": [{"name": "TTL_POLICY", "value": path}],
        "volumeMounts": [{"name": "policy", "mountPath": "/etc/ttl"}],
    }
    volumes = [{"name": "policy", "configMap": {"name": config}}]
    spec = {"template": {"spec": {"containers": [container], "volumes": volumes}}}
    return {"kind": "Deployment", "metadata": {"name": name, "labels": OURS}, "spec": spec}


def found(*workloads, problem="", **policies):
    maps = [{"metadata": {"name": name.replace("_", "-")}, "data": data} for name, data in policies.items()]
    parts = {"Deployment": Listed(workloads), "ConfigMap": Listed(tuple(maps), problem)}
    return list(check_policies(Inventory(parts), Catalogue((JOB,)), PLACE, "knative"))


def test_a_good_one_is_told_with_its_rules():
    (one,) = found(deployment(), policy_1={"policy.yaml": GOOD})

    assert (one.level, one.what, one.detail) == (Level.OK, "policy policy-1", "rules: one")


@pytest.mark.parametrize(
    ("data", "detail"),
    [
        ({"policy.yaml": GOOD.replace("1h", "soon")}, "policy.yaml:1: rules.0.ttl: expected never, seconds (3600)"),
        ({"policy.yaml": GOOD.replace("jobs", "jbos")}, "policy.yaml:1: rules.0.match.kinds.0: unknown kind"),
        ({}, "there is no policy.yaml in it, and standalone cannot start without"),
        (None, "there is no policy.yaml in it"),
    ],
)
def test_a_bad_one_is_told_with_its_place(data, detail):
    (one,) = found(deployment(), policy_1=data)

    assert one.level is Level.FAIL
    assert detail in one.detail
    assert one.fix == "kubectl -n ttl-after-finished edit configmap policy-1"


def test_one_that_nobody_generated_is_told_as_such():
    (one,) = found(deployment(config="policy"))

    assert one.level is Level.FAIL
    assert one.detail == "the ConfigMap is not there, and standalone cannot start without it"
    assert one.fix == "kubectl apply -k knative/overlays/knative    # with a configMapGenerator that makes it"


def test_one_that_may_not_be_read_is_not_called_bad():
    (one,) = found(deployment(), problem="no right to list")

    assert (one.level, one.detail) == (Level.WARN, "cannot be checked: no right to list")


def test_two_that_differ_are_told():
    levels = [one.level for one in found(deployment(), deployment("other", "policy-2"), policy_1={"policy.yaml": GOOD})]

    assert levels == [Level.WARN, Level.OK, Level.FAIL]


def test_without_one_nothing_is_told():
    assert found(deployment(path="")) == []


def mounted(*workloads, problems=None, **policies):
    """What `plan --against cluster` compares with."""
    maps = [{"metadata": {"name": name.replace("_", "-")}, "data": data} for name, data in policies.items()]
    parts = {"Deployment": Listed(workloads), "ConfigMap": Listed(tuple(maps))}
    parts |= {kind: Listed(problem=problem) for kind, problem in (problems or {}).items()}
    return read_policy(Inventory(parts), Catalogue((JOB,)), "home")


def test_what_is_mounted_is_read():
    text = "apiVersion: ttlafterfinished.dev/v1\nkind: Policy\nrules: [{name: a, match: {kinds: [jobs]}, ttl: 1h}]\n"
    name, policy = mounted(deployment(), policy_1={"policy.yaml": text})
    assert name == "ConfigMap home/policy-1"
    assert [rule.name for rule in policy.rules] == ["a"]


def test_an_installation_without_one_has_no_rules():
    assert mounted(deployment(path="")) == ("", NO_POLICY)


@pytest.mark.parametrize(
    ("workloads", "rest", "told"),
    [
        ((deployment(),), {}, "ConfigMap home/policy-1: expected policy.yaml in it"),
        ((deployment(),), {"policy_1": {"policy.yaml": "rules: 1"}}, "ConfigMap home/policy-1, policy.yaml:1: rules"),
        ((deployment(), deployment("b", "policy-2")), {}, "expected one policy, got policy-1, policy-2"),
        ((deployment(),), {"problems": {"ConfigMap": "no right"}}, "ConfigMap home/policy-1: no right"),
    ],
)
def test_what_cannot_be_compared_with_is_said(workloads, rest, told):
    with pytest.raises(TtlError, match=told):
        mounted(*workloads, **rest)


def test_what_may_not_be_listed_and_says_nothing_of_policies_is_of_no_interest():
    assert mounted(deployment(path=""), problems={"Lease": "no right"})[1] is NO_POLICY
