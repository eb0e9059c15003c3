"""Fields of unknown kinds whose value is no literal name: templates, label selectors, and a kind without a name.

Mutants that these tests were tried with; each makes at least one test fail:
- shapes.py: `_of_value` without lists, without mappings of names, or without texts; `_of_mapping` without `kind`, or
  without the selector of a key; the namespace beside a text ignored; the search stops at lists; the status is left
  out; the text of a template is taken as a name; an empty selector selects by labels; a selector without namespaces
  crosses them
- carrier.py: a name that is only a template names every object
- shapes.py: the version or the group before a kind, the list with commas, `kinds` beside a namespace, or the namespace
  beside a selector ignored; another field about namespaces ignored there
"""

import pytest

from shared.core.references.reading import TEMPLATES_OF_ONE_MAX
from shared.core.references.reference import TEMPLATES_OF_NAMESPACE_MAX, ReferenceIndex
from tests.references import carrying, names, problems, read

BOTH = {"Secret ci/*-key", "ConfigMap ci/*-key"}
CONFIG_MAPS = {"ConfigMap ci/*-key", "ConfigMap other/*-key"}
NAME = "${params.name}-key"
WEB = {"matchLabels": {"app": "web"}}


def unknown(*parts, namespace="ci"):
    return carrying("example.com/v1", "Gizmo", *parts, namespace=namespace)


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("spec.secretName", NAME, {"Secret ci/*-key"}),
        ("spec.secretRef", {"name": NAME}, {"Secret ci/*-key"}),
        ("spec.tokenSecretRef", {"name": NAME, "key": "token"}, BOTH),
        ("spec.configMapKeySelector", {"name": NAME}, {"ConfigMap ci/*-key"}),
        ("spec.config-map-ref", {"name": NAME}, {"ConfigMap ci/*-key"}),
        ("spec.existing_SECRET", NAME, {"Secret ci/*-key"}),
        ("spec.imagePullSecrets", [NAME], {"Secret ci/*-key"}),
        ("spec.imagePullSecrets", [{"name": NAME}], {"Secret ci/*-key"}),
        ("spec.configMaps", {NAME: "/etc/config"}, {"ConfigMap ci/*-key"}),
        ("spec.secrets", {"database": NAME}, BOTH),
        ("spec.ref", {"kind": "Secret", "name": NAME}, {"Secret ci/*-key"}),
        ("spec.ref", {"kind": "ConfigMap", "name": NAME, "namespace": "other"}, CONFIG_MAPS),
        ("spec.ref", {"kind": "Service", "name": NAME}, BOTH),
        ("spec.password", {"name": NAME, "key": "k", "optional": True}, BOTH),
        ("spec.header", {"name": NAME, "key": "k", "value": "v"}, BOTH),
        ("spec.secretRef", {"name": NAME, "namespace": "other"}, {"Secret ci/*-key", "Secret other/*-key"}),
        ("spec.secret", f"other/{NAME}", {"Secret ci/*-key", "Secret other/*-key"}),
        ("spec.auth", {"secretName": NAME, "secretNamespace": "other"}, {"Secret ci/*-key", "Secret other/*-key"}),
        ("spec.a[*].b[*].c.secretName", NAME, {"Secret ci/*-key"}),
        ("status.secretName", NAME, {"Secret ci/*-key"}),
        ("secretName", NAME, {"Secret ci/*-key"}),
        ("spec.secretType", NAME, BOTH),
        ("spec.secretName", ["x-${y}", 7, None, {"name": 7}], {"Secret ci/x-*"}),
        ("spec.secretName", "two ${words}", set()),
        ("metadata.labels.secret", NAME, set()),
        ("spec.secretSelector", WEB, {"Secret ci/*"}),
        ("spec.configMaps", {"labelSelector": WEB}, {"ConfigMap ci/*"}),
        ("spec.ref", {"kind": "Secret", "selector": WEB}, {"Secret ci/*"}),
        ("spec.ref", {"kind": "Secret", **WEB, "namespaceSelector": {}}, {"Secret */*"}),
        ("spec", {"secretSelector": WEB, "namespaceSelector": {"any": True}}, {"Secret */*"}),
        ("spec.podSelector", WEB, set()),
        ("spec.configMapSelector", {"app": "web"}, {"ConfigMap ci/*"}),
        ("spec.configMap", {"selector": {"app": "web"}}, {"ConfigMap ci/*"}),
        ("spec.secretSelectors", [WEB], {"Secret ci/*"}),
        ("spec.configMaps", [{"selector": WEB}], {"ConfigMap ci/*"}),
        ("spec.ref", {"resource": "configmaps", "labelSelector": WEB}, {"ConfigMap ci/*"}),
        ("spec.ref", {"kinds": ["ConfigMap", "Pod"], "labelSelector": WEB}, {"ConfigMap ci/*"}),
        *(
            ("spec.ref", {"kinds": [f"{group}Secret"], "selector": WEB}, {"Secret ci/*"})
            for group in ("v1/", "*/", "core/v1/", "*/v1/")
        ),
        ("spec.ref", {"kinds": ["v1/Secret", "v1/ConfigMap"], "selector": WEB}, {"Secret ci/*", "ConfigMap ci/*"}),
        ("spec.ref", {"kinds": "v1/ConfigMap, v1/Pod", "selector": WEB}, {"ConfigMap ci/*"}),
        ("spec.ref", {"kinds": ["secrets.example.com/v1/Vault"], "selector": WEB}, set()),
        ("spec.ref", {"kind": "v1/Secret", "selector": WEB}, {"Secret ci/*"}),
        ("spec.ref", {"resources": ["secrets.v1"], "selector": WEB}, {"Secret ci/*"}),
        ("spec.ref", {"kinds": ["v1/Secret"], "namespace": "other", **WEB}, {"Secret ci/*", "Secret other/*"}),
        ("spec.ref", {"kinds": ["v1/Secret"], "namespaces": ["a", "b-*"], **WEB}, {"Secret ci/*", "Secret b-*/*"}),
        ("spec.ref", {"kinds": ["v1/Secret"], "namespaces": ["ALL"], **WEB}, {"Secret */*"}),
        ("spec.ref", {"kinds": ["v1/Secret"], "namespace": "{{x}}", **WEB}, {"Secret */*", "Secret ci/*"}),
        ("spec.ref", {"kinds": ["v1/Secret"], "namespaces": {"any": True}, **WEB}, {"Secret */*"}),
        ("spec.ref", {"kinds": ["v1/Secret"], "namespace": "q", "namespaces": {"any": True}, **WEB}, {"Secret */*"}),
        ("spec.ref", {"kinds": ["v1/Secret"], "targetNamespace": "other", **WEB}, {"Secret */*"}),
        ("spec.ref", {"kinds": ["v1/Secret"], "namespace": "q", "excludedNamespaces": ["r"], **WEB}, {"Secret */*"}),
        ("spec.certificateRefs", [{"name": NAME}], BOTH),
        ("spec.args", [f"--secret=other/{NAME}"], BOTH),
        ('metadata.annotations["example.com/x"]', NAME, BOTH),
        ("spec.text", "$(A)-1", {"Secret ci/*-1", "ConfigMap ci/*-1"}),
        ("spec.text", "$A-1", {"Secret ci/*-1", "ConfigMap ci/*-1"}),
        ("spec.text", "$(A)", set()),
    ],
    ids=lambda value: None if isinstance(value, set) else ascii(value),
)
def test_template_or_selector_of_an_unknown_kind_is_found_by_its_shape(path, value, expected):
    assert {one for one in names(unknown((path, value))) if "*" in one or "-key" in one} == expected


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("spec.secretName", "$(params.name)", {"Secret ci/*"}),
        ("spec.secretName", "{{inputs.parameters.name}}", {"Secret ci/*"}),
        ("spec.secretName", "{{ printf {x} }}", {"Secret ci/*"}),
        ("spec.secretSelector", {"matchLabels": {}}, {"Secret ci/*"}),
        ("spec.ref", {"kind": "Secret"}, {"Secret ci/*"}),
        ("spec.ref", {"kind": "Secret", "key": "token"}, {"Secret ci/*"}),
        ("spec.manifest", {"kind": "Secret", "metadata": {"name": "used"}}, set()),
        ("spec.list", {"kinds": ["v1/Secret"], "namespace": "other"}, {"Secret ci/*", "Secret other/*"}),
        ("spec.match", {"kinds": ["v1/Secret"], "namespaces": ["other"]}, set()),
        ("spec.match", {"kinds": ["v1/Secret"], "namespace": ""}, set()),
        ("spec.secretSelector", {"matchLabels": {"{{x}}": "web"}}, {"Secret ci/*"}),
        ("spec.ref", {"kind": "Service"}, set()),
        ("spec.configMapSelector", {}, {"ConfigMap ci/*"}),
        ("spec.configMapLabelSelector", "app=web", {"ConfigMap ci/*"}),
        ("spec.ref", {"kind": "secrets", "selector": {}}, {"Secret ci/*"}),
        (
            "spec.secretSelector",
            {"matchExpressions": [{"key": "x", "operator": "In", "values": ["v"] * 101}]},
            {"Secret ci/*"},
        ),
    ],
    ids=lambda value: None if isinstance(value, set) else ascii(value),
)
def test_field_that_may_mean_every_object_makes_the_answer_unknown(path, value, expected):
    obj = unknown((path, value))

    assert problems(obj) == expected
    assert not {one for one in names(obj) if "*" in one}


