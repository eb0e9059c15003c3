"""`import` from a real API server: it reads what other cleaners have there, and changes nothing."""

from typing import Any

import pytest
import yaml

from shared.adapters.config.policy_file import parse_policy
from shared.devserver.real_servers import RealServer
from tests.builders import shipped_kinds
from tests.integration.conftest import Api, run_command
from tests.integration.operators import CRDS
from tests.integration.test_run import Cluster

JANITOR = "rules: [{id: temp, resources: [jobs], jmespath: \"metadata.labels.temp == 'true'\", ttl: 1h}]"
PRUNER = "{ttlSecondsAfterFinished: 3600, historyLimit: 5}"
POLICY_CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "clustercleanuppolicies.kyverno.io"},
    "spec": {
        "group": "kyverno.io",
        "scope": "Cluster",
        "names": {
            "kind": "ClusterCleanupPolicy",
            "plural": "clustercleanuppolicies",
            "singular": "clustercleanuppolicy",
            "listKind": "ClusterCleanupPolicyList",
        },
        "versions": [
            {
                "name": version,
                "served": True,
                "storage": version == "v2",
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
            for version in ("v2beta1", "v2")
        ],
    },
}


@pytest.fixture
def cluster(api: Api, namespace: str) -> Cluster:
    return Cluster(api, namespace)


def import_from(server: RealServer, cleaner: str) -> tuple[list[dict[str, Any]], str]:
    """The rules that are written, and what is printed beside them."""
    done = run_command(server.kubeconfig, "import", "--from", cleaner)
    assert done.returncode == 0, done.stderr
    parse_policy(done.stdout, shipped_kinds(), name="policy.yaml")
    return yaml.safe_load(done.stdout)["rules"], done.stderr


def add_config(api: Api, namespace: str, name: str, **data: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    api.call("POST", path, {"metadata": {"name": name}, "data": data})


def test_import_reads_annotations_and_rules_and_writes_nothing(
    server: RealServer, api: Api, namespace: str, cluster: Cluster
) -> None:
    cluster.create_job("annotated")
    api.call("PATCH", f"{cluster.jobs}/annotated", {"metadata": {"annotations": {"janitor/ttl": "3d"}}})
    add_config(api, namespace, "kube-janitor", **{"rules.yaml": JANITOR})
    before = cluster.job("annotated")["metadata"]
    rules, _ = import_from(server, "kube-janitor")
    assert [(rule["name"], rule["ttl"]) for rule in rules] == [("janitor-3d", "3d"), ("temp", "1h")]
    after = cluster.job("annotated")["metadata"]
    assert {name: after.get(name) for name in ("generation", "annotations", "deletionTimestamp")} == {
        name: before.get(name) for name in ("generation", "annotations", "deletionTimestamp")
    }


def test_import_reads_the_configuration_of_the_pruner(server: RealServer, api: Api, namespace: str) -> None:
    add_config(api, namespace, "tekton-pruner-default-spec", **{"global-config": PRUNER})
    rules, _ = import_from(server, "tekton-pruner")
    assert [rule["name"] for rule in rules][:3] == ["tekton-pr-succeeded", "tekton-pr-failed", "tekton-pr"]
    assert {rule["ttl"] for rule in rules if "ttl" in rule} == {"1h"}


def test_policy_that_is_served_in_two_versions_is_imported_once(server: RealServer, api: Api) -> None:
    api.call("POST", CRDS, POLICY_CRD)
    path = "/apis/kyverno.io/v2/clustercleanuppolicies"
    resources = {"kinds": ["Job"], "namespaces": ["ci"]}
    spec = {"schedule": "* * * * *", "match": {"any": [{"resources": resources}]}}
    policy = {"apiVersion": "kyverno.io/v2", "kind": "ClusterCleanupPolicy", "metadata": {"name": "jobs"}, "spec": spec}
    api.wait("the policy", lambda: _try(api, path, policy))
    rules, printed = import_from(server, "kyverno")
    assert [rule["name"] for rule in rules] == ["kyverno-jobs"]
    assert "ClusterCleanupPolicy jobs: spec.schedule" in printed


def _try(api: Api, path: str, obj: Any) -> bool:
    try:
        api.call("POST", path, obj)
    except OSError:  # its storage is being made
        return False
    return True


def test_import_of_an_empty_cluster_says_so(server: RealServer) -> None:
    rules, printed = import_from(server, "argo")
    assert rules == []
    assert "nothing of argo was found" in printed
