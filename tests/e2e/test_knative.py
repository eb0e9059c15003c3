"""The functions on a real Knative: what the two-minute start promises, and that it holds through faults.

Kubernetes' own TTL controller runs there too, so TTLs are given by annotation: what is deleted here, we deleted.
Creating a Namespace restarts every ApiServerSource, so all happens in one. The tests build on each other,
in this order.
"""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest

from tests.e2e import installation
from tests.e2e.cluster import DOMAIN, annotations, create, get, job, kubectl, pod, server_pid, wait
from tests.e2e.installation import FUNCTIONS, broker_audience, broker_url, events, kill
from tests.e2e.post import post
from tests.e2e.rights import asked, audit_log, granted, refused
from tests.e2e.witness import Deletion, Witness, finish_of, stop_of

NAMESPACE = "ttl-e2e-knative"
HERE = Path(__file__).parent
SWEPT_SECONDS = 150
"""Two sweeps of the two-minute start, and some."""
ATTEMPTS_MAX = 5
"""Objects that a test makes until an event for one of them is not lost."""

Object = dict[str, Any]


@pytest.fixture(scope="module")
def witness() -> Iterator[Witness]:
    """Record every deletion; at the end, check that none was early or unwanted."""
    kubectl("apply", "-f", str(HERE / "trainjob-crd.yaml"))
    kubectl("wait", "--for=condition=Established", "crd/trainjobs.trainer.kubeflow.org")
    kubectl("create", "namespace", NAMESPACE)
    with Witness(NAMESPACE).watching() as seen:
        yield seen
    assert seen.early() == {}


@pytest.fixture(scope="module")
def before(witness: Witness) -> list[Object]:
    """A Job and a Pod that finished before the source started."""
    things = [
        create(job("before", "true", namespace=NAMESPACE, ttl="1s")),
        create(pod("before", "true", namespace=NAMESPACE, ttl="1s")),
    ]
    for thing in things:
        wait(f"the end of {thing['kind']}", lambda thing=thing: finish_of(fresh(thing)))
    return things


@pytest.fixture(scope="module", autouse=True)
def installed(before: list[Object]) -> Iterator[None]:
    """The two-minute start, after `before`; in the end it is uninstalled."""
    assert before
    installation.prepare()
    installation.two_minute_start()
    yield
    installation.run("kubectl delete -k knative/overlays/knative --ignore-not-found --timeout=180s")
    assert not kubectl("get", "namespace", installation.NAMESPACE, "--ignore-not-found")


def fresh(thing: Object) -> Object:
    found: Object = get(thing["kind"], thing["metadata"]["name"], namespace=NAMESPACE)
    return found


def annotate(thing: Object, *words: str) -> None:
    kubectl("-n", NAMESPACE, "annotate", "--overwrite", thing["kind"], thing["metadata"]["name"], *words)


def finished(thing: Object) -> datetime:
    instant: datetime = wait(f"the end of {thing['metadata']['name']}", lambda: finish_of(fresh(thing)))
    return instant


def ended(thing: Object) -> None:
    """Wait until it finished; on a busy machine a short TTL may be over before this is seen."""

    def is_gone_or_finished() -> bool:
        found = fresh(thing)
        return found is None or finish_of(found) is not None

    wait(f"the end of {thing['metadata']['name']}", is_gone_or_finished)


def gone(witness: Witness, thing: Object) -> Deletion:
    """Wait until it went, by an event or, where one was lost, by a sweep."""
    what = f"the deletion of {thing['kind']} {thing['metadata']['name']}"
    deletion: Deletion = wait(what, lambda: witness.gone(thing["metadata"]["uid"]), SWEPT_SECONDS)
    return deletion


def is_there(thing: Object) -> bool:
    found = fresh(thing)
    return found is not None and found["metadata"]["uid"] == thing["metadata"]["uid"]


def make_jobs(name: str, count: int, script: str, **words: str) -> list[Object]:
    return [create(job(f"{name}-{number}", script, namespace=NAMESPACE, **words)) for number in range(count)]


def passes(seconds: float) -> None:
    """Wait for a time in which something must not happen."""
    time.sleep(seconds)


# What it is for


