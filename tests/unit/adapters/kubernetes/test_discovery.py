"""Discovery: which paths are read, how long an answer is cached, and what a failure affects."""

import asyncio

import pytest

from shared.adapters.kubernetes import discovery
from shared.adapters.kubernetes.discovery import (
    ABSENT_KIND_SECONDS,
    AGGREGATION_SECONDS,
    SERVED_SECONDS,
    Aggregation,
    Discovery,
)
from shared.adapters.kubernetes.requests import resource_path
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

TRAINER = "trainer.kubeflow.org"
RUN = JOB.model_copy(update={"api_versions": ("tekton.dev/v1", "tekton.dev/v1beta1"), "kind": "Run", "plural": "runs"})


class Server:
    """Discovery documents by group: `{"tekton.dev": {"v1": {"Run": "runs"}}}`, the preferred version first."""

    def __init__(self):
        self.groups = {"": {"v1": {"Pod": "pods"}}, "batch": {"v1": {"Job": "jobs"}}}
        self.errors = {}
        self.asked = []
        self.seconds = 1_000.0

    async def ask(self, path):
        self.asked.append(path)
        await asyncio.sleep(0)
        if error := self.errors.get(path):
            raise error
        match path.removeprefix("/").split("/"):
            case ["api", "v1"]:
                return resources(self.groups[""]["v1"])
            case ["apis"]:
                return {"groups": [about(group, versions) for group, versions in self.groups.items() if group]}
            case ["apis", group] if group in self.groups:
                return about(group, self.groups[group])
            case ["apis", group, version] if version in self.groups.get(group, {}):
                return resources(self.groups[group][version])
        raise AbsentKindError(path)

    def since(self):
        """The requests since the last call."""
        asked, self.asked = self.asked, []
        return asked


def about(group, versions):
    listed = [{"groupVersion": f"{group}/{version}", "version": version} for version in sorted(versions)]
    preferred = next(iter(versions))
    return {"name": group, "versions": listed, "preferredVersion": {"groupVersion": f"{group}/{preferred}"}}


def resources(kinds):
    listed = [{"name": plural, "kind": kind, "namespaced": True} for kind, plural in kinds.items()]
    return {"resources": [{"name": f"{one['name']}/status", "kind": one["kind"]} for one in listed] + listed}


@pytest.fixture
def server():
    return Server()


@pytest.fixture
def found(server):
    return Discovery(server.ask, lambda: server.seconds)


def only_in(api_version):
    """A call that has an answer in one version only."""

    async def call(rule):
        if rule.api_version != api_version:
            raise AbsentKindError(rule.api_version)
        return "found"

    return call


# Requests


async def test_built_in_kind_needs_no_read_of_other_groups(server, found):
    assert await found.served((POD,)) == (POD,)
    assert server.since() == ["/api/v1"]
    assert await found.served((JOB,)) == (JOB,)
    assert server.since() == ["/apis/batch", "/apis/batch/v1"]


async def test_many_kinds_need_one_read_of_all_groups_and_one_per_served_version(server, found):
    server.groups["tekton.dev"] = {"v1": {"Run": "runs"}, "v1beta1": {"Run": "runs"}}
    server.groups["apps"] = {"v1": {"Deployment": "deployments"}}

    assert await found.served((JOB, POD, TRAINJOB, RUN)) == (JOB, POD, RUN)
    assert sorted(server.since()) == [
        "/api/v1",
        "/apis",
        "/apis/batch/v1",
        "/apis/tekton.dev/v1",
        "/apis/tekton.dev/v1beta1",
    ]


async def test_served_kind_is_cached_longer_than_an_absent_one(server, found):
    await found.served((JOB, POD, TRAINJOB))
    server.since()
    server.seconds += ABSENT_KIND_SECONDS - 1
    await found.served((JOB, POD, TRAINJOB))
    assert server.since() == []

    server.groups[TRAINER] = {"v1alpha1": {"TrainJob": "trainjobs"}}
    server.seconds += 1
    assert await found.served((JOB, POD, TRAINJOB)) == (JOB, POD, TRAINJOB)
    assert server.since() == [f"/apis/{TRAINER}", f"/apis/{TRAINER}/v1alpha1"]

    del server.groups[TRAINER]
    server.seconds += SERVED_SECONDS
    assert await found.served((JOB, POD, TRAINJOB)) == (JOB, POD)


async def test_concurrent_requests_share_one_read(server, found):
    answers = await asyncio.gather(*(found.served((JOB,)) for _ in range(50)))

    assert answers == [(JOB,)] * 50
    assert server.since() == ["/apis/batch", "/apis/batch/v1"]


async def test_concurrent_requests_share_one_failure(server, found):
    """If the API server does not answer, the callers must not wait one after the other."""
    server.errors["/apis/batch"] = TryLaterError("away")
    answers = await asyncio.gather(*(found.served((JOB,)) for _ in range(50)), return_exceptions=True)

    assert {str(error) for error in answers} == {"away"}
    assert server.since() == ["/apis/batch"]


# After a 404


async def test_404_rereads_the_group(server, found):
    server.groups["tekton.dev"] = {"v1beta1": {"Run": "runs"}}
    (before,) = await found.served((RUN,))
    server.groups["tekton.dev"] = {"v1": {"Run": "runs"}}
    server.seconds += discovery.REREAD_SECONDS

    answer, after = await found.call_as_served(before, only_in("tekton.dev/v1"))

    assert before.api_version == "tekton.dev/v1beta1"
    assert (answer, after.api_version) == ("found", "tekton.dev/v1")
    assert found.known(before).api_version == "tekton.dev/v1"


