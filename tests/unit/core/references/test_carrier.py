"""Carrier rules: their schema, and the shipped files."""

import re

import pytest
from pydantic import ValidationError

from shared.adapters.config.carrier_files import CARRIERS
from shared.core.references.carrier import Carrier, Carriers, Many, format_path, parse_path
from tests.builders import having, without
from tests.references import shipped_carriers

RULE = {
    "apiVersions": ["example.com/v1"],
    "kind": "Gizmo",
    "plural": "gizmos",
    "source": "example.com/docs",
    "fields": [{"path": "spec.secretName", "to": "Secret"}],
}


def where_it_fails(rule):
    try:
        Carrier.model_validate(rule)
    except ValidationError as error:
        return {".".join(map(str, one["loc"])) for one in error.errors()}
    return set()


def field(**changes):
    return [{"path": "spec.secretName", "to": "Secret", **changes}]


def test_minimal_rule_has_defaults():
    carrier = Carrier.model_validate(RULE)

    assert carrier.scope == "Namespaced"
    assert not carrier.complete
    assert carrier.name == "gizmos.example.com"
    assert carrier.fields[0].name == "name"
    assert not carrier.fields[0].crosses


@pytest.mark.parametrize("name", ["apiVersions", "kind", "plural", "source"])
def test_rule_without_a_required_field_is_rejected_with_its_name(name):
    assert where_it_fails(without(RULE, name)) == {name}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("apiVersions", []),
        ("apiVersions", ["batch/v1", "example.com/v1"]),
        ("kind", "gizmo"),
        ("plural", "Gizmos"),
        ("scope", "namespaced"),
        ("podSpecs", ["spec..template"]),
        ("podSpecs", "spec"),
        ("complete", "yes"),
        ("refersToNone", ""),
        ("extra", 1),
    ],
    ids=ascii,
)
def test_malformed_rule_is_rejected_with_the_field(path, value):
    assert any(f"{where}.".startswith(f"{path}.") for where in where_it_fails(having(RULE, path, value)))


@pytest.mark.parametrize("name", ["podSpecs", "fields"])
def test_empty_list_is_rejected(name):
    with pytest.raises(ValidationError, match=f"expected a value for {name}, or no such field"):
        Carrier.model_validate(RULE | {name: []})


@pytest.mark.parametrize(
    "changes",
    [
        {"path": ""},
        {"path": "spec..x"},
        {"path": ".spec"},
        {"path": "spec."},
        {"path": "spec[0]"},
        {"path": "spec.tls[*]secretName"},
        {"path": 'spec["a/b]'},
        {"path": "spec.größe"},
        {"path": "s" * 501},
        {"to": "secret"},
        {"to": None},
        {"name": ""},
        {"namespaceFrom": "spec[*].namespace"},
        {"defaultName": "spec.*"},
        {"defaultKind": "Secret"},
        {"form": "key"},
        {"form": "namespace"},
        {"reader": "sidecar"},
        {"reader": "azure", "to": "any"},
        {"reader": "azure", "form": "name:key"},
        {"prefix": "a.", "namespace": "namespace"},
        {"prefix": "a.", "selector": "selector"},
        {"prefix": "a.", "defaultName": "metadata.name"},
        {"anyNamespace": "yes"},
        {"as": "name"},
        {"as": "{name}{other}"},
        {"unknown": 1},
    ],
    ids=ascii,
)
def test_malformed_field_is_rejected_with_its_place(changes):
    assert any(where.startswith("fields.0") for where in where_it_fails(RULE | {"fields": field(**changes)}))


def test_rule_refers_or_says_why_not():
    none = without(RULE, "fields")

    assert where_it_fails(none) == {""}
    assert where_it_fails(none | {"refersToNone": "it reports"}) == set()
    assert where_it_fails(none | {"complete": True}) == set()
    assert where_it_fails(RULE | {"refersToNone": "it reports"}) == {""}
    assert where_it_fails(none | {"refersToNone": "it reports", "complete": True}) == {""}


@pytest.mark.parametrize(
    ("path", "steps"),
    [
        ("spec", ("spec",)),
        ("spec.tls[*].secretName", ("spec", "tls", Many.ELEMENTS, "secretName")),
        ("spec.x.*.y", ("spec", "x", Many.VALUES, "y")),
        ('metadata.annotations["a.b/c"]', ("metadata", "annotations", "a.b/c")),
        ("spec.a[*][*]", ("spec", "a", Many.ELEMENTS, Many.ELEMENTS)),
    ],
)
def test_path_has_steps(path, steps):
    assert parse_path(path) == steps


def test_path_of_an_object_is_written_with_its_places():
    assert format_path(("spec", "tls", 0, "a.b/c")) == 'spec.tls[0]["a.b/c"]'
    assert format_path(()) == ""


def test_shipped_files_have_the_names_of_their_kinds():
    files = {path.stem for path in CARRIERS.glob("*.yaml")}

    assert files == {carrier.name for carrier in shipped_carriers().carriers}
    assert len(files) > 100


def test_shipped_rules_are_found_by_their_kind():
    carriers = shipped_carriers()

    for carrier in carriers.carriers:
        assert all(carriers.get(version, carrier.kind) is carrier for version in carrier.api_versions)


def test_kind_that_refers_to_none_is_not_searched():
    carriers = shipped_carriers()

    assert carriers.is_searched("v1", "Pod")
    assert carriers.is_searched("example.com/v1", "Unknown")
    assert not carriers.is_searched("v1", "Event")
    assert Carriers(()).is_searched("v1", "Event")


def test_only_built_in_kinds_and_gateways_are_complete():
    groups = {carrier.group for carrier in shipped_carriers().carriers if carrier.complete}

    assert {group for group in groups if not re.fullmatch(r"[a-z]*|.*\.k8s\.io", group)} == set()
