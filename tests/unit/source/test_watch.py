"""The watches on kinds: which changes cause events, when a watch requests a sweep, and what ends a watch.

The tests run in virtual time: an hour takes a moment.
"""

import asyncio
import itertools
import json
from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from shared.adapters.config.settings import Settings
from shared.adapters.events.cloudevents import EVENT_BYTES_MAX, parse_proof
from shared.adapters.kubernetes.bodies import GoneError
from shared.adapters.kubernetes.cluster import Memory, WatchEvent
from shared.bootstrap.build import build
from shared.bootstrap.config import ProcessConfig
from shared.core.kinds.rule import Catalogue
from shared.core.values.objects import format_instant
from shared.errors import AbsentKindError, ForbiddenError, PermanentError, TryLaterError
from shared.ports import PASSED_OVER, Page, Snapshot
from shared.source.watches import (
    REFUSED_SECONDS_MAX,
    RESTART_SECONDS,
    SERVED_POLL_SECONDS,
    SWEEP_PAUSE_SECONDS,
    KindWatches,
)
from tests.archives import archiving
from tests.builders import (
    JOB,
    NOW,
    POD,
    TRAINJOB,
    ago,
    annotated,
    ended,
    having,
    job,
    later,
    namespace,
    not_none,
    owned_by,
    pod,
)
from tests.fakes import FakeClock, FakeTelemetry
from tests.simulation.virtualloop import VirtualLoop

KINDS = Catalogue((JOB, POD, TRAINJOB))
MINUTE, HOUR = 60.0, 3_600.0


class Server:
    """An API server that answers LIST and WATCH of each kind as configured: with its objects, or with an error.

    Attributes:
        lists: What the next LISTs of a plural raise; a version where they do not.
        served_plurals: What looks at discovery find, the last one again and again: plurals, or an error; None is all.
        watches: What the next WATCHes of a plural bring: changes, pauses in seconds, an error; at None they wait.
        begun: The resourceVersion of each WATCH.
    """

    server = "https://10.96.0.1"
    memory = None

    def __init__(self):
        self.lists = {}
        self.watches = {}
        self.served_plurals = [None]
        self.begun = []
        self.looks = []
        self.namespace = namespace()
        self._versions = itertools.count(100)

    async def served(self, rules):
        found = self.served_plurals.pop(0) if len(self.served_plurals) > 1 else self.served_plurals[0]
        if isinstance(found, Exception):
            raise found
        return tuple(rule for rule in rules if found is None or rule.plural in found)

    async def get(self, rule, ref):
        if isinstance(self.namespace, Exception):
            raise self.namespace
        return Snapshot(self.namespace, NOW)

    async def list_page(self, rule, *, namespace, limit):
        self.looks.append((rule.plural, asyncio.get_running_loop().time()))
        if answers := self.lists.get(rule.plural):
            error = answers[0] if len(answers) == 1 else answers.pop(0)
            if error:
                raise error
        return Page([], NOW, "", str(next(self._versions)))

    async def watch(self, rule, version, *, namespace):
        self.begun.append((rule.plural, version))
        for change in self.watches[rule.plural].pop(0) if self.watches.get(rule.plural) else [None]:
            if isinstance(change, Exception):
                raise change
            if change is None:
                await asyncio.Event().wait()
            elif isinstance(change, float):
                await asyncio.sleep(change)
            else:
                yield change


class Broker:
    """Accepts events and messages, or fails as configured; an error in the list fails one attempt."""

    def __init__(self):
        self.events = []
        self.sweeps = []
        self.event_errors = []
        self.sweep_errors = []

    async def send(self, event):
        if self.event_errors and (error := self.event_errors.pop(0)):
            raise error
        self.events.append(event)

    async def publish(self, message):
        if self.sweep_errors and (error := self.sweep_errors.pop(0)):
            raise error
        self.sweeps.append((*message.kinds, asyncio.get_running_loop().time()))