def test_job_finished_by_its_controller_is_deleted_on_time(witness: Witness) -> None:
    thing = create(job("succeeds", "sleep 1", namespace=NAMESPACE, ttl="3s"))
    gone(witness, thing)
    wait("its Pods' end", lambda: not pods_of_job("succeeds"))


def test_failed_job_is_deleted_on_time(witness: Witness) -> None:
    gone(witness, create(job("fails", "exit 3", namespace=NAMESPACE, ttl="3s")))


def test_pod_that_finished_by_itself_is_deleted_on_time(witness: Witness) -> None:
    gone(witness, create(pod("ends", "sleep 1", namespace=NAMESPACE, ttl="3s")))


def test_object_finished_before_the_source_started_is_swept(witness: Witness, before: list[Object]) -> None:
    for thing in before:
        gone(witness, thing)


# What users do meanwhile


def test_ttl_raised_after_scheduling_delays_the_deletion(witness: Witness) -> None:
    thing = create(job("raised", "true", namespace=NAMESPACE, ttl="15s"))
    finished_at = finished(thing)
    annotate(thing, f"{DOMAIN}/ttl=25s")
    deletion = gone(witness, thing)
    assert (deletion.seen_at - finished_at).total_seconds() >= 25


def test_held_job_is_kept_and_deleted_after_the_release(witness: Witness) -> None:
    thing = create(job("held", "true", namespace=NAMESPACE, ttl="2s", hold="an operator looks into it"))
    finished(thing)
    passes(5)
    assert is_there(thing)
    annotate(thing, f"{DOMAIN}/hold-")
    gone(witness, thing)


def test_recreated_object_survives_the_timer_of_its_predecessor(witness: Witness) -> None:
    first = create(job("again", "true", namespace=NAMESPACE, ttl="15s"))
    finished(first)
    witness.delete("job", "again")
    wait("the first's end", lambda: fresh(first) is None)
    second = create(job("again", "sleep 25", namespace=NAMESPACE, ttl="2s"))
    passes(17)  # the first one's timer fires
    assert is_there(second)
    gone(witness, second)


def test_object_that_runs_or_has_no_ttl_is_kept(witness: Witness) -> None:
    works = create(job("works", "sleep 600", namespace=NAMESPACE, ttl="0s"))
    plain = create(job("plain", "true", namespace=NAMESPACE))
    never = create(pod("never", "true", namespace=NAMESPACE, ttl="never"))
    for thing in (plain, never):
        finished(thing)
    passes(3)
    assert all(is_there(thing) for thing in (works, plain, never))


def test_unreadable_ttl_keeps_the_object_and_is_reported(witness: Witness) -> None:
    thing = create(job("misspelt", "true", namespace=NAMESPACE, ttl="15s"))
    finished(thing)
    annotate(thing, f"{DOMAIN}/ttl=soon")
    selector = f"involvedObject.uid={thing['metadata']['uid']},type=Warning"
    reported = wait("an Event on it", lambda: kubectl("-n", NAMESPACE, "get", "events", "--field-selector", selector))
    assert "soon" in reported
    assert is_there(thing)


def test_pod_is_kept_while_its_job_runs(witness: Witness) -> None:
    spec = job("owner", 'test "$JOB_COMPLETION_INDEX" = 0 || sleep 15', namespace=NAMESPACE)
    spec["spec"] |= {"completions": 2, "parallelism": 2, "completionMode": "Indexed"}
    spec["spec"]["template"]["metadata"] = {"annotations": annotations(ttl="1s")}
    create(spec)
    first = wait("one Pod's end", lambda: [one for one in pods_of_job("owner") if finish_of(one | {"kind": "Pod"})])[0]
    passes(4)
    assert get("pod", first["metadata"]["name"], namespace=NAMESPACE)
    wait("its deletion by a sweep, once the Job ended", lambda: not pods_of_job("owner"), SWEPT_SECONDS)
    assert get("job", "owner", namespace=NAMESPACE)


def pods_of_job(name: str) -> list[Object]:
    selector = f"batch.kubernetes.io/job-name={name}"
    found: list[Object] = json.loads(kubectl("-n", NAMESPACE, "get", "pods", "-l", selector, "-o", "json"))["items"]
    return found


# Faults


