"""The component audit-reports: the rights for the reports of rules with audit, and no others."""

from shared.adapters.kubernetes.policy_reports import NAME
from tests.builders import ROOT, read_yaml

FOLDER = ROOT / "knative" / "components" / "audit-reports"


def test_sweep_may_change_only_reports_of_our_name():
    (role,) = read_yaml(FOLDER / "rbac.yaml")
    assert role["metadata"]["labels"]["ttlafterfinished.dev/aggregate-to-sweep"] == "true"
    for rule in role["rules"]:
        assert rule["apiGroups"] == ["wgpolicyk8s.io"]
        assert rule["resources"] == ["policyreports", "clusterpolicyreports"]
    by_name = {tuple(rule.get("resourceNames", ())): rule["verbs"] for rule in role["rules"]}
    assert by_name == {(): ["create", "list"], (NAME,): ["update", "delete"]}