class Bench:
    def __init__(self, kinds=KINDS):
        self.server: Any = Server()
        self.broker, self.telemetry, self.clock = Broker(), FakeTelemetry(), FakeClock()
        self.kinds = kinds
        self.refusal = None
        self.policies: Any = None
        self.settings = Settings()

    def run(self, seconds=MINUTE):
        """Watch for so long, or until no kind may be watched."""

        async def watch():
            config = ProcessConfig(
                settings=self.settings,
                kinds=self.kinds,
                catalogue=self.kinds,
                clock=self.clock,
                telemetry=self.telemetry,
                cluster=self.server,
                policies=self.policies,
            )
            evaluator = await build(config).evaluator()
            watches = KindWatches(config, self.server, evaluator, send=self.broker.send, publish=self.broker.publish)
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    self.refusal = await watches.run()

        with asyncio.Runner(loop_factory=lambda: VirtualLoop(1)) as runner:
            runner.run(watch())
        return self

    def problems(self):
        return [message for message, _ in self.telemetry.problems]


@pytest.fixture
def bench():
    return Bench(Catalogue((JOB,)))


def changed(obj, version="1042"):
    return WatchEvent("MODIFIED", having(obj, "metadata.resourceVersion", version))


DONE = job(complete=ago(10), ttl=60)


# Events


def test_finished_object_with_a_ttl_causes_the_event_of_an_apiserversource(bench):
    bench.server.watches["jobs"] = [[changed(DONE), None]]
    (event,) = bench.run().broker.events

    assert (event.type, event.source) == ("dev.knative.apiserver.resource.update", "https://10.96.0.1")
    assert event.subject == "/apis/batch/v1/namespaces/ci/jobs/build-42"
    assert event.extensions == {"kind": "Job", "apiversion": "batch/v1", "name": "build-42", "namespace": "ci"}
    assert json.loads(event.data) == changed(DONE).obj


def test_event_carries_the_proof_of_the_decision_if_there_is_a_key(bench):
    bench.settings = Settings(TTL_PROOF_KEY="k" * 32)
    bench.server.watches["jobs"] = [[changed(DONE), None]]
    (event,) = bench.run().broker.events

    proof = not_none(parse_proof(event))
    assert (proof.resource_version, proof.due_at) == ("1042", later(50))


def test_event_carries_no_proof_if_the_policy_has_archives(bench):
    """`expire` has to look at the children of the object, which this process does not read."""
    policy = archiving(match={"kinds": ["pods"]}).with_digest("0123456789ab")
    bench.policies = SimpleNamespace(policy=lambda: policy)
    bench.settings = Settings(TTL_PROOF_KEY="k" * 32)
    bench.server.watches["jobs"] = [[changed(DONE), None]]
    (event, *_) = bench.run().broker.events

    assert parse_proof(event) is None


def test_event_of_an_object_with_an_owner_carries_no_proof(bench):
    bench.settings = Settings(TTL_PROOF_KEY="k" * 32)
    bench.server.watches["jobs"] = [[changed(owned_by(DONE, "CronJob")), None]]
    (event,) = bench.run().broker.events

    assert parse_proof(event) is None


@pytest.mark.parametrize(
    ("spaces", "is_raw"),
    [pytest.param(1, True, id="within-the-limit"), pytest.param(EVENT_BYTES_MAX, False, id="beyond-the-limit")],
)
def test_event_has_the_json_of_the_api_server_within_the_limit_of_an_event(bench, spaces, is_raw):
    change = changed(DONE)
    raw = json.dumps(change.obj).encode() + b" " * spaces
    bench.server.memory = Memory()
    bench.server.watches["jobs"] = [[replace(change, raw=raw), None]]
    (event,) = bench.run().broker.events

    assert (event.data == raw) is is_raw
    assert json.loads(event.data) == change.obj
    assert bench.server.memory.get(DONE["metadata"]["uid"]) == event.data


@pytest.mark.parametrize(
    "obj",
    [
        pytest.param(job(ttl=60), id="unfinished"),
        pytest.param(job(complete=ago(10)), id="without-ttl"),
        pytest.param(annotated(DONE, hold="look at it"), id="held"),
        pytest.param(annotated(DONE, ttl="never"), id="never"),
    ],
)
def test_ignored_object_causes_no_event(bench, obj):
    bench.server.watches["jobs"] = [[changed(obj), None]]

    assert bench.run().broker.events == []


