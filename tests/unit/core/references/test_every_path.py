"""Each path by which an object refers to a Secret or a ConfigMap, one row a path.

The first column names the section of the specification and its row: F.3 PodSpecs, F.4 carriers of PodSpecs, F.5
built-in kinds, F.6 Gateway API, F.7 custom resources.

Mutants that these tests were tried with; each makes at least one test fail:
- pod_spec.py: `ephemeralContainers` left out of `_CONTAINERS`; `secretName` of a volume replaced by `name`; `cinder`
  left out of `_WITH_SECRET_REF`; `envFrom` left out for ConfigMaps
- reading.py: `plant` without the PodSpecs; only the first of several PodSpecs
- carrier.py: `_namespace` without `namespace_from`; `namespace or ...` replaced by the home; typed with only the
  default kind; `read_default` without a result; `expand` without the pattern; `form: key` reads the value
- reading.py: a cluster-scoped carrier with its own namespace; annotations left out for complete carriers
"""

import pytest

from shared.core.references.carrier import parse_path
from tests.builders import not_none
from tests.references import at_path, carrying, names, names_by_rule, shipped_carriers

POD_SPEC = [
    ("imagePullSecrets[*].name", "Secret"),
    *(
        (f"{containers}[*].{path}", kind)
        for containers in ("containers", "initContainers", "ephemeralContainers")
        for path, kind in (
            ("env[*].valueFrom.secretKeyRef.name", "Secret"),
            ("env[*].valueFrom.configMapKeyRef.name", "ConfigMap"),
            ("envFrom[*].secretRef.name", "Secret"),
            ("envFrom[*].configMapRef.name", "ConfigMap"),
        )
    ),
    ("volumes[*].secret.secretName", "Secret"),
    ("volumes[*].configMap.name", "ConfigMap"),
    ("volumes[*].projected.sources[*].secret.name", "Secret"),
    ("volumes[*].projected.sources[*].configMap.name", "ConfigMap"),
    ("volumes[*].azureFile.secretName", "Secret"),
    *(
        (f"volumes[*].{volume}.secretRef.name", "Secret")
        for volume in ("cephfs", "flexVolume", "rbd", "scaleIO", "iscsi", "storageos", "cinder")
    ),
    ("volumes[*].csi.nodePublishSecretRef.name", "Secret"),
    *(
        (f"volumes[*].ephemeral.volumeClaimTemplate.spec.{source}", kind)
        for source in ("dataSource", "dataSourceRef")
        for kind in ("Secret", "ConfigMap")
    ),
]
"""F.3."""

