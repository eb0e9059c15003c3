"""The check of a mounted policy."""

import pytest

from shared.core.kinds.rule import Catalogue
from shared.core.policy.policy import NO_POLICY
from shared.doctor.configured import check_policies
from shared.doctor.findings import Level
from shared.errors import TtlError
from shared.installation.installed import read_policy
from shared.installation.inventory import OURS, Inventory, Listed
from shared.installation.place import Place
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
    return list(check_policies(Inventory(parts), Catalogue((JOB,)), PLACE))


def test_valid_policy_reports_its_rules():
    (one,) = found(deployment(), policy_1={"policy.yaml": GOOD})

    assert (one.level, one.what, one.detail) == (Level.OK, "policy policy-1", "rules: one")


@pytest.mark.parametrize(
    ("data", "detail"),
    [
        ({"policy.yaml": GOOD.replace("1h", "soon")}, "policy.yaml:1: rules.0.ttl: "),
        ({"policy.yaml": GOOD.replace("jobs", "jbos")}, "policy.yaml:1: rules.0.match.kinds.0: "),
        ({}, "policy.yaml in its data, got none"),
        (None, "policy.yaml in its data"),
    ],
)
def test_invalid_policy_fails_with_its_position(data, detail):
    (one,) = found(deployment(), policy_1=data)

    assert one.level is Level.FAIL
    assert detail in one.detail
    assert one.fix == "kubectl -n ttl-after-finished edit configmap policy-1"


def test_missing_policy_config_map_fails():
    (one,) = found(deployment(config="policy"))

    assert one.level is Level.FAIL
    assert "standalone" in one.detail
    assert one.fix.startswith("kubectl apply -k knative/overlays/knative    # ")


def test_policy_that_cannot_be_read_warns():
    (one,) = found(deployment(), problem="no right to list")

    assert (one.level, one.detail) == (Level.WARN, "cannot be checked: no right to list")


def test_two_different_policies_warn():
    levels = [one.level for one in found(deployment(), deployment("other", "policy-2"), policy_1={"policy.yaml": GOOD})]

    assert levels == [Level.WARN, Level.OK, Level.FAIL]


def test_installation_without_a_policy_reports_nothing():
    assert found(deployment(path="")) == []


def mounted(*workloads, problems=None, **policies):
    """Read the policy that `plan --against cluster` compares with."""
    maps = [{"metadata": {"name": name.replace("_", "-")}, "data": data} for name, data in policies.items()]
    parts = {"Deployment": Listed(workloads), "ConfigMap": Listed(tuple(maps))}
    parts |= {kind: Listed(problem=problem) for kind, problem in (problems or {}).items()}
    return read_policy(Inventory(parts), Catalogue((JOB,)), "home")


def test_mounted_policy_is_read():
    text = "apiVersion: ttlafterfinished.dev/v1\nkind: Policy\nrules: [{name: a, match: {kinds: [jobs]}, ttl: 1h}]\n"
    name, policy = mounted(deployment(), policy_1={"policy.yaml": text})
    assert name == "ConfigMap home/policy-1"
    assert [rule.name for rule in policy.rules] == ["a"]


def test_installation_without_a_policy_has_no_rules():
    assert mounted(deployment(path="")) == ("", NO_POLICY)


@pytest.mark.parametrize(
    ("workloads", "rest", "message"),
    [
        ((deployment(),), {}, "ConfigMap home/policy-1: expected policy.yaml in its data"),
        ((deployment(),), {"policy_1": {"policy.yaml": "rules: 1"}}, "ConfigMap home/policy-1, policy.yaml:1: rules"),
        (
            (deployment(), deployment("b", "policy-2")),
            {},
            "for all workloads, got policy-1, policy-2",
        ),
        ((deployment(),), {"problems": {"ConfigMap": "no right"}}, "ConfigMap home/policy-1: no right"),
    ],
)
def test_policy_that_cannot_be_determined_raises(workloads, rest, message):
    with pytest.raises(TtlError, match=message):
        mounted(*workloads, **rest)


def test_unreadable_list_without_policies_is_ignored():
    assert mounted(deployment(path=""), problems={"Lease": "no right"})[1] is NO_POLICY