@pytest.mark.parametrize(
    ("obj", "is_sent"),
    [
        pytest.param(job(complete=ago(10)), True, id="finished-without-ttl"),
        pytest.param(DONE, True, id="finished-with-a-ttl"),
        pytest.param(job(ttl=60), False, id="unfinished"),
        pytest.param(annotated(DONE, archive="false", ttl="never"), False, id="opted-out"),
        pytest.param(annotated(DONE, hold="look at it"), False, id="held"),
    ],
)
def test_finished_object_that_has_to_be_archived_causes_an_event(bench, obj, is_sent):
    bench.policies = SimpleNamespace(policy=archiving)
    bench.server.watches["jobs"] = [[changed(obj), None]]

    assert bool(bench.run().broker.events) is is_sent


def test_invalid_archive_is_reported(bench):
    bench.policies = SimpleNamespace(policy=archiving)
    bench.server.watches["jobs"] = [[changed(annotated(DONE, archive="elsewhere")), None]]

    assert "invalid-archive" in bench.run().problems()


def test_deletion_causes_no_event(bench):
    bench.server.watches["jobs"] = [[WatchEvent("DELETED", DONE), None]]

    assert bench.run().broker.events == []


def test_invalid_ttl_is_reported(bench):
    bench.server.watches["jobs"] = [[changed(annotated(DONE, ttl="5 minutes")), None]]

    assert bench.run().problems() == ["invalid-ttl"]
    assert bench.broker.events == []


def test_unreadable_object_is_reported_by_name_and_the_watch_continues(bench):
    metadata = {"name": "deep", "namespace": "ci", "uid": "u-1", "resourceVersion": "1050"}
    deep = WatchEvent(
        "UNREADABLE", {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata}, "nested too deeply"
    )
    bench.server.memory = Memory()
    bench.server.memory.remember("u-1", b"an older version")
    bench.server.watches["jobs"] = [[deep, changed(DONE)], [deep], [None]]

    assert len(bench.run().broker.events) == 1
    fields = {"object": "Job ci/deep", "uid": "u-1", "error": "nested too deeply"}
    assert bench.telemetry.problems == [(PASSED_OVER, fields)] * 2
    assert bench.server.begun[-1] == ("jobs", "1050")
    assert bench.server.memory.get("u-1") is None


def test_two_watches_give_a_change_the_same_event_id():
    ids = []
    for _ in range(2):
        bench = Bench()
        other = pod(containers=(ended(at=ago(5)),), ttl="1m")
        bench.server.watches = {
            "jobs": [[changed(DONE, "7"), changed(DONE, "8"), None]],
            "pods": [[changed(other), None]],
        }
        ids.append({event.id for event in bench.run().broker.events})

    assert ids[0] == ids[1]
    assert f"{DONE['metadata']['uid']}/8/update" in ids[0]


# Sweeps


def test_watch_requests_a_sweep_when_it_starts():
    bench = Bench().run(HOUR)

    assert sorted(bench.broker.sweeps) == [
        ("batch/v1/Job", 0.0),
        ("trainer.kubeflow.org/v1alpha1/TrainJob", 0.0),
        ("v1/Pod", 0.0),
    ]


def test_ended_watch_resumes_without_a_sweep(bench):
    bench.server.watches["jobs"] = [[changed(DONE, "120")], [TryLaterError("the connection broke")], [None]]
    bench.run(HOUR)

    assert bench.server.begun == [("jobs", "100"), ("jobs", "120"), ("jobs", "120")]
    assert len(bench.broker.sweeps) == 1


def test_watch_with_an_expired_version_restarts_and_requests_a_sweep(bench):
    bench.server.watches["jobs"] = [[1.0, GoneError("too old")], [None]]
    bench.run(HOUR)

    assert bench.server.begun == [("jobs", "100"), ("jobs", "101")]
    assert [at for _, at in bench.broker.sweeps] == [0.0, SWEEP_PAUSE_SECONDS]
    assert bench.problems() == []