def test_poison_event_becomes_a_dead_letter_and_stops_nothing(witness: Witness) -> None:
    poison = {"Ce-Id": "poison", "Ce-Source": "/e2e", "Ce-Specversion": "1.0", "Content-Type": "application/json"}
    kinds = ("dev.knative.apiserver.resource.update", "dev.ttlafterfinished.timer.set")
    for number, type_ in enumerate(kinds):
        headers = {**poison, "Ce-Type": type_}
        assert post(f"poison-{number}", broker_url(), headers, "{") == 202
    reported = wait("an Event for each", lambda: len(events("DeadLetter")) >= len(kinds) and events("DeadLetter"))
    assert {type_ for type_ in kinds for event in reported if type_ in event["message"]} == set(kinds)
    gone(witness, create(job("after-poison", "true", namespace=NAMESPACE, ttl="3s")))


@pytest.mark.parametrize("function", [*FUNCTIONS, "deadletter"])
def test_object_is_deleted_on_time_after_a_function_is_killed(function: str, witness: Witness) -> None:
    things = make_jobs(f"kill-{function}", 3, "sleep 1", ttl="4s")
    ended(things[0])
    kill(function)
    things += make_jobs(f"killed-{function}", 2, "true", ttl="1s")
    for thing in things:
        gone(witness, thing)


def test_object_is_deleted_after_the_channel_loses_its_events(witness: Witness) -> None:
    """An in-memory channel keeps nothing: what it held is for the sweep."""
    things = make_jobs("channel", 6, "sleep 1", ttl="3s")
    ended(things[0])
    kill("timers")  # so that there are events in it, which it tries again
    dispatcher = "messaging.knative.dev/role=dispatcher"
    forced = ("--grace-period=0", "--force", "--wait=false")
    kubectl("-n", installation.KNATIVE, "delete", "pod", "-l", dispatcher, *forced)
    things += make_jobs("no-channel", 3, "true", ttl="1s")
    for thing in things:
        gone(witness, thing)


def test_object_is_deleted_after_an_outage_of_the_api_server(witness: Witness) -> None:
    pid = server_pid()
    if pid is None:
        assert not os.environ.get("CI")
        pytest.skip("the API server is not a process of this machine")
    things = make_jobs("outage", 5, "true", ttl="8s")
    for thing in things:
        ended(thing)
    os.kill(pid, signal.SIGSTOP)
    try:
        passes(20)
    finally:
        os.kill(pid, signal.SIGCONT)
    for thing in things:
        gone(witness, thing)
    gone(witness, create(job("after-outage", "true", namespace=NAMESPACE, ttl="3s")))


# A kind of one's own, and timers on a claim


PRODUCTION = installation.ROOT / "knative" / "overlays" / "production"
EXTENSIONS = ["kind-trainjob", "source-apiserver/trainjob", "timers-sqlite"]


def extended_settings() -> dict[str, str]:
    return {"TTL_KINDS": "jobs,pods,trainjobs", **installation.durable_folder()}


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A user's overlay on the two-minute start: TrainJobs too, and timers on a volume."""
    folder = installation.overlay(
        tmp_path_factory.mktemp("overlay"), components=EXTENSIONS, settings=extended_settings()
    )
    train_job("trained-before", ttl="1s")
    finish_train_job("trained-before")
    kubectl("-n", installation.NAMESPACE, "delete", "services.serving.knative.dev", "timers", "--cascade=foreground")
    installation.apply(folder)
    installation.wait_until_ready()
    yield folder
    installation.uninstall(folder)


