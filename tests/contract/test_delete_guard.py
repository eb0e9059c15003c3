"""The delete guard on a real API server: it refuses forbidden deletes of our accounts, whatever the code sends."""

import copy
import itertools
import json
from contextlib import closing
from random import Random
from typing import Any

import pytest
from click.testing import CliRunner

from shared.adapters.clock import SystemClock
from shared.cli.main import main
from shared.core.finish import finish_of
from shared.core.kinds.catalogue import Catalogue
from shared.core.objects import ref_of
from shared.devserver.real_servers import real_server
from shared.errors import GuardError
from shared.evaluation.evaluator import Evaluator
from shared.installation.delete_guard import guard, guard_name, usernames
from shared.messages import Purpose, Timer
from shared.usecases.expire import Expiry
from tests.builders import JOB, NOW, POD, having
from tests.contract.guarded import (
    BINDINGS,
    EXPIRE,
    FEW,
    MARK,
    NAMESPACE,
    POLICIES,
    STANDALONE,
    SWEEP,
    User,
    allow_all,
    cases,
    connected_as,
    few_kinds,
    guarded,
    make_job,
    make_pod,
    path_of,
    rules_by_kind,
    storable,
    until,
)
from tests.fakes import FakeTelemetry
from tests.required import required_assets

CASES = cases()
KINDS = sorted({case.rule.name for case in CASES})
EXEMPT, HOLD = "ttlafterfinished.dev/exempt", "ttlafterfinished.dev/hold"
_names = itertools.count()
smoke = pytest.mark.smoke


@pytest.fixture(scope="module")
def admin(real):
    """Of the shared server, with the guards of a few kinds."""
    with guarded(real, few_kinds(), is_shared=True) as admin:
        yield admin


@pytest.fixture(scope="module")
def everywhere():
    """An administrator of a server of its own: the CRDs of all kinds are what other files want absent."""
    with real_server(required_assets(), fsync=False) as server, guarded(server) as admin:
        yield admin


@pytest.fixture(scope="module")
def expire(admin):
    with closing(User(admin.server, EXPIRE)) as user:
        yield user


@pytest.fixture(scope="module")
def expire_everywhere(everywhere):
    with closing(User(everywhere.server, EXPIRE)) as user:
        yield user


@pytest.fixture
def namespace(admin):
    """One of the test's own, by the server's name for it."""
    return admin.make("/api/v1/namespaces", {"metadata": {"generateName": "guarded-"}})["metadata"]["name"]


@pytest.mark.parametrize("kind", [pytest.param(one, marks=smoke) if one in FEW else one for one in KINDS])
def test_guard_refuses_exactly_the_unfinished_objects_of_a_kind(kind, request):
    """Each fixture: one that has not finished is refused, and one that has finished is not."""
    where = "" if kind in FEW else "_everywhere"
    expire = request.getfixturevalue(f"expire{where}")
    admin = request.getfixturevalue(where.removeprefix("_") or "admin")
    wrong = []
    for case in (case for case in CASES if case.rule.name == kind):
        obj = storable(case.obj, f"x{next(_names)}", "work")
        path = path_of(case.rule, obj)
        status, said = expire.delete(f"{path}/{obj['metadata']['name']}", admin.make(path, obj))
        # An expression that is an error for an object is a 422.
        is_right = status == 200 if case.finished else status in (403, 422) and guard_name(case.rule) in said
        wrong += [] if is_right else [f"{case.name}: {status} {said}"]
    assert not wrong


def test_guard_refuses_an_unfinished_object_of_any_shape(everywhere, expire_everywhere):
    """Fixtures with parts taken out, or of another type: what `finish_of` does not call finished is refused."""
    random = Random(8)
    passed = []
    for number in range(MUTANTS):
        case = random.choice(CASES)
        obj = storable(mutated(case.obj, random), f"mutant-{number}", "work")
        path = path_of(case.rule, obj)
        status, made = everywhere.ask("POST", path, obj)
        if status != 201:  # the server takes no status like this
            continue
        # Whether it is known when it finished is no matter of the guard.
        finish = finish_of(made, case.rule.model_copy(update={"finished_at": ("metadata.nothing",)}))
        is_refused = expire_everywhere.delete(f"{path}/mutant-{number}", made)[0] != 200
        assert finish.finished is True or is_refused, (case.rule.name, case.name, made)
        passed += [] if is_refused else [case.name]
    assert passed, "some are still finished"


