"""The stop guard on a real API server: our accounts change an object only by the stop of its kind rule."""

import asyncio
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import pytest

from shared.adapters.clock import SystemClock
from shared.core.kinds.rule import Catalogue
from shared.core.values.objects import ref_of
from shared.evaluation.evaluator import Evaluator
from shared.messages import Purpose, Timer
from shared.usecases.enforce import ENFORCEMENT
from shared.usecases.handler import Handler
from tests import guarded_kinds
from tests.builders import JOB, NOW
from tests.contract.guarded import FEW, User, compare_stops, connected_as, few_kinds, make_job, stopping, until
from tests.fakes import FakeTelemetry
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
    STOPPED,
    STOPS,
    SWEEP,
    by_kind,
    doubles,
    few_of,
)

CASES = by_kind(case for case in doubles() if case.has_stop)
NO_PODS = {"parallelism": 0}
smoke = pytest.mark.smoke


@pytest.fixture(scope="module")
def admin(real):
    """Of the shared server, with the guards of a few kinds."""
    with stopping(real, few_kinds(), is_shared=True) as admin:
        yield admin


@pytest.fixture(scope="module")
def enforce(admin):
    with closing(User(admin.server, ENFORCE)) as user:
        yield user


@pytest.fixture
def namespace(admin):
    """One of the test's own, by the server's name for it."""
    return admin.make("/api/v1/namespaces", {"metadata": {"generateName": "guarded-"}})["metadata"]["name"]


def start_job(admin, namespace, **metadata):
    """A Job that the Job controller has started, without Pods; with its path."""
    path = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "none"}]}}
    made = admin.make(
        path, {"metadata": {"generateName": "job-", **metadata}, "spec": {**NO_PODS, "template": template}}
    )
    path = f"{path}/{made['metadata']['name']}"
    until(lambda: "startTime" in admin.ask("GET", path)[1]["status"])
    return path, admin.ask("GET", path)[1]


def stop_of(obj, action="stop"):
    """The patch of a Job that our code sends."""
    patch = guarded_kinds.stop_of(JOB, obj, at=datetime.now(UTC), action=action)
    exact = {name: obj["metadata"][name] for name in ("uid", "resourceVersion")}
    return {**patch, "metadata": {**patch["metadata"], **exact}}


def merged(patch, more):
    """A patch with the values of another one."""
    both: dict[str, Any] = {**patch}
    for key, value in more.items():
        both[key] = merged(both.get(key, {}), value) if isinstance(value, dict) else value
    return both


@smoke
@pytest.mark.parametrize("account", [ENFORCE, STANDALONE])
def test_accounts_that_stop_may_send_the_stop_of_the_kind_rule(account, admin, namespace):
    annotations, labels = {ACTIVE_DEADLINE: "1h", "other": "x"}, {"app": "a"}
    path, job = start_job(admin, namespace, annotations=annotations, labels=labels, finalizers=["example.com/a"])
    with closing(User(admin.server, account)) as user:
        assert user.change(path, stop_of(job, "suspend")) == (200, "")
        assert user.change(path, stop_of(job), dry=False) == (200, "")
    stopped = admin.ask("GET", path)[1]
    assert stopped["spec"] == job["spec"] | {"activeDeadlineSeconds": 1}
    assert stopped["metadata"]["annotations"].items() > annotations.items()


CHANGES = {
    "another field of the spec": {"spec": {"parallelism": 2}},
    "a new field of the spec": {"spec": {"ttlSecondsAfterFinished": 1}},
    "no stop": {"spec": {"activeDeadlineSeconds": None}},
    "a longer deadline": {"spec": {"activeDeadlineSeconds": 2}},
    "a suspension beside it": {"spec": {"suspend": True}},
    "a label that is removed": {"metadata": {"labels": {"app": None}}},
    "an annotation": {"metadata": {"annotations": {"other": "y"}}},
    "a new annotation": {"metadata": {"annotations": {f"{DOMAIN}/ttl": "1s"}}},
    "an annotation that is removed": {"metadata": {"annotations": {"other": None}}},
    "a label": {"metadata": {"labels": {"app": "b"}}},
    "a finalizer": {"metadata": {"finalizers": ["example.com/a", "example.com/b"]}},
    "a finalizer that is removed": {"metadata": {"finalizers": []}},
    "an owner": {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "b"}]}},
}


@smoke
def test_guard_refuses_a_stop_with_any_other_change(admin, enforce, namespace):
    own = {"annotations": {"other": "x"}, "labels": {"app": "a"}, "finalizers": ["example.com/a"]}
    path, job = start_job(admin, namespace, **own)
    assert enforce.change(path, stop_of(job))[0] == 200
    wrong = []
    for name, more in CHANGES.items():
        patch = merged(stop_of(job), more)
        assert admin.change(path, patch)[0] == 200, "the API server itself takes it"
        status, said = enforce.change(path, patch)
        is_right = (status, "change: expected no change of the Job but the stop" in said) == (403, True)
        wrong += [] if is_right else [f"{name}: {status} {said}"]
    assert not wrong


