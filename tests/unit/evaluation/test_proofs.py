"""Proofs: which decisions are signed, and when an object is deleted without reading it."""

from dataclasses import replace

import pytest

from shared.core.decision.reasons import Reason
from shared.core.kinds.rule import Catalogue
from shared.core.policy.policy import NO_POLICY, Policy
from shared.core.values.objects import ref_of
from shared.errors import PermanentError
from shared.evaluation.evaluator import Evaluator
from shared.evaluation.proofs import Proofs
from shared.messages import ObjectDeleted, Proof, Purpose, Timer, TimersSet
from shared.usecases.enforce import ENFORCEMENT
from shared.usecases.expire import DELETION, WARNING
from shared.usecases.handler import Handler
from tests.archives import archiving
from tests.builders import (
    JOB,
    POD,
    TRAINJOB,
    ago,
    annotated,
    having,
    job,
    later,
    namespace,
    not_none,
    owned_by,
    runtime,
    trainjob,
)
from tests.fakes import FakeClock, FakeCluster, FakeTelemetry

pytestmark = pytest.mark.anyio

KINDS = Catalogue((JOB, POD, TRAINJOB))
WAITS = job(complete=ago(0), ttl=30)
"""Due in 30 seconds."""

KEY = b"k" * 32


class Bench:
    """An `expire` with a key, and all that it can be given."""

    def __init__(self, policy=None):
        self.clock, self.telemetry = FakeClock(), FakeTelemetry()
        self.cluster = FakeCluster(self.clock)
        self.policy = policy or NO_POLICY
        self.guarded = True
        self.authenticated = True
        self.key = KEY
        self.rules = KINDS

    def expiry(self):
        """A new process: nothing is cached."""
        policy = self.policy
        evaluator = Evaluator(self.cluster, self.rules, lambda: policy)

        async def is_guarded(_rule):
            return self.guarded

        proofs = Proofs(self.key, evaluator, self.cluster, self.authenticated, is_guarded)
        return Handler(
            DELETION, self.cluster, self.rules, evaluator, self.clock, self.telemetry, dry_run=False, proofs=proofs
        )

    async def timer(self, obj=WAITS):
        """The timer that `expire` answers with before the object is due."""
        ref = ref_of(self.cluster.put(obj))
        answer = await self.expiry().handle(Timer(ref=ref, purpose=Purpose.EXPIRE, due_at=self.clock.now()))
        assert isinstance(answer, TimersSet)
        (timer,) = answer.timers
        return timer

    async def fire(self, timer, seconds=31.0):
        """Fire a timer after a time in a new process; return the verbs of the requests about its object."""
        self.clock.advance(seconds)
        self.cluster.calls.clear()
        self.answer = await self.expiry().handle(timer)
        return [call.verb for call in self.cluster.calls if call.verb != "version"]


@pytest.fixture
def bench():
    return Bench()


def policy_of(*rules):
    return Policy.model_validate({"rules": list(rules)}).of_kinds(KINDS).with_digest("0123456789ab")


PLAIN = policy_of({"name": "jobs", "match": {"kinds": ["jobs"]}, "ttl": "30s"})


async def test_expire_deletes_a_proven_object_without_reading_it(bench):
    timer = await bench.timer()

    assert await bench.fire(timer) == ["delete"]

    read = Bench()
    await read.timer()
    assert await read.fire(timer.model_copy(update={"proof": None})) == ["get", "delete"]
    assert bench.answer == read.answer
    assert isinstance(bench.answer, ObjectDeleted)


@pytest.mark.parametrize("procedure", [ENFORCEMENT, WARNING])
async def test_proof_of_a_deletion_is_none_for_another_purpose(bench, procedure):
    timer = (await bench.timer()).model_copy(update={"purpose": procedure.purpose})
    bench.clock.advance(31.0)
    bench.cluster.calls.clear()

    assert not isinstance(await replace(bench.expiry(), procedure=procedure).handle(timer), ObjectDeleted)
    assert "get" in [call.verb for call in bench.cluster.calls]


async def test_proof_is_small(bench):
    proof = not_none((await bench.timer()).proof)

    assert len(proof.dump()) < 300


async def test_sweep_proves_the_timers_that_it_sets(bench):
    snapshot = not_none(await bench.cluster.get(JOB, ref_of(bench.cluster.put(WAITS))))

    answer = await bench.expiry().handle_listed(JOB, snapshot, missed_before=ago(600))

    assert isinstance(answer, TimersSet)
    assert await bench.fire(answer.timers[0]) == ["delete"]


async def test_changed_object_is_read_again_and_decided_afresh(bench):
    timer = await bench.timer()
    bench.cluster.write(WAITS["metadata"]["name"], "metadata.annotations", {"ttlafterfinished.dev/hold": "mine"})

    verbs = await bench.fire(timer)

    assert verbs[:3] == ["delete", "get", "get"]  # the first GET says what the 409 means
    assert bench.cluster.deleted == []
    assert bench.answer is None


