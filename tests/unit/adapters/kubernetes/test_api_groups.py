"""Kinds of aggregated API servers, which may ignore the preconditions of a DELETE."""

import pytest

from shared.adapters.kubernetes.api_groups import AGGREGATION_SECONDS, Aggregation
from shared.core.decision.decide import Expire, Ignore, Reason
from shared.core.kinds.rule import Catalogue
from shared.core.values.objects import ref_of
from shared.doctor.findings import Level
from shared.doctor.server import check_kinds
from shared.errors import AbsentKindError, ForbiddenError, PermanentError, TryLaterError
from shared.evaluation.evaluator import Evaluator
from shared.installation.place import Place
from shared.messages import ObjectDeleted, Purpose, Timer
from shared.ports import Snapshot
from shared.usecases.expire import DELETION
from shared.usecases.handler import Handler
from tests.builders import JOB, NOW, POD, TRAINJOB, ago, annotated, job, kind_rules, trainjob
from tests.fakes import FakeClock, FakeCluster, FakeTelemetry

pytestmark = pytest.mark.anyio

KINDS = Catalogue((JOB, TRAINJOB))
DUE = annotated(trainjob(complete=ago(60)), ttl="30s")
HONOURED = TRAINJOB.model_copy(update={"preconditions": "honoured"})


@pytest.fixture
def cluster():
    return FakeCluster()


def services(*groups, kind="APIServiceList"):
    return {"kind": kind, "items": [{"spec": {"group": group, "service": {"name": "x"}}} for group in groups]}


class Asked:
    """An API server that answers, or refuses, and counts."""

    def __init__(self, *answers):
        self.answers, self.paths, self.now = list(answers), [], 0.0
        self.aggregation = Aggregation(self.ask, lambda: self.now)

    async def ask(self, path):
        self.paths.append(path)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


async def test_only_a_group_with_a_service_is_aggregated():
    local = {"spec": {"group": "trainer.kubeflow.org"}}
    asked = Asked({**services("metrics.k8s.io"), "items": [*services("metrics.k8s.io")["items"], local]})
    assert not await asked.aggregation.is_aggregated(TRAINJOB)
    assert await Asked(services("trainer.kubeflow.org")).aggregation.is_aggregated(TRAINJOB)


@pytest.mark.parametrize("rule", [JOB, POD])
async def test_built_in_group_needs_no_read(rule):
    asked = Asked(ForbiddenError("no"))
    assert not await asked.aggregation.is_aggregated(rule)
    assert asked.paths == []


async def test_answer_is_cached():
    asked = Asked(services(), services("trainer.kubeflow.org"))
    assert not await asked.aggregation.is_aggregated(TRAINJOB)
    asked.now = AGGREGATION_SECONDS - 1
    assert not await asked.aggregation.is_aggregated(TRAINJOB)
    asked.now = AGGREGATION_SECONDS
    assert await asked.aggregation.is_aggregated(TRAINJOB)
    assert len(asked.paths) == 2


async def test_server_without_aggregation_has_no_aggregated_group():
    assert not await Asked(AbsentKindError("404")).aggregation.is_aggregated(TRAINJOB)


@pytest.mark.parametrize(
    "answer", [ForbiddenError("apiservices is forbidden"), services(kind="Status"), "<html>", None]
)
async def test_unreadable_apiservices_raise_an_error(answer):
    asked = Asked(answer)
    for _ in range(2):
        with pytest.raises(PermanentError, match=r"whether API group trainer\.kubeflow\.org is aggregated"):
            await asked.aggregation.is_aggregated(TRAINJOB)
    assert len(asked.paths) == 1


async def test_busy_server_is_asked_again():
    asked = Asked(TryLaterError("429"), services())
    with pytest.raises(TryLaterError):
        await asked.aggregation.is_aggregated(TRAINJOB)
    assert not await asked.aggregation.is_aggregated(TRAINJOB)


# Decisions


async def decided(cluster, obj=DUE, rule=TRAINJOB):
    return await Evaluator(cluster, KINDS).decide(Snapshot(obj, NOW), rule)


async def test_due_object_of_an_aggregated_server_is_kept(cluster):
    cluster.aggregated_groups = {"trainer.kubeflow.org", "batch"}
    decision = await decided(cluster)
    assert (type(decision), decision.reason) == (Ignore, Reason.AGGREGATED_API)
    assert isinstance(await decided(cluster, rule=HONOURED), Expire)
    assert isinstance(await decided(cluster, job(complete=ago(60), ttl=30), JOB), Expire)


async def test_due_object_of_a_crd_expires(cluster):
    assert isinstance(await decided(cluster), Expire)
    assert len(cluster.apiservice_reads) == 1


async def test_object_kept_for_another_reason_needs_no_read(cluster):
    for obj in (trainjob(), trainjob(complete=ago(60)), annotated(DUE, hold="why")):
        assert (await decided(cluster, obj)).reason is not Reason.AGGREGATED_API
    assert cluster.apiservice_reads == []


async def test_missing_right_keeps_the_object_with_its_reason(cluster):
    cluster.fail("list-apiservices", ForbiddenError("cannot list apiservices"))
    decision = await decided(cluster)
    assert decision.reason is Reason.API_UNREAD
    assert "cannot list apiservices" in decision.facts.problem
    assert isinstance(await decided(cluster, job(complete=ago(60), ttl=30), JOB), Expire)


async def test_expire_deletes_nothing_of_an_aggregated_server_and_logs_why(cluster):
    telemetry = FakeTelemetry()
    cluster.put(DUE)
    cluster.aggregated_groups = {"trainer.kubeflow.org"}
    timer = Timer(ref=ref_of(DUE), purpose=Purpose.EXPIRE, due_at=ago(30))
    expiry = Handler(DELETION, cluster, KINDS, Evaluator(cluster, KINDS), FakeClock(), telemetry, dry_run=False)

    assert await expiry.handle(timer) is None
    assert telemetry.verdicts() == [("kept", "aggregated-api")]
    assert cluster.deleted == []
    cluster.aggregated_groups = set()
    assert isinstance(await expiry.handle(timer), ObjectDeleted)


async def test_missing_right_is_logged(caplog):
    with pytest.raises(PermanentError):
        await Asked(ForbiddenError("cannot list apiservices")).aggregation.is_aggregated(TRAINJOB)
    (record,) = caplog.records
    assert (record.message, record.fields["error"]) == ("could not list APIServices", "cannot list apiservices")


# doctor


async def test_doctor_warns_of_a_kind_that_an_aggregated_server_serves(cluster):
    cluster.aggregated_groups = {"trainer.kubeflow.org"}
    place = Place("ttl-after-finished", "knative")
    findings, _ = await check_kinds(cluster, (JOB, TRAINJOB), (), place=place)
    assert {one.what: one.level for one in findings} == {"kind jobs": Level.OK, "kind trainjobs": Level.WARN}
    assert "preconditions: honoured" in findings[1].fix
    findings, _ = await check_kinds(cluster, (JOB, HONOURED), (), place=place)
    assert {one.level for one in findings} == {Level.OK}


async def test_doctor_reports_a_missing_right_to_list_apiservices(cluster):
    cluster.fail("list-apiservices", ForbiddenError("cannot list apiservices"))
    findings, _ = await check_kinds(cluster, (JOB, TRAINJOB), (), place=Place("ttl-after-finished", "knative"))
    assert "cannot list apiservices" in findings[1].detail


def test_openshift_builds_honour_preconditions():
    declared = {name for name, rule in kind_rules().items() if rule.preconditions}
    assert declared == {"builds.build.openshift.io"}
