"""The delete guard on a real API server: it refuses forbidden deletes of our accounts, whatever the code sends."""

import json
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
from click.testing import CliRunner

from shared.adapters.clock import SystemClock
from shared.cli.main import main
from shared.core.kinds.rule import Catalogue
from shared.core.values.objects import ref_of
from shared.errors import GuardError
from shared.evaluation.evaluator import Evaluator
from shared.installation.guards import guard
from shared.messages import Purpose, Timer
from shared.usecases.expire import DELETION
from shared.usecases.handler import Handler
from tests.builders import JOB, NOW, having
from tests.contract.guarded import (
    BINDINGS,
    FEW,
    POLICIES,
    User,
    allow_all,
    compare_deletes,
    connected_as,
    few_kinds,
    guarded,
    make_job,
    make_pod,
    until,
)
from tests.fakes import FakeTelemetry
from tests.guarded_kinds import (
    EXEMPT,
    EXPIRE,
    HOLD,
    MARKS,
    NAMESPACE,
    STANDALONE,
    SWEEP,
    by_kind,
    doubles,
    few_of,
    marked,
)

CASES = by_kind(doubles())
smoke = pytest.mark.smoke


@pytest.fixture(scope="module")
def admin(real):
    """Of the shared server, with the guards of a few kinds."""
    with guarded(real, few_kinds(), is_shared=True) as admin:
        yield admin


@pytest.fixture(scope="module")
def expire(admin):
    with closing(User(admin.server, EXPIRE)) as user:
        yield user


@pytest.fixture
def namespace(admin):
    """One of the test's own, by the server's name for it."""
    return admin.make("/api/v1/namespaces", {"metadata": {"generateName": "guarded-"}})["metadata"]["name"]


@smoke
@pytest.mark.parametrize("kind", sorted({*CASES} & {*FEW}))
def test_server_and_evaluation_agree_about_deletions_of_a_kind(kind, admin, expire):
    compare_deletes(admin, expire, few_of(CASES[kind]))


def test_server_and_evaluation_agree_about_each_mark_of_a_stop(admin, expire):
    stopped = next(case for case in CASES["jobs.double.example"] if case.finished and case.is_marked)
    compare_deletes(admin, expire, [replace(stopped, name=str(mark), obj=marked(stopped.obj, mark)) for mark in MARKS])


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


@pytest.mark.parametrize(("value", "status"), [pytest.param("true", 403, marks=smoke), ("", 403), ("false", 200)])
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
    assert admin.ask("GET", path)[1]["metadata"]["deletionTimestamp"]
    status = 409
    while status == 409:  # the garbage collector removes its finalizer between the read and the DELETE
        status, said = expire.delete(path, admin.ask("GET", path)[1], dry=False, propagationPolicy=propagation)
    assert status == 200, said


def test_guard_sees_the_object_that_the_preconditions_name(admin, expire, namespace):
    """A stale resourceVersion is a conflict, as ever: the object that was read is not there any more."""
    path, job = make_job(admin, namespace)
    admin.patch(path, {"metadata": {"annotations": {HOLD: "late"}}})
    assert expire.delete(path, job)[0] == 409


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
        expiry = Handler(DELETION, cluster, kinds, Evaluator(cluster, kinds), SystemClock(), telemetry, dry_run=False)
        for _ in range(2):
            with pytest.raises(GuardError, match=f"by ValidatingAdmissionPolicy {strict}: unfinished: by another rule"):
                await expiry.handle(timer)

    assert methods.count("DELETE") == 2, "one for each timer: a refusal is not retried"
    assert {(one.verdict, one.reason) for one in telemetry.records} == {("failed", "GuardError")}
    assert [(one.reason, strict in one.message) for one in telemetry.refusals] == [("DeletionRefused", True)] * 2
    assert admin.ask("GET", path)[0] == 200
