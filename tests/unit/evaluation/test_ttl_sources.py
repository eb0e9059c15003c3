"""The objects that set inherited TTLs: read once for all callers, for a moment, and only if they matter."""

import asyncio

import pytest

from shared.core.decision.decide import Expire, Reason, Wait
from shared.core.kinds.rule import Catalogue
from shared.core.values.objects import ref_of
from shared.errors import ForbiddenError, PermanentError, TryLaterError
from shared.evaluation import ttl_sources as module
from shared.evaluation.evaluator import Evaluator
from shared.evaluation.ttl_sources import TtlSources, find_among
from shared.ports import Snapshot
from tests.builders import JOB, NOW, TRAINJOB, ago, annotated, having, job, later, not_none, runtime, trainjob
from tests.fakes import FakeCluster, FakeTelemetry
from tests.unit.core.ttl.test_precedence import rules

pytestmark = pytest.mark.anyio

DONE = trainjob(complete=ago(60))
REF = "spec.runtimeRef"


class Bench:
    """An evaluator over a fake API server, with a policy that would delete each TrainJob."""

    def __init__(self):
        self.cluster, self.telemetry = FakeCluster(), FakeTelemetry()
        self.policy = rules(match={"kinds": ["trainjobs"]}, ttl="1s")
        self.evaluator = Evaluator(
            self.cluster, Catalogue((JOB, TRAINJOB)), lambda: self.policy, telemetry=self.telemetry
        )

    async def decide(self, obj=DONE):
        return await self.evaluator.decide(Snapshot(obj, NOW), TRAINJOB)

    @property
    def reads(self):
        return [call.what for call in self.cluster.calls if call.verb == "get"]


@pytest.fixture
def bench():
    return Bench()


async def test_ttl_is_inherited_from_the_runtime_of_the_cluster(bench):
    bench.cluster.put(runtime(90))

    decision = await bench.decide()

    assert isinstance(decision, Wait)
    assert (decision.until, not_none(decision.facts.ttl).origin) == (later(30), "inherited")


async def test_ttl_is_inherited_from_the_runtime_of_the_same_namespace_alone(bench):
    obj = having(DONE, REF, {"name": "mine", "kind": "TrainingRuntime"})
    bench.cluster.put(runtime(90, name="mine", namespace="ci"))

    assert (await bench.decide(obj)).reason is Reason.INVALID_TTL
    bench.evaluator.ttl_sources = TtlSources(bench.cluster)
    bench.cluster.put(runtime(90, name="mine", namespace="ml"))
    assert isinstance(await bench.decide(obj), Wait)


async def test_runtime_without_a_ttl_leaves_it_to_the_policy(bench):
    bench.cluster.put(runtime())

    assert isinstance(decision := await bench.decide(), Expire)
    assert decision.facts.policy_rule is bench.policy.rules[0]


@pytest.mark.parametrize(
    "obj",
    [
        trainjob(conditions=[]),
        annotated(DONE, ttl="1s"),
        having(DONE, "spec.ttlSecondsAfterFinished", 0),
        annotated(DONE, hold="audit"),
    ],
    ids=["unfinished", "annotation", "own field", "held"],
)
async def test_runtime_that_does_not_matter_is_not_read(bench, obj):
    await bench.decide(obj)

    assert bench.reads == []


@pytest.mark.parametrize(
    ("ref", "problem"),
    [
        (None, "ClusterTrainingRuntime torch-distributed does not exist"),
        ({"name": "x", "kind": "Slurm", "apiGroup": "x.io"}, "got Slurm x of group 'x.io'"),
        ({"kind": "TrainingRuntime"}, "got TrainingRuntime without a name of group 'trainer.kubeflow.org'"),
    ],
    ids=["missing", "unknown kind", "without a name"],
)
async def test_reference_that_leads_nowhere_keeps_the_object_with_a_problem(bench, ref, problem):
    decision = await bench.decide(having(DONE, REF, ref) if ref else DONE)

    assert decision.reason is Reason.INVALID_TTL
    assert decision.facts.problem.startswith(f"{REF}: ")
    assert decision.facts.problem.endswith(problem)


async def test_runtime_that_may_not_be_read_keeps_the_object_and_is_reported_once(bench):
    bench.cluster.fail("get", ForbiddenError("no right"), on="torch-distributed")

    for name in ("a", "b"):
        decision = await bench.decide(having(DONE, "metadata.name", name))
        assert (decision.reason, decision.facts.problem) == (Reason.INHERITED_UNREAD, "no right")
    assert [text for text, _ in bench.telemetry.problems] == ["an inherited TTL cannot be read: objects are kept"]


async def test_runtime_of_a_kind_that_is_not_served_keeps_the_object(bench):
    bench.cluster.serve_only(TRAINJOB)

    assert (await bench.decide()).reason is Reason.INHERITED_UNREAD


async def test_busy_server_is_asked_again(bench):
    bench.cluster.fail("get", TryLaterError("busy"))

    with pytest.raises(TryLaterError):
        await bench.decide()


async def test_one_read_serves_all_callers_for_a_moment(bench, monkeypatch):
    bench.cluster.put(runtime(90))

    await asyncio.gather(*(bench.decide(having(DONE, "metadata.uid", str(number))) for number in range(5)))
    assert bench.reads == ["torch-distributed"]

    monkeypatch.setattr(module, "INHERITED_AGE_SECONDS_MAX", 0.0)
    bench.cluster.put(runtime(120))
    assert (await bench.decide()).until == later(60)


async def test_cache_is_cleared_when_it_is_full(bench, monkeypatch):
    monkeypatch.setattr(module, "SOURCES_MAX", 2)
    for name in ("a", "b", "c", "a"):
        bench.cluster.put(runtime(90, name=name))
        await bench.decide(having(DONE, REF, {"name": name}))

    assert bench.reads == ["a", "b", "c", "a"]


async def test_object_without_a_reference_is_refused():
    with pytest.raises(PermanentError):
        await TtlSources(FakeCluster()).get(job(), JOB)


async def test_source_is_found_among_the_objects_of_a_file():
    other, found = runtime(1, name="other"), runtime(90)

    fact = await find_among([job(), other, found], DONE, TRAINJOB)

    assert fact.source.is_named(ref_of(found))
    assert (
        not_none(fact.ttl).source
        == "spec.runPolicy.ttlSecondsAfterFinished of ClusterTrainingRuntime torch-distributed"
    )
    with pytest.raises(PermanentError, match="is not in this file"):
        await find_among([job(), other], DONE, TRAINJOB)
