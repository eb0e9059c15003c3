"""k8s-sidecar containers, which select Secrets and ConfigMaps by a label in their variables.

Mutants that these tests were tried with; each makes at least one test fail: only the image counts, or only the
variables; any image that contains k8s-sidecar counts; `LABEL_VALUE`, `RESOURCE` or `NAMESPACE` is ignored; a variable
with `valueFrom` has its default; `envFrom` is ignored; `$(NAME)` is not expanded; only workloads are searched.
"""

import pytest

from tests.references import carrying, names, problems, read

IMAGE = "docker.io/kiwigrid/k8s-sidecar:1.30.7"
LABEL = {"LABEL": "grafana_dashboard", "FOLDER": "/tmp"}
CONFIG_MAP, SECRET = {"ConfigMap ci/*"}, {"Secret ci/*"}
FROM_A_KEY = {"configMapKeyRef": {"name": "absent", "key": "x"}}
OWN_NAMESPACE = {"fieldRef": {"fieldPath": "metadata.namespace"}}
WORKLOADS = [
    ("apps/v1", "Deployment", "spec.template.spec.containers[*]"),
    ("v1", "Pod", "spec.initContainers[*]"),
    ("batch/v1", "CronJob", "spec.jobTemplate.spec.template.spec.containers[*]"),
    ("argoproj.io/v1alpha1", "Rollout", "spec.template.spec.containers[*]"),
    ("monitoring.coreos.com/v1", "Prometheus", "spec.containers[*]"),
    ("example.com/v1", "Gizmo", "spec.any"),
]


def container(variables, *, image=IMAGE, **more):
    """A container with these variables; a mapping is the source of a value."""
    env = [{"name": name, "valueFrom" if isinstance(one, dict) else "value": one} for name, one in variables.items()]
    return {"name": "sc", "image": image, "env": env, **more}


def deployment(one):
    return carrying("apps/v1", "Deployment", ("spec.template.spec.containers", [{"name": "web"}, one]))


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        (LABEL, CONFIG_MAP),
        ({"LABEL": "grafana_dashboard"}, CONFIG_MAP),
        (LABEL | {"RESOURCE": "configmap"}, CONFIG_MAP),
        (LABEL | {"RESOURCE": "secret"}, SECRET),
        (LABEL | {"RESOURCE": "both"}, CONFIG_MAP | SECRET),
        (LABEL | {"RESOURCE": FROM_A_KEY}, CONFIG_MAP | SECRET),
        (LABEL | {"NAMESPACE": "ci"}, CONFIG_MAP),
        (LABEL | {"NAMESPACE": "a,other"}, {"ConfigMap other/*"}),
        (LABEL | {"NAMESPACE": "a, ci"}, CONFIG_MAP),
        (LABEL | {"NAMESPACE": "ALL"}, {"ConfigMap */*"}),
        (LABEL | {"NAMESPACE": "a,ALL"}, {"ConfigMap */*"}),
        (LABEL | {"NAMESPACE": ""}, {"ConfigMap */*"}),
        (LABEL | {"NAMESPACE": "${namespace}"}, {"ConfigMap */*"}),
        (LABEL | {"NAMESPACE": FROM_A_KEY}, {"ConfigMap */*"}),
        (LABEL | {"NAMESPACE": OWN_NAMESPACE}, CONFIG_MAP),
        ({"POD": OWN_NAMESPACE, "X": "$(POD)", **LABEL, "NAMESPACE": "$(X)"}, CONFIG_MAP),
        ({**LABEL, "NAMESPACE": "$(LATER)", "LATER": "a"}, {"ConfigMap */*"}),
        ({"FOLDER": "/tmp"}, set()),
        ({}, set()),
    ],
    ids=lambda value: None if isinstance(value, set) else str(value),
)
def test_sidecar_selects_the_kinds_and_the_namespaces_that_its_variables_name(variables, expected):
    assert {one for one in names(deployment(container(variables))) if one.endswith("/*")} == expected
    assert {one for one in problems(deployment(container(variables))) if one.endswith("/*")} == set()


