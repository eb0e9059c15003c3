"""CRDs with schemas of our own, as small as they can be: for kinds whose operators are not here."""

from collections.abc import Iterable
from typing import Any

from shared.core.kinds.rule import KindRule

BUILT_IN = {
    "",
    "apps",
    "batch",
    "certificates.k8s.io",
    "coordination.k8s.io",
    "events.k8s.io",
    "lifecycle.k8s.io",
    "scheduling.k8s.io",
    "storagemigration.k8s.io",
}
_ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def crd_of(rule: KindRule) -> dict[str, Any]:
    """The CRD of a kind: all versions that its rule knows are served, the preferred one is stored."""
    versions = [
        {
            "name": version.rpartition("/")[2],
            "served": True,
            "storage": version == rule.api_version,
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": _ANYTHING, "status": _ANYTHING}}},
            "subresources": {"status": {}},
        }
        for version in rule.api_versions
    ]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": rule.name,
            "annotations": {"api-approved.kubernetes.io": "unapproved, a minimal schema for tests"},
        },
        "spec": {
            "group": rule.group,
            "scope": rule.scope,
            "names": {"kind": rule.kind, "plural": rule.plural, "singular": rule.kind.lower()},
            "versions": versions,
        },
    }


def crds_of(rules: Iterable[KindRule]) -> list[dict[str, Any]]:
    """The CRDs of all kinds that are not built in; of two rules for one CRD, that of the first."""
    crds: dict[str, dict[str, Any]] = {}
    for rule in rules:
        if rule.group not in BUILT_IN:
            crds.setdefault(rule.name, crd_of(rule))
    return list(crds.values())


def trainer_crds(*, with_ttl: bool) -> list[dict[str, Any]]:
    """The CRDs of TrainJobs and their runtimes with what KEP-2899 validates, with or without its TTL fields.

    Without the field the API server drops it, as in all released versions of Kubeflow Trainer.
    """
    of_trainjob: dict[str, Any] = {
        "runtimeRef": {
            "type": "object",
            "required": ["name"],
            "properties": {
                "name": {"type": "string", "minLength": 1},
                "apiGroup": {"type": "string", "default": "trainer.kubeflow.org"},
                "kind": {"type": "string", "default": "ClusterTrainingRuntime"},
            },
        },
        "suspend": {"type": "boolean", "default": False},
        "managedBy": {"type": "string", "default": "trainer.kubeflow.org/trainjob-controller"},
        "activeDeadlineSeconds": {
            "type": "integer",
            "format": "int64",
            "minimum": 1,
            "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "field is immutable"}],
        },
    }
    of_runtime: dict[str, Any] = {"template": _ANYTHING}
    if with_ttl:
        ttl = {"ttlSecondsAfterFinished": {"type": "integer", "format": "int64", "minimum": 0}}
        of_trainjob |= ttl
        of_runtime |= {**ttl, "runPolicy": {"type": "object", "properties": ttl}}
    crds = []
    for kind, plural, scope, spec in (
        ("TrainJob", "trainjobs", "Namespaced", of_trainjob),
        ("TrainingRuntime", "trainingruntimes", "Namespaced", of_runtime),
        ("ClusterTrainingRuntime", "clustertrainingruntimes", "Cluster", of_runtime),
    ):
        rule = KindRule(
            api_versions=("trainer.kubeflow.org/v1alpha1",),
            kind=kind,
            plural=plural,
            scope="Cluster" if scope == "Cluster" else "Namespaced",
            never_finishes="its schema counts here",
        )
        crd = crd_of(rule)
        crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"] = {
            "type": "object",
            "properties": spec,
        }
        crds.append(crd)
    return crds
