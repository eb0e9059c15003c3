"""Reading objects of known kinds: places, namespaces, and fields that cannot be read.

Mutants that these tests were tried with; each makes at least one test fail:
- reading.py: a list that is no list, or a mapping that is no mapping, is skipped; `refersToNone` is read; the result
  has one reference twice; a default name counts beside a name
- carrier.py: a name that is no text is skipped; the problem names the home where the field crosses namespaces;
  a kind that is no text is skipped; an empty name counts
"""

import pytest
import yaml

from shared.core.references.carrier import Carrier
from shared.core.references.reading import TEMPLATES_OF_ONE_MAX
from shared.core.references.reference import ReferenceIndex, TargetKind, name_targets, names_of
from shared.core.usage.never_collected import find_never_collected
from tests.builders import FIXTURES
from tests.references import AZURE, at_path, carrying, names, names_by_rule, problems, read, read_by, text_of
from tests.usage import config_map, secret

OBJECTS = list(yaml.safe_load_all((FIXTURES / "references" / "objects.yaml").read_text()))


def existing(case):
    """All objects that the references of a case name."""
    named = (one.split(" ", 2)[:2] for one in case["references"])
    places = ((kind, *place.split("/")) for kind, place in named)
    return name_targets(
        (TargetKind(kind), namespace.replace("*", "anywhere"), name) for kind, namespace, name in places
    )


@pytest.mark.parametrize("case", OBJECTS, ids=[f"{one['object']['kind']}" for one in OBJECTS])
def test_object_as_its_operator_writes_it(case):
    found = {f"{text_of(one)} {one.path}" for one in read(case["object"], existing(case))}

    assert found == set(case["references"])


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("spec.tls", "used", {"Secret ci/*"}),
        ("spec.tls", {"secretName": "used"}, {"Secret ci/*"}),
        ("spec.tls", ["used"], {"Secret ci/*"}),
        ("spec.tls", [{"secretName": 7}], {"Secret ci/*"}),
        ("spec.tls", [{"secretName": ["used"]}], {"Secret ci/*"}),
        ("spec.tls", [{"secretName": {"name": 7}}], {"Secret ci/*"}),
        ("spec", [], {"Secret ci/*", "ConfigMap ci/*"}),
        ("spec", "used", {"Secret ci/*", "ConfigMap ci/*"}),
        ("spec.defaultBackend.resource", "used", {"Secret ci/*", "ConfigMap ci/*"}),
        ("spec.defaultBackend.resource", {"kind": 7, "name": "used"}, {"Secret ci/*", "ConfigMap ci/*"}),
        ("spec.tls", None, set()),
        ("spec.tls", [{"secretName": {"name": ""}}], set()),
        ("spec.tls", [None, {"secretName": None}, {"secretName": ""}, {}], set()),
        ("spec.defaultBackend.resource", {"kind": "Service", "name": 7}, {"Secret ci/*", "ConfigMap ci/*"}),
        ("spec.defaultBackend.resource", {"kind": "Service", "name": "used"}, set()),
    ],
    ids=lambda value: None if isinstance(value, set) else ascii(value),
)
def test_malformed_field_of_a_known_kind_makes_the_answer_unknown(path, value, expected):
    obj = carrying("networking.k8s.io/v1", "Ingress", (path, value))

    assert problems(obj) == expected
    assert names(obj) == set()


def test_problem_of_a_field_that_crosses_namespaces_is_about_every_namespace():
    assert problems(carrying("v1", "PersistentVolume", ("spec.rbd.secretRef", 7), namespace="")) == {"Secret */*"}
    gateway = carrying("gateway.networking.k8s.io/v1", "Gateway", ("spec.listeners", "all"))
    assert problems(gateway) == {"Secret */*", "ConfigMap */*"}


@pytest.mark.parametrize("templates", [5, TEMPLATES_OF_ONE_MAX + 1])
def test_field_that_crosses_namespaces_is_about_every_namespace_however_many_templates_come_before(templates):
    refs = [{"name": f"x{number}-${{y}}"} for number in range(templates)]
    gateway = carrying(
        "gateway.networking.k8s.io/v1", "Gateway", ("spec.listeners", [{"tls": {"certificateRefs": refs}}, "all"])
    )

    assert problems(gateway) >= {"Secret */*", "ConfigMap */*"}


