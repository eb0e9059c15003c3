"""Which changes the stop guard of each kind admits, by the fixtures; tests/contract asks a real API server few."""

from random import Random

import pytest

from shared.core.archive.draft import merged
from shared.core.decision.finish import find_stop_problem, finish_of, run_of
from shared.core.kinds.ttl_and_deadline import ACTIONS, Action
from shared.core.values.objects import get_in
from tests.admission_policies import evaluate
from tests.builders import having, not_none
from tests.guarded_kinds import (
    ACTIVE_DEADLINE,
    DOMAIN,
    ENFORCE,
    EXEMPT,
    EXPIRE,
    HOLD,
    MARK,
    ON_DEADLINE,
    PENDING_DEADLINE,
    STANDALONE,
    SWEEP,
    by_kind,
    cases,
    change,
    described,
    few_of,
    not_admitted,
    not_refused,
    stop_guard_of,
    stop_of,
    stored,
)
from tests.shape_mutants import mutated

STOPPABLE = [case for case in cases() if case.has_stop]
KINDS = by_kind(STOPPABLE)
FEW = [case for of_kind in KINDS.values() for case in few_of(of_kind)]
RUNNING = [case for case in FEW if not case.finished]

OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "b"}
CHANGES = {
    "a new field of the spec": {"spec": {"forged": 1}},
    "a new field of the status": {"status": {"forged": "x"}},
    "a new annotation": {"metadata": {"annotations": {f"{DOMAIN}/ttl": "1s"}}},
    "an annotation": {"metadata": {"annotations": {"other": "y"}}},
    "an annotation that is removed": {"metadata": {"annotations": {"other": None}}},
    "a new label": {"metadata": {"labels": {"new": "b"}}},
    "a label": {"metadata": {"labels": {"app": "b"}}},
    "a label that is removed": {"metadata": {"labels": {"app": None}}},
    "a finalizer": {"metadata": {"finalizers": ["example.com/a", "example.com/b"]}},
    "a finalizer that is removed": {"metadata": {"finalizers": []}},
    "an owner": {"metadata": {"ownerReferences": [OWNER]}},
    "another version": {"apiVersion": "example.com/v1"},
    "the spec that is removed": {"spec": None},
    "the status that is removed": {"status": None},
}


def verdict_of(case, obj=None, patch=None, **fields):
    """What the guard of its kind says to the stop, or another change, of a fixture, or of an object like it."""
    obj = obj or stored(case.obj)
    patch = stop_of(case.rule, obj) if patch is None else patch
    return evaluate(stop_guard_of(case.rule), change(case.rule, obj, patch, **fields))


@pytest.mark.parametrize("kind", KINDS)
def test_stop_guard_admits_the_stop_of_every_unfinished_fixture_and_of_no_other(kind):
    found = [(case, verdict_of(case)) for case in KINDS[kind]]
    assert not [described(*one) for one in found if one[1].is_admitted is not may_be_stopped(one[0])]


def may_be_stopped(case):
    rule, marks = case.rule.deadline, case.obj["metadata"].get("annotations", {})
    is_free = HOLD not in marks and marks.get(ACTIVE_DEADLINE) != "never"
    has_conditions = (case.obj.get("status") or {}).get("conditions", []) is not None  # null is an unknown shape
    is_ours = not find_stop_problem(case.obj, rule, "stop")
    if rule.sets_native:  # neither while it is suspended, nor while its own deadline is set
        run = run_of(case.obj, rule)
        is_ours = is_ours and run is not None and not run.is_suspended
        is_ours = is_ours and all(get_in(case.obj, field.path) is None for field in rule.native.fields)
    return case.finished is False and is_free and has_conditions and is_ours


def test_stop_guard_admits_the_suspension_of_a_kind_that_can_be_suspended_and_no_more():
    found = [case for case in RUNNING if not_none(case.rule.deadline).suspend and may_be_stopped(case)]
    patches = [(case, stop_of(case.rule, stored(case.obj), action="suspend")) for case in found]
    assert not not_admitted((case, verdict_of(case, patch=patch)) for case, patch in patches)
    both = [(case, both_of(patch, stop_of(case.rule, stored(case.obj)))) for case, patch in patches]
    assert not not_refused(((case, verdict_of(case, patch=patch)) for case, patch in both), "change")
    assert {case.rule.plural for case in found} >= {"jobs", "pytorchjobs"}


