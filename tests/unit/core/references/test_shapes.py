"""References in objects of unknown kinds, by the shape of their fields: an unknown kind errs towards used.

Mutants that these tests were tried with; each makes at least one test fail:
- shapes.py: `_of_value` without lists, without mappings of names, or without texts; `_of_mapping` without `kind`, or
  without the selector of a key; the namespace beside a text ignored; `namespace/name` not split; the search stops at
  lists; the status is left out; the text of a template is taken as a name; names in capital letters
"""

import pytest

from tests.references import carrying, names

SECRET, CONFIG_MAP = "Secret ci/used", "ConfigMap ci/used"


def unknown(*parts, namespace="ci"):
    return carrying("example.com/v1", "Gizmo", *parts, namespace=namespace)


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("spec.secretName", "used", {SECRET}),
        ("spec.secretRef", {"name": "used"}, {SECRET}),
        ("spec.secretRef.name", "used", {SECRET}),
        ("spec.tokenSecretRef", {"name": "used", "key": "token"}, {SECRET, CONFIG_MAP}),
        ("spec.secretKeyRef", {"name": "used"}, {SECRET}),
        ("spec.configMapKeySelector", {"name": "used"}, {CONFIG_MAP}),
        ("spec.configmapName", "used", {CONFIG_MAP}),
        ("spec.config-map-ref", {"name": "used"}, {CONFIG_MAP}),
        ("spec.secret_name", "used", {SECRET}),
        ("spec.SECRET", "used", {SECRET}),
        ("spec.existingSecret", "used", {SECRET}),
        ("spec.secretTargetRef[*]", {"name": "used"}, {SECRET}),
        ("spec.imagePullSecrets", ["used"], {SECRET}),
        ("spec.imagePullSecrets", [{"name": "used"}], {SECRET}),
        ("spec.configMaps", {"used": "/etc/config"}, {CONFIG_MAP}),
        ("spec.secrets", {"database": "used"}, {SECRET, "Secret ci/database"}),
        ("spec.ref", {"kind": "Secret", "name": "used"}, {SECRET}),
        ("spec.ref", {"kind": "ConfigMap", "name": "used", "namespace": "other"}, {"ConfigMap other/used"}),
        ("spec.ref", {"kind": "Service", "name": "used"}, set()),
        ("spec.auth.password", {"name": "used", "key": "password"}, {SECRET, CONFIG_MAP}),
        ("spec.auth.password", {"name": "used", "key": "k", "optional": True}, {SECRET, CONFIG_MAP}),
        ("spec.header", {"name": "used", "key": "k", "value": "v"}, set()),
        ("spec.secretRef", {"name": "used", "namespace": "other"}, {"Secret other/used"}),
        ("spec.secret", "other/used", {"Secret other/used"}),
        ("spec.auth", {"secretName": "used", "secretNamespace": "other"}, {SECRET, "Secret other/used"}),
        ("spec.a[*].b[*].c.secretName", "used", {SECRET}),
        ("status.secretName", "used", {SECRET}),
        ("data.secretName", "used", {SECRET}),
        ("secretName", "used", {SECRET}),
        ("spec.secretName", "${params.name}-key", {"Secret ci/*-key"}),
        ("spec.secretName", "$(params.name)", {"Secret ci/*"}),
        ("spec.secretName", "{{inputs.parameters.name}}", {"Secret ci/*"}),
        ("spec.secretName", "{{ printf {x} }}", {"Secret ci/*"}),
        ("spec.secretType", "Opaque", set()),
        ("spec.secretName", "", set()),
        ("spec.secretName", "two words", set()),
        ("spec.secretName", "n" * 254, set()),
        ("spec.secretName", 7, set()),
        ("spec.secretName", ["x", 7, None, {"name": 7}], {"Secret ci/x"}),
        ("spec.name", "used", set()),
        ('metadata.annotations["nginx.ingress.kubernetes.io/auth-secret"]', "other/used", {"Secret other/used"}),
        ('metadata.annotations["nginx.ingress.kubernetes.io/auth-tls-secret"]', "used", {SECRET}),
        ('metadata.annotations["example.com/configmap"]', "used, more", {CONFIG_MAP, "ConfigMap ci/more"}),
        ('metadata.annotations["example.com/secret"]', 7, set()),
        ('metadata.annotations["kubectl.kubernetes.io/last-applied-configuration"]', '{"secretName": "old"}', set()),
        ("metadata.managedFields[*].fieldsV1.secretName", "used", set()),
        ("metadata.labels.secret", "used", set()),
    ],
    ids=lambda value: None if isinstance(value, set) else ascii(value),
)
def test_field_of_an_unknown_kind_is_found_by_its_shape(path, value, expected):
    assert names(unknown((path, value))) == expected


def test_cluster_scoped_object_of_an_unknown_kind_refers_to_every_namespace():
    assert names(unknown(("spec.secretName", "used"), namespace="")) == {"Secret */used"}


def test_two_annotations_name_an_object_with_its_namespace():
    key, place = ('metadata.annotations["example.com/secret-name"]', "used"), "example.com/secret-namespace"

    assert names(unknown(key, (f'metadata.annotations["{place}"]', "other"))) == {"Secret other/used"}


def test_object_of_a_known_kind_is_searched_as_well_unless_its_rule_is_complete():
    field = ("spec.fieldOfTheNextVersion.secretName", "used")

    assert names(carrying("cert-manager.io/v1", "Certificate", field)) == {SECRET}
    assert names(carrying("apps/v1", "Deployment", field)) == set()


def test_object_of_a_known_kind_in_an_unknown_version_is_searched():
    assert names(carrying("apps/v9", "Deployment", ("spec.template.spec.imagePullSecrets[*].name", "used"))) == {SECRET}


def test_search_is_not_limited_by_the_depth_of_an_object():
    obj = unknown()
    at = obj
    for _ in range(5_000):
        at["inner"] = {}
        at = at["inner"]
    at["secretName"] = "used"

    assert names(obj) == {SECRET}
