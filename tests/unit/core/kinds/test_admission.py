"""A kind rule as CEL text; tests/unit/installation evaluates it for each fixture."""

import pytest

from shared.core.kinds.admission import express, rule_version
from shared.core.kinds.cel_text import is_merged
from shared.core.kinds.rule import KindRule
from tests.builders import JOB, POD, kind_rules, not_none


def rule(**finished):
    base = {"apiVersions": ["example.com/v1"], "kind": "Render", "plural": "renders", "finishedAt": ["status.end"]}
    return KindRule.model_validate({**base, "finished": finished})


def finished_by(test):
    return express([rule(cases=[{"when": test, "outcome": "failed"}])]).finished


def test_rule_of_two_phases_is_one_comparison():
    assert express([POD]).finished == (
        "oldObject.apiVersion == 'v1' && oldObject.?status.?phase.orValue('') in ['Succeeded', 'Failed']"
    )
    without = POD.model_copy(update={"deadline": None})
    assert (express([without]).shapes, express([without]).variables) == ([], {})


@pytest.mark.parametrize(
    ("cel", "expected"),
    [
        ("object.spec.a > 0", "oldObject.spec.a > 0"),
        ("has(object.spec) && object.object == 'object'", "has(oldObject.spec) && oldObject.object == 'object'"),
        ('object . object == "a \\" object"', 'oldObject . object == "a \\" object"'),
        ("object.spec\n  .all(o, o.objects == r'''object''')", "oldObject.spec .all(o, o.objects == r'''object''')"),
        ("true // object\n && object.a", "true   && oldObject.a"),
    ],
)  # fmt: skip
def test_expression_of_a_rule_reads_the_old_object(cel, expected):
    assert finished_by({"cel": cel}).endswith(f"({expected})")


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        ({"field": "status.a-b", "values": ["x"]}, "oldObject.?status[?'a-b'].orValue('') == 'x'"),
        ({"field": "status.namespace", "values": ["x"]}, "oldObject.?status[?'namespace'].orValue('') == 'x'"),
        ({"field": "status.a", "values": ["it's"]}, "oldObject.?status.?a.orValue('') == \"it's\""),
        ({"field": "spec.a", "values": [True, "x"]}, "oldObject.?spec.?a.orValue(dyn(null)) in [dyn(true), dyn('x')]"),
        ({"field": "status.a", "values": ["", "x"]}, "oldObject.?status.?a.orValue(dyn(null)) in ['', 'x']"),
        ({"label": "a/b"}, "!(oldObject.metadata.?labels[?'a/b'].orValue(dyn(null)) in [dyn(''), dyn(null)])"),
    ],
)  # fmt: skip
def test_values_and_paths_are_written_as_literals(test, expected):
    assert finished_by(test).endswith(f" && {expected}")


def test_error_in_a_test_is_not_skipped_if_the_object_would_count_as_finished():
    """`&&` and `||` skip an error; if that could make an object count as finished, every test is evaluated."""
    sure, doubtful = {"field": "status.a", "values": ["x"]}, {"cel": "object.spec.n > 0"}
    a, n = "oldObject.?status.?a.orValue('') == 'x'", "(oldObject.spec.n > 0)"
    assert finished_by({"all": [sure, doubtful]}).endswith(f"({a} && {n})")
    assert finished_by({"any": [sure, doubtful]}).endswith(f"[{a}, {n}].exists(x, x)")
    assert finished_by({"none": [sure, doubtful]}).endswith(f"!({a} || {n})")
    assert finished_by({"none": [{"all": [sure, doubtful]}]}).endswith(f"!([{a}, {n}].all(x, x))")
    cases = [{"when": doubtful, "outcome": "failed"}, {"when": sure, "outcome": "succeeded"}]
    assert express([rule(cases=cases)]).finished.endswith(f"({n} ? true : {a})")


def test_compared_field_must_be_a_scalar_if_the_object_would_count_as_finished():
    test = {"field": "status.a", "values": ["x"]}
    shape = "!(type(oldObject.?status.?a.orValue(dyn(null))) in [dyn(map), dyn(list)])"
    assert express([rule(conditions={"Done": "failed"}, unless=test)]).shapes == [shape]
    assert express([rule(cases=[{"when": test, "outcome": "failed"}])]).shapes == []


def test_status_type_is_checked_if_no_other_expression_checks_it():
    test = {"annotation": "done"}
    (shape,) = express([rule(cases=[{"when": test, "outcome": "failed"}])]).shapes
    assert shape == "type(oldObject.?status.orValue({})) in [dyn(map), dyn(null_type)]"


def test_rule_version_depends_only_on_how_the_kind_finishes():
    assert rule_version([JOB]) == rule_version([JOB.model_copy(update={"notes": "other", "ttl": None})])
    versions = {rule_version([one]) for one in kind_rules().values() if not one.never_finishes}
    assert len(versions) == sum(not one.never_finishes for one in kind_rules().values())
    assert rule_version([JOB, POD]) != rule_version([JOB])


def test_stopped_object_counts_as_finished_if_its_kind_does_not_finish_by_the_stop():
    finished = express([JOB]).finished
    assert " ? true : (oldObject.metadata.?annotations[?'ttlafterfinished.dev/deadline-exceeded']" in finished
    assert "oldObject.?spec.?suspend.orValue(dyn(null)) == true" in finished
    assert "deadline-exceeded" not in express([POD]).finished


def test_values_of_a_stop_are_compared_one_by_one():
    patch = {"spec": {"a": 1, "b": {"c-d": "x"}}, "metadata": {"annotations": {"e/f": "true"}}}
    assert list(is_merged("oldObject", patch)) == [
        "oldObject.?spec.?a.orValue(dyn(null)) == 1",
        "oldObject.?spec.?b[?'c-d'].orValue(dyn(null)) == 'x'",
        "oldObject.?metadata.?annotations[?'e/f'].orValue(dyn(null)) == 'true'",
    ]


def test_rule_version_depends_on_the_stop_but_not_on_the_start():
    deadline = not_none(JOB.deadline)
    paused = not_none(deadline.stop).model_copy(update={"patch": {"spec": {"paused": True}}})
    other_stop = JOB.model_copy(update={"deadline": deadline.model_copy(update={"stop": paused})})
    other_suspend = JOB.model_copy(update={"deadline": deadline.model_copy(update={"suspend": paused})})
    other_start = JOB.model_copy(update={"deadline": deadline.model_copy(update={"started_at": ("metadata.x",)})})

    without = JOB.model_copy(update={"deadline": None})
    assert rule_version([JOB]) == rule_version([other_start])
    assert rule_version([POD]) != rule_version(
        [POD.model_copy(update={"deadline": not_none(POD.deadline).model_copy(update={"pending": None})})]
    )
    assert len({rule_version([one]) for one in (JOB, other_stop, other_suspend, without)}) == 4