def test_problem_names_the_field_and_its_value():
    (one,) = read(carrying("networking.k8s.io/v1", "Ingress", ("spec.tls", "used")))

    assert one.problem == "spec.tls: expected a reference to Secret, got 'used'"


def test_path_has_the_places_in_lists_and_the_keys_of_mappings():
    spec = {"containers": [{}, {"env": [{}, {}, {"valueFrom": {"secretKeyRef": {"name": "used"}}}]}]}
    obj = carrying("kubeflow.org/v1", "TFJob", ("spec.tfReplicaSpecs", {"Worker": {"template": {"spec": spec}}}))

    (found,) = {one.path for one in read(obj)}
    assert found == "spec.tfReplicaSpecs.Worker.template.spec.containers[1].env[2].valueFrom.secretKeyRef.name"


def test_reference_is_found_once_by_the_rule_and_by_its_shape():
    obj = carrying("cert-manager.io/v1", "Certificate", ("spec.secretName", "used"))

    assert [one.path for one in read(obj)] == ["spec.secretName"]


def test_optional_reference_counts():
    env = {"secretRef": {"name": "used", "optional": True}}

    assert names(carrying("v1", "Pod", ("spec.containers[*].envFrom[*]", env))) == {"Secret ci/used"}


def test_object_of_a_kind_that_refers_to_none_is_not_read():
    involved = {"kind": "Secret", "name": "used", "namespace": "ci"}

    assert names(carrying("v1", "Event", ("involvedObject", involved))) == set()


def test_default_name_counts_only_if_there_is_no_name():
    one = carrying("external-secrets.io/v1", "ExternalSecret", ("spec.target.name", "used"))
    other = carrying("external-secrets.io/v1", "ExternalSecret", ("spec.target.name", 7))

    assert names_by_rule(one) == {"Secret ci/used"}
    assert problems(other) == {"Secret ci/*"}
    assert names(other) == set()


def test_prefix_of_a_value_that_is_no_mapping_is_unknown():
    spark = carrying("sparkoperator.k8s.io/v1beta2", "SparkApplication", ("spec.sparkConf", ["used"]))

    assert "Secret ci/*" in problems(spark)


def test_certificate_of_an_istio_gateway_is_in_two_secrets():
    obj = carrying("networking.istio.io/v1", "Gateway", ("spec.servers[*].tls.credentialName", "web"))

    places = ("ci", "claims", "other")
    assert names_by_rule(obj) == {f"Secret {place}/{name}" for place in places for name in ("web", "web-cacert")}


@pytest.mark.parametrize("obj", [None, [], "Pod", 7, True])
def test_value_that_is_no_object_may_refer_to_everything(obj):
    assert {text_of(one) for one in read_by(None, obj)} == {"Secret */*", "ConfigMap */*"}


def test_each_pod_spec_of_a_rule_is_read():
    about = {"apiVersions": ["example.com/v1"], "kind": "Gizmo", "plural": "gizmos", "source": "us", "complete": True}
    carrier = Carrier.model_validate(about | {"podSpecs": ["spec.one", "spec.two[*].pod"]})
    parts = [("spec.one.imagePullSecrets[*].name", "a"), ("spec.two[*].pod.imagePullSecrets[*].name", "b")]
    obj = carrying("example.com/v1", "Gizmo", *parts)

    assert {text_of(one) for one in read_by(carrier, obj)} == {"Secret ci/a", "Secret ci/b"}


def test_rule_of_a_user_is_read_like_a_shipped_one():
    fields = [{"path": "spec.vault", "to": "typed", "defaultKind": "ConfigMap", "name": "id", "namespace": "in"}]
    about = {"apiVersions": ["example.com/v1"], "kind": "Gizmo", "plural": "gizmos", "source": "us"}
    carrier = Carrier.model_validate({**about, "fields": fields, "complete": True})
    obj = carrying("example.com/v1", "Gizmo", ("spec.vault", {"id": "used", "in": "other"}))

    assert [text_of(one) for one in read_by(carrier, obj)] == ["ConfigMap other/used"]
    assert [text_of(one) for one in read_by(carrier, obj | at_path("spec.vault.id", "used"))] == ["ConfigMap ci/used"]


