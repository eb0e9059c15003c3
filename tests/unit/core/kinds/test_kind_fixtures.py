"""Objects as operators produce them, and the result of each shipped rule for them."""

from datetime import timedelta

import pytest

from shared.core.decision.finish import finish_of
from shared.core.ttl.ttl import native_ttl
from shared.core.values.objects import format_instant
from shared.core.values.timing import format_duration
from tests.builders import kind_cases, kind_rule


@pytest.mark.parametrize("name", kind_cases())
def test_rule_gives_the_expected_finish_and_ttl_of_each_fixture(name):
    cases, rule = kind_cases()[name], kind_rule(name)
    assert {case["object"]["apiVersion"] for case in cases} <= set(rule.api_versions)
    assert {case["object"]["kind"] for case in cases} == {rule.kind}

    reported = {case["name"]: finish_and_ttl(case["object"], rule, with_ttl="ttl" in case["expect"]) for case in cases}
    expected = {case["name"]: {"at": None, "outcome": None} | case["expect"] for case in cases}

    for expect in expected.values():
        expect.pop("deadline", None)
    assert reported == expected


def finish_and_ttl(obj, rule, *, with_ttl):
    finish = finish_of(obj, rule)
    reported = {"finished": finish.finished, "at": finish.at and format_instant(finish.at), "outcome": finish.outcome}
    return reported | ({"ttl": ttl_text(obj, rule)} if with_ttl else {})


def ttl_text(obj, rule):
    native = native_ttl(obj, rule.ttl)
    if native is None:
        return "none"
    return "never" if native.after is None else format_duration(native.after)


def test_each_rule_has_fixtures_of_each_state():
    """If a kind can finish, its fixtures have at least one running and one finished object."""
    for name, cases in kind_cases().items():
        states = {case["expect"]["finished"] for case in cases}
        assert states >= ({False} if kind_rule(name).never_finishes else {True, False}), name
        assert len({case["name"] for case in cases}) == len(cases), name


def test_ttl_of_zero_differs_from_no_ttl():
    assert ttl_text({"spec": {"ttlSecondsAfterFinished": 0}}, kind_rule("job")) == format_duration(timedelta())
    assert ttl_text({"spec": {}}, kind_rule("job")) == "none"
