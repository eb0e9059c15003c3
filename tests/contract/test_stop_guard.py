"""The stop guard on a real API server: our accounts change an object only by the stop of its kind rule."""

import asyncio
import itertools
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from shared.adapters.clock import SystemClock
from shared.core.finish import finish_of
from shared.core.kinds.catalogue import Catalogue
from shared.core.objects import ref_of
from shared.devserver.real_servers import real_server
from shared.evaluation.evaluator import Evaluator
from shared.installation.stop_guard import can_stop, stop_guard, stop_guard_name
from shared.messages import Purpose, Timer
from shared.usecases.enforce import Enforcement
from shared.usecases.enforce_reports import patch_of
from tests.builders import JOB, NOW
from tests.contract.guarded import (
    BINDINGS,
    ENFORCE,
    EXPIRE,
    FEW,
    NAMESPACE,
    POLICIES,
    STANDALONE,
    SWEEP,
    User,
    cases,
    connected_as,
    few_kinds,
    guarded,
    make_job,
    path_of,
    rules_by_kind,
    storable,
    until,
)
from tests.crds import BUILT_IN
from tests.fakes import FakeTelemetry
from tests.required import required_assets

DOMAIN = "ttlafterfinished.dev"
KINDS = {name: rules for name, rules in rules_by_kind().items() if can_stop(rules)}
STOPPABLE = [case for case in cases() if case.rule.name in KINDS and case.rule.deadline and case.rule.deadline.stop]
_names = itertools.count()
smoke = pytest.mark.smoke


def shared_cases():
    """One fixture that a stop fits, and one that it does not, of two kinds; the other tests have Jobs."""
    kinds = ("pipelineruns.tekton.dev", "trainjobs.trainer.kubeflow.org")
    return {
        (case.rule.name, case.finished): case
        for case in STOPPABLE
        if case.rule.name in kinds and case.finished is not None
    }.values()


_MERGE = "application/merge-patch+json"


@pytest.fixture(scope="module")
def admin(real):
    """Of the shared server, with the guards of a few kinds."""
    with stopping(real, few_kinds(), is_shared=True) as admin:
        yield admin


@pytest.fixture(scope="module")
def everywhere():
    """An administrator of a server of its own: the CRDs of all kinds are what other files want absent."""
    with real_server(required_assets(), fsync=False) as server, stopping(server, KINDS) as admin:
        yield admin


@contextmanager
def stopping(server, kinds, *, is_shared=False):
    """`guarded`, with the stop guards in force, too."""
    with guarded(server, kinds, is_shared=is_shared) as admin:
        with closing(User(server, ENFORCE)) as user:
            path, job = make_job(admin, "work", is_finished=False, annotations={f"{DOMAIN}/hold": "a probe"})
            until(lambda: send(user, path, stop_of(job))[0] == 403)
        yield admin


@pytest.fixture(scope="module")
def enforce(admin):
    with closing(User(admin.server, ENFORCE)) as user:
        yield user


@pytest.fixture(scope="module")
def enforce_everywhere(everywhere):
    with closing(User(everywhere.server, ENFORCE)) as user:
        yield user


@pytest.fixture
def namespace(admin):
    """One of the test's own, by the server's name for it."""
    return admin.make("/api/v1/namespaces", {"metadata": {"generateName": "guarded-"}})["metadata"]["name"]


def stop_of(obj, rule=JOB):
    """The patch that our code sends."""
    patch = patch_of(rule.deadline.stop, obj, at=datetime.now(UTC), before=None)
    exact = {name: obj["metadata"][name] for name in ("uid", "resourceVersion")}
    return {**patch, "metadata": {**patch["metadata"], **exact}}


def send(user, path, patch, *, dry=True):
    """The status and the message of a patch."""
    status, said = user.ask("PATCH", f"{path}?dryRun=All" if dry else path, patch, media=_MERGE)
    return status, said.get("message", "")


def merged(patch, more):
    """A patch with the values of another one."""
    both: dict[str, Any] = {**patch}
    for key, value in more.items():
        both[key] = merged(both.get(key, {}), value) if isinstance(value, dict) else value
    return both


@smoke
@pytest.mark.parametrize("account", [ENFORCE, STANDALONE])
def test_accounts_that_stop_may_send_the_stop_of_the_kind_rule(account, admin, namespace):
    annotations, labels = {f"{DOMAIN}/active-deadline": "1h", "other": "x"}, {"app": "a"}
    path, job = make_job(
        admin, namespace, is_finished=False, annotations=annotations, labels=labels, finalizers=["example.com/a"]
    )
    with closing(User(admin.server, account)) as user:
        assert send(user, path, stop_of(job), dry=False) == (200, "")
    stopped = admin.ask("GET", path)[1]
    assert stopped["spec"]["suspend"] is True
    assert stopped["metadata"]["annotations"].items() > annotations.items()