def test_guard_refuses_a_stop_without_its_mark(admin, enforce, namespace):
    path, _ = start_job(admin, namespace)
    status, said = enforce.change(path, {"spec": {"activeDeadlineSeconds": 1}})
    assert (status, "mark: expected the annotation" in said) == (403, True)


@pytest.mark.parametrize(
    ("annotations", "message"),
    [
        pytest.param({HOLD: ""}, "held: the Job has the annotation", marks=smoke),
        ({ACTIVE_DEADLINE: "never"}, "opted out: the Job has the annotation"),
    ],
)
def test_guard_refuses_to_stop_an_object_that_opts_out(annotations, message, admin, enforce, namespace):
    path, job = start_job(admin, namespace, annotations=annotations)
    status, said = enforce.change(path, stop_of(job))
    assert (status, message in said) == (403, True), said


@pytest.mark.parametrize(
    "spec", [{"suspend": True}, {"activeDeadlineSeconds": 600}, {"managedBy": "example.com/other"}], ids=str
)
def test_guard_refuses_to_stop_a_job_that_is_suspended_or_has_a_deadline_or_a_controller_of_its_own(
    spec, admin, enforce, namespace
):
    path = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "none"}]}}
    made = admin.make(path, {"metadata": {"generateName": "job-"}, "spec": {**NO_PODS, "template": template, **spec}})
    path = f"{path}/{made['metadata']['name']}"
    stop = guarded_kinds.stop_of(JOB, made, at=datetime.now(UTC))
    status, said = enforce.change(path, stop)
    assert (status, "run: the Job is suspended" in said) == (403, True), said


@smoke
def test_guard_refuses_to_stop_a_finished_object(admin, enforce, namespace):
    path, job = make_job(admin, namespace)
    status, said = enforce.change(path, stop_of(job))
    assert (status, "finished: the Job has finished" in said) == (403, True), said


def test_guard_refuses_to_stop_an_object_in_an_exempt_namespace(admin, enforce, namespace):
    path, job = start_job(admin, namespace)
    assert enforce.change(path, stop_of(job))[0] == 200
    admin.patch(f"/api/v1/namespaces/{namespace}", {"metadata": {"annotations": {EXEMPT: "true"}}})
    until(lambda: enforce.change(path, stop_of(job))[0] == 403)
    assert "exempt: the namespace" in enforce.change(path, stop_of(job))[1]


def test_guard_binds_neither_an_administrator_nor_an_account_without_the_right_to_stop(admin, namespace):
    path, _ = start_job(admin, namespace)
    with closing(User(admin.server, EXPIRE)) as expire:
        for user in (admin, expire):
            assert user.change(path, {"spec": {"parallelism": 2}})[0] == 200


@smoke
@pytest.mark.parametrize("kind", sorted({*CASES} & {*FEW}))
def test_server_and_evaluation_agree_about_stops_of_a_kind(kind, admin, enforce):
    compare_stops(admin, enforce, few_of(CASES[kind]))


# What a stop means for the delete guard


def test_delete_guard_takes_a_suspension_that_is_in_place_for_the_end(admin, namespace):
    path, job = make_job(admin, namespace, is_finished=False)
    with closing(User(admin.server, EXPIRE)) as expire:
        admin.patch(path, stop_of(job, "suspend"))
        assert expire.delete(path, admin.ask("GET", path)[1])[0] == 403, "its Pods may still run"
        at = "2026-01-02T03:04:05Z"
        condition = {"type": "Suspended", "status": "True", "lastTransitionTime": at}
        stopped = admin.patch(f"{path}/status", {"status": {"startTime": None, "conditions": [condition]}})
        assert expire.delete(path, stopped)[0] == 200
        resumed = admin.patch(path, {"spec": {"suspend": False}})
        assert expire.delete(path, resumed)[0] == 403
        again = admin.patch(path, {"spec": {"suspend": True}})
        assert expire.delete(path, again)[0] == 403, "a person suspended it"


def test_delete_guard_refuses_a_stop_whose_mark_is_unreadable_or_of_another_object(admin, namespace):
    marks = {MARK: "", STOPS: "1", STOPPED: "2"}
    path, _ = make_job(admin, namespace, is_finished=False, annotations=marks)
    admin.patch(path, {"spec": {"suspend": True}})
    condition = {"type": "Suspended", "status": "True", "lastTransitionTime": "2026-01-02T03:04:05Z"}
    job = admin.patch(f"{path}/status", {"status": {"startTime": None, "conditions": [condition]}})
    created_at = job["metadata"]["creationTimestamp"]
    with closing(User(admin.server, EXPIRE)) as expire:
        for mark in ("soon", "2026-13-01T00:00:00Z", "", "2020-01-01T00:00:00Z"):
            job = admin.patch(path, {"metadata": {"annotations": {MARK: mark}}})
            assert expire.delete(path, job)[0] in (403, 422), mark
        job = admin.patch(path, {"metadata": {"annotations": {MARK: created_at}}})
        assert expire.delete(path, job)[0] == 200