def test_watch_with_repeatedly_expired_versions_is_reported(bench):
    bench.server.watches["jobs"] = [[GoneError("too old")] for _ in range(1_000)]
    bench.run(HOUR)

    assert bench.problems() == ["watch interrupted"]


def test_sweep_request_is_repeated_after_a_transient_error(bench):
    bench.broker.sweep_errors = [TryLaterError("503")] * 2
    bench.run(HOUR)

    assert [at for _, at in bench.broker.sweeps] == [2 * SWEEP_PAUSE_SECONDS]
    assert bench.problems() == ["sweep not started"] * 2


def test_sweep_request_is_reported_once_after_a_permanent_error(bench):
    bench.broker.sweep_errors = [PermanentError("403")]
    bench.run(HOUR)

    assert bench.broker.sweeps == []
    assert bench.problems() == ["sweep not started"]


def test_lost_event_requests_a_sweep(bench):
    bench.server.watches["jobs"] = [[1.0, changed(DONE), None]]
    bench.broker.event_errors = [TryLaterError("503")]
    bench.run(HOUR)

    assert bench.problems() == ["event dropped; the next sweep handles its object"]
    assert len(bench.broker.sweeps) == 2


def test_permanently_refused_event_is_reported_without_a_sweep(bench):
    bench.server.watches["jobs"] = [[1.0, changed(DONE), None]]
    bench.broker.event_errors = [PermanentError("400")]
    bench.run(HOUR)

    assert bench.problems() == ["event dropped; the next sweep handles its object"]
    assert len(bench.broker.sweeps) == 1


def test_broker_that_loses_all_events_causes_few_sweeps(bench):
    changes = [changed(DONE, str(number)) for number in range(200, 300)]
    bench.server.watches["jobs"] = [[change] for change in changes]
    bench.broker.event_errors = [TryLaterError("503")] * len(changes)
    bench.run(5 * MINUTE)

    assert 1 < len(bench.broker.sweeps) <= 1 + 5 * MINUTE / SWEEP_PAUSE_SECONDS


# Kinds are independent


def test_kind_installed_later_is_watched_and_swept():
    bench = Bench()
    bench.server.served_plurals = [("jobs", "pods"), ("jobs", "pods"), None]
    bench.server.watches["jobs"] = [[changed(DONE), None]]
    bench.run(HOUR)

    assert ("trainer.kubeflow.org/v1alpha1/TrainJob", 2 * SERVED_POLL_SECONDS) in bench.broker.sweeps
    assert {plural for plural, at in bench.server.looks if at < 2 * SERVED_POLL_SECONDS} == {"jobs", "pods"}
    assert len(bench.broker.sweeps) == 3
    assert len(bench.broker.events) == 1
    assert bench.problems() == []


def test_kind_with_a_removed_crd_is_watched_again_once_it_returns(caplog):
    caplog.set_level("INFO", logger="ttl")
    bench = Bench()
    without = ("jobs", "pods")
    bench.server.served_plurals = [None, without, without, without, None]
    bench.server.watches["trainjobs"] = [[1.0, AbsentKindError("gone")]]
    bench.server.lists["trainjobs"] = [None, AbsentKindError("gone"), AbsentKindError("gone"), None]
    bench.run(HOUR)

    trainjobs = "trainer.kubeflow.org/v1alpha1/TrainJob"
    assert [at for kind, at in bench.broker.sweeps if kind == trainjobs] == [0.0, 4 * SERVED_POLL_SECONDS]
    assert len(bench.broker.sweeps) == 4, "the others go on"
    assert bench.problems() == []
    logged = [(record.message, record.fields) for record in caplog.records]
    kind = {"kind": "trainjobs.trainer.kubeflow.org"}
    assert logged == [("kind is no longer served", kind), ("kind is now served", kind)]