def pv(**csi):
    return carrying("v1", "PersistentVolume", ("spec.csi", {"driver": "file.csi.azure.com", **csi}), namespace="")


def attached(**csi):
    place = "spec.source.inlineVolumeSpec.csi"
    return carrying("storage.k8s.io/v1", "VolumeAttachment", (place, csi), namespace="")


def inline(attributes):
    csi = {"driver": "blob.csi.azure.com", "volumeAttributes": attributes}
    return carrying("v1", "Pod", ("spec.volumes[*].csi", csi))


def storage_class(parameters):
    return carrying("storage.k8s.io/v1", "StorageClass", ("parameters", parameters), namespace="")


def snapshot(place, handle):
    return carrying("snapshot.storage.k8s.io/v1", "VolumeSnapshotContent", (place, handle), namespace="")


HANDLE = "group#used#share#disk#3c8e5a7d#claims"
HERE, EVERYWHERE = {f"Secret ci/{AZURE}"}, {f"Secret {place}/{AZURE}" for place in ("ci", "claims", "other")}
BOTH_PLACES = {f"Secret other/{AZURE}", f"Secret claims/{AZURE}"}
ACCOUNT = {"storageAccount": "used"}
IN_OTHER = {"secretnamespace": "other"}


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (pv(volumeHandle=HANDLE, volumeAttributes=IN_OTHER), BOTH_PLACES),
        (pv(volumeHandle="group#used#container", volumeAttributes=IN_OTHER), {f"Secret other/{AZURE}"}),
        (pv(volumeHandle="group#used#container##claims#", volumeAttributes=IN_OTHER | {"x": "y"}), BOTH_PLACES),
        (pv(volumeHandle="unique", volumeAttributes=ACCOUNT | {"secretNamespace": "other"}), {f"Secret other/{AZURE}"}),
        (pv(volumeHandle="unique", volumeAttributes={"storageaccountname": "used"}), EVERYWHERE),
        (pv(volumeHandle="group#used#share"), EVERYWHERE),
        (pv(volumeHandle="group#used"), set()),
        (pv(volumeHandle="group##share"), set()),
        (pv(volumeHandle=7, volumeAttributes=None), set()),
        (attached(volumeHandle=HANDLE, volumeAttributes=IN_OTHER), BOTH_PLACES),
        (inline(ACCOUNT | {"secretNamespace": "other"}), HERE),
        (inline({"STORAGEACCOUNT": "used"}), HERE),
        (storage_class(ACCOUNT | {"secretNamespace": "other"}), {f"Secret other/{AZURE}"}),
        (storage_class(ACCOUNT | {"secretNamespace": "${pvc.namespace}"}), EVERYWHERE),
        (storage_class(ACCOUNT), EVERYWHERE),
        (storage_class({"storageAccount": "${account}"}), {"Secret */azure-storage-account-*-secret"}),
        (snapshot("status.snapshotHandle", "group#used#share###2026-01-01T00:00:00.0000000Z"), EVERYWHERE),
    ],
    ids=lambda value: None if isinstance(value, set) else ascii(value),
)
def test_secret_of_an_azure_volume_is_named_after_its_storage_account(row, expected):
    assert {one for one in names(row) if "azure" in one} == expected


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (pv(volumeAttributes=[]), {"Secret */*"}),
        (pv(volumeAttributes={"storageAccount": 7}), {"Secret */*"}),
        (inline("used"), {"Secret ci/*"}),
        (storage_class([]), {"Secret */*"}),
        (pv(volumeAttributes={"storageAccount": None}), set()),
    ],
    ids=lambda value: None if isinstance(value, set) else ascii(value),
)
def test_malformed_attributes_of_a_volume_make_the_answer_unknown(row, expected):
    assert problems(row) == expected