async def test_changed_object_that_is_still_due_is_deleted_after_a_read(bench):
    timer = await bench.timer()
    bench.cluster.write(WAITS["metadata"]["name"])

    assert await bench.fire(timer) == ["delete", "get", "get", "delete"]
    assert isinstance(bench.answer, ObjectDeleted)


# The conditions, each alone


async def test_object_is_read_if_the_process_does_not_verify_its_callers(bench):
    timer = await bench.timer()
    bench.authenticated = False

    assert await bench.fire(timer) == ["get", "delete"]


async def test_object_is_read_if_the_delete_guard_is_not_in_force(bench):
    timer = await bench.timer()
    bench.guarded = False

    assert await bench.fire(timer) == ["get", "delete"]


async def test_object_is_read_without_a_proof(bench):
    timer = (await bench.timer()).model_copy(update={"proof": None})

    assert await bench.fire(timer) == ["get", "delete"]


async def test_object_is_read_if_an_aggregated_server_serves_its_group(bench):
    timer = await bench.timer(trainjob(complete=ago(0), ttl="30s"))
    assert timer.proof is not None
    bench.cluster.aggregated_groups.add(TRAINJOB.group)

    assert (await bench.fire(timer))[0] == "get"
    assert bench.cluster.deleted == []


async def test_object_is_read_if_apiservices_may_not_be_listed(bench):
    timer = await bench.timer(trainjob(complete=ago(0), ttl="30s"))
    bench.cluster.fail("list-apiservices", PermanentError("forbidden"))

    assert (await bench.fire(timer))[0] == "get"


@pytest.mark.parametrize(
    "change",
    [
        {"ttlafterfinished.dev/exempt": "true"},
        {"ttlafterfinished.dev/max-ttl": "1h"},
        {"ttlafterfinished.dev/archive": "main"},
        {"example.com/team": "a"},
    ],
)
async def test_object_is_read_if_its_namespace_changed(bench, change):
    timer = await bench.timer()
    bench.cluster.put(having(namespace(WAITS["metadata"]["namespace"]), "metadata.annotations", change))

    assert (await bench.fire(timer))[0] == "get"


async def test_object_is_read_if_the_policy_changed(bench):
    bench.policy = PLAIN
    timer = await bench.timer()
    bench.policy = PLAIN.with_digest("ba9876543210")

    assert await bench.fire(timer) == ["get", "delete"]


async def test_object_is_read_if_its_children_may_have_to_be_archived(bench):
    bench.policy = archiving(match={"kinds": ["pods"]}).with_digest("0123456789ab")
    assert (await bench.timer()).proof is None

    bench.policy = PLAIN
    timer = await bench.timer()
    bench.policy = archiving(match={"kinds": ["pods"]}).with_digest(PLAIN.digest)  # signed by an older release
    assert (await bench.fire(timer))[0] == "get"


async def test_object_is_read_if_the_kind_rule_changed(bench):
    timer = await bench.timer()
    bench.rules = Catalogue((JOB.model_copy(update={"short_names": ("another",)}), POD, TRAINJOB))

    assert await bench.fire(timer) == ["get", "delete"]


async def test_object_is_read_if_another_release_signed(bench, monkeypatch):
    timer = await bench.timer()
    monkeypatch.setattr("shared.evaluation.proofs.__version__", "0.0.0")

    assert await bench.fire(timer) == ["get", "delete"]


async def test_object_is_read_if_another_key_signed(bench):
    timer = await bench.timer()
    bench.key = b"x" * 32

    assert await bench.fire(timer) == ["get", "delete"]


# Forged timers


def forged(timer, **update):
    return timer.model_copy(update={"proof": not_none(timer.proof).model_copy(update=update)})


@pytest.mark.parametrize(
    "update",
    [
        {"due_at": ago(60)},
        {"resource_version": "7"},
        {"signature": "0" * 64},
        {"signature": ""},
        {"finished_at": ago(900)},
        {"ttl_from": "nothing"},
        {"generate_name": "other-"},
    ],
    ids=lambda update: next(iter(update)),
)
async def test_forged_proof_only_reads(bench, update):
    timer = forged(await bench.timer(), **update)

    assert await bench.fire(timer, seconds=0.0) == ["get"]
    assert await bench.fire(timer) == ["get", "delete"]


async def test_early_timer_with_a_true_proof_deletes_nothing(bench):
    timer = (await bench.timer()).model_copy(update={"due_at": ago(600)})

    for seconds in (0.0, 15.0, 14.0):
        assert await bench.fire(timer, seconds) == ["get"]
    assert bench.cluster.deleted == []


