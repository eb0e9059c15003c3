"""Secrets and ConfigMaps that are never deleted as unused, whatever refers to them.

Controllers read these objects by their names or labels, other controllers delete them, or they cannot be restored.
A controller looks for a name in its own namespace, or in each one. A name that its flags can change is the default.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shared.core.usage.mark import has_managed_field
from shared.core.usage.unused_reasons import UnusedReason as Reason
from shared.core.values.objects import get_in, get_text


@dataclass(frozen=True, slots=True)
class NameReader:
    """A controller or a tool that reads objects by names which no other object has.

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


SYSTEM_NAMESPACES = frozenset({"kube-system", "kube-public", "kube-node-lease"})

SECRET_TYPES: Mapping[str, Reason] = {
    "helm.sh/release.v1": Reason.HELM_RELEASE,
    "kubernetes.io/service-account-token": Reason.SERVICE_ACCOUNT_TOKEN,
    "bootstrap.kubernetes.io/token": Reason.BOOTSTRAP_TOKEN,
    "cluster.x-k8s.io/secret": Reason.READ_BY_LABEL,
    "kubernetes.io/rook": Reason.READ_BY_NAME,  # rook/rook pkg/operator/k8sutil: keys of Ceph, one name for each daemon
    "mirror.linkerd.io/remote-kubeconfig": Reason.READ_BY_LABEL,
}
"""The types of Secrets that are never deleted."""

CLUSTER_CONFIG_MAPS = frozenset(
    {
        "kube-root-ca.crt",
        "openshift-service-ca.crt",
        "istio-ca-root-cert",
        "extension-apiserver-authentication",
        "kubeadm-config",
        "kubelet-config",
        "cluster-info",
    }
)

LABELS_READ = frozenset(
    {
        "applyset.kubernetes.io/id",
        "argocd.argoproj.io/secret-type",
        "cli-utils.sigs.k8s.io/inventory-id",
        "cert-manager.io/next-private-key",
        "cluster.x-k8s.io/cluster-name",
        "common.k8s.elastic.co/type",
        "config.openshift.io/inject-trusted-cabundle",
        "eck.k8s.elastic.co/owner-kind",
        "grafana_alert",
        "grafana_dashboard",
        "grafana_datasource",
        "grafana_notifier",
        "grafana_plugin",
        "istio.argoproj.io/primary-cluster",
        "istio/multiCluster",
        "jenkins.io/credentials-type",
        "kapp.k14s.io/is-app",
        "kapp.k14s.io/is-app-change",
        "katib.kubeflow.org/component",
        "kiali.io/multiCluster",
        "license.k8s.elastic.co/scope",
        "license.k8s.elastic.co/type",
        "loki_rule",
        "openpolicyagent.org/data",
        "openpolicyagent.org/policy",
        "sealedsecrets.bitnami.com/sealed-secrets-key",
        "strimzi.io/cluster",
        "tfstate",
        "velero.io/plugin-config",
        "velero.io/resource-usage",
        "workflows.argoproj.io/configmap-type",
    }
)
"""Labels by which a controller or a tool finds objects to which nothing refers.

The sidecars of Grafana and Loki load the objects with a label. kapp, `kubectl apply --applyset`, kpt and Terraform find
what they have applied by it, and Katib its trial templates. ECK (elastic/cloud-on-k8s pkg/controller/common) finds its
licenses by it, and Secrets that it made without an owner reference. Argo Rollouts (argoproj/argo-rollouts utils/istio)
finds the Secret of Istio's primary cluster, and Velero (pkg/restore) the results of uploads.
"""

LABEL_VALUES_READ: Mapping[str, str] = {"app.kubernetes.io/part-of": "argocd"}
"""Labels that count with one value only.

Argo CD reads all objects with this label, and resolves `$NAME:KEY` in its settings only in Secrets that have it:
argoproj/argo-cd util/settings/settings.go.
"""