TEMPLATES = [
    ("v1", "Pod", "spec"),
    ("apps/v1", "Deployment", "spec.template.spec"),
    ("apps/v1", "ReplicaSet", "spec.template.spec"),
    ("apps/v1", "StatefulSet", "spec.template.spec"),
    ("apps/v1", "DaemonSet", "spec.template.spec"),
    ("v1", "ReplicationController", "spec.template.spec"),
    ("batch/v1", "Job", "spec.template.spec"),
    ("batch/v1", "CronJob", "spec.jobTemplate.spec.template.spec"),
    ("v1", "PodTemplate", "template.spec"),
    ("apps/v1", "ControllerRevision", "data.spec.template.spec"),
    ("jobset.x-k8s.io/v1alpha2", "JobSet", "spec.replicatedJobs[*].template.spec.template.spec"),
    ("serving.knative.dev/v1", "Service", "spec.template.spec"),
    ("serving.knative.dev/v1", "Configuration", "spec.template.spec"),
    ("serving.knative.dev/v1", "Revision", "spec"),
    ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "spec.leaderWorkerTemplate.leaderTemplate.spec"),
    ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "spec.leaderWorkerTemplate.workerTemplate.spec"),
    ("argoproj.io/v1alpha1", "Rollout", "spec.template.spec"),
    ("argoproj.io/v1alpha1", "AnalysisTemplate", "spec.metrics[*].provider.job.spec.template.spec"),
    ("argoproj.io/v1alpha1", "AnalysisRun", "spec.metrics[*].provider.job.spec.template.spec"),
    ("argoproj.io/v1alpha1", "Experiment", "spec.templates[*].template.spec"),
    ("kubeflow.org/v1", "PyTorchJob", "spec.pytorchReplicaSpecs.*.template.spec"),
    ("kubeflow.org/v1", "TFJob", "spec.tfReplicaSpecs.*.template.spec"),
    ("kubeflow.org/v1", "XGBoostJob", "spec.xgbReplicaSpecs.*.template.spec"),
    ("kubeflow.org/v1", "PaddleJob", "spec.paddleReplicaSpecs.*.template.spec"),
    ("kubeflow.org/v1", "JAXJob", "spec.jaxReplicaSpecs.*.template.spec"),
    ("kubeflow.org/v2beta1", "MPIJob", "spec.mpiReplicaSpecs.*.template.spec"),
    ("ray.io/v1", "RayCluster", "spec.headGroupSpec.template.spec"),
    ("ray.io/v1", "RayCluster", "spec.workerGroupSpecs[*].template.spec"),
    ("ray.io/v1", "RayJob", "spec.rayClusterSpec.headGroupSpec.template.spec"),
    ("ray.io/v1", "RayJob", "spec.rayClusterSpec.workerGroupSpecs[*].template.spec"),
    ("ray.io/v1", "RayJob", "spec.submitterPodTemplate.spec"),
    ("ray.io/v1", "RayService", "spec.rayClusterConfig.headGroupSpec.template.spec"),
    ("ray.io/v1", "RayService", "spec.rayClusterConfig.workerGroupSpecs[*].template.spec"),
    ("batch.volcano.sh/v1alpha1", "Job", "spec.tasks[*].template.spec"),
    ("example.com/v1", "Unknown", "spec.some[*].where.podTemplate"),
]
"""F.4; the last row is the generic fallback."""

ANYWHERE = [
    ("argoproj.io/v1alpha1", "ClusterAnalysisTemplate", "spec.metrics[*].provider.job.spec.template.spec"),
    (
        "trainer.kubeflow.org/v1alpha1",
        "ClusterTrainingRuntime",
        "spec.template.spec.replicatedJobs[*].template.spec.template.spec",
    ),
]
"""Cluster-scoped carriers, whose Pods may run in any namespace."""


def value_of(path, kind):
    return {"kind": kind, "name": "used"} if "dataSource" in path else "used"


@pytest.mark.parametrize(("api_version", "owner", "place"), TEMPLATES, ids=str)
def test_each_path_of_a_pod_spec_is_found_in_each_carrier(api_version, owner, place):
    found = {
        (path, kind): names(carrying(api_version, owner, (place, at_path(path, value_of(path, kind)))))
        for path, kind in POD_SPEC
    }

    assert found == {(path, kind): {f"{kind} ci/used"} for path, kind in POD_SPEC}
    assert names(carrying(api_version, owner, (place, {}))) == set()


@pytest.mark.parametrize(("api_version", "owner", "place"), ANYWHERE)
def test_path_of_a_pod_spec_counts_in_every_namespace_for_a_cluster_scoped_carrier(api_version, owner, place):
    for path, kind in POD_SPEC:
        obj = carrying(api_version, owner, (place, at_path(path, value_of(path, kind))), namespace="")

        assert names(obj) == {f"{kind} ci/used", f"{kind} claims/used", f"{kind} other/used"}, (path, kind)


NAMED = {"name": "used"}
ELSEWHERE = {"name": "used", "namespace": "other"}
HERE, THERE, ANYWHERE_ELSE = "Secret ci/used", "Secret other/used", "Secret other/used"
CONFIG_MAP = "ConfigMap ci/used"
CLAIM = ("spec.claimRef", {"namespace": "claims"})