def test_guard_reads_the_mark_of_a_stop_as_finish_of_does(everywhere, expire_everywhere):
    """A stopped object, with other values of the annotations that mark it."""
    stopped = [case for case in CASES if case.finished and MARK in case.obj["metadata"].get("annotations", {})]
    kinds = {case.rule.name: case for case in stopped if "Suspended" in json.dumps(case.obj)}
    wrong = []
    for (kind, case), (number, mark) in itertools.product(kinds.items(), enumerate(MARKS)):
        obj = storable(case.obj, f"mark-{number}", "work")
        annotations = obj["metadata"]["annotations"].items()
        others = {key: value for key, value in annotations if key not in (MARK, STOPS, GENERATION)}
        obj["metadata"]["annotations"] = others | mark
        path = path_of(case.rule, obj)
        made = everywhere.make(path, obj)
        finish = finish_of(made, case.rule.model_copy(update={"finished_at": ("metadata.nothing",)}))
        is_deleted = expire_everywhere.delete(f"{path}/mark-{number}", made)[0] == 200
        wrong += [] if is_deleted is (finish.finished is True) else [f"{kind}: {mark}: {finish.finished}, {is_deleted}"]
    assert (wrong, len(kinds) >= 8) == ([], True)


STOPS = "ttlafterfinished.dev/stops"
GENERATION = "ttlafterfinished.dev/stopped-generation"
_AT = {MARK: "2099-01-02T03:40:00Z", GENERATION: "1"}
MARKS: tuple[dict[str, str], ...] = (
    {},
    _AT,
    {MARK: _AT[MARK]},
    _AT | {GENERATION: "2"},
    _AT | {GENERATION: ""},
    _AT | {MARK: "2026-01-02T03:40:00Z"},
    _AT | {MARK: "2099-01-02T03:40:00.123456Z", STOPS: "3"},
    *(_AT | {MARK: at} for at in ("", "soon", "2099-13-45T03:40:00Z", "2099-01-02T25:40:00Z")),
    {STOPS: "1"},
    *(_AT | {STOPS: stops} for stops in ("", "0", "000", "-1", "1.0", "002", "999999", "1000000", "one")),
)
MUTANTS = 400
OTHERS: tuple[Any, ...] = (None, {}, [], "", "x", 0, 3, True, {"a": 1}, ["a"], [{"type": 1}], {"type": {}})


def mutated(obj, random):
    """A copy in which one or two parts of spec and status are missing, or are something else."""
    copied = copy.deepcopy(obj)
    for _ in range(random.choice([1, 2])):
        places = [place for part in ("spec", "status") for place in places_in(copied, part)]
        holder, key = random.choice(places)
        if random.random() < 0.4:
            del holder[key]
        elif isinstance(holder, list) and random.random() < 0.4:
            holder.insert(0, copy.deepcopy(random.choice(OTHERS)))
        else:
            holder[key] = copy.deepcopy(random.choice(OTHERS))
        if not any(part in copied for part in ("spec", "status")):
            break
    return copied


def places_in(holder, key):
    """Each value below a key, by what holds it and its key there."""
    if isinstance(holder, dict) and key not in holder:
        return
    yield holder, key
    below = holder[key]
    keys = list(below) if isinstance(below, dict) else range(len(below)) if isinstance(below, list) else ()
    for one in keys:
        yield from places_in(below, one)


# What is asked of every kind, by Jobs and Pods as the server itself knows them


@smoke
@pytest.mark.parametrize("account", [EXPIRE, SWEEP, STANDALONE])
def test_guard_binds_each_account_that_may_delete(account, admin, namespace):
    with closing(User(admin.server, account)) as user:
        assert user.delete(*make_job(admin, namespace, is_finished=False))[0] == 403
        assert user.delete(*make_job(admin, namespace))[0] == 200


@smoke
def test_guard_refuses_a_running_pod(admin, expire, namespace):
    status, said = expire.delete(*make_pod(admin, namespace, "Running"))
    assert (status, "unfinished: the Pod has not finished by version" in said) == (403, True)
    assert expire.delete(*make_pod(admin, namespace, "Failed"), dry=False)[0] == 200


