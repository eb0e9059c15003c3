"""Names with templates, label selectors, and the index of references.

Mutants that these tests were tried with; each makes at least one test fail:
- reference.py: `fits` without the check of the length, or from the start of the text each time; `as_pattern` without
  one of the templates; `names` without the kind, the namespace or the selector
- selectors: each operator replaced by another one; an unreadable requirement that never holds
- reference.py: broad references left out; problems first; only one reference for each object
"""

from dataclasses import replace

import pytest

from shared.core.references.reference import (
    REFERENCES_OF_ONE_MAX,
    Reference,
    ReferenceIndex,
    TargetKind,
    as_pattern,
    fits,
    read_selector,
)
from shared.core.values.objects import ObjectRef

POD = ObjectRef("v1", "Pod", "ci", "web", "")


def refer(name="used", *, namespace="ci", kind=TargetKind.SECRET, path="spec.x", **more):
    return Reference(kind, namespace, name, path, POD, **more)


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("a", "a", True),
        ("a", "ab", False),
        ("*", "", True),
        ("*", "abc", True),
        ("a*", "abc", True),
        ("*c", "abc", True),
        ("a*c", "abc", True),
        ("ab*bc", "abc", False),
        ("a*b*c", "a-b-c", True),
        ("a*b*c", "a-c-b", False),
        ("a*b*b*c", "abc", False),
        ("a*b*b*c", "abbc", True),
        ("a**c", "ac", True),
        ("", "", True),
        ("", "a", False),
    ],
)
def test_star_stands_for_any_text(pattern, text, expected):
    assert fits(pattern, text) is expected


def test_pattern_with_many_stars_is_matched_in_linear_time():
    assert not fits("*a" * 126 + "*b", "a" * 252)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("${pvc.name}", "*"),
        ("a-${pvc.namespace}-${pvc.name}-b", "a-*-*-b"),
        ("${pvc.annotations['a/b']}", "*"),
        ("$(params.name)-x", "*-x"),
        ("{{inputs.name}}", "*"),
        ("{{inputs.name}}-key", "*-key"),
        ("{{ a {b} }}", "*"),
        ("x-${open", "*"),
        ("x-$(open", "*"),
        ("$(" * 200_000, "*"),
        ("$plain", "$plain"),
    ],
    ids=lambda text: text[:20],
)
def test_template_becomes_a_star(text, expected):
    assert as_pattern(text) == expected


@pytest.mark.parametrize(
    ("selector", "labels", "expected"),
    [
        ({}, {}, True),
        ({}, None, True),
        (None, {"app": "web"}, True),
        ({"matchLabels": {"app": "web"}}, {"app": "web", "x": "y"}, True),
        ({"matchLabels": {"app": "web"}}, {"app": "db"}, False),
        ({"matchLabels": {"app": "web"}}, None, False),
        ({"matchLabels": {"app": "web"}}, "unknown", True),
        ({"matchLabels": "unknown"}, {}, True),
        ({"matchLabels": {"app": 7}}, {}, True),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["web", "db"]}]}, {"app": "db"}, True),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["web"]}]}, {}, False),
        ({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}]}, {}, True),
        ({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}]}, {"app": "web"}, False),
        ({"matchExpressions": [{"key": "app", "operator": "Exists"}]}, {"app": ""}, True),
        ({"matchExpressions": [{"key": "app", "operator": "Exists"}]}, {}, False),
        ({"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}, {}, True),
        ({"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}, {"app": "x"}, False),
        ({"matchExpressions": [{"key": "app", "operator": "Like", "values": ["x"]}]}, {"app": "x"}, True),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": "web"}]}, {}, True),
        ({"matchExpressions": [7, {"key": 7}]}, {}, True),
        ({"matchLabels": {"app": "{{env}}"}}, {"app": "web"}, True),
        ({"matchLabels": {"app": "web-*"}}, {"app": "web"}, True),
        ({"matchLabels": {"app": "{{env}}"}}, {}, False),
        ({"matchLabels": {"{{key}}": "web"}}, {}, True),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["db", "${env}"]}]}, {"app": "web"}, True),
        ({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web", "${x}"]}]}, {"app": "web"}, True),
        ({"matchExpressions": [{"key": "app*", "operator": "Exists"}]}, {}, True),
    ],
    ids=ascii,
)
def test_selector_selects_by_the_rules_of_kubernetes_and_more_if_it_is_malformed(selector, labels, expected):
    assert read_selector(selector).may_select(labels) is expected


