"""A sweep and the rules with audit: what it reports at its end, and how it counts the objects that it reports."""

import json
from datetime import timedelta

import pytest

from shared.adapters.config.policy_file import parse_policy
from shared.core.kinds.rule import Catalogue
from shared.errors import ForbiddenError, TryLaterError
from shared.evaluation.evaluator import Evaluator
from shared.messages import SweepStep, TimersSet
from shared.usecases.expire import DELETION
from shared.usecases.handler import Handler
from shared.usecases.policy_reports import AuditReports
from tests.builders import JOB, POD, ago, having, job, shipped_kinds
from tests.fakes import FakeClock, FakeCluster, FakePublisher, FakeTelemetry
from tests.policy_reports import FakeReports
from tests.sweeps import sweep_with

pytestmark = pytest.mark.anyio

KINDS = Catalogue((JOB, POD))
DONE = job(complete=ago(60))
AUDIT = {"name": "ci", "match": {"kinds": ["jobs"]}, "ttl": "30s", "audit": True}


class Bench:
    """Sweeps with reports over fakes."""

    def __init__(self, *rules):
        policy = parse_policy(json.dumps({"rules": rules or [AUDIT]}), shipped_kinds(), name="policy.yaml")
        self.clock, self.telemetry, self.reports = FakeClock(), FakeTelemetry(), FakeReports()
        self.cluster, self.publisher, self.events = FakeCluster(self.clock), FakePublisher(), []
        self.evaluator = Evaluator(self.cluster, KINDS, lambda: policy)
        expiry = Handler(
            DELETION, self.cluster, KINDS, self.evaluator, self.clock, self.telemetry, dry_run=False, by="sweep"
        )
        self._sweep = sweep_with(
            expiry,
            self.publisher,
            timedelta(minutes=10),
            concurrency=2,
            write_event=self._write_event,
            audit_reports=AuditReports(self.reports, self.clock, self.telemetry),
        )

    async def _write_event(self, reason, message, level):
        self.events.append(reason)

    def fail_on(self, name, error, monkeypatch):
        """Let the evaluation of the object of a name fail."""
        evaluate = self.evaluator.evaluate

        async def failing(snapshot, rule):
            if snapshot.obj["metadata"]["name"] == name:
                raise error
            return await evaluate(snapshot, rule)

        monkeypatch.setattr(self.evaluator, "evaluate", failing)

    async def step(self, step):
        """Run one step of a sweep."""
        return await self._sweep.sweep(step)

    async def sweep(self, step=None):
        """Run a sweep to its end."""
        step = step or SweepStep()
        while step is not None:
            step = await self.step(step)
        return self.telemetry.sweeps[-1]


async def test_reports_stay_if_a_kind_cannot_be_listed():
    bench = Bench()
    bench.cluster.put(DONE)
    await bench.sweep()
    assert bench.reports.reports["ci"].count == 1

    bench.cluster.fail("list", ForbiddenError("jobs is forbidden"), on="jobs")
    await bench.sweep()
    assert bench.events == ["Swept", "SweptInPart"]
    assert bench.reports.reports["ci"].count == 1


FORGED = SweepStep(kinds=("no/Kind",), whole=True)


@pytest.mark.parametrize("sweep_id", ["", "made up"])
async def test_forged_first_step_with_kinds_is_no_sweep_of_all_kinds(sweep_id):
    bench = Bench()
    bench.cluster.put(DONE)
    await bench.sweep()
    bench.reports.calls.clear()

    await bench.sweep(FORGED.model_copy(update={"sweep_id": sweep_id}))
    assert bench.reports.calls == []
    assert bench.events == ["Swept"]
    assert bench.telemetry.wholes == [True, False]


@pytest.mark.parametrize(("number", "is_whole"), [(0, True), (0, False), (2, False)])
async def test_forged_steps_do_not_take_the_findings_of_a_sweep(number, is_whole):
    bench = Bench()
    bench.cluster.put(DONE)
    bench.cluster.on_list = lambda: bench.clock.advance(21)
    step = await bench.step(SweepStep())
    forged = FORGED.model_copy(update={"step": number, "whole": is_whole})
    for sweep_id in ("a", "b", "c", "d", step.sweep_id):
        await bench.sweep(forged.model_copy(update={"sweep_id": sweep_id}))
    assert bench.reports.calls == []

    await bench.sweep(step)
    assert bench.reports.calls == ["list", "write ci"]


async def test_forged_start_with_the_id_of_a_sweep_does_not_replace_its_findings():
    bench = Bench()
    bench.cluster.put(DONE)
    bench.cluster.on_list = lambda: bench.clock.advance(21)
    step = await bench.step(SweepStep())
    bench.cluster.remove(DONE["metadata"]["name"])
    forged = await bench.step(SweepStep(sweep_id=step.sweep_id))
    assert forged.sweep_id != step.sweep_id

    await bench.sweep(step)
    assert bench.reports.reports["ci"].count == 1