def test_guard_does_not_bind_an_administrator_or_a_controller(admin, namespace):
    path, job = make_job(admin, namespace, is_finished=False)
    assert admin.delete(path, job)[0] == 200
    assert admin.ask("DELETE", path, {"dryRun": ["All"]})[0] == 200
    names = ("system:serviceaccount:kube-system:job-controller", f"system:serviceaccount:other-{NAMESPACE}:expire")
    allow_all(admin, *names)
    for name in names:
        with closing(User(admin.server, name)) as other:
            until(lambda user=other: user.delete(path, job)[0] == 200)


@smoke
@pytest.mark.parametrize("options", [{}, {"uid": "mine"}, {"resourceVersion": "mine"}, None])
def test_guard_refuses_a_delete_without_both_preconditions(options, admin, expire, namespace):
    path, job = make_job(admin, namespace)
    mine = {name: job["metadata"][name] for name in options or ()}
    body = None if options is None else {"dryRun": ["All"], "preconditions": mine}
    status, said = expire.ask("DELETE", f"{path}?dryRun=All", body)
    assert (status, "preconditions: expected uid and resourceVersion" in said["message"]) == (403, True)


@smoke
def test_guard_refuses_a_held_object_with_any_value_of_the_hold(admin, expire, namespace):
    for value in ("a reason", ""):
        status, said = expire.delete(*make_job(admin, namespace, annotations={HOLD: value}))
        assert (status, f"held: the Job has the annotation {HOLD}" in said) == (403, True)


@pytest.mark.parametrize(
    ("value", "status"), [pytest.param("true", 403, marks=smoke), ("yes", 403), ("", 403), ("false", 200)]
)
def test_guard_reads_the_exemption_of_a_namespace(value, status, admin, expire, namespace):
    path, job = make_job(admin, namespace)
    assert expire.delete(path, job)[0] == 200
    admin.patch(f"/api/v1/namespaces/{namespace}", {"metadata": {"annotations": {EXEMPT: value}}})
    if status == 200:
        assert expire.delete(path, job)[0] == 200
    else:  # the server's own cache is a moment behind
        until(lambda: expire.delete(path, job)[0] == 403)
        assert "exempt: the namespace has the annotation" in expire.delete(path, job)[1]


@smoke
def test_guard_refuses_deletecollection(admin, expire, namespace):
    path, job = make_job(admin, namespace)
    folder, _, name = path.rpartition("/")
    mine = {"uid": job["metadata"]["uid"], "resourceVersion": job["metadata"]["resourceVersion"]}
    for body in (None, {"preconditions": mine}):
        status, said = expire.ask("DELETE", f"{folder}?fieldSelector=metadata.name%3D{name}", body)
        assert (status, "denied request: deletecollection: " in said["message"]) == (403, True), said
    assert admin.ask("GET", path)[0] == 200


@pytest.mark.parametrize("propagation", ["Background", "Foreground", "Orphan"])
def test_guard_admits_a_finished_object_with_every_propagation_and_finalizer(propagation, admin, expire, namespace):
    path, job = make_job(admin, namespace, finalizers=["example.com/archive"])
    assert expire.delete(path, job, dry=False, propagationPolicy=propagation)[0] == 200
    terminating = admin.ask("GET", path)[1]
    assert terminating["metadata"]["deletionTimestamp"]
    assert expire.delete(path, terminating, dry=False, propagationPolicy=propagation)[0] == 200


def test_guard_sees_the_object_that_the_preconditions_name(admin, expire, namespace):
    """A stale resourceVersion is a conflict, as ever: the object that was read is not there any more."""
    path, job = make_job(admin, namespace)
    admin.patch(path, {"metadata": {"annotations": {HOLD: "late"}}})
    assert expire.delete(path, job)[0] == 409


def test_guard_refuses_a_version_that_the_rule_does_not_know(everywhere, expire_everywhere):
    """MPIJobs have two rules, each for a version; this guard is made from one of them."""
    of_mpi = [case for case in CASES if case.finished and case.rule.name == "mpijobs.kubeflow.org"]
    v1, v2 = (
        next(case for case in of_mpi if case.rule.api_version == f"kubeflow.org/{version}")
        for version in ("v1", "v2beta1")
    )
    policy, binding = guard([v1.rule], "elsewhere")
    for path, obj in ((POLICIES, policy), (BINDINGS, binding)):
        renamed = having(obj, "metadata.name", "of-one-version")
        everywhere.make(path, having(renamed, "spec.policyName", "of-one-version") if path is BINDINGS else renamed)
    name = usernames("elsewhere")[0]
    allow_all(everywhere, name)
    with closing(User(everywhere.server, name)) as elsewhere:
        known, unknown = (storable(case.obj, f"x{next(_names)}", "work") for case in (v1, v2))
        for case, obj in ((v1, known), (v2, unknown)):
            everywhere.make(path_of(case.rule, obj), obj)
        path = f"{path_of(v2.rule, unknown)}/{unknown['metadata']['name']}"
        made = everywhere.ask("GET", path)[1]
        until(lambda: elsewhere.delete(path, made)[0] == 403)
        path = f"{path_of(v1.rule, known)}/{known['metadata']['name']}"
        assert elsewhere.delete(path, everywhere.ask("GET", path)[1])[0] == 200


