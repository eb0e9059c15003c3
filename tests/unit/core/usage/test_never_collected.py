"""Secrets and ConfigMaps that are never deleted as unused: section F.8 of the specification, and what is beside it.

Mutants that these tests were tried with; each makes at least one test fail: each name, type, label and check of
never_collected.py left out.
"""

import pytest

from shared.adapters.kubernetes.creation import FIELD_MANAGER
from shared.core.usage.mark import ANNOUNCEMENT_MANAGER, MARK_MANAGER, USE_MANAGER, UnknownChangeError
from shared.core.usage.never_collected import (
    ANNOTATIONS_READ,
    LABELS_READ,
    NAME_READERS,
    NAMES_READ,
    find_never_collected,
)
from shared.core.usage.unused_reasons import UnusedReason as Reason
from shared.safeguards.state_schema import NAME
from tests.builders import LONG_AGO, having, without
from tests.usage import config_map, secret, written

OWNER = [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "1"}]
LEADER = {"control-plane.alpha.kubernetes.io/leader": '{"holderIdentity": "a"}'}
SET_IMMUTABLE = [written(LONG_AGO, fields={"f:data": {}, "f:immutable": {}})]

LABELS = [
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
]

OF_ARGO_CD = {"app.kubernetes.io/part-of": "argocd"}

CONFIG_MAPS = [
    "argo-rollouts-config",
    "argo-rollouts-notification-configmap",
    "argocd-app-controller-shard-cm",
    "argocd-cm",
    "argocd-cmd-params-cm",
    "argocd-gpg-keys-cm",
    "argocd-notifications-cm",
    "argocd-rbac-cm",
    "argocd-ssh-known-hosts-cm",
    "argocd-tls-certs-cm",
    "artifact-repositories",
    "config-defaults",
    "config-observability",
    "elastic-licensing",
    "elastic-operator-uuid",
    "external-cluster-user-command",
    "feature-flags",
    "kubernetes-dashboard-settings",
    "node-agent-config",
    "osd-migration-config",
    "rook-ceph-csi-config",
    "rook-ceph-csi-mapping-config",
    "rook-ceph-mon-endpoints",
    "rook-ceph-operator-config",
    "rook-ceph-osd-env-override",
    "rook-ceph-pdbstatemap",
    "rook-config-override",
    "ttl-after-finished-state",
    "workflow-controller-configmap",
]

SECRETS = [
    "argo-rollouts-notification-secret",
    "argocd-initial-admin-secret",
    "argocd-notifications-secret",
    "argocd-redis",
    "argocd-secret",
    "argocd-server-tls",
    "cloud-credentials",
    "datadog",
    "elastic-webhook-server-cert",
    "influxdb",
    "kubernetes-dashboard-certs",
    "kubernetes-dashboard-csrf",
    "kubernetes-dashboard-key-holder",
    "newrelic",
    "rgw-admin-ops-user",
    "rook-ceph-admin-keyring",
    "rook-ceph-config",
    "rook-ceph-crash-collector-keyring",
    "rook-ceph-dashboard-password",
    "rook-ceph-exporter-keyring",
    "rook-ceph-mon",
    "rook-ceph-mons-keyring",
    "rook-ceph-operator-creds",
    "trial-status",
    "velero-repo-credentials",
    "velero-restic-credentials",
    "wavefront-api-tokens",
]