async def test_sweep_counts_an_object_once_that_is_reported_and_gets_a_timer():
    cap = {"name": "cap", "match": {"kinds": ["jobs"]}, "maxCount": 1, "audit": True}
    bench = Bench(cap, AUDIT | {"ttl": "100s", "audit": False})
    bench.cluster.put(DONE)
    bench.cluster.put(job(name="new", uid="new", complete=ago(10)))

    counts = await bench.sweep()
    assert sorted(bench.telemetry.verdicts()) == [("timer-set", "not-due"), ("would-delete", "audit-only")]
    (timers,) = bench.publisher.published
    assert isinstance(timers, TimersSet)
    assert len(timers.timers) == 2
    assert (counts["looked_at"], counts["would_delete"], counts["timers_set"], counts["kept"]) == (2, 1, 1, 0)


# Whether a sweep was of all kinds follows from the steps that the process returned, not from the message


def slow_bench():
    """A sweep in which each page takes a step."""
    bench = Bench()
    bench.cluster.page_size = 1
    for name in ("done-1", "done-2"):
        bench.cluster.put(having(having(DONE, "metadata.name", name), "metadata.uid", name))
    bench.cluster.on_list = lambda: bench.clock.advance(21)
    return bench


async def test_sweep_of_several_steps_counts_as_whole():
    bench = slow_bench()
    await bench.sweep()
    assert (bench.telemetry.wholes, bench.events) == ([True], ["Swept"])


async def test_made_up_last_step_is_no_whole_sweep():
    bench = slow_bench()
    await bench.sweep(SweepStep(kinds=("batch/v1/Job",), sweep_id="made up", step=3, whole=True))
    assert (bench.telemetry.wholes, bench.events) == ([False], [])


async def test_step_that_was_altered_on_its_way_is_no_whole_sweep():
    bench = slow_bench()
    step = await bench.step(SweepStep())
    await bench.sweep(step.model_copy(update={"kinds": ("no/Kind",)}))
    assert (bench.telemetry.wholes, bench.events) == ([False], [])


async def test_step_of_an_ended_sweep_that_comes_again_is_no_whole_sweep():
    bench = slow_bench()
    step = await bench.step(SweepStep())
    await bench.sweep(step)
    await bench.sweep(step)
    assert (bench.telemetry.wholes, bench.events) == ([True, False], ["Swept"])


async def test_step_whose_answer_was_lost_comes_again_and_its_sweep_is_whole():
    bench = slow_bench()
    step = await bench.step(SweepStep())
    await bench.step(step)
    await bench.sweep(step)
    assert (bench.telemetry.wholes, bench.events) == ([True], ["Swept"])


async def test_sweep_that_another_process_began_is_no_whole_sweep():
    step = await slow_bench().step(SweepStep())
    bench = slow_bench()
    await bench.sweep(step)
    assert (bench.telemetry.wholes, bench.events) == ([False], [])


async def test_forged_continue_token_is_no_sweep_of_a_kind():
    bench = Bench()
    bench.cluster.page_size = 1
    for name in ("done-1", "done-2"):
        bench.cluster.put(having(having(DONE, "metadata.name", name), "metadata.uid", name))
    page = await bench.cluster.list_page(JOB)
    assert page.continue_token
    await bench.sweep(SweepStep(kinds=("batch/v1/Job",), continue_token=page.continue_token, step=1, whole=True))
    assert bench.telemetry.swept_kinds == []


async def test_first_step_ignores_a_forged_continue_token():
    bench = Bench()
    bench.cluster.put(DONE)
    await bench.sweep(SweepStep(continue_token="forged", counts={"deleted": 7}, passed_over=("v1/Pod",)))
    assert bench.events == ["Swept"]
    assert bench.telemetry.sweeps[-1]["deleted"] == 0


# An object that could not be evaluated


@pytest.mark.parametrize("error", [TryLaterError("away"), ForbiddenError("no right"), ValueError("a bug")], ids=str)
async def test_report_is_not_complete_if_an_object_cannot_be_evaluated(error, monkeypatch):
    bench = Bench()
    for name in ("done-1", "done-2"):
        bench.cluster.put(having(having(DONE, "metadata.name", name), "metadata.uid", name))
    await bench.sweep()
    assert (bench.reports.reports["ci"].count, bench.reports.reports["ci"].failed) == (2, 0)

    bench.fail_on("done-2", error, monkeypatch)
    await bench.sweep()
    assert (bench.reports.reports["ci"].count, bench.reports.reports["ci"].failed) == (1, 1)


async def test_report_is_not_complete_if_an_object_cannot_be_read():
    bench = Bench()
    bench.cluster.put(DONE)
    await bench.sweep()
    bench.cluster.unreadable[DONE["metadata"]["name"]] = "too deep"
    await bench.sweep()
    assert (bench.reports.reports["ci"].count, bench.reports.reports["ci"].failed) == (0, 1)