def test_kind_that_is_reinstalled_between_two_polls_is_swept_again(bench):
    bench.server.watches["jobs"] = [[AbsentKindError("gone")], [None]]
    bench.run(HOUR)

    assert bench.server.begun == [("jobs", "100"), ("jobs", "101")]
    assert [at for _, at in bench.broker.sweeps] == [0.0, SWEEP_PAUSE_SECONDS]


def test_kind_served_under_another_version_gets_a_new_watch(bench, caplog):
    caplog.set_level("INFO", logger="ttl")
    newer = JOB.model_copy(update={"api_versions": ("batch/v2", "batch/v1")})
    answers = [(JOB,), (JOB,), (newer,)]

    async def served(_rules):
        return answers.pop(0) if len(answers) > 1 else answers[0]

    bench.server.served = served
    bench.run(HOUR)

    assert bench.broker.sweeps == [("batch/v1/Job", 0.0), ("batch/v2/Job", 2 * SERVED_POLL_SECONDS)]
    assert caplog.records == []


def test_discovery_is_repeated_until_it_succeeds(bench):
    bench.server.served_plurals = [TryLaterError("away")] * 10 + [None]
    bench.run(HOUR)

    assert bench.problems() == ["could not read which kinds are served"]
    assert len(bench.broker.sweeps) == 1


def test_ended_watch_does_not_count_as_forbidden():
    """Pods are refused, then their kind is gone: the other kinds are all that is left, and none of them is refused."""
    bench = Bench(Catalogue((JOB, POD)))
    bench.server.lists["pods"] = [ForbiddenError("pods is forbidden")]
    bench.server.served_plurals = [None, ("jobs",)]
    bench.run(HOUR)

    assert bench.refusal is None


def test_forbidden_kind_is_reported_and_the_others_are_watched():
    bench = Bench()
    bench.server.lists["pods"] = [ForbiddenError("pods is forbidden")]
    bench.server.watches["jobs"] = [[changed(DONE), None]]
    bench.run(5.0)

    assert bench.problems() == ["kind not watched: a right is missing"]
    assert len(bench.broker.events) == 1
    assert bench.refusal is None


def test_right_granted_later_starts_the_watch():
    bench = Bench()
    bench.server.lists["pods"] = [ForbiddenError("not yet"), None]
    bench.run(MINUTE)

    assert [kind for kind, at in bench.broker.sweeps if at > 0] == ["v1/Pod"]


def test_forbidden_kind_is_retried_with_growing_pauses():
    bench = Bench()
    bench.server.lists["pods"] = [ForbiddenError("never")]
    bench.run(24 * HOUR)
    looks = [at for plural, at in bench.server.looks if plural == "pods"]

    assert looks[1] - looks[0] == pytest.approx(10, abs=0.1)
    assert looks[-1] - looks[-2] == pytest.approx(REFUSED_SECONDS_MAX, abs=0.1)


def test_watches_end_if_every_kind_is_forbidden():
    bench = Bench()
    for plural in ("jobs", "pods", "trainjobs"):
        bench.server.lists[plural] = [ForbiddenError(f"{plural} is forbidden")]
    bench.run(HOUR)

    assert isinstance(bench.refusal, ForbiddenError)
    assert len(bench.problems()) == 3


def test_kind_forbidden_once_does_not_count_after_it_is_allowed():
    """Jobs are refused and then granted; later Pods are refused: there is one kind left to watch."""
    bench = Bench(Catalogue((JOB, POD)))
    bench.server.lists = {"jobs": [ForbiddenError("not yet"), None], "pods": [None, ForbiddenError("no more")]}
    bench.server.watches["pods"] = [[MINUTE, GoneError("too old")]]
    bench.run(5 * MINUTE)

    assert {fields["kind"] for _, fields in bench.telemetry.problems} == {"jobs.batch", "pods"}
    assert bench.refusal is None


def test_kinds_with_one_plural_in_two_groups_are_distinct():
    volcano = JOB.model_copy(update={"api_version": "batch.volcano.sh/v1alpha1"})
    bench = Bench(Catalogue((JOB, volcano, POD)))
    bench.server.lists["jobs"] = [ForbiddenError("jobs is forbidden")]
    bench.run(HOUR)
    assert bench.refusal is None

    bench = Bench(Catalogue((JOB, volcano)))
    bench.server.lists["jobs"] = [ForbiddenError("jobs is forbidden")]
    bench.run(HOUR)
    assert isinstance(bench.refusal, ForbiddenError)


