"""The guards of all kinds on a real API server: it admits and refuses what the evaluation in the process does.

tests/unit/installation evaluates the guards for every fixture. Here the API server gets few fixtures of each kind. The
kinds of the shared API server are in test_delete_guard.py and test_stop_guard.py.
"""

from contextlib import closing
from dataclasses import replace
from random import Random

import pytest

from shared.devserver.real_servers import real_server
from shared.installation.guards import guard, guards, usernames
from tests.admission_policies import evaluate
from tests.builders import having
from tests.contract.guarded import (
    BINDINGS,
    FEW,
    POLICIES,
    TENANT,
    User,
    allow_all,
    compare_deletes,
    compare_stops,
    difference,
    path_of,
    stopping,
    storable,
    store,
    until,
)
from tests.guarded_kinds import (
    ENFORCE,
    EXPIRE,
    NAMESPACE,
    by_kind,
    change,
    delete_guard_of,
    deletion,
    doubles,
    few_of,
    rules_by_kind,
    stop_guard_of,
    stop_of,
)
from tests.required import required_assets
from tests.shape_mutants import mutated

CASES = {kind: few_of(of_kind) for kind, of_kind in by_kind(doubles()).items()}
MUTANTS = 60


@pytest.fixture(scope="module")
def admin():
    """Of a server of its own: the CRDs of all kinds are what other files want absent."""
    with real_server(required_assets(), fsync=False) as server, stopping(server) as admin:
        yield admin


@pytest.fixture(scope="module")
def expire(admin):
    with closing(User(admin.server, EXPIRE)) as user:
        yield user


@pytest.fixture(scope="module")
def enforce(admin):
    with closing(User(admin.server, ENFORCE)) as user:
        yield user


@pytest.mark.parametrize("kind", [kind for kind in CASES if kind not in FEW])
def test_server_and_evaluation_agree_about_a_kind(kind, admin, expire, enforce):
    compare_deletes(admin, expire, CASES[kind])
    if stoppable := [case for case in CASES[kind] if case.has_stop]:
        compare_stops(admin, enforce, stoppable)


def test_server_and_evaluation_agree_about_objects_of_any_shape(admin, expire, enforce):
    """Fixtures with parts taken out, or of another type: expressions that are errors."""
    random, fixtures, differences, statuses = Random(8), doubles(), [], set()
    for number in range(MUTANTS):
        case = random.choice(fixtures)
        obj = storable(mutated(case.obj, random), f"mutant-{number}", TENANT)
        path = path_of(case.rule, obj)
        status, made = admin.ask("POST", path, obj)
        if status != 201:  # the server takes no status like this
            continue
        mutant, path = replace(case, name=f"{case.name}: {obj}", obj=obj), f"{path}/mutant-{number}"
        answers = [expire.delete(path, made)]
        verdicts = [evaluate(delete_guard_of(case.rule), deletion(case.rule, made))]
        if case.has_stop:
            patch = stop_of(case.rule, made)
            answers.append(enforce.change(path, patch))
            verdicts.append(evaluate(stop_guard_of(case.rule), change(case.rule, made, patch)))
        for verdict, answer in zip(verdicts, answers, strict=True):
            differences += difference(mutant, verdict, *answer)
            statuses.add(answer[0])
    assert (differences, statuses) == ([], {200, 403, 422})


def test_guard_refuses_a_version_that_the_rule_does_not_know(admin):
    """MPIJobs have two rules, each for a version; this guard is made from one of them."""
    finished = [case for case in CASES["mpijobs.kubeflow.org"] if case.finished]
    v1, v2 = (
        next(case for case in finished if case.obj["apiVersion"] == f"kubeflow.org/{one}") for one in ("v1", "v2beta1")
    )
    policy, binding = guard([v1.rule], "elsewhere")
    for path, obj in ((POLICIES, policy), (BINDINGS, binding)):
        renamed = having(obj, "metadata.name", "of-one-version")
        admin.make(path, having(renamed, "spec.policyName", "of-one-version") if path is BINDINGS else renamed)
    name = usernames("elsewhere")[0]
    allow_all(admin, name)
    with closing(User(admin.server, name)) as elsewhere:
        path, made = store(admin, v2)
        until(lambda: elsewhere.delete(path, made)[0] == 403)
        assert elsewhere.delete(*store(admin, v1))[0] == 200


def test_guards_are_compiled_without_a_warning_and_stored_without_a_change(admin):
    """The API server adds no default to a policy and its binding, so what is read back can be compared."""
    for rules in rules_by_kind().values():
        for made in guards(rules, NAMESPACE):
            path = POLICIES if made.body["kind"] == "ValidatingAdmissionPolicy" else BINDINGS
            stored = admin.ask("GET", f"{path}/{made.body['metadata']['name']}")[1]
            assert stored["spec"] == made.body["spec"]
            assert stored.get("status", {}).get("typeChecking", {}) == {}
