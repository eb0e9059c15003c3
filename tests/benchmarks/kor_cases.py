"""A cluster with one Secret or ConfigMap for each way in which kor and this project may differ, and why they do."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from shared.core.values.objects import ANNOTATION_DOMAIN

NAMESPACE = "compare"
CORE = f"/api/v1/namespaces/{NAMESPACE}"
STRATEGIC = "application/strategic-merge-patch+json"

KOR, OURS = frozenset({"kor"}), frozenset({"ours"})
BOTH, NEITHER = KOR | OURS, frozenset[str]()

Body = dict[str, Any]


@dataclass(frozen=True)
class Request:
    """What creates an object, or changes one."""

    path: str
    body: Body
    method: str = "POST"
    content: str = "application/json"


@dataclass(frozen=True)
class Case:
    """A Secret or a ConfigMap.

    Attributes:
        kind: Its kind.
        name: Its name.
        what: What refers to it, or what it is.
        unused: Who calls it unused.
        why: Why they differ; empty if they agree.
        requests: What refers to it.
        fields: Its fields beside the name and the data.
    """

    kind: str
    name: str
    what: str
    unused: frozenset[str]
    why: str = ""
    requests: Sequence[Request] = ()
    fields: Mapping[str, Any] = field(default_factory=dict)

    @property
    def creation(self) -> Request:
        """What creates the object."""
        plural = "secrets" if self.kind == "Secret" else "configmaps"
        metadata = {"name": self.name, **self.fields.get("metadata", {})}
        data = {"stringData" if self.kind == "Secret" else "data": {"key": "value"}}
        return Request(f"{CORE}/{plural}", {**data, **self.fields, "metadata": metadata})


def cases() -> Iterator[Case]:
    """All cases; the first ones are those on which both agree."""
    yield from _agreed()
    yield from _in_pods()
    yield from _in_templates()
    yield from _in_other_kinds()
    yield from _protected()
    yield from _not_protected()


def _agreed() -> Iterator[Case]:
    for kind in ("ConfigMap", "Secret"):
        yield Case(kind, f"truly-unused-{kind.lower()}", "nothing", BOTH)
    yield _config_map(
        "env-of-a-pod", "env of a Pod", NEITHER, pod("env", env=[_key("configMapKeyRef", "env-of-a-pod")])
    )
    optional = _key("configMapKeyRef", "optional", optional=True)
    yield _config_map("optional", "an optional reference of a Pod", NEITHER, pod("optional", env=[optional]))
    sources = {"sources": [{"secret": {"name": "projected"}}]}
    yield _secret("projected", "a projected volume of a Pod", NEITHER, pod("projected", volume={"projected": sources}))
    volume = {"secret": {"secretName": "volume-of-a-pod"}}
    yield _secret("volume-of-a-pod", "a volume of a Pod", NEITHER, pod("volume", volume=volume))
    yield _secret("tls", "TLS of an Ingress", NEITHER, _ingress("tls", tls=[{"secretName": "tls"}]))
    yield Case("Secret", "helm", "a Helm release", NEITHER, fields={"type": "helm.sh/release.v1"})
    yield Case("ConfigMap", "kube-root-ca.crt", "the CA of the cluster", NEITHER)


_LIVE = "kor reads no ephemeral containers"
_VOLUMES = "kor reads secret, configMap and projected volumes only"
_TEMPLATES = "kor reads Pods, not templates: the next Pod needs the object"
_KINDS = "kor reads Pods and Ingresses only"


def _in_pods() -> Iterator[Case]:
    env = [_key("configMapKeyRef", "ephemeral")]
    debug = {"spec": {"ephemeralContainers": [{"name": "debug", "image": "debug", "env": env}]}}
    change = Request(f"{CORE}/pods/ephemeral/ephemeralcontainers", debug, "PATCH", STRATEGIC)
    yield _config_map("ephemeral", "an ephemeral container", KOR, pod("ephemeral"), change, why=_LIVE)
    volumes: dict[str, Body] = {
        "csi": {"csi": {"driver": "csi.example.com", "nodePublishSecretRef": {"name": "csi"}}},
        "flex": {"flexVolume": {"driver": "example.com/flex", "secretRef": {"name": "flex"}}},
        "azure-file": {"azureFile": {"secretName": "azure-file", "shareName": "share"}},
        "iscsi": {"iscsi": {"targetPortal": "1.2.3.4", "iqn": "iqn.2026-01.com.x:y", "secretRef": {"name": "iscsi"}}},
    }
    for name, volume in volumes.items():
        yield _secret(name, f"{next(iter(volume))} volume of a Pod", KOR, pod(name, volume=volume), why=_VOLUMES)
    mount = {"name": "same-name", "mountPath": "/x"}
    init: Body = {"initContainers": [{"name": "init", "image": "init", "volumeMounts": [mount]}]}
    scratch: Body = {"volumes": [{"name": "same-name", "emptyDir": {}}]}
    why = "kor takes the name of each volumeMount of an init container for that of a ConfigMap"
    yield _config_map("same-name", "nothing", OURS, pod("same-name", **init, **scratch), why=why)


def _in_templates() -> Iterator[Case]:
    apps: Sequence[tuple[str, str, Body]] = (
        ("zero-replicas", "deployments", {"replicas": 0}),
        ("old-rollout", "replicasets", {"replicas": 0}),
        ("stateful-zero", "statefulsets", {"replicas": 0, "serviceName": "db"}),
        ("no-node", "daemonsets", {}),
    )
    for name, kind, spec in apps:
        labels = {"app": name}
        body = {**spec, "selector": {"matchLabels": labels}, "template": _template(name, labels)}
        request = _named(f"/apis/apps/v1/namespaces/{NAMESPACE}/{kind}", name, spec=body)
        yield _config_map(name, f"{kind}, without Pods", KOR, request, why=_TEMPLATES)
    job: Body = {"suspend": True, "template": _template("job", restartPolicy="Never")}
    monthly = {"template": _template("monthly", restartPolicy="Never")}
    cron: Body = {"schedule": "0 0 1 * *", "jobTemplate": {"spec": monthly}}
    for name, kind, spec in (("job", "jobs", job), ("monthly", "cronjobs", cron)):
        request = _named(f"/apis/batch/v1/namespaces/{NAMESPACE}/{kind}", name, spec=spec)
        yield _config_map(name, f"{kind}, between runs", KOR, request, why=_TEMPLATES)
    request = _named(f"{CORE}/podtemplates", "pod-template", template=_template("pod-template"))
    yield _config_map("pod-template", "a PodTemplate", KOR, request, why=_TEMPLATES)
    data = {"spec": {"template": _template("revision")}}
    path = f"/apis/apps/v1/namespaces/{NAMESPACE}/controllerrevisions"
    request = _named(path, "revision", data=data, revision=1)
    yield _config_map("revision", "a ControllerRevision", KOR, request, why=_TEMPLATES)


def _in_other_kinds() -> Iterator[Case]:
    account = f"{CORE}/serviceaccounts"
    request = _named(account, "pull", imagePullSecrets=[{"name": "pull"}])
    yield _secret("pull", "imagePullSecrets of a ServiceAccount", KOR, request, why=_KINDS)
    request = _named(account, "mountable", secrets=[{"name": "mountable"}])
    yield _secret("mountable", "secrets of a ServiceAccount", KOR, request, why=_KINDS)
    stage = {"driver": "csi.example.com", "volumeHandle": "1", "nodeStageSecretRef": _across("pv")}
    volume = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "csi": stage}
    request = _named("/api/v1/persistentvolumes", "pv", spec=volume)
    yield _secret("pv", "a PersistentVolume", KOR, request, why=_KINDS)
    prefix = "csi.storage.k8s.io/provisioner-secret"
    parameters = {f"{prefix}-name": "storage-class", f"{prefix}-namespace": NAMESPACE}
    path = "/apis/storage.k8s.io/v1/storageclasses"
    request = _named(path, "compare", provisioner="csi.example.com", parameters=parameters)
    yield _secret("storage-class", "a StorageClass", KOR, request, why=_KINDS)
    backend = {"resource": {"kind": "ConfigMap", "name": "backend"}}
    yield _config_map("backend", "backend of an Ingress", KOR, _ingress("backend", defaultBackend=backend), why=_KINDS)
    parameter = {"kind": "ConfigMap", "scope": "Namespace", **_across("ingress-class")}
    request = _named(
        "/apis/networking.k8s.io/v1/ingressclasses", "c", spec={"controller": "x.io/c", "parameters": parameter}
    )
    yield _config_map("ingress-class", "an IngressClass", KOR, request, why=_KINDS)
    for name, what, request in _custom():
        yield _secret(name, what, KOR, request, why=_KINDS)
    param = {"selector": {"matchLabels": {"param": "x"}}, "parameterNotFoundAction": "Allow"}
    binding = {"policyName": "absent", "validationActions": ["Audit"], "paramRef": param}
    root = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
    labelled = {"metadata": {"labels": {"param": "x"}}}
    what, request = "paramRef of an admission policy, by label", _named(root, "compare", spec=binding)
    yield Case("ConfigMap", "param", what, KOR, _KINDS, (request,), labelled)


CUSTOM = {
    "gateways": ("gateway.networking.k8s.io", "v1", "Gateway"),
    "certificates": ("cert-manager.io", "v1", "Certificate"),
    "gizmos": ("example.com", "v1", "Gizmo"),
}
"""Custom resources, by plural: API group, version and kind. The last one has no carrier rule."""


def _custom() -> Iterator[tuple[str, str, Request]]:
    tls = {"listeners": [{"name": "https", "tls": {"certificateRefs": [{"name": "gateway"}]}}]}
    specs = {
        "gateway": ("gateways", tls),
        "certificate": ("certificates", {"secretName": "certificate"}),
        "unknown-kind": ("gizmos", {"login": {"credentialsSecretRef": {"name": "unknown-kind"}}}),
    }
    for name, (plural, spec) in specs.items():
        group, version, kind = CUSTOM[plural]
        path = f"/apis/{group}/{version}/namespaces/{NAMESPACE}/{plural}"
        body = {"apiVersion": f"{group}/{version}", "kind": kind, "metadata": {"name": name}, "spec": spec}
        what = f"{kind} ({group})" if plural != "gizmos" else "a custom resource without a carrier rule"
        yield name, what, Request(path, body)


def _protected() -> Iterator[Case]:
    """What nothing refers to, and this project never deletes."""
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "gone", "uid": "5c6b0d2e"}
    why = "it has an owner: the garbage collector deletes it"
    yield Case("ConfigMap", "owned", "an owner", KOR, why, fields={"metadata": {"ownerReferences": [owner]}})
    lock = {"annotations": {"control-plane.alpha.kubernetes.io/leader": "{}"}}
    why = "it is the lock of a leader election, which is read by its name"
    yield Case("ConfigMap", "lock", "a lock", KOR, why, fields={"metadata": lock})
    labels = {"labels": {"grafana_dashboard": "1"}}
    why = "Grafana finds it by its label"
    yield Case("ConfigMap", "dashboard", "a dashboard", KOR, why, fields={"metadata": labels})
    why = "it has a bootstrap token, which the API server reads by its type"
    bootstrap = {"type": "bootstrap.kubernetes.io/token"}
    yield Case("Secret", "bootstrap", "a bootstrap token", KOR, why, fields=bootstrap)
    held = {"metadata": {"annotations": {f"{ANNOTATION_DOMAIN}/hold": "audit"}}}
    yield Case("ConfigMap", "held", "a hold: listed as unused, and kept", BOTH, fields=held)


def _not_protected() -> Iterator[Case]:
    """What only kor leaves out."""
    docker = {"type": "kubernetes.io/dockerconfigjson", "stringData": {".dockerconfigjson": "{}"}}
    why = "kor leaves out this type, whether or not an object refers to it"
    yield Case("Secret", "registry", "nothing; its type is dockerconfigjson", OURS, why, fields=docker)
    labels = {"metadata": {"labels": {"kor/used": "true"}}}
    why = "the label is kor's; here an annotation holds an object"
    yield Case("ConfigMap", "labelled", "nothing; its label is kor/used", OURS, why, fields=labels)


def _config_map(name: str, what: str, unused: frozenset[str], *requests: Request, why: str = "") -> Case:
    return Case("ConfigMap", name, what, unused, why, requests)


def _secret(name: str, what: str, unused: frozenset[str], *requests: Request, why: str = "") -> Case:
    return Case("Secret", name, what, unused, why, requests)


def _named(path: str, name: str, **fields: Any) -> Request:
    return Request(path, {"metadata": {"name": name}, **fields})


def _key(ref: str, name: str, **fields: Any) -> Body:
    return {"name": "A", "valueFrom": {ref: {"name": name, "key": "key", **fields}}}


def _across(name: str) -> Body:
    return {"name": name, "namespace": NAMESPACE}


def pod(name: str, *, env: Sequence[Body] = (), volume: Body | None = None, **spec: Any) -> Request:
    """A Pod that names something by its env, or by a volume."""
    container = {"name": "main", "image": "main", "env": [*env]}
    volumes = {"volumes": [{"name": "v", **volume}]} if volume else {}
    return _named(f"{CORE}/pods", name, spec={"containers": [container], **volumes, **spec})


def _template(name: str, labels: Body | None = None, **spec: Any) -> Body:
    container = {"name": "main", "image": "main", "envFrom": [{"configMapRef": {"name": name}}]}
    return {"metadata": {"labels": labels or {}}, "spec": {"containers": [container], **spec}}


def _ingress(name: str, **spec: Any) -> Request:
    backend = {"defaultBackend": {"service": {"name": "web", "port": {"number": 80}}}}
    return _named(f"/apis/networking.k8s.io/v1/namespaces/{NAMESPACE}/ingresses", name, spec=backend | spec)