BUILT_IN = [
    ("F.5 ServiceAccount", "v1", "ServiceAccount", [("secrets[*]", NAMED)], HERE),
    ("F.5 ServiceAccount", "v1", "ServiceAccount", [("imagePullSecrets[*]", NAMED)], HERE),
    (
        "a populator of volumes",
        "apps/v1",
        "StatefulSet",
        [("spec.volumeClaimTemplates[*].spec.dataSourceRef", {"kind": "Secret", **ELSEWHERE})],
        THERE,
    ),
    ("F.5 Ingress", "networking.k8s.io/v1", "Ingress", [("spec.tls[*].secretName", "used")], HERE),
    (
        "F.5 Ingress",
        "networking.k8s.io/v1",
        "Ingress",
        [("spec.defaultBackend.resource", {"kind": "ConfigMap", "name": "used"})],
        CONFIG_MAP,
    ),
    (
        "F.5 Ingress",
        "networking.k8s.io/v1",
        "Ingress",
        [("spec.rules[*].http.paths[*].backend.resource", {"kind": "ConfigMap", "name": "used"})],
        CONFIG_MAP,
    ),
    (
        "F.5 VolumeAttachment",
        "storage.k8s.io/v1",
        "VolumeAttachment",
        [("spec.source.inlineVolumeSpec.csi.controllerPublishSecretRef", ELSEWHERE)],
        THERE,
    ),
    (
        "F.5 IngressClass",
        "networking.k8s.io/v1",
        "IngressClass",
        [("spec.parameters", {"kind": "ConfigMap", **ELSEWHERE})],
        "ConfigMap other/used",
    ),
    (
        "F.5 IngressClass",
        "networking.k8s.io/v1",
        "IngressClass",
        [("spec.parameters", {"kind": "ConfigMap", **NAMED})],
        "ConfigMap other/used",
    ),
    ("F.5 PVC", "v1", "PersistentVolumeClaim", [("spec.dataSource", {"kind": "Secret", **NAMED})], HERE),
    ("F.5 PVC", "v1", "PersistentVolumeClaim", [("spec.dataSourceRef", {"kind": "Secret", **ELSEWHERE})], THERE),
    ("F.5 Node", "v1", "Node", [("spec.configSource.configMap", ELSEWHERE)], "ConfigMap other/used"),
    (
        "F.5 VolumeSnapshotContent",
        "snapshot.storage.k8s.io/v1",
        "VolumeSnapshotContent",
        [
            ('metadata.annotations["snapshot.storage.kubernetes.io/deletion-secret-name"]', "used"),
            ('metadata.annotations["snapshot.storage.kubernetes.io/deletion-secret-namespace"]', "other"),
        ],
        THERE,
    ),
    (
        "F.5 PersistentVolume annotations",
        "v1",
        "PersistentVolume",
        [
            ('metadata.annotations["volume.kubernetes.io/provisioner-deletion-secret-name"]', "used"),
            ('metadata.annotations["volume.kubernetes.io/provisioner-deletion-secret-namespace"]', "other"),
        ],
        THERE,
    ),
    (
        "F.5 PersistentVolume azureFile",
        "v1",
        "PersistentVolume",
        [("spec.azureFile", {"secretName": "used", "secretNamespace": "other"}), CLAIM],
        THERE,
    ),
    (
        "F.5 PersistentVolume azureFile without a namespace",
        "v1",
        "PersistentVolume",
        [("spec.azureFile.secretName", "used"), CLAIM],
        "Secret claims/used",
    ),
    (
        "F.5 PersistentVolume azureFile without a claim",
        "v1",
        "PersistentVolume",
        [("spec.azureFile.secretName", "used")],
        ANYWHERE_ELSE,
    ),
    *(
        (f"F.5 PersistentVolume {volume}", "v1", "PersistentVolume", [(f"spec.{volume}.secretRef", ELSEWHERE)], THERE)
        for volume in ("cephfs", "cinder", "flexVolume", "rbd", "iscsi", "scaleIO", "storageos")
    ),
    *(
        (f"F.5 PersistentVolume csi {use}", "v1", "PersistentVolume", [(f"spec.csi.{use}SecretRef", ELSEWHERE)], THERE)
        for use in ("controllerPublish", "nodeStage", "nodePublish", "controllerExpand", "nodeExpand")
    ),
    *(
        (
            f"F.5 {kind} {use}",
            f"{group}/v1",
            kind,
            [
                (f'parameters["csi.storage.k8s.io/{use}-secret-name"]', "used"),
                (f'parameters["csi.storage.k8s.io/{use}-secret-namespace"]', "other"),
            ],
            THERE,
        )
        for kind, group, uses in (
            (
                "StorageClass",
                "storage.k8s.io",
                (
                    "provisioner",
                    "controller-publish",
                    "node-stage",
                    "node-publish",
                    "node-expand",
                    "controller-expand",
                    "controller-modify",
                ),
            ),
            ("VolumeSnapshotClass", "snapshot.storage.k8s.io", ("snapshotter", "snapshotter-list")),
            (
                "VolumeGroupSnapshotClass",
                "groupsnapshot.storage.k8s.io",
                ("group-snapshotter", "group-snapshotter-get"),
            ),
        )
        for use in uses
    ),
    (
        "F.5 StorageClass template",
        "storage.k8s.io/v1",
        "StorageClass",
        [
            ('parameters["csi.storage.k8s.io/node-publish-secret-name"]', "${pvc.name}-key"),
            ('parameters["csi.storage.k8s.io/node-publish-secret-namespace"]', "${pvc.namespace}"),
        ],
        "Secret */*-key",
    ),
    *(
        (
            f"F.5 {kind} by name",
            "admissionregistration.k8s.io/v1",
            kind,
            [("spec.paramRef", {"name": "used", "namespace": "other"})],
            "ConfigMap other/used",
        )
        for kind in ("ValidatingAdmissionPolicyBinding", "MutatingAdmissionPolicyBinding")
    ),
    *(
        (
            f"F.5 {kind} in the namespace of the admitted object",
            "admissionregistration.k8s.io/v1",
            kind,
            [("spec.paramRef", {"name": "used"})],
            "ConfigMap other/used",
        )
        for kind in ("ValidatingAdmissionPolicyBinding", "MutatingAdmissionPolicyBinding")
    ),
]
"""F.5."""

