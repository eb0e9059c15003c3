"""What the delete guard of each kind admits, by the fixtures; tests/contract asks a real API server the same of few."""

from random import Random

import pytest

from shared.core.decision.finish import finish_of
from shared.core.kinds.predicates import UnknownShapeError, holds
from shared.installation.guards import guard
from tests.admission_policies import evaluate
from tests.builders import having
from tests.guarded_kinds import (
    ACTIVE_DEADLINE,
    ENFORCE,
    EXEMPT,
    EXPIRE,
    HOLD,
    MARKS,
    NAMESPACE,
    ON_DEADLINE,
    PENDING_DEADLINE,
    STANDALONE,
    SWEEP,
    by_kind,
    cases,
    delete_guard_of,
    deletion,
    described,
    few_of,
    marked,
    not_admitted,
    not_refused,
    stored,
)
from tests.shape_mutants import mutated

KINDS = by_kind(cases())
FEW = [case for of_kind in KINDS.values() for case in few_of(of_kind)]
FINISHED = [case for case in FEW if case.finished]
UNFINISHED = [case for case in FEW if not case.finished]


def verdict_of(case, obj=None, **fields):
    """What the guard of its kind says to the DELETE of a fixture, or of an object like it."""
    return evaluate(delete_guard_of(case.rule), deletion(case.rule, obj or stored(case.obj), **fields))


def annotated(case, **annotations):
    obj = stored(case.obj)
    return having(obj, "metadata.annotations", obj["metadata"].get("annotations", {}) | annotations)


@pytest.mark.parametrize("kind", KINDS)
def test_delete_guard_refuses_exactly_the_unfinished_fixtures_of_a_kind(kind):
    found = [(case, verdict_of(case)) for case in KINDS[kind]]
    unfinished = [(case, verdict) for case, verdict in found if case.finished is not True]
    assert not not_admitted((case, verdict) for case, verdict in found if case.finished)
    whys = ("unfinished: ", "unknown shape: ")
    assert not [described(*one) for one in unfinished if not one[1].is_error and not one[1].message.startswith(whys)]


def test_each_rule_has_a_finished_and_an_unfinished_fixture():
    versions = {case.rule.api_versions for case in cases()}
    assert {case.rule.api_versions for case in FINISHED} == {case.rule.api_versions for case in UNFINISHED} == versions


def test_delete_guard_refuses_an_unfinished_object_of_any_shape():
    """What `finish_of` does not call finished is refused. The guard does not read the finish time."""
    random, wrong, admitted, fixtures = Random(8), [], 0, cases()
    for _ in range(2_000):
        case = random.choice(fixtures)
        obj = stored(mutated(case.obj, random))
        finish = finish_of(obj, case.rule.model_copy(update={"finished_at": ("metadata.nothing",)}))
        verdict = verdict_of(case, obj)
        wrong += [f"{described(case, verdict)}: {obj}"] if verdict.is_admitted and finish.finished is not True else []
        admitted += verdict.is_admitted
    assert not wrong
    assert 200 < admitted < 1_800


def test_delete_guard_reads_the_mark_of_a_stop_as_finish_of_does():
    wrong, stopped = [], [case for case in FINISHED if case.is_marked]
    for case in stopped:
        for mark in MARKS:
            obj = having(stored(marked(case.obj, mark)), "metadata.generation", 1)
            finish, verdict = finish_of(obj, case.rule), verdict_of(case, obj)
            wrong += [f"{described(case, verdict)}: {mark}"] if verdict.is_admitted is not finish.finished else []
    assert not wrong
    assert len({case.rule.name for case in stopped}) >= 8


def test_delete_guard_binds_each_account_that_may_delete():
    for username in (EXPIRE, ENFORCE, SWEEP, STANDALONE):
        assert not not_admitted((case, verdict_of(case, username=username)) for case in FINISHED)
        held = [(case, verdict_of(case, annotated(case, **{HOLD: ""}), username=username)) for case in FINISHED]
        assert not not_refused(held, "held")
        running = [(case, verdict_of(case, username=username)) for case in UNFINISHED]
        assert not not_refused(running, "unfinished")


@pytest.mark.parametrize(
    "username",
    [
        "admin",
        "system:serviceaccount:kube-system:job-controller",
        f"system:serviceaccount:other-{NAMESPACE}:expire",
        f"system:serviceaccount:{NAMESPACE}:schedule",
    ],
)
def test_delete_guard_does_not_bind_other_users(username):
    assert not not_admitted((case, verdict_of(case, username=username)) for case in UNFINISHED)


def test_delete_guard_refuses_a_held_object_with_any_value_of_the_hold():
    for value in ("a reason", "", "false"):
        assert not not_refused(
            ((case, verdict_of(case, annotated(case, **{HOLD: value}))) for case in FINISHED), "held"
        )


