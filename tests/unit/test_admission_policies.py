"""Admission policies as the API server evaluates them, and CEL as cel-go does."""

import pytest

from tests.admission_policies import Request, Verdict, evaluate
from tests.server_cel import CelError, as_on_server, value_of

ERROR = "object.nothing"
ADMITTED = Verdict()


def policy(*validations, **spec):
    rule = {"apiGroups": ["batch"], "apiVersions": ["*"], "resources": ["jobs"], "operations": ["UPDATE"]}
    listed = [one if isinstance(one, dict) else {"expression": one} for one in validations]
    return {"spec": {"matchConstraints": {"resourceRules": [rule]}, "validations": listed, **spec}}


def request(**fields):
    return Request("UPDATE", ("batch", "v1", "jobs"), "alice", **{"object": {"a": 1}, "name": "x", **fields})


def test_request_is_refused_by_the_first_validation_that_is_not_true():
    denied = {"expression": "object.a > 1", "message": "a: expected more", "reason": "Forbidden"}
    assert evaluate(policy("true", denied, "false"), request()) == Verdict(403, "a: expected more")
    assert evaluate(policy("false", denied), request()) == Verdict(422, "failed expression: false")
    assert evaluate(policy("object.a == 1"), request()) == ADMITTED


def test_error_refuses_if_the_failure_policy_is_fail():
    assert evaluate(policy(ERROR), request()).is_error
    assert evaluate(policy(ERROR, failurePolicy="Ignore"), request()) == ADMITTED
    assert evaluate(policy(ERROR, "false", failurePolicy="Ignore"), request()).status == 422


@pytest.mark.parametrize(
    ("conditions", "is_admitted"),
    [(["true"], False), (["false"], True), (["true", "false"], True), ([ERROR], False), ([ERROR, "false"], True)],
)
def test_policy_that_does_not_match_admits(conditions, is_admitted):
    """A condition that is false counts more than an error."""
    listed = [{"name": "one", "expression": one} for one in conditions]
    assert evaluate(policy("false", matchConditions=listed), request()).is_admitted is is_admitted


def test_policy_admits_requests_about_other_resources_and_operations():
    for resource in (("batch", "v1", "cronjobs"), ("", "v1", "jobs")):
        assert evaluate(policy("false"), Request("UPDATE", resource, "alice")) == ADMITTED
    assert evaluate(policy("false"), Request("DELETE", ("batch", "v2", "jobs"), "alice")) == ADMITTED
    assert not evaluate(policy("false"), Request("UPDATE", ("batch", "v2", "jobs"), "alice")).is_admitted


def test_variable_that_is_an_error_is_an_error_where_it_is_read():
    variables = [{"name": "a", "expression": "object.a"}, {"name": "twice", "expression": "variables.a * 2"}]
    assert evaluate(policy("variables.twice == 2", variables=variables), request()) == ADMITTED
    variables += [{"name": "bad", "expression": ERROR}]
    assert evaluate(policy("true", variables=variables), request()) == ADMITTED
    assert evaluate(policy("variables.bad == 1", variables=variables), request()).is_error


def test_request_without_a_name_has_no_name():
    assert evaluate(policy("request.?name.hasValue()"), request()) == ADMITTED
    assert not evaluate(policy("request.?name.hasValue()"), request(name="")).is_admitted


@pytest.mark.parametrize(
    "spec",
    [{"paramKind": {"kind": "ConfigMap"}}, {"matchConstraints": {"objectSelector": {"matchLabels": {"a": "b"}}}}],
)
def test_policy_that_cannot_be_evaluated_is_an_error_of_the_test(spec):
    with pytest.raises(NotImplementedError):
        evaluate(policy("true", **spec), request())


def test_expression_that_does_not_compile_is_an_error_of_the_test():
    with pytest.raises(RuntimeError, match="undeclared reference"):
        evaluate(policy("nothing == 1"), request())


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("object.?a.orValue(3)", 3),
        ("object.?map.?a.?b.orValue(3)", 1),
        ("object.?map[?'a'].?b.orValue(3)", 1),
        ("object.map.?a.b.orValue(3)", 1),
        ("object.?map.orValue({}).?a.?c.orValue(3)", 3),
        ("object.?number.?a.orValue(3)", 3),
        ("object.?nothing.?a.?b.orValue(3)", 3),
        ("object.?text[?'a/b'].orValue(3)", 3),
        ("object.list.exists(x, x.?a.orValue(3) == 3)", True),
        ("object.?map.hasValue() && !object.?other.hasValue()", True),
        ("has(object.number.a) || has(object.nothing.a)", False),
        ("has(object.map.a) && has(object.map.a.b)", True),
        ("[false, true].all(x, x) ? 1 : object.?number.orValue(3)", 2),
        ("'a.?b' == \"a.?b\" && object.?number.orValue(0) - 1 == 1 // .?c", True),
        ("'a' in object.map ? {'a': object.?map.?a.?b.orValue(0)}.a : 0", 1),
    ],
)
def test_field_of_a_value_without_fields_is_absent(expression, value):
    obj = {"map": {"a": {"b": 1}}, "number": 2, "nothing": None, "text": "x", "list": [1]}
    assert value_of(expression, {"object": obj}) == value


@pytest.mark.parametrize("expression", ["object.?list.?a.orValue(3)", "object.number.a", "has(object.list.a)"])
def test_field_of_a_list_is_an_error(expression):
    assert isinstance(value_of(expression, {"object": {"list": [1], "number": 2}}), CelError)


def test_expression_without_an_optional_field_is_unchanged_but_for_spaces():
    for expression in ("object.a == 'x'", 'object.all(key, key in ["a"])', "object.a > 1 ? object['b'] : {'c': 1.5}"):
        assert as_on_server(expression).replace(" ", "") == expression.replace(" ", "")