def test_stop_guard_admits_only_the_stop_that_on_deadline_of_the_object_asks_for():
    """Without the annotation, a policy rule may ask for either."""
    allowed: dict[str | None, set[Action]] = {None: {*ACTIONS}, **{one: {one} for one in ACTIONS}, "": set()}
    wrong, seen = [], set()
    for case in (one for one in RUNNING if may_be_stopped(one)):
        rule = not_none(case.rule.deadline)
        for asked, admits in allowed.items():
            obj, own = stored(case.obj), {} if asked is None else {ON_DEADLINE: asked}
            obj = having(obj, "metadata.annotations", obj["metadata"].get("annotations", {}) | own)
            for action in ACTIONS:
                if (stop := rule.find_stop(action)) is None:
                    continue
                verdict = verdict_of(case, obj, stop_of(case.rule, obj, action=action))
                is_right = any(rule.find_stop(one) is stop for one in admits)
                wrong += [described(case, verdict)] if verdict.is_admitted is not is_right else []
                seen |= {(asked, action, is_right)}
    assert not wrong
    assert seen >= {("suspend", "stop", False), ("stop", "suspend", False), ("suspend", "stop", True)}


DEADLINES = {
    "longer": {"spec": {"activeDeadlineSeconds": 2}},
    "none": {"spec": {"activeDeadlineSeconds": None}},
    "now": {"spec": {"activeDeadlineSeconds": 0}},
}


@pytest.mark.parametrize("name", DEADLINES)
def test_stop_guard_refuses_another_deadline_than_one_second(name):
    jobs = [case for case in RUNNING if case.rule.name in ("jobs.batch", "pods")]
    patches = ((case, both_of(stop_of(case.rule, stored(case.obj)), DEADLINES[name])) for case in jobs)
    assert not not_refused(((case, verdict_of(case, patch=patch)) for case, patch in patches), "change")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("spec.suspend", True),
        ("status.conditions", [{"type": "Suspended", "status": "True"}]),
        ("spec.activeDeadlineSeconds", 600),
        ("spec.activeDeadlineSeconds", 1),
        ("spec.activeDeadlineSeconds", 0),
        ("spec.managedBy", "kueue.x-k8s.io/multikueue"),
    ],
)
def test_stop_guard_refuses_the_stop_of_a_job_that_enforce_leaves_alone(field, value):
    jobs = [case for case in RUNNING if case.rule.name == "jobs.batch"]
    assert not not_refused(((case, verdict_of(case, having(stored(case.obj), field, value))) for case in jobs), "run")


def test_each_rule_with_a_stop_has_an_unfinished_fixture_that_is_stopped():
    assert {case.rule.api_versions for case in RUNNING} == {case.rule.api_versions for case in STOPPABLE}
    assert not not_admitted((case, verdict_of(case)) for case in RUNNING)


@pytest.mark.parametrize("name", CHANGES)
def test_stop_guard_refuses_a_stop_with_any_other_change(name):
    own = {"annotations": {"other": "x"}, "labels": {"app": "a"}, "finalizers": ["example.com/a"]}
    admitted, found = [], []
    for case in RUNNING:
        obj = stored(case.obj)
        obj = having(obj, "metadata", merged(obj["metadata"], own))
        patch = stop_of(case.rule, obj)
        both = both_of(patch, CHANGES[name])
        if merged(obj, both) != merged(obj, patch):  # some have no spec or no status, or their stop removes it
            admitted.append((case, verdict_of(case, obj, patch)))
            found.append((case, verdict_of(case, obj, both)))
    assert not not_admitted(admitted)
    assert not not_refused(found, "change")
    assert len(found) >= len(RUNNING) - 1