def test_unfinished_object_is_deleted_only_if_it_asks_for_that_at_its_deadline(admin, namespace):
    asks = {ACTIVE_DEADLINE: "1h", ON_DEADLINE: "delete"}
    expected = (
        (ENFORCE, asks, 200),
        (STANDALONE, asks, 200),
        (EXPIRE, asks, 403),
        (SWEEP, asks, 403),
        (ENFORCE, {ON_DEADLINE: "delete"}, 403),
        (ENFORCE, {ACTIVE_DEADLINE: "1h"}, 403),
        (ENFORCE, asks | {ON_DEADLINE: "stop"}, 403),
        (ENFORCE, asks | {HOLD: "why"}, 403),
    )
    for account, annotations, status in expected:
        path, job = make_job(admin, namespace, is_finished=False, annotations=annotations)
        with closing(User(admin.server, account)) as user:
            assert user.delete(path, job)[0] == status, (account, annotations)


def test_pod_that_asks_for_it_at_its_pending_deadline_is_deleted_only_if_no_container_has_run(admin, namespace):
    asks = {PENDING_DEADLINE: "1h", ON_DEADLINE: "delete"}
    pulls, runs = {"waiting": {"reason": "ImagePullBackOff"}}, {"running": {"startedAt": "2026-01-02T03:04:05Z"}}
    ended, gate = {"terminated": {"exitCode": 1}}, [{"name": "example.com/queue"}]
    expected: tuple[Any, ...] = (
        (ENFORCE, asks, {}, None, 200),
        (STANDALONE, asks, {"containerStatuses": [container(pulls)]}, None, 200),
        (EXPIRE, asks, {}, None, 403),
        (ENFORCE, {PENDING_DEADLINE: "1h"}, {}, None, 403),
        (ENFORCE, {ON_DEADLINE: "delete"}, {}, None, 403),
        (ENFORCE, asks | {HOLD: "why"}, {}, None, 403),
        (ENFORCE, asks, {}, gate, 403),
        (ENFORCE, asks, {"containerStatuses": [container(runs)]}, None, 403),
        (
            ENFORCE,
            asks,
            {"containerStatuses": [container(pulls)], "initContainerStatuses": [container(ended)]},
            None,
            403,
        ),
        (ENFORCE, asks, {"containerStatuses": [container(pulls, lastState=ended)]}, None, 403),
        (ENFORCE, asks, {"containerStatuses": [container(pulls, restartCount=1)]}, None, 403),
        (ENFORCE, asks, {"phase": "Running"}, None, 403),
    )
    for account, annotations, status, gates, answer in expected:
        template = {"containers": [{"name": "main", "image": "none"}], "schedulingGates": gates or []}
        pods, metadata = f"/api/v1/namespaces/{namespace}/pods", {"generateName": "pod-", "annotations": annotations}
        pod = admin.make(pods, {"metadata": metadata, "spec": template})
        path = f"{pods}/{pod['metadata']['name']}"
        if status:
            pod = admin.patch(f"{path}/status", {"status": status})
        with closing(User(admin.server, account)) as user:
            assert user.delete(path, pod)[0] == answer, (account, annotations, status, gates)


def container(state, **fields):
    about = {"name": "main", "image": "none", "imageID": "", "ready": False, "restartCount": 0}
    return {**about, "state": state, **fields}


# The code, and the API server


@pytest.mark.anyio
async def test_enforce_stops_a_job_past_its_deadline_through_the_guard(admin, namespace):
    path, job = start_job(admin, namespace, annotations={ACTIVE_DEADLINE: "1s", "other": "x"})
    timer = Timer(ref=ref_of({**job, "apiVersion": "batch/v1", "kind": "Job"}), purpose=Purpose.ENFORCE, due_at=NOW)
    telemetry, kinds = FakeTelemetry(), Catalogue((JOB,))
    await asyncio.sleep(2.5)  # the API server's clock has whole seconds
    async with connected_as(admin, "enforce") as cluster:
        evaluator = Evaluator(cluster, kinds)
        await Handler(ENFORCEMENT, cluster, kinds, evaluator, SystemClock(), telemetry, dry_run=False).handle(timer)
    stopped = admin.ask("GET", path)[1]
    assert stopped["spec"]["activeDeadlineSeconds"] == 1
    assert stopped["metadata"]["annotations"][STOPS] == "1"