@pytest.mark.parametrize(
    ("api_version", "kind", "expected"),
    [
        ("rbac.authorization.k8s.io/v1", "Role", {"Secret ci/used", "ConfigMap ci/used"}),
        ("rbac.authorization.k8s.io/v1", "RoleBinding", {"Secret ci/used", "ConfigMap ci/used"}),
        ("gateway.networking.k8s.io/v1beta1", "ReferenceGrant", {"Secret ci/used", "ConfigMap ci/used"}),
        ("v1", "Event", set()),
        ("v1", "Endpoints", set()),
        ("discovery.k8s.io/v1", "EndpointSlice", set()),
        ("coordination.k8s.io/v1", "Lease", set()),
    ],
)
def test_annotations_and_owners_of_permissions_count_and_those_of_kinds_that_refer_to_none_do_not(
    api_version, kind, expected
):
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "used", "uid": "u"}
    by_annotation = carrying(api_version, kind, ('metadata.annotations["example.com/x"]', "ci/used"))
    by_owner = carrying(api_version, kind, ("metadata.ownerReferences[*]", owner))

    assert names(by_annotation) == expected
    assert names(by_owner) == expected - {"Secret ci/used"}


JENKINS = """
- apiVersion: apps/v1
  kind: StatefulSet
  metadata: {name: jenkins, namespace: ci}
  spec:
    template:
      spec:
        containers:
        - {name: jenkins, image: "jenkins/jenkins:lts", env: [{name: CASC_JENKINS_CONFIG, value: /var/casc_configs}]}
        - name: config-reload
          image: docker.io/kiwigrid/k8s-sidecar:1.30.7
          env:
          - {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
          - {name: LABEL, value: jenkins-config}
          - {name: FOLDER, value: /var/casc_configs}
          - {name: NAMESPACE, value: ci}
          - {name: REQ_URL, value: "http://localhost:8080/reload/?token=$(POD_NAME)"}
"""
KYVERNO = """
- apiVersion: kyverno.io/v1
  kind: ClusterPolicy
  metadata: {name: share}
  spec:
    rules:
    - name: share
      match: {any: [{resources: {kinds: [Namespace]}}]}
      exclude: {any: [{resources: {namespaces: [kube-system, staging]}}]}
      generate:
        namespace: "{{request.object.metadata.name}}"
        synchronize: true
        cloneList:
          namespace: staging
          kinds: [v1/Secret, v1/ConfigMap]
          selector: {matchLabels: {shared: "true"}}
"""
ARGO_CD = """
- {apiVersion: v1, kind: ConfigMap, metadata: {name: argocd-cm, namespace: argocd}}
"""
PART_OF = {"app.kubernetes.io/part-of": "argocd"}


@pytest.mark.parametrize(
    ("carriers", "used", "unused"),
    [
        (
            JENKINS,
            [
                config_map("jenkins-casc", labels={"app.kubernetes.io/name": "jenkins", "jenkins-config": "true"}),
                config_map("pipelines", labels={"jenkins-config": "no"}),
            ],
            [config_map("stale"), secret("stale", labels={"jenkins-config": "true"})],
        ),
        (
            KYVERNO,
            [
                secret("login", namespace="staging", labels={"shared": "true"}),
                config_map("bootstrap", namespace="staging", labels={"shared": "true", "team": "a"}),
            ],
            [
                config_map("stale", namespace="staging"),
                config_map("private", namespace="staging", labels={"shared": "false"}),
                secret("login", namespace="ci", labels={"shared": "true"}),
            ],
        ),
        (
            ARGO_CD,
            [secret("sso", namespace="argocd", labels=PART_OF), config_map("argocd-cm", namespace="argocd")],
            [config_map("stale", namespace="argocd"), secret("stale", namespace="argocd", labels={"app": "argocd"})],
        ),
    ],
    ids=["sidecar", "policy", "operator"],
)
def test_object_that_a_controller_reads_by_its_label_is_used_and_any_other_is_not(carriers, used, unused):
    targets = names_of([*used, *unused])
    index = ReferenceIndex(one for obj in yaml.safe_load(carriers) for one in read(obj, targets))

    def is_kept(obj):
        metadata = obj["metadata"]
        found = index.find(obj["kind"], metadata["namespace"], metadata["name"], metadata.get("labels"))
        return bool(found) or find_never_collected(obj) is not None

    assert [is_kept(obj) for obj in used] == [True] * len(used)
    assert [is_kept(obj) for obj in unused] == [False] * len(unused)