async def test_repeated_404s_do_not_reread_the_group_each_time(server, found):
    await found.served((JOB,))
    server.since()
    for _ in range(100):
        with pytest.raises(AbsentKindError):
            await found.call_as_served(JOB, only_in("batch/v2"))

    assert server.since() == []


async def test_failed_discovery_after_a_404_raises_try_later(server, found):
    await found.served((JOB,))
    server.seconds += 60
    server.errors["/apis/batch"] = TryLaterError("503")

    with pytest.raises(TryLaterError):
        await found.call_as_served(JOB, only_in("batch/v2"))


def test_unread_group_leaves_the_rule_unchanged(found):
    assert found.known(JOB) is JOB


# Failures


async def test_broken_group_hides_no_other(server, found):
    server.groups |= {TRAINER: {"v1alpha1": {}}, "tekton.dev": {"v1": {"Run": "runs"}}}
    server.errors[f"/apis/{TRAINER}/v1alpha1"] = TryLaterError("503")

    assert await found.served((JOB, TRAINJOB, RUN)) == (JOB, TRAINJOB, RUN), "what is not known may be served"
    with pytest.raises(TryLaterError):
        await found.served((TRAINJOB,))


async def test_broken_version_that_no_rule_knows_is_ignored(server, found):
    server.groups["batch"] = {"v1": {"Job": "jobs"}, "v9": {}}
    server.errors["/apis/batch/v9"] = TryLaterError("503")

    assert await found.served((JOB,)) == (JOB,)


async def test_group_that_does_not_answer_times_out(server, found, monkeypatch):
    monkeypatch.setattr(discovery, "DISCOVERY_SECONDS_MAX", 0.01)

    async def ask(path):
        if path.startswith(f"/apis/{TRAINER}"):
            await asyncio.Event().wait()
        return await server.ask(path)

    found = Discovery(ask, lambda: server.seconds)
    server.groups[TRAINER] = {"v1alpha1": {"TrainJob": "trainjobs"}}

    assert await found.served((JOB, POD, TRAINJOB)) == (JOB, POD, TRAINJOB)


async def test_unreachable_api_server_raises_try_later(server, found):
    server.errors = dict.fromkeys(("/api/v1", "/apis"), TryLaterError("away"))

    with pytest.raises(TryLaterError, match="away"):
        await found.served((JOB, POD, TRAINJOB))


async def test_cached_answer_is_used_while_the_api_server_is_unreachable(server, found):
    await found.served((JOB, POD, TRAINJOB))
    server.errors = dict.fromkeys(("/api/v1", "/apis", f"/apis/{TRAINER}"), TryLaterError("away"))
    server.seconds += SERVED_SECONDS

    assert await found.served((JOB, POD, TRAINJOB)) == (JOB, POD)


@pytest.mark.parametrize("path", ["/apis", "/apis/batch/v1"])
async def test_forbidden_discovery_leaves_the_rules_unchanged(server, found, path):
    server.errors[path] = ForbiddenError("may not")

    assert JOB in await found.served((JOB, TRAINJOB, POD))


async def test_forbidden_discovery_does_not_choose_between_two_rules(server, found):
    other = RUN.model_copy(update={"api_versions": ("tekton.dev/v2",)})
    server.errors["/apis/tekton.dev"] = ForbiddenError("may not")

    assert await found.served((RUN, other)) == ()


NEVER = RUN.model_copy(update={"finished": None, "finished_at": (), "ttl": None, "never_finishes": "it is a child"})


async def test_rule_that_reads_nothing_fits_an_unknown_version(server, found):
    server.groups["tekton.dev"] = {"v3": {"Other": "others"}, "v2": {"Run": "runnings"}}

    (served,) = await found.served((NEVER,))

    assert (served.api_version, served.plural) == ("tekton.dev/v2", "runnings")
    assert await found.served((RUN,)) == await found.served((RUN, NEVER)) == ()


async def test_rule_that_reads_nothing_prefers_a_known_version(server, found):
    server.groups["tekton.dev"] = {"v2": {"Run": "runs"}, "v1": {"Run": "runs"}}

    assert await found.served((NEVER,)) == (NEVER,)


async def test_kind_is_not_absent_while_a_version_cannot_be_read(server, found):
    server.groups["tekton.dev"] = {"v3": {"Other": "others"}, "v2": {"Run": "runs"}}
    server.errors["/apis/tekton.dev/v2"] = TryLaterError("away")

    with pytest.raises(TryLaterError, match="away"):
        await found.served((NEVER,))


async def test_version_that_no_rule_knows_is_logged(server, found):
    server.errors["/apis/batch"] = PermanentError("401")

    with pytest.raises(PermanentError, match="401"):
        await found.served((JOB,))


@pytest.mark.parametrize("answer", [{}, {"groups": None}, {"groups": ["batch", {"name": 5}, {"name": "batch"}]}])
async def test_answer_of_another_shape_has_no_kinds(server, found, answer):
    async def ask(_path):
        return answer

    assert await Discovery(ask, lambda: 0.0).served((JOB, TRAINJOB)) == ()


@pytest.mark.parametrize(
    ("rule", "everywhere", "in_one_namespace"),
    [
        (JOB, "/apis/batch/v1/jobs", "/apis/batch/v1/namespaces/ci/jobs"),
        (POD, "/api/v1/pods", "/api/v1/namespaces/ci/pods"),
        (
            TRAINJOB,
            "/apis/trainer.kubeflow.org/v1alpha1/trainjobs",
            "/apis/trainer.kubeflow.org/v1alpha1/namespaces/ci/trainjobs",
        ),
    ],
    ids=["a named group", "the core group", "a custom resource"],
)
async def test_paths_are_those_of_the_api_server(rule, everywhere, in_one_namespace):
    assert resource_path(rule) == everywhere
    assert resource_path(rule, "ci") == in_one_namespace


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