GATEWAY = "gateway.networking.k8s.io/v1"
A_SECRET, A_CONFIG_MAP = {"kind": "Secret", "name": "used"}, {"kind": "ConfigMap", "name": "used"}
GATEWAY_API = [
    ("F.6 listeners", GATEWAY, "Gateway", [("spec.listeners[*].tls.certificateRefs[*]", NAMED)], HERE),
    ("F.6 listeners", GATEWAY, "Gateway", [("spec.listeners[*].tls.certificateRefs[*]", ELSEWHERE)], THERE),
    (
        "F.6 frontend validation",
        GATEWAY,
        "Gateway",
        [("spec.listeners[*].tls.frontendValidation.caCertificateRefs[*]", A_CONFIG_MAP)],
        CONFIG_MAP,
    ),
    (
        "F.6 frontend validation of all ports",
        GATEWAY,
        "Gateway",
        [("spec.tls.frontend.default.validation.caCertificateRefs[*]", A_CONFIG_MAP)],
        CONFIG_MAP,
    ),
    (
        "F.6 frontend validation of a port",
        GATEWAY,
        "Gateway",
        [("spec.tls.frontend.perPort[*].tls.validation.caCertificateRefs[*]", A_CONFIG_MAP)],
        CONFIG_MAP,
    ),
    ("F.6 backend", GATEWAY, "Gateway", [("spec.tls.backend.clientCertificateRef", NAMED)], HERE),
    ("F.6 parametersRef", GATEWAY, "Gateway", [("spec.infrastructure.parametersRef", A_CONFIG_MAP)], CONFIG_MAP),
    (
        "F.6 parametersRef",
        GATEWAY,
        "GatewayClass",
        [("spec.parametersRef", {**A_CONFIG_MAP, "namespace": "other"})],
        "ConfigMap other/used",
    ),
    ("F.6 ListenerSet", GATEWAY, "ListenerSet", [("spec.listeners[*].tls.certificateRefs[*]", NAMED)], HERE),
    (
        "F.6 ListenerSet",
        "gateway.networking.x-k8s.io/v1alpha1",
        "XListenerSet",
        [("spec.listeners[*].tls.certificateRefs[*]", NAMED)],
        HERE,
    ),
    (
        "F.6 BackendTLSPolicy",
        GATEWAY,
        "BackendTLSPolicy",
        [("spec.validation.caCertificateRefs[*]", A_CONFIG_MAP)],
        CONFIG_MAP,
    ),
    ("F.6 HTTPRoute", GATEWAY, "HTTPRoute", [("spec.rules[*].filters[*].extensionRef", A_SECRET)], HERE),
    ("F.6 GRPCRoute", GATEWAY, "GRPCRoute", [("spec.rules[*].filters[*].extensionRef", A_SECRET)], HERE),
]

