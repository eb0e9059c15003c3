"""A kind's own TTL: units, zero, negative values, and the precedence of several fields."""

from datetime import timedelta

import pytest

from shared.core.kinds.ttl_and_deadline import NativeTtl
from shared.core.ttl.ttl import InvalidTtlError, Ttl, is_left_to_controller, native_ttl

NEVER = None


def ttl(*fields, **options):
    return NativeTtl.model_validate({"fields": list(fields) or [{"path": "spec.ttl"}], **options})


@pytest.mark.parametrize(
    ("value", "unit", "options", "after"),
    [
        (90, "seconds", {}, timedelta(seconds=90)),
        (1_500, "milliseconds", {}, timedelta(seconds=1.5)),
        ("72h0m0s", "duration", {}, timedelta(hours=72)),
        ("1.5h", "duration", {}, timedelta(minutes=90)),
        ("0", "duration", {}, timedelta()),
        (0, "seconds", {}, timedelta()),
        (0, "seconds", {"zero": "never"}, NEVER),
        ("0s", "duration", {"zero": "never"}, NEVER),
        (-1, "milliseconds", {"negative": "never"}, NEVER),
        (-1, "seconds", {"negative": "delete"}, timedelta()),
        (-(10**400), "seconds", {"negative": "delete"}, timedelta()),
        ("-1s", "duration", {"negative": "delete"}, timedelta()),
    ],
)
def test_native_ttl_follows_from_value_unit_and_options(value, unit, options, after):
    rule = ttl({"path": "spec.ttl", "unit": unit}, **options)

    assert native_ttl({"spec": {"ttl": value}}, rule) == Ttl("spec.ttl", after=after, origin="native")


@pytest.mark.parametrize("obj", [{}, {"spec": None}, {"spec": {"ttl": None}}, None, []], ids=str)
def test_object_without_the_field_has_no_native_ttl(obj):
    assert native_ttl(obj, ttl()) is None


@pytest.mark.parametrize(
    ("value", "unit"),
    [
        (-1, "seconds"),
        (10**10, "seconds"),
        (10**400, "milliseconds"),
        (1.5, "seconds"),
        (True, "seconds"),
        ("90", "seconds"),
        ([], "seconds"),
        (90, "duration"),
        ("-1s", "duration"),
        ("2d", "duration"),
        ("", "duration"),
        ("1h" * 100, "duration"),
        ("9999999h", "duration"),
    ],
)
def test_malformed_value_is_an_error_that_names_the_field(value, unit):
    with pytest.raises(InvalidTtlError, match=r"spec\.ttl: expected"):
        native_ttl({"spec": {"ttl": value}}, ttl({"path": "spec.ttl", "unit": unit}))


STRATEGY = ttl(
    {"path": "spec.onSuccess", "when": {"field": "status.phase", "values": ["Done"]}},
    {"path": "spec.onFailure", "when": {"field": "status.phase", "values": ["Failed"]}},
    {"path": "spec.onEnd"},
)


@pytest.mark.parametrize(
    ("phase", "spec", "path"),
    [
        ("Done", {"onSuccess": 1, "onFailure": 2, "onEnd": 3}, "spec.onSuccess"),
        ("Failed", {"onSuccess": 1, "onFailure": 2, "onEnd": 3}, "spec.onFailure"),
        ("Error", {"onSuccess": 1, "onFailure": 2, "onEnd": 3}, "spec.onEnd"),
        ("Failed", {"onSuccess": 1, "onEnd": 3}, "spec.onEnd"),
        ("Error", {"onSuccess": 1, "onFailure": 2}, None),
    ],
)
def test_first_field_that_is_set_and_applies_sets_the_ttl(phase, spec, path):
    native = native_ttl({"spec": spec, "status": {"phase": phase}}, STRATEGY)

    assert (native.source if native else None) == path


def test_field_with_an_unknown_test_result_is_an_error():
    with pytest.raises(InvalidTtlError, match=r"spec\.onSuccess: it is unknown"):
        native_ttl({"spec": {"onSuccess": 1}, "status": {"phase": ["Done"]}}, STRATEGY)


@pytest.mark.parametrize(
    ("native", "spec", "left"),
    [
        ("leave", {"ttl": 1}, True),
        ("leave", {"ttl": "odd"}, True),
        ("leave", {}, False),
        ("act", {"ttl": 1}, False),
    ],
)
def test_object_is_left_to_its_controller_if_the_rule_leaves_a_field_that_is_set(native, spec, left):
    assert is_left_to_controller({"spec": spec}, ttl(native=native)) is left
    assert not is_left_to_controller({"spec": spec}, None)