def finish_train_job(name: str) -> None:
    """As Trainer's controller does."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    condition = {"type": "Complete", "status": "True", "reason": "JobsCompleted", "message": "jobset completed"}
    status = {"status": {"conditions": [{**condition, "lastTransitionTime": now}]}}
    kubectl(
        "-n", NAMESPACE, "patch", "trainjob", name, "--subresource=status", "--type=merge", "-p", json.dumps(status)
    )


def train_job(name: str, **words: str) -> Object:
    return create(
        {
            "apiVersion": "trainer.kubeflow.org/v1alpha1",
            "kind": "TrainJob",
            "metadata": {"name": name, "namespace": NAMESPACE, "annotations": annotations(**words)},
            "spec": {"runtimeRef": {"name": "torch-distributed"}, "trainer": {"numNodes": 2}},
        }
    )


@pytest.mark.usefixtures("extended")
def test_trainjob_is_deleted_on_time(witness: Witness) -> None:
    thing = train_job("trains", ttl="3s")
    finish_train_job("trains")
    gone(witness, thing)


@pytest.mark.usefixtures("extended")
def test_trainjob_finished_before_its_source_started_is_swept(witness: Witness) -> None:
    wait("its deletion", lambda: any(one.name == "TrainJob trained-before" for one in witness.deletions), SWEPT_SECONDS)


@pytest.mark.usefixtures("extended")
def test_pending_timers_survive_their_pod(witness: Witness) -> None:
    with installation.without_ticks():
        things = make_jobs("survives", 3, "true", ttl="20s")
        for thing in things:
            ended(thing)
        passes(2)
        kill("timers")
        for thing in things:
            gone(witness, thing)


# Active deadlines


DEADLINE = timedelta(seconds=4)
LATE_MAX = timedelta(seconds=5)
"""On a busy machine; the benchmark measures how late a stop is on a quiet one."""


@pytest.mark.usefixtures("extended")
def test_job_is_failed_at_its_active_deadline_and_deleted_after_its_ttl(witness: Witness) -> None:
    """By the event of its start and a timer: no sweep runs. The in-memory Broker may lose an event."""
    with installation.without_ticks():
        for number in range(ATTEMPTS_MAX):
            thing = create(job(f"overdue-{number}", "sleep 600", namespace=NAMESPACE, ttl="5s", **DEADLINES))
            started_at = start_of(thing)
            try:
                stopped = wait("its stop", lambda thing=thing: stopped_job(thing), 30)
                break
            except AssertionError:
                continue
        else:
            pytest.fail(f"enforce stopped none of {ATTEMPTS_MAX} Jobs")
        stopped_at = stop_of(stopped)
        assert stopped_at is not None
        assert timedelta() <= stopped_at - (started_at + DEADLINE) <= LATE_MAX
        assert stopped["metadata"]["annotations"][f"{DOMAIN}/stops"] == "1"
        reported = wait("its Event", lambda: events_on(thing, "DeadlineExceeded"))
        assert [(one["type"], "ran for longer than 4s" in one["message"]) for one in reported] == [("Warning", True)]
        wait("the end of its Pods", lambda: not pods_of_job(stopped["metadata"]["name"]))
    gone(witness, thing)


@pytest.mark.usefixtures("extended")
def test_job_that_a_user_resumes_gets_its_whole_deadline_again() -> None:
    thing = create(job("resumed", "sleep 600", namespace=NAMESPACE, on_deadline="suspend", **DEADLINES))
    wait("its stop", lambda: stopped_job(thing), SWEPT_SECONDS)
    wait("its suspension", lambda: finish_of(fresh(thing)))
    kubectl("-n", NAMESPACE, "patch", "job", "resumed", "--type=merge", "-p", '{"spec": {"suspend": false}}')
    restarted_at = start_of(thing)
    stopped_at = stop_of(wait("its second stop", lambda: stopped_job(thing, stops="2"), SWEPT_SECONDS))
    assert stopped_at is not None
    assert stopped_at >= restarted_at + DEADLINE


@pytest.mark.usefixtures("extended")
def test_held_job_is_not_stopped_at_its_deadline() -> None:
    thing = create(job("held-overdue", "sleep 600", namespace=NAMESPACE, hold="an experiment", **DEADLINES))
    passes(DEADLINE.total_seconds() + 4)
    assert stop_of(fresh(thing)) is None
    assert "activeDeadlineSeconds" not in fresh(thing)["spec"]


@pytest.mark.usefixtures("extended")
@pytest.mark.parametrize(("kind", "value"), [("Job", "soon"), ("Pod", "0s"), ("TrainJob", "-5")])
def test_deadline_that_cannot_be_read_is_reported_and_stops_nothing(kind: str, value: str) -> None:
    make: dict[str, Callable[..., Object]] = {"Job": job, "Pod": pod}
    words = annotations(active_deadline=value)
    if kind == "TrainJob":
        thing = train_job("bad-deadline", active_deadline=value)
    else:
        thing = create(make[kind]("bad-deadline", "sleep 600", namespace=NAMESPACE, active_deadline=value))
    (reported,) = wait("an Event on it", lambda: events_on(thing, "InvalidDeadline"), SWEPT_SECONDS)
    assert f"annotation {DOMAIN}/active-deadline: expected" in reported["message"]
    assert fresh(thing)["metadata"]["annotations"].items() >= words.items()
    assert stop_of(fresh(thing)) is None


REPORTER = "ttl-after-finished"
DEADLINES = {"active_deadline": f"{DEADLINE.seconds}s"}


def start_of(thing: Object) -> datetime:
    """Wait until the Job starts; its controller removes the time when the Job is suspended."""
    started_at = wait("its start", lambda: fresh(thing).get("status", {}).get("startTime"))
    return datetime.fromisoformat(started_at)


def stopped_job(thing: Object, *, stops: str = "1") -> Object | None:
    """The Job if it is failed or suspended by its given stop; None if it is not."""
    found = fresh(thing)
    marks = found["metadata"].get("annotations", {})
    is_in_place = found["spec"].get("suspend") or found["spec"].get("activeDeadlineSeconds") == 1
    return found if is_in_place and marks.get(f"{DOMAIN}/stops") == stops else None


def events_on(thing: Object, reason: str) -> list[Object]:
    """Our Events on an object; the Job controller has the reason DeadlineExceeded, too."""
    selector = f"--field-selector=involvedObject.uid={thing['metadata']['uid']},reason={reason},source={REPORTER}"
    found: list[Object] = json.loads(kubectl("-n", NAMESPACE, "get", "events", selector, "-o", "json"))["items"]
    return found


# Rights


RESOURCES = {"Job": ("batch", "jobs"), "Pod": ("", "pods"), "TrainJob": ("trainer.kubeflow.org", "trainjobs")}


@pytest.mark.usefixtures("extended")
@pytest.mark.parametrize("kind", RESOURCES)
def test_expire_uses_its_rights_on_each_kind_without_a_sweep(kind: str, witness: Witness) -> None:
    """On a busy machine a sweep may delete every object of a kind first, or the in-memory Broker may lose an event."""
    with installation.without_ticks():
        for number in range(ATTEMPTS_MAX):
            uid = _finish_one(kind, number)
            try:
                wait(f"the deletion of {kind} alone-{number}", lambda uid=uid: witness.gone(uid), 30)
            except AssertionError:  # a lost event: the next sweep deletes this object
                continue
            if _expire_asked("delete", *RESOURCES[kind]):
                return
    pytest.fail(f"expire deleted none of {ATTEMPTS_MAX} objects of kind {kind}")


@pytest.mark.usefixtures("extended")
def test_expire_reports_an_unreadable_ttl_without_a_sweep() -> None:
    with installation.without_ticks():
        for number in range(ATTEMPTS_MAX):
            thing = create(job(f"unreadable-{number}", "true", namespace=NAMESPACE, ttl="15s"))
            finished(thing)
            annotate(thing, f"{DOMAIN}/ttl=soon")
            try:
                wait("an Event by expire", lambda: _expire_asked("create", "events.k8s.io", "events"), 40)
            except AssertionError:  # a lost event
                continue
            return
    pytest.fail(f"expire reported none of {ATTEMPTS_MAX} unreadable TTLs")


def _finish_one(kind: str, number: int) -> str:
    """A finished object with a short TTL; returns its uid."""
    name = f"alone-{number}"
    if kind == "TrainJob":
        thing = train_job(name, ttl="2s")
        finish_train_job(name)
    else:
        make = {"Job": job, "Pod": pod}[kind]
        thing = create(make(name, "true", namespace=NAMESPACE, ttl="2s"))
    uid: str = thing["metadata"]["uid"]
    return uid


def _expire_asked(*right: str) -> bool:
    """Whether `expire` used a right; without an audit log this cannot be known, and counts as used."""
    log = audit_log()
    if log is None:
        return True
    calls = asked(log, installation=installation.NAMESPACE)
    return bool(calls.get("expire", {}).get((right[0], right[1], right[2]), set()) & {200, 201, 202, 409})


ACCOUNTS = (*FUNCTIONS, "deadletter", "source")
_OF_INSTALLATION = ("create", "", "events")
_RUNTIMES = {("get", "trainingruntimes"), ("get", "clustertrainingruntimes")}
_CHILDREN = {(verb, kind) for verb in ("get", "list") for kind in ("pods", "jobs", "jobsets")}
IDLE: dict[str, set[tuple[str, ...]]] = {
    "source": {("get", "*")},
    "expire": {("list", "*"), ("update", "*"), _OF_INSTALLATION, *_RUNTIMES, *_CHILDREN},
    "enforce": {("list", "*"), ("update", "*"), ("patch", "pods"), ("patch", "trainjobs"), _OF_INSTALLATION},
    "archive": {("get", "*"), ("list", "*"), ("update", "*"), ("create", "events")},
    "sweep": {
        ("update", "*"),
        ("get", "namespaces"),
        ("list", "resourcequotas"),
        ("get", "trainjobs"),
        *_RUNTIMES,
        *_CHILDREN,
    },
}
"""Rights that no test uses here, by account.