CASES = [
    ("F.8 type", secret(of_type="helm.sh/release.v1"), Reason.HELM_RELEASE),
    ("F.8 type", secret(of_type="kubernetes.io/service-account-token"), Reason.SERVICE_ACCOUNT_TOKEN),
    ("F.8 type", secret(of_type="bootstrap.kubernetes.io/token"), Reason.BOOTSTRAP_TOKEN),
    ("F.8 type that was not read", secret(of_type=""), Reason.SECRET_TYPE_UNKNOWN),
    ("F.8 type that was not read", without(secret(), "type"), Reason.SECRET_TYPE_UNKNOWN),
    ("F.8 type that was not read", secret() | {"type": 7}, Reason.SECRET_TYPE_UNKNOWN),
    (
        "F.5 token of a service account, whose type was not read",
        without(secret(annotations={"kubernetes.io/service-account.name": "web"}), "type"),
        Reason.SERVICE_ACCOUNT_TOKEN,
    ),
    *(
        ("F.8 name", config_map(name), Reason.CLUSTER_CONFIG)
        for name in (
            "kube-root-ca.crt",
            "openshift-service-ca.crt",
            "istio-ca-root-cert",
            "extension-apiserver-authentication",
            "kubeadm-config",
            "kubelet-config",
            "cluster-info",
        )
    ),
    ("F.8 leader election", config_map(annotations=LEADER), Reason.LEADER_ELECTION),
    *(
        ("F.8 namespace", config_map(namespace=name), Reason.SYSTEM_NAMESPACE)
        for name in ("kube-system", "kube-public", "kube-node-lease")
    ),
    ("F.8 namespace", secret(namespace="kube-system"), Reason.SYSTEM_NAMESPACE),
    ("type of a cluster", secret(of_type="cluster.x-k8s.io/secret"), Reason.READ_BY_LABEL),
    *(
        ("annotation of a copier", config_map(annotations={name: "ci"}), Reason.READ_BY_LABEL)
        for name in ANNOTATIONS_READ
    ),
    ("finalizer", config_map(finalizers=["example.com/keep"]), Reason.FINALIZED),
    ("Tekton", config_map("feature-flags"), Reason.READ_BY_NAME),
    ("F.8 owner", config_map(ownerReferences=OWNER), Reason.OWNED),
    ("F.8 owner", secret(ownerReferences=OWNER), Reason.OWNED),
    ("F.8 owner that cannot be read", secret(ownerReferences={"kind": "Pod"}), Reason.OWNED),
    ("F.8 Knative", config_map("config-features", namespace="knative-eventing"), Reason.READ_BY_NAME),
    (
        "F.8 Knative in another namespace",
        config_map("config-features", labels={"app.kubernetes.io/name": "knative-serving"}),
        Reason.READ_BY_NAME,
    ),
    (
        "F.8 Knative in another namespace",
        config_map("config-features", labels={"app.kubernetes.io/part-of": "knative-eventing"}),
        Reason.READ_BY_NAME,
    ),
    (
        "F.8 Knative of old versions",
        config_map("config-features", labels={"serving.knative.dev/release": "v0.26"}),
        Reason.READ_BY_NAME,
    ),
    ("issue: immutable", config_map() | {"immutable": True}, Reason.IMMUTABLE),
    ("issue: immutable", config_map(managedFields=SET_IMMUTABLE), Reason.IMMUTABLE),
    ("issue: immutable", secret(managedFields=SET_IMMUTABLE), Reason.IMMUTABLE),
    ("Helm 3 in a ConfigMap", config_map(labels={"owner": "helm"}), Reason.HELM_RELEASE),
    ("Helm 2", config_map(labels={"OWNER": "TILLER"}), Reason.HELM_RELEASE),
    ("our shared state", config_map(NAME), Reason.READ_BY_NAME),
    ("Argo CD by label", secret("corp-sso", labels=OF_ARGO_CD), Reason.READ_BY_LABEL),
    ("Argo CD by label", config_map("theme", labels=OF_ARGO_CD), Reason.READ_BY_LABEL),
    ("Rook by type", secret("rook-ceph-osd-encryption-key-data-0", of_type="kubernetes.io/rook"), Reason.READ_BY_NAME),
    *((f"name of {name}", config_map(name), Reason.READ_BY_NAME) for name in CONFIG_MAPS),
    *((f"name of {name}", secret(name), Reason.READ_BY_NAME) for name in SECRETS),
    *(
        (f"label {label}", one(labels={label: "x"}), Reason.READ_BY_LABEL)
        for one in (secret, config_map)
        for label in LABELS
    ),
    ("any", config_map(), None),
    ("any", secret(), None),
    ("any", secret(of_type="kubernetes.io/tls"), None),
    ("any", secret(ownerReferences=[]), None),
    ("a name of the other kind", secret("kube-root-ca.crt"), None),
    ("a name of the other kind", secret("argo-rollouts-config"), None),
    ("a name of the other kind", config_map("velero-repo-credentials"), None),
    ("a label like that of Argo CD", secret(labels={"app.kubernetes.io/part-of": "argocd-demo"}), None),
    ("a label like that of Argo CD", secret(labels={"app.kubernetes.io/name": "argocd"}), None),
    ("a name like those of Knative", config_map("config-7f9c2"), None),
    ("a name like those of Knative", config_map("settings", namespace="knative-serving"), None),
    ("a label like that of Helm", config_map(labels={"owner": "web"}), None),
    ("not immutable", config_map() | {"immutable": False}, None),
    ("malformed", config_map(used=None, labels=7, annotations=[]), None),
]


@pytest.mark.parametrize(("row", "obj", "reason"), CASES, ids=[f"{row} {reason}" for row, _, reason in CASES])
def test_object_is_never_collected_for_a_named_reason(row, obj, reason):
    assert find_never_collected(obj) is reason


@pytest.mark.parametrize("fields", [None, [], "x", [{}]])
def test_object_is_unknown_if_its_writers_cannot_be_read(fields):
    with pytest.raises(UnknownChangeError):
        find_never_collected(having(config_map(), "metadata.managedFields", fields))


def test_each_label_and_each_name_has_a_case():
    assert {*LABELS} == LABELS_READ
    assert {"ConfigMap": {*CONFIG_MAPS}, "Secret": {*SECRETS}} == NAMES_READ


def test_names_and_their_readers_are_sorted():
    listed = [[one.reader for one in NAME_READERS], *((*one.config_maps,) for one in NAME_READERS)]

    for names in (*listed, *((*one.secrets,) for one in NAME_READERS)):
        assert [*names] == sorted(names)


def test_managers_of_marks_write_nothing_else():
    """A restored object, whose data our client wrote, must not count as a mark."""
    assert len({MARK_MANAGER, ANNOUNCEMENT_MANAGER, USE_MANAGER, FIELD_MANAGER}) == 4