CHANGES = {
    "another field of the spec": {"spec": {"parallelism": 2}},
    "a new field of the spec": {"spec": {"ttlSecondsAfterFinished": 1}},
    "no stop": {"spec": {"suspend": False}},
    "a label that is removed": {"metadata": {"labels": {"app": None}}},
    "an annotation": {"metadata": {"annotations": {"other": "y"}}},
    "a new annotation": {"metadata": {"annotations": {f"{DOMAIN}/ttl": "1s"}}},
    "an annotation that is removed": {"metadata": {"annotations": {"other": None}}},
    "a label": {"metadata": {"labels": {"app": "b"}}},
    "a finalizer": {"metadata": {"finalizers": ["example.com/a", "example.com/b"]}},
    "a finalizer that is removed": {"metadata": {"finalizers": []}},
    "an owner": {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "b"}]}},
}


@pytest.mark.parametrize(
    "change", [pytest.param(one, marks=smoke) if one == "a new annotation" else one for one in CHANGES]
)
def test_guard_refuses_a_stop_with_any_other_change(change, admin, enforce, namespace):
    path, job = make_job(
        admin,
        namespace,
        is_finished=False,
        annotations={"other": "x"},
        labels={"app": "a"},
        finalizers=["example.com/a"],
    )
    assert send(enforce, path, stop_of(job))[0] == 200
    patch = merged(stop_of(job), CHANGES[change])
    assert send(admin, path, patch)[0] == 200, "the API server itself takes it"
    status, said = send(enforce, path, patch)
    assert (status, "change: expected no change of the Job but the stop" in said) == (403, True), said


def test_guard_refuses_a_stop_without_its_mark(admin, enforce, namespace):
    path, _ = make_job(admin, namespace, is_finished=False)
    status, said = send(enforce, path, {"spec": {"suspend": True}})
    assert (status, "mark: expected the annotation" in said) == (403, True)


@pytest.mark.parametrize(
    ("annotations", "message"),
    [
        pytest.param({f"{DOMAIN}/hold": ""}, "held: the Job has the annotation", marks=smoke),
        ({f"{DOMAIN}/active-deadline": "never"}, "opted out: the Job has the annotation"),
    ],
)
def test_guard_refuses_to_stop_an_object_that_opts_out(annotations, message, admin, enforce, namespace):
    path, job = make_job(admin, namespace, is_finished=False, annotations=annotations)
    status, said = send(enforce, path, stop_of(job))
    assert (status, message in said) == (403, True), said


@smoke
def test_guard_refuses_to_stop_a_finished_object(admin, enforce, namespace):
    path, job = make_job(admin, namespace)
    status, said = send(enforce, path, stop_of(job))
    assert (status, "finished: the Job has finished" in said) == (403, True), said


def test_guard_refuses_to_stop_an_object_in_an_exempt_namespace(admin, enforce, namespace):
    path, job = make_job(admin, namespace, is_finished=False)
    assert send(enforce, path, stop_of(job))[0] == 200
    admin.patch(f"/api/v1/namespaces/{namespace}", {"metadata": {"annotations": {f"{DOMAIN}/exempt": "true"}}})
    until(lambda: send(enforce, path, stop_of(job))[0] == 403)
    assert "exempt: the namespace" in send(enforce, path, stop_of(job))[1]


def test_guard_binds_neither_an_administrator_nor_an_account_without_the_right_to_stop(admin, namespace):
    path, _ = make_job(admin, namespace, is_finished=False)
    with closing(User(admin.server, EXPIRE)) as expire:
        for user in (admin, expire):
            assert send(user, path, {"spec": {"parallelism": 2}})[0] == 200


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(one, id=f"{one.rule.name}: {one.name}", marks=[smoke] * (one in shared_cases()))
        for one in STOPPABLE
    ],
)
def test_guard_takes_the_stop_of_every_unfinished_fixture_and_of_no_other(case, request):
    """Kinds without a status subresource: a status that is changed beside the stop is refused, too."""
    where = "" if case.rule.name in FEW else "_everywhere"
    enforce = request.getfixturevalue(f"enforce{where}")
    admin = request.getfixturevalue(where.removeprefix("_") or "admin")
    obj = storable(case.obj, f"x{next(_names)}", "work")
    path = path_of(case.rule, obj)
    made = admin.make(path, obj)
    path = f"{path}/{obj['metadata']['name']}"
    kept = made["metadata"].get("annotations", {})
    is_free = f"{DOMAIN}/hold" not in kept and kept.get(f"{DOMAIN}/active-deadline") != "never"
    status, said = send(enforce, path, stop_of(made, case.rule))
    has_conditions = (made.get("status") or {}).get("conditions", []) is not None  # the API server refuses null
    is_running = finish_of(made, case.rule).finished is False
    assert (status == 200) is (is_running and is_free and has_conditions), said
    if status == 200:
        status, said = send(enforce, path, merged(stop_of(made, case.rule), {"status": {"forged": "x"}}))
        assert (status, "change: " in said) == (403, True), said


def test_every_kind_with_a_stop_has_an_unfinished_fixture():
    assert {case.rule.name for case in STOPPABLE if case.finished is False} >= {
        name for name, rules in KINDS.items() if rules[0].group not in BUILT_IN
    }


