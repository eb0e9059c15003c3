"""The reports of rules with audit on an API server: created, replaced if they changed, and removed."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from shared.adapters.config.policy_file import parse_policy
from shared.adapters.kubernetes.connect import connect
from shared.adapters.kubernetes.policy_reports import NAME, KubernetesPolicyReports
from shared.core.kinds.rule import Catalogue
from shared.evaluation.evaluator import Evaluator
from shared.messages import SweepStep
from shared.ports.telemetry import AuditReport
from shared.usecases import policy_reports
from shared.usecases.expire import DELETION
from shared.usecases.handler import Handler
from shared.usecases.policy_reports import AuditReports
from tests.builders import FIXTURES, JOB, NOW, ago, read_yaml, shipped_kinds, stamp
from tests.fakes import FakeClock, FakePublisher, FakeTelemetry
from tests.sweeps import sweep_with

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("server", ["embedded", "real"], indirect=True)]

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
GROUP = {"group": "wgpolicyk8s.io", "version": "v1alpha2"}
CLUSTER_REPORTS = "/apis/wgpolicyk8s.io/v1alpha2/clusterpolicyreports"
LABEL = "app.kubernetes.io/managed-by"


@pytest.fixture
async def installed(api):
    """The CRDs are installed."""
    namespaced, of_cluster = read_yaml(FIXTURES / "policyreports" / "crds.yaml")
    of_cluster["spec"]["versions"] = namespaced["spec"]["versions"]
    for definition in (namespaced, of_cluster):
        assert (await api.post(DEFINITIONS, definition)).status in (201, 409)
    for path in (api.path("policyreports", **GROUP), CLUSTER_REPORTS):
        await api.becomes(path, lambda a: a.status == 200)


@pytest.fixture
async def not_installed(api):
    """The CRDs are not installed, or removed again."""
    for definition in read_yaml(FIXTURES / "policyreports" / "crds.yaml"):
        path = f"{DEFINITIONS}/{definition['metadata']['name']}"
        await api.delete(path)
        await api.becomes(path, lambda a: a.status == 404)
    await api.becomes(f"/apis/{GROUP['group']}/{GROUP['version']}", lambda a: a.status == 404)


@pytest.fixture
async def connected(server):
    cluster = await connect(kubeconfig=str(server.kubeconfig))
    yield cluster
    await cluster.close()


async def report_of(api) -> Any:
    answer = await api.get(api.path("policyreports", NAME, **GROUP))
    return answer.body if answer.status == 200 else None


def report(namespace: str, *names: str, count: int = 0) -> AuditReport:
    results = [{"policy": "ttl-after-finished", "rule": "ci", "result": "warn", "message": name} for name in names]
    return AuditReport(namespace, results, count or len(results))


async def test_report_is_created_with_our_label(installed, api, connected):
    reports = KubernetesPolicyReports(connected)
    assert api.namespace not in (await reports.list_written() or {})
    assert await reports.write(report(api.namespace, "a", count=7), None)
    written = await report_of(api)
    assert written["metadata"]["labels"][LABEL] == "ttl-after-finished"
    assert written["summary"] == {"pass": 0, "fail": 0, "warn": 7, "error": 0, "skip": 0}
    assert [one["message"] for one in written["results"]] == ["a"]


async def test_report_is_replaced_only_if_it_changed(installed, api, connected):
    reports = KubernetesPolicyReports(connected, api.namespace)
    await reports.list_written()
    await reports.write(report(api.namespace, "a"), None)
    written = (await reports.list_written() or {})[api.namespace]
    assert not await reports.write(report(api.namespace, "a"), written)
    assert await reports.write(report(api.namespace, "a", "b"), written)
    assert [one["message"] for one in (await report_of(api))["results"]] == ["a", "b"]


async def test_report_that_is_not_complete_counts_errors(installed, api, connected):
    findings = policy_reports.AuditFindings()
    findings.fail(api.namespace)
    (incomplete,) = findings.list_reports({api.namespace})
    reports = KubernetesPolicyReports(connected, api.namespace)
    await reports.list_written()
    assert await reports.write(incomplete, None)
    written = await report_of(api)
    assert written["summary"] == {"pass": 0, "fail": 0, "warn": 0, "error": 1, "skip": 0}
    assert [one["result"] for one in written["results"]] == ["error"]


async def test_report_is_removed(installed, api, connected):
    reports = KubernetesPolicyReports(connected, api.namespace)
    await reports.list_written()
    await reports.write(report(api.namespace, "a"), None)
    await reports.remove((await reports.list_written() or {})[api.namespace])
    assert await report_of(api) is None


async def test_report_of_another_owner_is_left_alone(installed, api, connected):
    foreign = {"metadata": {"name": NAME}, "results": []}
    foreign |= {"apiVersion": "wgpolicyk8s.io/v1alpha2", "kind": "PolicyReport"}
    assert (await api.post(api.path("policyreports", **GROUP), foreign)).status == 201
    reports = KubernetesPolicyReports(connected, api.namespace)
    assert await reports.list_written() == {}
    with pytest.raises(Exception, match="already exists"):
        await reports.write(report(api.namespace, "a"), None)


async def test_cluster_scoped_objects_have_a_cluster_report(installed, api, connected):
    reports = KubernetesPolicyReports(connected)
    written = await reports.list_written() or {}
    await reports.write(report("", "a"), written.get(""))
    assert (await api.get(f"{CLUSTER_REPORTS}/{NAME}")).body["kind"] == "ClusterPolicyReport"
    await reports.remove((await reports.list_written() or {})[""])
    assert (await api.get(f"{CLUSTER_REPORTS}/{NAME}")).status == 404


class Bench:
    """A sweep of an API server that reports what a rule with audit would delete."""

    def __init__(self, cluster: Any, namespace: str) -> None:
        self.telemetry, self.clock = FakeTelemetry(), FakeClock(NOW + timedelta(days=3650))
        self.rule: dict[str, Any] = {"name": "ci", "match": {"kinds": ["jobs"]}, "ttl": "0s", "audit": True}
        kinds = Catalogue((JOB,))
        evaluator = Evaluator(cluster, kinds, lambda: self.policy, only=namespace)
        expiry = Handler(
            DELETION,
            cluster,
            kinds,
            evaluator,
            self.clock,
            self.telemetry,
            dry_run=False,
            by="sweep",
            namespace=namespace,
        )
        self.reports = AuditReports(KubernetesPolicyReports(cluster, namespace), self.clock, self.telemetry)
        self._sweep = sweep_with(
            expiry,
            FakePublisher(),
            timedelta(minutes=10),
            concurrency=2,
            audit_reports=self.reports,
        )

    @property
    def rule(self) -> dict[str, Any]:
        return self._rule

    @rule.setter
    def rule(self, rule: dict[str, Any]) -> None:
        text = str({"rules": [rule]}).replace("True", "true")
        self._rule, self.policy = rule, parse_policy(text, shipped_kinds(), name="policy.yaml")

    async def sweep(self) -> None:
        assert await self._sweep.sweep(SweepStep()) is None


async def put_done(api, name: str) -> None:
    """A Job that has finished."""
    await api.job(name)
    at = stamp(ago(60))
    met = [{"type": type_, "status": "True", "lastTransitionTime": at} for type_ in ("SuccessCriteriaMet", "Complete")]
    status: dict[str, Any] = {
        "startTime": at,
        "completionTime": at,
        "succeeded": 1,
        "uncountedTerminatedPods": {},
        "conditions": met,
    }
    answer = await api.patch(f"{api.jobs(name)}/status", {"status": status})
    assert answer.status == 200, answer


async def test_sweep_reports_what_it_would_delete_and_removes_the_report_after_the_audit(installed, api, connected):
    bench = Bench(connected, api.namespace)
    await put_done(api, "one")
    await put_done(api, "two")
    await asyncio.sleep(1.1)  # the Date header has whole seconds, rounded down
    await bench.sweep()
    assert (await api.get(api.jobs())).names == ["one", "two"]
    written = await report_of(api)
    assert written["summary"]["warn"] == 2
    first = written["results"][0]
    assert first["message"].startswith("would be deleted: finished ")
    assert (first["rule"], first["result"], first["resources"][0]["name"]) == ("ci", "warn", "one")

    await bench.sweep()
    assert (await report_of(api))["metadata"]["resourceVersion"] == written["metadata"]["resourceVersion"]

    bench.rule = bench.rule | {"ttl": "never"}
    await bench.sweep()
    assert await report_of(api) is None
    assert bench.telemetry.problems == []


async def test_report_has_a_bounded_number_of_results_and_the_exact_count(installed, api, connected, monkeypatch):
    monkeypatch.setattr(policy_reports, "RESULTS_MAX", 1)
    bench = Bench(connected, api.namespace)
    await put_done(api, "one")
    await put_done(api, "two")
    await asyncio.sleep(1.1)  # the Date header has whole seconds, rounded down
    await bench.sweep()
    written = await report_of(api)
    assert (written["summary"]["warn"], len(written["results"])) == (2, 1)


@pytest.fixture
def lists(connected, monkeypatch) -> list[str]:
    """The paths of the LISTs of reports that are sent."""
    sent: list[str] = []
    request = connected.request

    async def spy(method: str, path: str, **options: Any) -> Any:
        if method == "GET" and "policyreports?" in path:
            sent.append(path)
        return await request(method, path, **options)

    monkeypatch.setattr(connected, "request", spy)
    return sent


async def test_no_report_is_listed_without_the_crds(not_installed, api, connected, lists):
    bench = Bench(connected, api.namespace)
    await put_done(api, "one")
    await asyncio.sleep(1.1)  # the Date header has whole seconds, rounded down
    await bench.sweep()
    assert [one.verdict for one in bench.telemetry.records] == ["would-delete"]
    assert (lists, bench.telemetry.problems) == ([], [])
    assert await KubernetesPolicyReports(connected).list_written() is None


async def test_reports_are_listed_with_the_crds(installed, api, connected, lists):
    bench = Bench(connected, api.namespace)
    await put_done(api, "one")
    await asyncio.sleep(1.1)  # as above
    await bench.sweep()
    assert len(lists) == 1
    await KubernetesPolicyReports(connected).list_written()
    assert [path.split("?")[0].rpartition("/")[2] for path in lists[1:]] == ["clusterpolicyreports", "policyreports"]