- `source`: an ApiServerSource does not start without `get`, and never sends a GET.
- `update`: these accounts write the shared state only when a safeguard trips.
- `list`: `expire` lists objects and quotas only for a policy, and `enforce` objects only for the share of a breaker.
- `resourcequotas` of `sweep`: quotas are listed only for a policy.
- `get` of `sweep` on namespaces: a sweep lists all namespaces, and gets only one that was created after the LIST.
- `_OF_INSTALLATION`: these accounts write an Event of core/v1 only when the breaker opens.
- `_RUNTIMES`: the cluster has no runtimes of TrainJobs.
- `_CHILDREN`, and `trainjobs` of `sweep`: the children of an object are read only if the policy has archives.
- `patch` of `enforce`: only a Job is stopped.
- `archive`: without a policy nothing is archived.
"""


def is_idle(account: str, right: tuple[str, ...]) -> bool:
    idle = IDLE.get(account, set())
    return right in idle or (right[0], "*") in idle or (right[0], right[2]) in idle


@pytest.mark.usefixtures("extended")
def test_rights_of_every_account_are_sufficient_and_all_used() -> None:
    """After all that went before, which is meant to have every right used."""
    log = audit_log()
    if log is None:
        pytest.skip("needs the API server's audit log: see audit-policy.yaml")
    calls = asked(log, installation=installation.NAMESPACE)
    assert refused(calls) == set()
    for account in ACCOUNTS:
        may = granted(account, installation=installation.NAMESPACE, namespace=installation.NAMESPACE)
        used = set(calls.get(account, {}))
        assert {right for right in may if not is_idle(account, right)} <= used <= set(may), account


# Tokens


BROKERS = "brokers.eventing.knative.dev"


@pytest.fixture(scope="module")
def guarded(extended: Path) -> Iterator[None]:
    """overlays/production, as docs/explanation/callers.md switches tokens on."""
    assert extended
    with installation.tokens():
        kubectl("-n", installation.NAMESPACE, "delete", BROKERS, "default")
        installation.apply(PRODUCTION)
        kubectl("-n", installation.NAMESPACE, "wait", "--for=condition=Ready", "--timeout=2m", BROKERS, "--all")
        poke = f"{DOMAIN}/looked-again={datetime.now(UTC).timestamp()}"
        kubectl("-n", installation.NAMESPACE, "annotate", "sinkbindings", "--all", "--overwrite", poke)
        installation.wait_until_ready()
        wait("the end of the Pods that require no token", lambda: not installation.ending_pods())
        yield
    installation.uninstall(PRODUCTION)


@pytest.mark.usefixtures("guarded")
def test_object_is_deleted_on_time_with_tokens_required(witness: Witness) -> None:
    for thing in make_jobs("guarded", 3, "true", ttl="3s"):
        gone(witness, thing)


SET, FIRED = "dev.ttlafterfinished.timer.set", "dev.ttlafterfinished.timer.fired"
REPORTED = "dev.knative.apiserver.resource.update"
ABSENT_POD = {"apiVersion": "v1", "kind": "Pod", "namespace": "default", "name": "absent", "uid": "0"}
TIMER = {"ref": ABSENT_POD, "purpose": "expire", "dueAt": "2026-01-01T00:00:00Z"}
OBJECT = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "absent", "namespace": "default", "uid": "0"}}
SOURCE = "job-oidc-sources.knative.dev-apiserversource"
EXPIRE, TIMERS = (f"{name}-oidc-eventing.knative.dev-trigger" for name in ("expire", "timers"))
STRANGER = ""


@pytest.mark.usefixtures("guarded")
@pytest.mark.parametrize(
    ("name", "to", "type_", "data", "account", "status"),
    [
        ("no-token", "broker", SET, {"timers": [TIMER]}, None, 401),
        ("stranger", "broker", SET, {"timers": [TIMER]}, STRANGER, 403),
        ("function", "broker", SET, {"timers": [TIMER]}, "expire", 403),
        ("source-not-its-type", "broker", SET, {"timers": [TIMER]}, SOURCE, 403),
        ("trigger-not-its-type", "broker", FIRED, TIMER, EXPIRE, 403),
        ("source", "broker", REPORTED, OBJECT, SOURCE, 202),
        *((f"no-token-{name}", name, FIRED, TIMER, None, 401) for name in (*FUNCTIONS, "deadletter")),
        ("stranger-expire", "expire", FIRED, TIMER, STRANGER, 403),
        ("other-trigger-expire", "expire", FIRED, TIMER, TIMERS, 403),
        ("its-trigger-expire", "expire", FIRED, TIMER, EXPIRE, 204),
        ("other-trigger-enforce", "enforce", FIRED, TIMER, EXPIRE, 403),
    ],
    ids=lambda value: value if isinstance(value, str) and "." not in value else "",
)
def test_sender_is_admitted_only_with_its_own_account(
    name: str, to: str, type_: str, data: Any, account: str | None, status: int
) -> None:
    headers = {"Ce-Id": name, "Ce-Source": "/e2e", "Ce-Specversion": "1.0", "Ce-Type": type_}
    headers["Content-Type"] = "application/json"
    url, audience = (
        (broker_url(), broker_audience())
        if to == "broker"
        else (f"http://{to}.{installation.NAMESPACE}.svc.cluster.local/", installation.NAMESPACE)
    )
    if account:
        token = kubectl("-n", installation.NAMESPACE, "create", "token", account, f"--audience={audience}").strip()
        headers["Authorization"] = f"Bearer {token}"
    own = audience if account == STRANGER else ""
    assert post(f"forger-{name}", url, headers, json.dumps(data), audience=own) == status


# Deletions without a read


@pytest.fixture(scope="module")
def proving(guarded: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """overlays/production with proofs, and without the sources of Knative, which send none."""
    key = f"--from-literal=key={token_hex(32)}"
    kubectl("-n", installation.NAMESPACE, "create", "secret", "generic", "proof-key", key)
    folder = installation.overlay(
        tmp_path_factory.mktemp("proofs"),
        components=["proofs"],
        settings={"TTL_KINDS": "jobs,pods", **installation.durable_folder()},
        on="production",
    )
    kubectl("-n", installation.NAMESPACE, "delete", "apiserversources", "--all")
    installation.apply(folder)
    installation.wait_until_ready()
    wait("the end of the Pods without the key", lambda: not installation.ending_pods(), installation.READY_SECONDS)
    yield
    installation.uninstall(folder)


@pytest.mark.usefixtures("proving")
def test_doctor_finds_that_no_read_is_needed() -> None:
    report = installation.ttl("doctor", "-o", "json")
    (found,) = [one for one in json.loads(report.stdout) if one["check"] == "deletions without a read"]
    assert found["level"] == "ok", found


@pytest.mark.usefixtures("proving")
def test_job_is_deleted_on_time_by_one_call(witness: Witness) -> None:
    """Until then `expire` reads a Job that began before the proofs, if its timer is due late."""
    log = Path(os.environ["E2E_AUDIT_LOG"])
    with installation.without_ticks():
        for thing in make_jobs("warm", 3, "true", ttl="3s"):
            gone(witness, thing)
        since = len(log.read_text().splitlines())
        for thing in make_jobs("proven", 5, "true", ttl="5s"):
            gone(witness, thing)
    calls = asked(log, installation=installation.NAMESPACE, since=since)["expire"]
    assert calls["delete", "batch", "jobs"] == {200}
    assert ("get", "batch", "jobs") not in calls