ES, CERT, TEKTON, ARGO = "external-secrets.io/v1", "cert-manager.io/v1", "tekton.dev/v1", "argoproj.io/v1alpha1"
FLUX, SPARK, PROMETHEUS = "toolkit.fluxcd.io", "sparkoperator.k8s.io/v1beta2", "monitoring.coreos.com/v1"
TRAINER, ISTIO = "trainer.kubeflow.org/v1alpha1", "networking.istio.io/v1"
CUSTOM = [
    ("F.7 Certificate", CERT, "Certificate", [("spec.secretName", "used")], HERE),
    ("F.7 Issuer", CERT, "Issuer", [("spec.acme.privateKeySecretRef", NAMED)], HERE),
    ("F.7 Issuer", CERT, "Issuer", [("spec.ca.secretName", "used")], HERE),
    ("F.7 Issuer", CERT, "ClusterIssuer", [("spec.ca.secretName", "used")], ANYWHERE_ELSE),
    (
        "F.7 Issuer solver",
        CERT,
        "Issuer",
        [("spec.acme.solvers[*].dns01.cloudflare.apiTokenSecretRef", {"name": "used", "key": "t"})],
        HERE,
    ),
    (
        "F.7 inject-ca-from-secret",
        "admissionregistration.k8s.io/v1",
        "ValidatingWebhookConfiguration",
        [('metadata.annotations["cert-manager.io/inject-ca-from-secret"]', "other/used")],
        THERE,
    ),
    (
        "F.7 inject-ca-from-secret",
        "apiregistration.k8s.io/v1",
        "APIService",
        [('metadata.annotations["cert-manager.io/inject-ca-from-secret"]', "other/used")],
        THERE,
    ),
    *(
        (f"F.7 Tekton {kind}", TEKTON, kind, [(f"spec.workspaces[*].{field}", value)], expected)
        for kind in ("PipelineRun", "TaskRun")
        for field, value, expected in (
            ("secret.secretName", "used", HERE),
            ("configMap.name", "used", CONFIG_MAP),
            ("projected.sources[*].secret.name", "used", HERE),
            ("projected.sources[*].configMap.name", "used", CONFIG_MAP),
        )
    ),
    ("F.7 Tekton podTemplate", TEKTON, "TaskRun", [("spec.podTemplate.imagePullSecrets[*].name", "used")], HERE),
    (
        "F.7 Tekton podTemplate",
        TEKTON,
        "PipelineRun",
        [("spec.taskRunTemplate.podTemplate.volumes[*].secret.secretName", "used")],
        HERE,
    ),
    (
        "F.7 Argo artifact",
        ARGO,
        "Workflow",
        [("spec.templates[*].inputs.artifacts[*].s3.accessKeySecret", {"name": "used", "key": "k"})],
        HERE,
    ),
    (
        "F.7 Argo artifact by its shape",
        ARGO,
        "WorkflowTemplate",
        [("spec.templates[*].outputs.artifacts[*].gcs.serviceAccountKeySecret", {"name": "used", "key": "k"})],
        HERE,
    ),
    (
        "F.7 Argo semaphore",
        ARGO,
        "Workflow",
        [("spec.synchronization.semaphore.configMapKeyRef", {"name": "used", "key": "k"})],
        CONFIG_MAP,
    ),
    (
        "F.7 Argo semaphore",
        ARGO,
        "CronWorkflow",
        [("spec.workflowSpec.synchronization.semaphore.configMapKeyRef", {"name": "used", "key": "k"})],
        CONFIG_MAP,
    ),
    (
        "F.7 Knative Broker",
        "eventing.knative.dev/v1",
        "Broker",
        [("spec.config", {**A_CONFIG_MAP, "namespace": "other"})],
        "ConfigMap other/used",
    ),
    *(
        (
            f"F.7 KafkaSource {part}",
            "sources.knative.dev/v1",
            "KafkaSource",
            [(f"spec.net.{part}.secretKeyRef", {"name": "used", "key": "k"})],
            HERE,
        )
        for part in ("sasl.user", "sasl.password", "sasl.type", "tls.cert", "tls.key", "tls.caCert")
    ),
    ("F.7 DomainMapping", "serving.knative.dev/v1beta1", "DomainMapping", [("spec.tls.secretName", "used")], HERE),
    ("F.7 Flux valuesFrom", f"helm.{FLUX}/v2", "HelmRelease", [("spec.valuesFrom[*]", A_CONFIG_MAP)], CONFIG_MAP),
    ("F.7 Flux valuesFrom", f"helm.{FLUX}/v2", "HelmRelease", [("spec.valuesFrom[*]", A_SECRET)], HERE),
    ("F.7 Flux secretRef", f"source.{FLUX}/v1", "GitRepository", [("spec.secretRef", NAMED)], HERE),
    ("F.7 Flux secretRef", f"kustomize.{FLUX}/v1", "Kustomization", [("spec.decryption.secretRef", NAMED)], HERE),
    (
        "F.7 Flux substituteFrom",
        f"kustomize.{FLUX}/v1",
        "Kustomization",
        [("spec.postBuild.substituteFrom[*]", A_CONFIG_MAP)],
        CONFIG_MAP,
    ),
    ("F.7 TrainJob", TRAINER, "TrainJob", [("spec.initializer.dataset.secretRef", NAMED)], HERE),
    ("F.7 TrainJob", TRAINER, "TrainJob", [("spec.initializer.model.secretRef", NAMED)], HERE),
    *(
        (f"F.7 Spark {key}", SPARK, "SparkApplication", [("spec.sparkConf", {key: value})], expected)
        for key, value, expected in (
            ("spark.kubernetes.driver.secrets.used", "/etc/secrets", HERE),
            ("spark.kubernetes.executor.secrets.used", "/etc/secrets", HERE),
            ("spark.kubernetes.driver.secretKeyRef.TOKEN", "used:key", HERE),
            ("spark.kubernetes.executor.secretKeyRef.TOKEN", "used:key", HERE),
            ("spark.kubernetes.container.image.pullSecrets", "used", HERE),
        )
    ),
    (
        "F.7 Velero",
        "velero.io/v1",
        "BackupStorageLocation",
        [("spec.credential", {"name": "used", "key": "cloud"})],
        HERE,
    ),
    ("F.7 Prometheus", PROMETHEUS, "Prometheus", [("spec.secrets[*]", "used")], HERE),
    ("F.7 Prometheus", PROMETHEUS, "Prometheus", [("spec.configMaps[*]", "used")], CONFIG_MAP),
    ("F.7 ExternalSecret", ES, "ExternalSecret", [("spec.target.name", "used")], HERE),
    ("F.7 ExternalSecret", ES, "ExternalSecret", [("spec.refreshInterval", "1h")], "Secret ci/carrier"),
    ("F.7 SealedSecret", "bitnami.com/v1alpha1", "SealedSecret", [("spec.x", "1")], "Secret ci/carrier"),
    (
        "Istio",
        ISTIO,
        "DestinationRule",
        [("spec.trafficPolicy.tls.credentialName", "used")],
        ANYWHERE_ELSE,
    ),
    ("KEDA", "keda.sh/v1alpha1", "TriggerAuthentication", [("spec.secretTargetRef[*].name", "used")], HERE),
    (
        "KEDA",
        "keda.sh/v1alpha1",
        "ClusterTriggerAuthentication",
        [("spec.secretTargetRef[*].name", "used")],
        ANYWHERE_ELSE,
    ),
    ("KEDA", "keda.sh/v1alpha1", "TriggerAuthentication", [("spec.configMapTargetRef[*].name", "used")], CONFIG_MAP),
]


