"""The names of Secrets and ConfigMaps that a controller reads, although no object has them.

The controller looks in its own namespace, or in each one. A name that its flags can change is the default.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NameReader:
    """A controller or a tool that reads objects by their names.

    Attributes:
        reader: What it is called.
        source: Where its source code has the names.
        config_maps: The names of ConfigMaps, sorted.
        secrets: The names of Secrets, sorted.
    """

    reader: str
    source: str
    config_maps: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()


NAME_READERS = (
    NameReader(
        "Argo CD",
        "argoproj/argo-cd common/common.go, util/settings/settings.go",
        config_maps=(
            "argocd-app-controller-shard-cm",
            "argocd-cm",
            "argocd-cmd-params-cm",
            "argocd-gpg-keys-cm",
            "argocd-notifications-cm",
            "argocd-rbac-cm",
            "argocd-ssh-known-hosts-cm",
            "argocd-tls-certs-cm",
        ),
        secrets=(
            "argocd-initial-admin-secret",
            "argocd-notifications-secret",
            "argocd-redis",
            "argocd-secret",
            "argocd-server-tls",
        ),
    ),
    NameReader(
        "Argo Rollouts",
        "argoproj/argo-rollouts utils/defaults/defaults.go, utils/record/record.go, metricproviders",
        config_maps=("argo-rollouts-config", "argo-rollouts-notification-configmap"),
        secrets=("argo-rollouts-notification-secret", "datadog", "influxdb", "newrelic", "wavefront-api-tokens"),
    ),
    NameReader(
        "Argo Workflows",
        "argoproj/argo-workflows documentation",
        config_maps=("artifact-repositories", "workflow-controller-configmap"),
    ),
    NameReader(
        "Elastic Cloud on Kubernetes",
        "elastic/cloud-on-k8s pkg/about/info.go, pkg/license/license.go, pkg/controller/common/license/trial.go",
        config_maps=("elastic-licensing", "elastic-operator-uuid"),
        secrets=("elastic-webhook-server-cert", "trial-status"),
    ),
    NameReader(
        "Kubernetes Dashboard",
        "kubernetes/dashboard aio/deploy of v2, modules/web/pkg/args/args.go",
        config_maps=("kubernetes-dashboard-settings",),
        secrets=("kubernetes-dashboard-certs", "kubernetes-dashboard-csrf", "kubernetes-dashboard-key-holder"),
    ),
    NameReader(
        "Rook",
        "rook/rook pkg/operator/ceph, deploy/examples/import-external-cluster.sh",
        config_maps=(
            "external-cluster-user-command",
            "osd-migration-config",
            "rook-ceph-csi-config",
            "rook-ceph-csi-mapping-config",
            "rook-ceph-mon-endpoints",
            "rook-ceph-operator-config",
            "rook-ceph-osd-env-override",
            "rook-ceph-pdbstatemap",
            "rook-config-override",
        ),
        secrets=(
            "rgw-admin-ops-user",
            "rook-ceph-admin-keyring",
            "rook-ceph-config",
            "rook-ceph-crash-collector-keyring",
            "rook-ceph-dashboard-password",
            "rook-ceph-exporter-keyring",
            "rook-ceph-mon",
            "rook-ceph-mons-keyring",
            "rook-ceph-operator-creds",
        ),
    ),
    NameReader(
        "Tekton",
        "tektoncd/pipeline config",
        config_maps=("config-defaults", "config-observability", "feature-flags"),
    ),
    NameReader(
        "Velero",
        "vmware-tanzu/velero pkg/repository/keys/keys.go, pkg/install, pkg/nodeagent/node_agent.go of v1.14",
        config_maps=("node-agent-config",),
        secrets=("cloud-credentials", "velero-repo-credentials", "velero-restic-credentials"),
    ),
    NameReader("this program", "shared/safeguards/state_schema.py", config_maps=("ttl-after-finished-state",)),
)
"""Sorted by the name of the reader."""

NAMES_READ: Mapping[str, frozenset[str]] = {
    "ConfigMap": frozenset(name for one in NAME_READERS for name in one.config_maps),
    "Secret": frozenset(name for one in NAME_READERS for name in one.secrets),
}
"""All names, by kind."""