@pytest.mark.parametrize(
    ("label", "value", "labels", "selects"),
    [
        ("app", None, {"app": "anything"}, True),
        ("app", None, {"other": "web"}, False),
        ("app", "", {"app": "anything"}, True),
        ("app", "web", {"app": "web"}, True),
        ("app", "web", {"app": "db"}, False),
        ("app", FROM_A_KEY, {"app": "anything"}, True),
        ("app", FROM_A_KEY, {"other": "web"}, False),
        ("app", "${value}", {"app": "anything"}, True),
        ("app", "$(ABSENT)", {"app": "anything"}, True),
        ("app", 7, {"app": "anything"}, True),
    ],
    ids=str,
)
def test_sidecar_selects_by_the_value_and_by_any_value_that_is_unknown(label, value, labels, selects):
    variables = {"LABEL": label, "FOLDER": "/tmp", **({} if value is None else {"LABEL_VALUE": value})}
    (one,) = [one for one in read(deployment(container(variables))) if one.selector is not None]

    assert one.names("ConfigMap", "ci", "any", labels) is selects
    assert one.path == "spec.template.spec.containers[1].env"


@pytest.mark.parametrize("label", [FROM_A_KEY, "${label}", "$(ABSENT)", "", "p q", 7], ids=str)
def test_sidecar_with_an_unknown_label_makes_the_answer_unknown(label):
    obj = deployment(container({"LABEL": label, "FOLDER": "/tmp", "RESOURCE": "secret"}))

    assert problems(obj) == SECRET
    assert names(obj) == set()


def test_variables_from_another_object_make_unset_variables_unknown():
    source = [{"configMapRef": {"name": "absent"}}]

    assert names(deployment(container(LABEL, envFrom=source))) == {"ConfigMap */*", "Secret */*"}
    assert problems(deployment(container({}, envFrom=source))) == {"ConfigMap */*", "Secret */*"}
    assert problems(deployment(container({}, image="web:1", envFrom=source))) == set()


@pytest.mark.parametrize(
    ("image", "variables", "is_sidecar"),
    [
        (IMAGE, {"LABEL": "app"}, True),
        ("k8s-sidecar", {"LABEL": "app"}, True),
        ("mirror.example.com:5000/a/k8s-sidecar@sha256:0a", {"LABEL": "app"}, True),
        ("mirror.example.com/kiwigrid-k8s-sidecar:1", {"LABEL": "app"}, True),
        ("mirror.example.com/reload:1", {"LABEL": "app", "FOLDER": "/tmp"}, True),
        ("mirror.example.com/reload:1", {"LABEL": "app", "FOLDER": FROM_A_KEY}, True),
        (None, {"LABEL": "app", "FOLDER": "/tmp"}, True),
        ("mirror.example.com/reload:1", {"LABEL": "app"}, False),
        ("example.com/k8s-sidecar-injector:1", {"LABEL": "app"}, False),
        ("example.com/k8s-sidecar/web:1", {"LABEL": "app"}, False),
    ],
    ids=str,
)
def test_sidecar_is_known_by_its_image_or_by_its_required_variables(image, variables, is_sidecar):
    assert names(deployment(container(variables, image=image))) == (CONFIG_MAP if is_sidecar else set())


@pytest.mark.parametrize(("api_version", "kind", "place"), WORKLOADS)
def test_sidecar_is_found_in_each_workload(api_version, kind, place):
    assert names(carrying(api_version, kind, (place, container(LABEL)))) == CONFIG_MAP


def test_sidecar_of_a_cluster_scoped_object_selects_in_any_namespace():
    assert names(carrying("example.com/v1", "Gizmo", ("spec.any", container(LABEL)), namespace="")) == {"ConfigMap */*"}