def test_explain_names_the_guard_that_refuses(admin, namespace):
    path, _ = make_job(admin, namespace, is_finished=False)
    name = path.rpartition("/")[2]
    runner = CliRunner(env={"TTL_NAMESPACE": NAMESPACE})
    words = ["explain", f"job/{name}", "-n", namespace, "--kubeconfig", str(admin.server.kubeconfig)]
    result = runner.invoke(main, words)
    assert "also denies our accounts the DELETE, by ttl-after-finished-delete-guard-job" in result.output
    assert json.loads(runner.invoke(main, [*words, "-o", "json"]).output)["guard"] == "current"


@smoke
@pytest.mark.anyio
async def test_expire_reports_a_refusal_of_the_guard_once_and_stops(admin, namespace):
    """A guard that is stricter than `decide`, as one of another rule may be: an error that no retry ends."""
    policy, binding = guard([JOB], NAMESPACE)
    strict = f"{policy['metadata']['name']}-strict"
    never = [{"expression": "false", "message": "unfinished: by another rule", "reason": "Forbidden"}]
    selected = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    policy = having(having(policy, "metadata.name", strict), "spec.validations", never)
    policy = having(policy, "spec.matchConstraints.namespaceSelector", selected)
    admin.make(POLICIES, policy)
    admin.make(BINDINGS, having(having(binding, "metadata.name", strict), "spec.policyName", strict))
    path, job = make_job(admin, namespace, annotations={"ttlafterfinished.dev/expire-at": "2026-01-02T03:04:05Z"})
    with closing(User(admin.server, EXPIRE)) as user:
        until(lambda: user.delete(path, job)[0] == 403)

    telemetry, kinds, methods = FakeTelemetry(), Catalogue((JOB,)), list[str]()
    timer = Timer(ref=ref_of({**job, "apiVersion": "batch/v1", "kind": "Job"}), purpose=Purpose.EXPIRE, due_at=NOW)
    async with connected_as(admin, "expire") as cluster:
        send = cluster._transport.send

        async def record(method: str, *rest: Any, **options: Any) -> Any:
            methods.append(method)
            return await send(method, *rest, **options)

        cluster._transport.send = record  # type: ignore[method-assign]
        expiry = Expiry(cluster, kinds, Evaluator(cluster, kinds), SystemClock(), telemetry, dry_run=False)
        for _ in range(2):
            with pytest.raises(GuardError, match=f"by ValidatingAdmissionPolicy {strict}: unfinished: by another rule"):
                await expiry.expire(timer)

    assert methods.count("DELETE") == 2, "one for each timer: a refusal is not retried"
    assert {(one.verdict, one.reason) for one in telemetry.records} == {("failed", "GuardError")}
    assert [(one.reason, strict in one.message) for one in telemetry.refusals] == [("DeletionRefused", True)] * 2
    assert admin.ask("GET", path)[0] == 200


def test_guards_are_compiled_without_a_warning(admin):
    """The API server checks the types of expressions where it knows them: of the kinds that are built in."""
    for rule in (JOB, POD):
        path = f"{POLICIES}/{guard_name(rule)}"
        assert admin.ask("GET", path)[1]["status"].get("typeChecking", {}) == {}


def test_guard_is_stored_without_a_change(everywhere):
    """The API server adds no default to a policy and its binding, so what is read back can be compared."""
    for rules in rules_by_kind().values():
        policy, binding = guard(rules, NAMESPACE)
        assert everywhere.ask("GET", f"{POLICIES}/{guard_name(rules[0])}")[1]["spec"] == policy["spec"]
        assert everywhere.ask("GET", f"{BINDINGS}/{guard_name(rules[0])}")[1]["spec"] == binding["spec"]
