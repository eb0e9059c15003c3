"""Objects as operators produce them, and the result of each shipped rule for them."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
import yaml

from shared.core.finish import finish_of
from shared.core.objects import format_instant
from shared.core.ttl.durations import format_duration
from shared.core.ttl.ttl import native_ttl
from tests.builders import FIXTURES, kind_rule

FILES = sorted((FIXTURES / "kinds").glob("*.yaml"))


def cases() -> Iterator[Any]:
    for path in FILES:
        for case in yaml.safe_load_all(path.read_text()):
            yield pytest.param(path.stem, case["object"], case["expect"], id=f"{path.stem}: {case['name']}")


@pytest.mark.parametrize(("name", "obj", "expect"), list(cases()))
def test_rule_gives_the_expected_finish_and_ttl_of_each_fixture(name, obj, expect):
    rule = kind_rule(name)
    assert obj["apiVersion"] in rule.api_versions
    assert obj["kind"] == rule.kind

    finish = finish_of(obj, rule)

    reported = {"finished": finish.finished, "at": finish.at and format_instant(finish.at), "outcome": finish.outcome}
    if "ttl" in expect:
        reported["ttl"] = ttl_text(obj, rule)
    assert reported == {"at": None, "outcome": None} | expect


def ttl_text(obj, rule):
    native = native_ttl(obj, rule.ttl)
    if native is None:
        return "none"
    return "never" if native.is_never else format_duration(native.after)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_each_rule_has_fixtures_of_each_state(path):
    """If a kind can finish, its fixtures have at least one running and one finished object."""
    documents = list(yaml.safe_load_all((FIXTURES / "kinds" / path.name).read_text()))

    reported = {case["expect"]["finished"] for case in documents}

    assert reported >= ({False} if kind_rule(path.stem).never_finishes else {True, False})
    assert len({case["name"] for case in documents}) == len(documents)


def test_ttl_of_zero_differs_from_no_ttl():
    assert ttl_text({"spec": {"ttlSecondsAfterFinished": 0}}, kind_rule("job")) == format_duration(timedelta())
    assert ttl_text({"spec": {}}, kind_rule("job")) == "none"