BY_SHAPE = ("F.7 Issuer solver", "F.7 Argo artifact by its shape")
"""Rows that no carrier rule names: the search of the whole object finds them."""


@pytest.mark.parametrize("table", [BUILT_IN, GATEWAY_API, CUSTOM], ids=["F.5", "F.6", "F.7"])
def test_each_path_is_found_and_nothing_without_it(table):
    failures = []
    for row, api_version, kind, parts, expected in table:
        scope = {"Cluster": "", "Namespaced": "ci"}[not_none(shipped_carriers().get(api_version, kind)).scope]
        read = names if row in BY_SHAPE else names_by_rule
        found = read(carrying(api_version, kind, *parts, namespace=scope))
        without = names(carrying(api_version, kind, ("spec.nothing", "nothing"), namespace=scope))
        if expected not in found or (expected in without and not expected.endswith("/carrier")):
            failures.append(f"{row}: {kind} {parts}: expected {expected}, got {found}; without the path {without}")
    assert failures == []


@pytest.mark.parametrize("kind", ["Role", "ClusterRole"])
def test_permission_is_no_reference(kind):
    rules = {"resources": ["secrets"], "resourceNames": ["used"]}

    assert names(carrying("rbac.authorization.k8s.io/v1", kind, ("rules[*]", rules))) == set()