def test_delete_guard_refuses_an_object_in_an_exempt_namespace():
    namespaced = [case for case in FINISHED if case.rule.scope == "Namespaced"]
    for value in ("true", "yes", ""):
        namespace = {"metadata": {"name": "work", "annotations": {EXEMPT: value}}}
        assert not not_refused(((case, verdict_of(case, namespace=namespace)) for case in namespaced), "exempt")
    namespace = {"metadata": {"name": "work", "annotations": {EXEMPT: "false"}}}
    assert not not_admitted((case, verdict_of(case, namespace=namespace)) for case in namespaced)


@pytest.mark.parametrize("preconditions", [{}, {"uid": "3f0d"}, {"resourceVersion": "7"}, None])
def test_delete_guard_refuses_a_delete_without_both_preconditions(preconditions):
    options = {} if preconditions is None else {"preconditions": preconditions}
    assert not not_refused(((case, verdict_of(case, options=options)) for case in FINISHED), "preconditions")


def test_delete_guard_refuses_a_deletecollection():
    assert not not_refused(((case, verdict_of(case, name="")) for case in FINISHED), "deletecollection")


@pytest.mark.parametrize("username", [EXPIRE, ENFORCE, SWEEP, STANDALONE])
def test_unfinished_object_is_deleted_only_if_it_asks_for_that_at_its_deadline(username):
    asks = {ACTIVE_DEADLINE: "1h", ON_DEADLINE: "delete"}
    found = [(case, verdict_of(case, annotated(case, **asks), username=username)) for case in UNFINISHED]
    if username in (ENFORCE, STANDALONE):
        assert not not_admitted((case, verdict) for case, verdict in found if case.rule.deadline)
        found = [(case, verdict) for case, verdict in found if not case.rule.deadline]
    assert not not_refused(found, "unfinished")
    for words in ({ON_DEADLINE: "delete"}, {ACTIVE_DEADLINE: "1h"}, {ACTIVE_DEADLINE: "1h", ON_DEADLINE: "stop"}):
        found = [(case, verdict_of(case, annotated(case, **words), username=username)) for case in UNFINISHED]
        assert not not_refused(found, "unfinished")
    held = (
        (case, verdict_of(case, annotated(case, **asks, **{HOLD: "why"}), username=username)) for case in UNFINISHED
    )
    assert not not_refused(held, "held")


WAITING_ASKS = {PENDING_DEADLINE: "1h", ON_DEADLINE: "delete"}
PENDING_KINDS = [case for case in cases() if case.rule.deadline and case.rule.deadline.pending]


def test_object_with_a_pending_deadline_is_deleted_only_if_it_has_never_started():
    found = [
        (case, verdict_of(case, annotated(case, **WAITING_ASKS), username=ENFORCE))
        for case in cases()
        if not case.finished
    ]
    assert not [described(*one) for one in found if one[1].is_admitted is not is_waiting(one[0].rule, one[0].obj)]
    assert {verdict.is_admitted for case, verdict in found if case in PENDING_KINDS} == {True, False}
    waits = [case for case in PENDING_KINDS if not case.finished and is_waiting(case.rule, case.obj)]
    for words in ({PENDING_DEADLINE: "1h"}, {**WAITING_ASKS, HOLD: "why"}, {ON_DEADLINE: "delete"}):
        assert not [
            one for case in waits if (one := verdict_of(case, annotated(case, **words), username=ENFORCE)).is_admitted
        ]
    assert not not_refused(((case, verdict_of(case, annotated(case, **WAITING_ASKS))) for case in waits), "unfinished")


def test_delete_guard_refuses_an_object_of_any_shape_that_may_have_started():
    random, wrong, admitted = Random(9), [], 0
    for _ in range(3_000):
        case = random.choice(PENDING_KINDS)
        obj = stored(mutated(case.obj, random))
        obj = having(obj, "metadata.annotations", WAITING_ASKS)
        finish = finish_of(obj, case.rule.model_copy(update={"finished_at": ("metadata.nothing",)}))
        verdict = verdict_of(case, obj, username=ENFORCE)
        if verdict.is_admitted and not finish.finished:
            admitted += 1
            wrong += [] if is_waiting(case.rule, obj) else [f"{described(case, verdict)}: {obj}"]
    assert not wrong
    assert admitted > 200


def is_waiting(rule, obj):
    """Whether an object waits for its first start, and not on purpose; since when, the guard does not ask."""
    pending = rule.deadline.pending if rule.deadline else None
    try:
        return pending is not None and holds(pending.when, obj) and not holds(pending.suspended, obj)
    except UnknownShapeError:
        return False


def test_delete_guard_refuses_a_version_that_the_rule_does_not_know():
    """MPIJobs have two rules, each for a version; this guard is made from one of them."""
    finished = {case.obj["apiVersion"]: case for case in KINDS["mpijobs.kubeflow.org"] if case.finished}
    v1, v2 = finished["kubeflow.org/v1"], finished["kubeflow.org/v2beta1"]
    policy, _ = guard([v1.rule], NAMESPACE)
    verdicts = [evaluate(policy, deletion(case.rule, stored(case.obj))) for case in (v1, v2)]
    assert [verdict.status for verdict in verdicts] == [200, 403]