def test_exception_in_one_watch_does_not_end_the_others(caplog):
    bench = Bench()
    bench.server.watches = {
        "pods": [
            [ZeroDivisionError("a fault of ours")],
            [changed(pod(containers=(ended(at=ago(5)),), ttl="1m")), None],
        ],
        "jobs": [[changed(DONE), None]],
    }
    bench.run(2 * RESTART_SECONDS)

    assert sorted(event.extensions["kind"] for event in bench.broker.events) == ["Job", "Pod"]
    assert "a fault of ours" in caplog.text


# The namespace


WITHOUT_TTL = changed(pod(containers=(ended(at=ago(60)),)))


def test_object_without_a_ttl_causes_no_event():
    bench = Bench()
    bench.server.watches["pods"] = [[WITHOUT_TTL, None]]

    assert bench.run().broker.events == []


def test_default_ttl_of_the_namespace_causes_an_event():
    bench = Bench()
    bench.server.namespace = namespace(default_ttl="1h")
    bench.server.watches["pods"] = [[WITHOUT_TTL, None]]

    assert len(bench.run().broker.events) == 1


@pytest.mark.parametrize("error", [TryLaterError("busy"), ForbiddenError("no")])
def test_unreadable_namespace_causes_an_event(error):
    bench = Bench()
    bench.server.namespace = error
    bench.server.watches["pods"] = [[WITHOUT_TTL, None]]

    assert len(bench.run().broker.events) == 1


def test_exempt_namespace_causes_no_event():
    bench = Bench()
    bench.server.namespace = namespace(exempt="true")
    bench.server.watches["jobs"] = [[changed(job(complete=ago(60), ttl=1)), None]]

    assert bench.run().broker.events == []


# Deadlines


RUNNING = annotated(having(job(), "status.startTime", "2026-03-14T15:00:00Z"), active_deadline="1h")


@pytest.mark.parametrize(
    ("obj", "count"),
    [
        pytest.param(RUNNING, 1, id="waits"),
        pytest.param(annotated(RUNNING, active_deadline="1s"), 1, id="over"),
        pytest.param(annotated(RUNNING, active_deadline="soon"), 1, id="malformed"),
        pytest.param(annotated(RUNNING, deadline_exceeded="2026-03-14T15:00:01Z"), 1, id="undone"),
        pytest.param(annotated(RUNNING, active_deadline="never"), 0, id="never"),
        pytest.param(annotated(RUNNING, hold="look at it"), 0, id="held"),
        pytest.param(having(RUNNING, "spec.suspend", True), 0, id="suspended"),
        pytest.param(having(RUNNING, "spec.activeDeadlineSeconds", 60), 0, id="native"),
    ],
)
def test_running_object_causes_an_event_if_its_deadline_matters(bench, obj, count):
    bench.server.watches["jobs"] = [[changed(obj), None]]

    assert len(bench.run().broker.events) == count


@pytest.mark.parametrize(
    ("settings", "count"),
    [({"default_active_deadline": "1h"}, 1), ({}, 0), ({"default_active_deadline": "1h", "exempt": "true"}, 0)],
)
def test_default_of_the_namespace_makes_the_deadline_of_a_new_object_matter(bench, settings, count):
    bench.server.namespace = namespace(**settings)
    bench.server.watches["jobs"] = [[changed(having(job(), "status.startTime", format_instant(ago(1)))), None]]

    assert len(bench.run().broker.events) == count


def test_finished_object_is_watched_for_its_ttl_and_not_for_its_deadline(bench):
    done = annotated(job(complete=ago(10)), active_deadline="1s")
    bench.server.watches["jobs"] = [[changed(done), changed(annotated(done, ttl="1m"), "7"), None]]

    assert [json.loads(event.data)["metadata"]["resourceVersion"] for event in bench.run().broker.events] == ["7"]
