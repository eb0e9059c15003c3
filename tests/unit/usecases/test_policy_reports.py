"""The reports of audits: which sweeps write them, which results they hold, and what is written at the end."""

import random

import pytest

from shared.core.decision.facts import Audited
from shared.core.values.objects import ObjectRef
from shared.errors import ForbiddenError
from shared.messages import SweepStep
from shared.ports import Verdict
from shared.usecases import policy_reports
from shared.usecases.policy_reports import AuditReports
from shared.usecases.sweeps.chains import SWEEPS_MAX
from tests.builders import NOW
from tests.fakes import FakeClock, FakeTelemetry
from tests.policy_reports import FakeReports

pytestmark = pytest.mark.anyio

FIRST = SweepStep(kinds=("batch/v1/Job",), sweep_id="a", whole=True)


@pytest.fixture
def reports():
    return FakeReports()


@pytest.fixture
def telemetry():
    return FakeTelemetry()


@pytest.fixture
def audits(reports, telemetry):
    return AuditReports(reports, FakeClock(), telemetry)


def step_of(number, **fields):
    return FIRST.model_copy(update={"step": number, **fields})


def add(findings, name="build-42", namespace="ci"):
    ref = ObjectRef("batch/v1", "Job", namespace, name, f"uid-{name}")
    findings.add(Verdict.WOULD_DELETE, ref, Audited("old-jobs", NOW, "finished"))


async def test_report_has_the_results_of_all_steps(audits, reports):
    add(audits.find(FIRST), "a")
    add(audits.find(step_of(1)), "b")
    await audits.write(step_of(1))
    report = reports.reports["ci"]
    assert report.count == 2
    assert [one["resources"][0]["name"] for one in report.results] == ["a", "b"]
    assert report.results[0]["message"] == "would be deleted: finished"


@pytest.mark.parametrize("steps", [[FIRST, step_of(2)], [step_of(1)], [FIRST, step_of(1), step_of(1)]])
async def test_reports_stay_if_this_process_did_not_run_each_step_once(audits, reports, steps):
    for step in steps:
        if findings := audits.find(step):
            add(findings)
    await audits.write(steps[-1])
    assert reports.calls == []


async def test_sweep_of_some_kinds_writes_no_report(audits, reports):
    step = step_of(0, whole=False)
    assert audits.find(step) is None
    await audits.write(step)
    assert reports.calls == []


async def test_report_without_a_result_is_removed_and_then_nothing_is_read(audits, reports):
    add(audits.find(FIRST))
    await audits.write(FIRST)
    for name in ("b", "c"):
        step = step_of(0, sweep_id=name)
        audits.find(step)
        await audits.write(step)
    assert reports.calls == ["list", "write ci", "list", "remove ci"]


async def test_results_of_a_namespace_and_of_a_process_are_bounded(audits, reports, monkeypatch):
    monkeypatch.setattr(policy_reports, "RESULTS_MAX", 2)
    monkeypatch.setattr(policy_reports, "RESULTS_OF_ALL_MAX", 3)
    findings = audits.find(FIRST)
    for namespace in ("a", "b", "c"):
        for number in range(5):
            add(findings, f"job-{number}", namespace)
    await audits.write(FIRST)
    assert {name: (len(one.results), one.count) for name, one in reports.reports.items()} == {
        "a": (2, 5),
        "b": (1, 5),
        "c": (0, 5),
    }


@pytest.mark.parametrize("spare", [0, 2, 100])
async def test_report_does_not_depend_on_the_order_in_which_objects_are_found(audits, reports, monkeypatch, spare):
    monkeypatch.setattr(policy_reports, "RESULTS_MAX", 3)
    monkeypatch.setattr(policy_reports, "RESULTS_OF_ALL_MAX", 5)
    monkeypatch.setattr(policy_reports, "SPARE_MAX", spare)
    found = [(f"job-{number}", namespace) for namespace in ("a", "b", "c") for number in range(5)]
    for order in range(5):
        findings = audits.find(FIRST)
        for name, namespace in random.Random(order).sample(found, k=len(found)):
            add(findings, name, namespace)
        await audits.write(FIRST)
        names = {key: [one["resources"][0]["name"] for one in of.results] for key, of in reports.reports.items()}
        assert names == {"a": ["job-0", "job-1", "job-2"], "b": ["job-0", "job-1"], "c": []}
        assert [one.count for one in reports.reports.values()] == [5, 5, 5]


async def test_results_of_only_a_few_sweeps_are_held(audits):
    for number in range(SWEEPS_MAX + 1):
        audits.find(step_of(0, sweep_id=str(number)))
    assert audits.find(step_of(1, sweep_id="0")) is None
    assert audits.find(step_of(1, sweep_id="1")) is not None


async def test_missing_right_is_a_problem_only_if_there_is_something_to_report(audits, reports, telemetry):
    reports.failure = ForbiddenError("may not list policyreports")
    audits.find(FIRST)
    await audits.write(FIRST)
    assert telemetry.problems == []
    add(audits.find(FIRST))
    await audits.write(FIRST)
    assert [message for message, _ in telemetry.problems] == ["could not write a PolicyReport"]


async def test_rest_of_the_reports_is_left_to_the_next_sweep_after_the_write_time(audits, reports):
    findings, clock = audits.find(FIRST), audits.clock
    for namespace in ("a", "b"):
        add(findings, namespace=namespace)
    write = reports.write

    async def slow(report, written):
        clock.advance(11)
        return await write(report, written)

    reports.write = slow
    await audits.write(FIRST)
    assert list(reports.reports) == ["a"]


async def test_report_says_that_it_is_not_complete(audits, reports):
    findings = audits.find(FIRST)
    add(findings)
    findings.fail("ci")
    await audits.write(FIRST)
    report = reports.reports["ci"]
    assert (report.count, report.failed) == (1, 1)
    assert [one["result"] for one in report.results] == ["warn", "error"]
    assert "failed on 1 object of this namespace" in report.results[-1]["message"]


async def test_report_stays_while_its_only_object_cannot_be_evaluated(audits, reports):
    add(audits.find(FIRST))
    await audits.write(FIRST)
    step = step_of(0, sweep_id="b")
    audits.find(step).fail("ci")
    await audits.write(step)
    assert (reports.reports["ci"].count, reports.reports["ci"].failed) == (0, 1)


async def test_failure_in_a_namespace_without_a_report_makes_none(audits, reports):
    findings = audits.find(FIRST)
    add(findings)
    findings.fail("other")
    await audits.write(FIRST)
    assert list(reports.reports) == ["ci"]