def test_parameters_by_label_select_by_label():
    selector = {"matchLabels": {"app": "web"}}
    binding = carrying(
        "admissionregistration.k8s.io/v1",
        "ValidatingAdmissionPolicyBinding",
        ("spec.paramRef", {"selector": selector}),
        namespace="",
    )

    assert names(binding) == {"ConfigMap */*", "Secret */*"}


FIELDS = [
    (carrier, field)
    for carrier in shipped_carriers().carriers
    for field in carrier.fields
    if field.prefix is None and field.reader != "azure" and not field.path.startswith("metadata")
]


def is_read(carrier, field):
    """Whether the rule of a carrier finds a name in one of its fields."""
    kind = field.default_kind or (field.to if field.to in ("Secret", "ConfigMap") else "Secret")
    text = field.path.endswith(("Name", ".name", "Secret", "configMap", "From")) or field.path.endswith('"]')
    typed = {"kind": kind} if field.to == "typed" else {}
    value = "used" if text and field.to != "typed" and field.name == "name" else {field.name: "used", **typed}
    namespace = "ci" if carrier.scope == "Namespaced" else ""
    obj = carrying(carrier.api_versions[0], carrier.kind, (field.path, value), namespace=namespace)
    return any(one.startswith(kind) and one.endswith("/" + field.expand("used")) for one in names_by_rule(obj))


def test_each_field_of_each_shipped_rule_is_read():
    """Also those that no section lists."""
    assert len(FIELDS) > 200
    assert [
        f"{carrier.name} {field.path} {field.name}"
        for carrier, field in FIELDS
        if not parse_path(field.path) or not is_read(carrier, field)
    ] == []
