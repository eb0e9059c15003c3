"""Objects as operators produce them, and what each shipped rule reads from them about their deadline."""

from typing import Any

import pytest

from shared.cli.kind_rules.cases import describe_run
from shared.core.decision.finish import finish_of
from shared.core.kinds.ttl_and_deadline import DeadlineRule
from tests.builders import kind_cases, kind_rule, kind_rules, not_none

MARK = "ttlafterfinished.dev/deadline-exceeded"
RULES: dict[str, DeadlineRule] = {name: rule.deadline for name, rule in kind_rules().items() if rule.deadline}
SUSPENDING = [name for name, rule in RULES.items() if rule.suspending]


def about_deadlines(name):
    return [case for case in kind_cases()[name] if "deadline" in case["expect"]]


@pytest.mark.parametrize("name", RULES)
def test_rule_gives_the_expected_start_and_deadline_of_each_fixture(name):
    expected = {case["name"]: case["expect"]["deadline"] for case in about_deadlines(name)}
    reported = {case["name"]: describe_run(case["object"], RULES[name]) for case in about_deadlines(name)}

    assert {title: {key: run[key] for key in expected[title]} for title, run in reported.items()} == expected


@pytest.mark.parametrize("name", RULES)
def test_fixtures_of_a_kind_with_a_deadline_have_each_state(name):
    """One that runs; and one that is suspended, has its own deadline, or is stopped, if the kind knows that."""
    rule, runs = RULES[name], [case["expect"]["deadline"] for case in about_deadlines(name)]

    assert any(run.get("startedAt") and not run.get("suspended") for run in runs)
    assert rule.suspended is None or any(run.get("suspended") for run in runs)
    assert rule.native is None or any(run.get("native", "none") not in ("none", "never") for run in runs)
    assert rule.native is None or rule.native.zero != "never" or any(run.get("native") == "never" for run in runs)
    assert rule.stop is None or any(run.get("stopped") for run in runs)
    waits = {run.get("pending") for run in runs} - {None}
    assert rule.pending is None or waits > {"none", "unknown", *(["suspended"] if rule.pending.suspended else [])}


@pytest.mark.parametrize("name", SUSPENDING)
def test_suspended_object_of_a_kind_that_does_not_finish_by_itself_counts_as_failed(name):
    """Fixtures have one whose stop is complete, one whose stop goes on, and one that a person suspended."""
    cases = [case for case in about_deadlines(name) if case["expect"]["deadline"]["stopped"]]
    states = {(MARK in case["object"]["metadata"].get("annotations", {}), case["expect"]["finished"]) for case in cases}
    assert {(True, True), (True, False), (False, False)} <= states

    patch = not_none(RULES[name].suspending).patch
    resumed = [without(case["object"], patch) for case in cases if case["expect"]["finished"]]
    assert [finish_of(obj, kind_rule(name)).finished for obj in resumed] == [False] * len(resumed)


def without(obj: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """A copy without the values that a stop wrote, as after a resume."""
    rest = {key: value for key, value in obj.items() if key not in patch}
    return rest | {key: without(obj[key], value) for key, value in patch.items() if isinstance(value, dict)}