def test_literal_name_in_any_namespace_refers_to_what_exists():
    obj = unknown(("spec.secret", "${params.namespace}/used"))

    assert names(obj) >= {"Secret ci/used", "Secret claims/used", "Secret other/used"}


@pytest.mark.parametrize("text", ["kubernetes://ci/${x}-tls", "a, ${x}-tls", '{{ index .x "a/b" }} tls'])
def test_template_that_is_no_name_makes_the_answer_unknown(text):
    assert problems(unknown(("spec.secretRef", text))) == {"Secret ci/*"}


def test_cluster_scoped_object_of_an_unknown_kind_may_mean_every_namespace():
    assert names(unknown(("spec.secretName", NAME), namespace="")) == {"Secret */*-key"}
    assert problems(unknown(("spec.ref.kind", "Secret"), namespace="")) == {"Secret */*"}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"namespace": "other"}, {"Secret other/*"}),
        ({"namespaces": ["other", "ci"]}, {"Secret other/*", "Secret ci/*"}),
        ({"namespace": "{{tenant}}"}, {"Secret */*"}),
        ({}, {"Secret */*"}),
    ],
    ids=lambda value: None if isinstance(value, set) else str(value),
)
def test_selector_of_a_cluster_scoped_object_selects_in_the_namespace_beside_it(fields, expected):
    assert names(unknown(("spec.list", {"kinds": ["v1/Secret"], **fields, "selector": WEB}), namespace="")) == expected