@pytest.mark.parametrize(
    ("reference", "found"),
    [
        (refer(), True),
        (refer(kind=TargetKind.CONFIG_MAP), False),
        (refer(namespace="other"), False),
        (refer("other"), False),
        (refer("us*"), True),
        (refer("*-key"), False),
        (refer(namespace="*"), True),
        (refer(namespace="c*"), True),
        (refer(namespace="o*"), False),
        (refer("*", namespace="*", kind=TargetKind.CONFIG_MAP), False),
        (refer("*", selector=read_selector({"matchLabels": {"app": "web"}})), True),
        (refer("*", selector=read_selector({"matchLabels": {"app": "db"}})), False),
        (refer("*", namespace="*", problem="unreadable"), True),
        (refer("*", namespace="other", problem="unreadable"), False),
    ],
    ids=str,
)
def test_index_finds_each_reference_that_may_name_the_object(reference, found):
    index = ReferenceIndex([reference])

    assert index.find("Secret", "ci", "used", {"app": "web"}) == ((reference,) if found else ())


def test_index_returns_problems_last():
    problem, plain = refer("*", problem="unreadable"), refer()

    assert ReferenceIndex([problem, plain]).find("Secret", "ci", "used") == (plain, problem)
    assert ReferenceIndex([problem, refer("*")]).find("Secret", "ci", "used") == (refer("*"), problem)


def test_index_finds_each_reference_to_one_object():
    one, other = refer(path="spec.a"), refer(path="spec.b")

    assert ReferenceIndex([one, other]).find("Secret", "ci", "used") == (one, other)


def test_index_keeps_a_bounded_number_of_references_to_one_object():
    index = ReferenceIndex(refer(path=f"spec.x[{place}]") for place in range(1_000))

    assert len(index.find("Secret", "ci", "used")) == REFERENCES_OF_ONE_MAX


def test_index_keeps_one_reference_to_each_object_beyond_a_total(monkeypatch):
    monkeypatch.setattr("shared.core.references.reference.REFERENCES_MAX", 10)
    index = ReferenceIndex(refer(path=f"spec.x[{place}]") for place in range(20))
    index.add(refer(f"name-{name}", path=f"spec.x[{place}]") for name in range(20) for place in range(3))

    assert len(index.find("Secret", "ci", "used")) == 10
    assert [len(index.find("Secret", "ci", f"name-{name}")) for name in range(20)] == [1] * 20


SELECTOR = read_selector({"matchLabels": {"app": "web"}})
CLUSTER_WIDE = ObjectRef("example.com/v1", "Gizmo", "", "web", "")


@pytest.mark.parametrize(
    ("reference", "is_use"),
    [
        (refer("us*", namespace="ci"), {"ci": True}),
        (refer("us*", namespace="*"), {"ci": True, "other": False}),
        (refer("us*", namespace="other"), {"other": False}),
        (refer("*", namespace="*", selector=SELECTOR), {"ci": True, "other": False}),
        (refer("used", namespace="other"), {"other": True}),
        (replace(refer("us*", namespace="*"), source=CLUSTER_WIDE), {"ci": True, "other": True}),
        (replace(refer("*", namespace="*", selector=SELECTOR), source=CLUSTER_WIDE), {"ci": True, "other": True}),
    ],
    ids=str,
)
def test_pattern_shows_a_use_only_in_the_namespace_of_its_object(reference, is_use):
    """In any other namespace, what it may name is unknown: there it removes no mark, and proves nothing unused."""
    index = ReferenceIndex([reference])
    found = {place: index.find("Secret", place, "used", {"app": "web"}) for place in ("ci", "other")}

    assert {place: not one.problem for place, ones in found.items() for one in ones} == is_use


def test_overflow_of_a_namespace_names_the_object_with_most_templates():
    busy = ObjectRef("v1", "ConfigMap", "tenant", "busy", "")
    index = ReferenceIndex(refer(f"x{number}-*", namespace="*") for number in range(100))
    index.add(replace(refer(f"y{number}-*", namespace="*"), source=busy) for number in range(400))

    index.add([refer("z-*", namespace="*")])

    (one,) = index.list_unknown()
    assert (one.source, one.kind, one.namespace, one.name) == (busy, "Secret", "*", "*")
    assert "400 of them are in this object" in one.problem