@pytest.mark.parametrize("field", ["name", "namespace", "kind", "uid"])
async def test_proof_of_another_object_only_reads(bench, field):
    timer = await bench.timer()
    other = {"name": "other", "namespace": "elsewhere", "kind": "Pod", "uid": "other"}[field]
    version = {"api_version": "v1"} if field == "kind" else {}
    moved = timer.model_copy(update={"ref": replace(timer.ref, **{field: other}, **version)})

    assert await bench.fire(moved) == ["get"]
    assert bench.cluster.deleted == []


@pytest.mark.parametrize("proof", [{}, 7, "x", {"signature": "z"}, {"resourceVersion": "", "dueAt": "x"}, []])
def test_timer_with_an_unreadable_proof_is_a_timer_without_one(proof):
    data = {"ref": {"apiVersion": "v1", "kind": "Pod", "namespace": "a", "name": "b", "uid": "c"}}

    timer = Timer.model_validate({**data, "purpose": "expire", "dueAt": "2026-01-01T00:00:00Z", "proof": proof})

    assert timer.proof is None


# What is not signed


def ranked(**fields):
    return policy_of({"name": "jobs", "match": {"kinds": ["jobs"]}, "ttl": "30s", **fields})


@pytest.mark.parametrize(
    ("obj", "policy"),
    [
        (having(WAITS, "metadata.finalizers", ["example.com/wait"]), PLAIN),
        (WAITS, ranked(keepLast=1)),
        (WAITS, ranked(maxCount=5)),
        (WAITS, ranked(whenQuotaAbove="90%")),
        (job(complete=ago(0)), ranked(propagation="Foreground")),
        (job(complete=ago(0)), ranked(audit=True)),
        (WAITS, Policy.model_validate({"rules": [{"name": "a", "match": {"kinds": ["jobs"]}, "ttl": "1h"}]})),
    ],
    ids=["finalizer", "keepLast", "maxCount", "quota", "propagation", "audit", "policy without a digest"],
)
async def test_decision_that_rests_on_more_than_the_object_is_not_signed(obj, policy):
    bench = Bench(policy)
    for number in range(2):
        bench.cluster.put(job(name=f"newer-{number}", uid=f"newer-{number}", complete=later(1 + number), ttl=30))
    snapshot = not_none(await bench.cluster.get(JOB, ref_of(bench.cluster.put(obj))))

    answer = await bench.expiry().handle_listed(JOB, snapshot, missed_before=ago(600))

    assert isinstance(answer, TimersSet)
    assert [timer.proof for timer in answer.timers] == [None]


async def test_decision_about_an_object_with_an_owner_is_not_signed(bench):
    timer = await bench.timer(owned_by(WAITS, "CronJob"))

    assert timer.proof is None


@pytest.mark.parametrize(
    "facts",
    [
        {"archiving": object()},
        {"archived": object()},
        {"problem": "cannot be read"},
        {"overridden": "spec.ttlSecondsAfterFinished"},
        {"moved_by": "the namespace's max-ttl"},
        {"unread": Reason.OVER_COUNT},
        {"early": Reason.OVER_QUOTA},
        {"due_at": None},
        {"ttl": None},
    ],
    ids=lambda facts: next(iter(facts)),
)
async def test_decision_with_further_facts_is_not_signed(bench, facts):
    expiry = bench.expiry()
    snapshot = not_none(await bench.cluster.get(JOB, ref_of(bench.cluster.put(WAITS))))
    evaluation = await expiry.evaluator.evaluate(snapshot, JOB)
    proofs = not_none(expiry.proofs)
    assert proofs.make(evaluation, JOB, snapshot.obj)

    decision = replace(evaluation.decision, facts=replace(evaluation.decision.facts, **facts))

    assert proofs.make(replace(evaluation, decision=decision), JOB, snapshot.obj) is None


@pytest.mark.parametrize("ttl", [None, 3600])
async def test_decision_that_rests_on_the_runtime_of_a_trainjob_is_not_signed(ttl):
    """With a TTL of the runtime it is inherited; without one, the policy sets it as long as the runtime sets none."""
    bench = Bench(policy_of({"name": "t", "match": {"kinds": ["trainjobs"]}, "ttl": "30s"}))
    bench.cluster.put(runtime(ttl))

    timer = await bench.timer(trainjob(complete=ago(0)))

    assert timer.proof is None


async def test_object_that_waits_for_an_instant_of_its_own_is_proven(bench):
    timer = await bench.timer(annotated(job(complete=ago(60)), **{"expire-at": later(30).isoformat()}))

    assert isinstance(timer.proof, Proof)
    assert await bench.fire(timer, 29.0) == ["get"]
    assert await bench.fire(timer, 2.0) == ["delete"]