def test_search_is_not_limited_by_the_depth_of_an_object():
    obj = unknown()
    at = obj
    for _ in range(5_000):
        at["inner"] = {}
        at = at["inner"]
    at["secretName"] = NAME
    at["token"] = "used"

    assert names(obj) == {"Secret ci/*-key", "Secret ci/used", "ConfigMap ci/used"}


def test_object_with_too_many_templates_makes_the_answer_unknown():
    few = [f"x{place}-${{y}}" for place in range(TEMPLATES_OF_ONE_MAX)]

    assert not problems(unknown(("spec.secrets", few)))
    assert problems(unknown(("spec.secrets", [*few, "z-${y}"]))) == {"Secret ci/*"}
    assert len(read(unknown(("spec.secrets", few * 10)))) <= TEMPLATES_OF_ONE_MAX + 2


def test_object_with_too_many_unreadable_fields_is_held_once():
    fields = [{"secretRef": {"name": "${x}", "namespace": place}} for place in ("ci", "other", "claims")]
    absent = [{"secretRef": {"name": "${x}", "namespace": f"n-{place}"}} for place in range(5_000)]

    found = read(unknown(("spec.refs", fields + absent)))
    assert {(one.kind, one.namespace) for one in found} == {("Secret", one) for one in ("ci", "other", "claims")}


def test_index_holds_a_bounded_number_of_templates():
    index = ReferenceIndex()
    for place in range(TEMPLATES_OF_NAMESPACE_MAX + 100):
        index.add(read(unknown(("spec.secretName", f"x{place}-${{y}}"))))

    (one,) = index.find("Secret", "ci", "used")
    assert "templates" in one.problem
    assert not index.find("Secret", "other", "used")
    assert not index.find("ConfigMap", "ci", "used")


def test_overflow_of_one_object_is_unknown_in_its_own_namespace_and_names_the_object():
    few = [f"x{place}-${{y}}" for place in range(TEMPLATES_OF_ONE_MAX + 1)]

    unreadable = [one for one in read(unknown(("spec.list", few))) if one.problem]
    assert {(one.namespace, one.source.name) for one in unreadable} == {("ci", "carrier")}
    elsewhere = [f"${{p}}/{one}" for one in few] + [f"other/{one}" for one in few]
    assert problems(unknown(("spec.list", elsewhere))) == {"Secret ci/*", "ConfigMap ci/*"}


def test_one_template_in_many_texts_is_held_once():
    texts = [{"from": f"{number}: web-${{y}}"} for number in range(500)]

    found = read(unknown(("spec.list", texts)))
    assert not [one for one in found if one.problem]
    assert len([one for one in found if "*" in one.name]) == 2