ANNOTATIONS_READ = frozenset(
    {
        "kubed.appscode.com/sync",
        "reflector.v1.k8s.emberstack.com/reflection-allowed",
        "reflector.v1.k8s.emberstack.com/reflection-auto-enabled",
        "replicator.v1.mittwald.de/replicate-to",
        "replicator.v1.mittwald.de/replicate-to-matching",
        "replicator.v1.mittwald.de/replication-allowed",
    }
)
"""Annotations by which a controller copies an object to other namespaces."""

LEADER = "control-plane.alpha.kubernetes.io/leader"
SERVICE_ACCOUNT_NAME = "kubernetes.io/service-account.name"
_HELM_OWNERS = {"owner": "helm", "OWNER": "TILLER"}
_KNATIVE = ("knative-", "knative")
_KNATIVE_LABELS = ("app.kubernetes.io/name", "app.kubernetes.io/part-of")


def find_never_collected(obj: Any) -> Reason | None:
    """The reason for which a Secret or a ConfigMap is never deleted as unused; None if there is none.

    Args:
        obj: The object, or only its apiVersion, kind and metadata, and the type of a Secret.

    Raises:
        UnknownChangeError: `metadata.managedFields` cannot be read, so it is unknown whether the object is immutable.
    """
    if get_text(obj, "metadata.namespace") in SYSTEM_NAMESPACES:
        return Reason.SYSTEM_NAMESPACE
    reason = _of_secret(obj) if get_text(obj, "kind") == "Secret" else _of_config_map(obj)
    return reason or _of_both(obj)


def _of_secret(obj: Any) -> Reason | None:
    if SERVICE_ACCOUNT_NAME in _mapping(obj, "metadata.annotations"):
        return Reason.SERVICE_ACCOUNT_TOKEN
    if not get_text(obj, "type"):
        return Reason.SECRET_TYPE_UNKNOWN
    return SECRET_TYPES.get(get_text(obj, "type"))


def _of_config_map(obj: Any) -> Reason | None:
    name = get_text(obj, "metadata.name")
    if name in CLUSTER_CONFIG_MAPS:
        return Reason.CLUSTER_CONFIG
    if LEADER in _mapping(obj, "metadata.annotations"):
        return Reason.LEADER_ELECTION
    if name.startswith("config-") and _is_of_knative(obj):
        return Reason.READ_BY_NAME
    return None


def _of_both(obj: Any) -> Reason | None:
    labels = _mapping(obj, "metadata.labels")
    if any(labels.get(key) == owner for key, owner in _HELM_OWNERS.items()):
        return Reason.HELM_RELEASE
    if get_text(obj, "metadata.name") in NAMES_READ.get(get_text(obj, "kind"), ()):
        return Reason.READ_BY_NAME
    if any(labels.get(key) == value for key, value in LABEL_VALUES_READ.items()):
        return Reason.READ_BY_LABEL
    if not LABELS_READ.isdisjoint(labels) or not ANNOTATIONS_READ.isdisjoint(_mapping(obj, "metadata.annotations")):
        return Reason.READ_BY_LABEL
    if get_in(obj, "metadata.ownerReferences") not in (None, []):
        return Reason.OWNED
    if get_in(obj, "metadata.finalizers") not in (None, []):
        return Reason.FINALIZED
    is_immutable = get_in(obj, "immutable") not in (None, False) or has_managed_field(obj, "immutable")
    return Reason.IMMUTABLE if is_immutable else None


def _is_of_knative(obj: Any) -> bool:
    labels = _mapping(obj, "metadata.labels")
    if get_text(obj, "metadata.namespace").startswith(_KNATIVE):
        return True
    values = (labels.get(key) for key in _KNATIVE_LABELS)
    return any(isinstance(value, str) and value.startswith(_KNATIVE) for value in values) or any(
        "knative.dev/" in key for key in labels
    )


def _mapping(obj: Any, path: str) -> Mapping[str, Any]:
    value = get_in(obj, path)
    return value if isinstance(value, dict) else {}