def both_of(patch, more):
    """One merge patch of two; null stays."""
    values = {key: both_of(patch.get(key) or {}, one) if isinstance(one, dict) else one for key, one in more.items()}
    return {**patch, **values}


def test_stop_guard_refuses_a_change_that_is_not_the_stop():
    """The mark alone, or a change of the spec with the mark."""
    for patch in ({}, {"spec": {"forged": 1}}):
        marked = {**patch, "metadata": {"annotations": {MARK: "2026-01-02T03:40:00Z"}}}
        assert not not_refused(((case, verdict_of(case, patch=marked)) for case in RUNNING), "change")


def test_stop_guard_refuses_a_stop_without_its_mark():
    found = []
    for case in RUNNING:
        patch = stop_of(case.rule, stored(case.obj))
        del patch["metadata"]["annotations"][MARK]
        found.append((case, verdict_of(case, patch=patch)))
    assert not not_refused(found, "mark")


@pytest.mark.parametrize(
    ("annotations", "why"),
    [({HOLD: "why"}, "held"), ({HOLD: ""}, "held"), ({ACTIVE_DEADLINE: "never"}, "opted out")],
)
def test_stop_guard_refuses_to_stop_an_object_that_opts_out(annotations, why):
    found = []
    for case in RUNNING:
        obj = stored(case.obj)
        obj = having(obj, "metadata.annotations", obj["metadata"].get("annotations", {}) | annotations)
        found.append((case, verdict_of(case, obj)))
    assert not not_refused(found, why)


def test_deadline_that_is_never_keeps_a_pod_from_being_stopped_in_its_stage_only():
    """A Pod that pulls its image has not started: it may be stopped although it may run for ever."""
    pods = {case.name: case for case in STOPPABLE if case.rule.name == "pods" and may_be_stopped(case)}
    waits, runs = pods["cannot pull its image"], pods["running, one container has ended"]

    def verdict(case, annotation):
        return verdict_of(case, having(stored(case.obj), "metadata.annotations", {annotation: "never"}))

    admitted = [(waits, verdict(waits, ACTIVE_DEADLINE)), (runs, verdict(runs, PENDING_DEADLINE))]
    refused = [(waits, verdict(waits, PENDING_DEADLINE)), (runs, verdict(runs, ACTIVE_DEADLINE))]
    assert not not_admitted(admitted)
    assert not not_refused(refused, "opted out")


def test_stop_guard_refuses_to_stop_a_finished_object():
    assert not not_refused(((case, verdict_of(case)) for case in FEW if case.finished), "finished")


def test_stop_guard_refuses_to_stop_an_object_in_an_exempt_namespace():
    namespace = {"metadata": {"name": "work", "annotations": {EXEMPT: "true"}}}
    found = [(case, verdict_of(case, namespace=namespace)) for case in RUNNING if case.rule.scope == "Namespaced"]
    assert not not_refused(found, "exempt")


def test_stop_guard_binds_only_the_accounts_that_stop():
    forged = {"spec": {"forged": 1}}
    for username in (ENFORCE, STANDALONE):
        assert not not_admitted((case, verdict_of(case, username=username)) for case in RUNNING)
        assert not not_refused(((case, verdict_of(case, patch=forged, username=username)) for case in RUNNING), "mark")
    for username in (EXPIRE, SWEEP, "admin"):
        assert not not_admitted((case, verdict_of(case, patch=forged, username=username)) for case in FEW)


def test_stop_guard_refuses_the_stop_of_a_finished_object_of_any_shape():
    random, wrong, admitted = Random(8), [], 0
    for _ in range(2_000):
        case = random.choice(STOPPABLE)
        obj = stored(mutated(case.obj, random))
        finish = finish_of(obj, case.rule.model_copy(update={"finished_at": ("metadata.nothing",)}))
        verdict = verdict_of(case, obj)
        wrong += [f"{described(case, verdict)}: {obj}"] if verdict.is_admitted and finish.finished else []
        admitted += verdict.is_admitted
    assert not wrong
    assert 200 < admitted < 1_800