# What a stop means for the delete guard


def test_delete_guard_takes_a_stop_that_is_in_place_for_the_end(admin, enforce, namespace):
    path, job = make_job(admin, namespace, is_finished=False)
    with closing(User(admin.server, EXPIRE)) as expire:
        assert send(enforce, path, stop_of(job), dry=False)[0] == 200
        assert expire.delete(path, admin.ask("GET", path)[1])[0] == 403, "its Pods may still run"
        at = "2026-01-02T03:04:05Z"
        condition = {"type": "Suspended", "status": "True", "lastTransitionTime": at}
        stopped = admin.patch(f"{path}/status", {"status": {"startTime": None, "conditions": [condition]}})
        assert expire.delete(path, stopped)[0] == 200
        resumed = admin.patch(path, {"spec": {"suspend": False}})
        assert expire.delete(path, resumed)[0] == 403
        again = admin.patch(path, {"spec": {"suspend": True}})
        assert expire.delete(path, again)[0] == 403, "a person suspended it"


@pytest.mark.parametrize("mark", ["soon", "2026-13-01T00:00:00Z", "", "2020-01-01T00:00:00Z"])
def test_delete_guard_refuses_a_stop_whose_mark_is_unreadable_or_of_another_object(mark, admin, namespace):
    marks = {"deadline-exceeded": mark, "stops": "1", "stopped-generation": "2"}
    path, _ = make_job(
        admin, namespace, is_finished=False, annotations={f"{DOMAIN}/{name}": value for name, value in marks.items()}
    )
    admin.patch(path, {"spec": {"suspend": True}})
    condition = {"type": "Suspended", "status": "True", "lastTransitionTime": "2026-01-02T03:04:05Z"}
    job = admin.patch(f"{path}/status", {"status": {"startTime": None, "conditions": [condition]}})
    with closing(User(admin.server, EXPIRE)) as expire:
        assert expire.delete(path, job)[0] in (403, 422)
        created_at = job["metadata"]["creationTimestamp"]
        fixed = admin.patch(path, {"metadata": {"annotations": {f"{DOMAIN}/deadline-exceeded": created_at}}})
        assert expire.delete(path, fixed)[0] == 200


@pytest.mark.parametrize(
    ("account", "words", "status"),
    [
        (ENFORCE, {"active-deadline": "1h", "on-deadline": "delete"}, 200),
        (STANDALONE, {"active-deadline": "1h", "on-deadline": "delete"}, 200),
        (EXPIRE, {"active-deadline": "1h", "on-deadline": "delete"}, 403),
        (SWEEP, {"active-deadline": "1h", "on-deadline": "delete"}, 403),
        (ENFORCE, {"on-deadline": "delete"}, 403),
        (ENFORCE, {"active-deadline": "1h"}, 403),
        (ENFORCE, {"active-deadline": "1h", "on-deadline": "stop"}, 403),
        (ENFORCE, {"active-deadline": "1h", "on-deadline": "delete", "hold": "why"}, 403),
    ],
)
def test_unfinished_object_is_deleted_only_if_it_asks_for_that_at_its_deadline(
    account, words, status, admin, namespace
):
    annotations = {f"{DOMAIN}/{name}": value for name, value in words.items()}
    path, job = make_job(admin, namespace, is_finished=False, annotations=annotations)
    with closing(User(admin.server, account)) as user:
        assert user.delete(path, job)[0] == status


# The code, and the API server


@pytest.mark.anyio
async def test_enforce_stops_a_job_past_its_deadline_through_the_guard(admin, namespace):
    path, job = make_job(
        admin, namespace, is_finished=False, annotations={f"{DOMAIN}/active-deadline": "1s", "other": "x"}
    )
    timer = Timer(ref=ref_of({**job, "apiVersion": "batch/v1", "kind": "Job"}), purpose=Purpose.ENFORCE, due_at=NOW)
    telemetry, kinds = FakeTelemetry(), Catalogue((JOB,))
    await asyncio.sleep(2.5)  # the API server's clock has whole seconds
    async with connected_as(admin, "enforce") as cluster:
        evaluator = Evaluator(cluster, kinds)
        await Enforcement(cluster, kinds, evaluator, SystemClock(), telemetry, dry_run=False).enforce(timer)
    stopped = admin.ask("GET", path)[1]
    assert stopped["spec"]["suspend"] is True
    assert stopped["metadata"]["annotations"][f"{DOMAIN}/stops"] == "1"


def test_stop_guards_are_compiled_without_a_warning_and_stored_without_a_change(everywhere):
    for rules in KINDS.values():
        policy, binding = stop_guard(rules, NAMESPACE)
        stored = everywhere.ask("GET", f"{POLICIES}/{stop_guard_name(rules[0])}")[1]
        assert stored["status"].get("typeChecking", {}) == {}
        assert stored["spec"] == policy["spec"]
        assert everywhere.ask("GET", f"{BINDINGS}/{stop_guard_name(rules[0])}")[1]["spec"] == binding["spec"]
