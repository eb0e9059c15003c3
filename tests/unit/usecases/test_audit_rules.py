"""A policy rule with `audit: true` only reports: by no path is an object deleted, stopped, archived or marked."""

import json
from dataclasses import replace
from datetime import timedelta
from types import ModuleType
from typing import Any

import pytest

from shared.adapters.config.policy_file import parse_policy
from shared.core.archive import decide_archive
from shared.core.deadlines import decide_stop
from shared.core.decision import decide as decide_module
from shared.core.kinds.rule import Catalogue
from shared.core.policy.policy import Policy
from shared.core.values.objects import ref_of
from shared.evaluation.children import Children
from shared.evaluation.evaluator import Evaluator
from shared.evaluation.pod_logs import PodLogs
from shared.messages import ObjectDeleted, Purpose, SweepStep, Timer, TimersSet
from shared.usecases.archive import archival
from shared.usecases.archives.writer import ArchiveWriter
from shared.usecases.enforce import ENFORCEMENT
from shared.usecases.expire import DELETION
from shared.usecases.handler import Handler
from shared.usecases.timers import schedule
from tests.archives import FakeArchive, FakeArchives
from tests.builders import JOB, NOW, ago, annotated, created, having, job, later, shipped_kinds, stamp
from tests.fakes import FakeClock, FakeCluster, FakePublisher, FakeTelemetry
from tests.sweeps import sweep_with

pytestmark = pytest.mark.anyio

KINDS = Catalogue((JOB,))
DONE = job(complete=ago(60))
RUNS = having(created(job(), ago(600)), "status.startTime", stamp(ago(600)))

TTL = {"ttl": "30s"}
DEADLINE = {"activeDeadline": "30s"}
DELETING_DEADLINE = DEADLINE | {"onDeadline": "delete"}
ARCHIVE = {"archive": {"to": "main"}}
COUNT = {"maxCount": 1}


def policy_of(*rules: dict[str, Any]) -> Policy:
    """A policy with these rules for Jobs, in order."""
    named = [{"name": f"rule-{number}", "match": {"kinds": ["jobs"]}} | rule for number, rule in enumerate(rules)]
    archives = {"archives": {"main": {"url": "file:///archive"}}} if any("archive" in rule for rule in rules) else {}
    text = json.dumps({**archives, "rules": named})
    return parse_policy(text, shipped_kinds(), name="policy.yaml")


class Bench:
    """The functions of one installation over fakes."""

    def __init__(self, *rules: dict[str, Any]) -> None:
        self.policy = policy_of(*rules)
        self.clock, self.telemetry, self.publisher = FakeClock(), FakeTelemetry(), FakePublisher()
        self.cluster, self.archive = FakeCluster(self.clock), FakeArchive(now=self.clock.now)
        archives = FakeArchives({"main": self.archive})
        evaluator = Evaluator(self.cluster, KINDS, lambda: self.policy, archives=archives)
        self.expiry = Handler(DELETION, self.cluster, KINDS, evaluator, self.clock, self.telemetry, dry_run=False)
        writer = ArchiveWriter(archives, Children(self.cluster, shipped_kinds()), PodLogs(self.cluster))
        self.archival = replace(self.expiry, procedure=archival(writer), by="archive")

    async def fire(self, obj: dict[str, Any], purpose: Purpose) -> Any:
        timer = Timer(ref=ref_of(obj), purpose=purpose, due_at=self.clock.now())
        match purpose:
            case Purpose.EXPIRE:
                return await self.expiry.handle(timer)
            case Purpose.ENFORCE:
                return await replace(self.expiry, procedure=ENFORCEMENT).handle(timer)
            case _:
                return await self.archival.handle(timer)

    async def sweep(self) -> None:
        sweep = sweep_with(replace(self.expiry, by="sweep"), self.publisher, timedelta(minutes=10), concurrency=1)
        assert await sweep.sweep(SweepStep()) is None

    async def schedule(self, obj: dict[str, Any]) -> TimersSet | None:
        return await schedule(obj, catalogue=KINDS, clock=self.clock, telemetry=self.telemetry, policy=self.policy)

    async def go(self, obj: dict[str, Any], path: str) -> None:
        """Take an object through one of the paths."""
        self.cluster.put(obj)
        if path == "sweep":
            await self.sweep()
        else:
            await self.fire(obj, Purpose(path))

    @property
    def acts(self) -> list[str]:
        """What was done to objects and archives."""
        calls = self.cluster.counted()
        writes = {"delete": calls["delete"], "patch": calls["patch"], "put": self.archive.calls["put"]}
        return [name for name, count in writes.items() if count]


PATHS = [
    pytest.param(DONE, [TTL], "expire", "would-delete", "delete", id="expire"),
    pytest.param(DONE, [TTL], "sweep", "would-delete", "delete", id="sweep"),
    pytest.param(DONE, [{"ttl": "0s"}], "sweep", "would-delete", "delete", id="sweep-ttl-0"),
    pytest.param(RUNS, [DEADLINE], "enforce", "would-stop", "patch", id="enforce"),
    pytest.param(RUNS, [DELETING_DEADLINE], "enforce", "would-stop", "delete", id="enforce-delete"),
    pytest.param(DONE, [ARCHIVE], "archive", "would-archive", "put", id="archive"),
    pytest.param(DONE, [TTL | ARCHIVE], "archive", "would-archive", "put", id="archive-and-ttl"),
]
"""An object, the rules, the path, the verdict of an audit, and what is done without the audit."""


@pytest.mark.parametrize(("obj", "rules", "path", "verdict", "act"), PATHS)
async def test_path_only_reports_for_a_rule_with_audit(obj, rules, path, verdict, act):
    bench = Bench(*(rule | {"audit": True} for rule in rules))
    await bench.go(obj, path)
    assert bench.acts == []
    assert (verdict, "audit-only") in bench.telemetry.verdicts()
    assert bench.telemetry.events == []


@pytest.mark.parametrize(("obj", "rules", "path", "verdict", "act"), PATHS)
async def test_path_acts_for_the_same_rule_without_audit(obj, rules, path, verdict, act):
    bench = Bench(*rules)
    await bench.go(obj, path)
    assert bench.acts == [act]


def _never_audits(*_about: Any) -> None:
    return None


@pytest.mark.parametrize(("obj", "rules", "path", "verdict", "act"), PATHS)
async def test_mutant_that_ignores_audit_is_caught_on_each_path(monkeypatch, obj, rules, path, verdict, act):
    modules: list[ModuleType] = [decide_module, decide_stop, decide_archive]
    for module in modules:
        monkeypatch.setattr(module, "find_audit", _never_audits)
    bench = Bench(*(rule | {"audit": True} for rule in rules))
    await bench.go(obj, path)
    assert bench.acts == [act]
    assert (verdict, "audit-only") not in bench.telemetry.verdicts()


async def test_timer_that_was_set_before_the_audit_only_reports():
    bench = Bench(TTL)
    timers = await bench.schedule(job(complete=NOW))
    assert timers is not None
    bench.cluster.put(job(complete=NOW))
    bench.policy = policy_of(TTL | {"audit": True})
    bench.clock.advance(30)
    assert await bench.expiry.handle(timers.timers[0]) is None
    assert bench.acts == []
    assert bench.telemetry.verdicts()[-1] == ("would-delete", "audit-only")


async def test_policy_that_becomes_audit_during_the_attempt_keeps_the_object():
    bench = Bench(TTL)
    bench.cluster.put(DONE)
    policies = iter([bench.policy])
    audit = policy_of(TTL | {"audit": True})
    bench.expiry.evaluator.policy = lambda: next(policies, audit)
    assert await bench.fire(DONE, Purpose.EXPIRE) is None
    assert bench.acts == []


async def test_schedule_sets_the_timer_of_a_report():
    bench = Bench(TTL | {"audit": True})
    timers = await bench.schedule(job(complete=NOW))
    assert timers is not None
    assert [(one.purpose, one.due_at) for one in timers.timers] == [(Purpose.EXPIRE, later(30))]


# Precedence


async def test_first_matching_rule_with_a_ttl_applies_if_it_audits():
    bench = Bench(TTL | {"audit": True}, {"ttl": "10s"})
    await bench.go(DONE, "expire")
    assert bench.acts == []


async def test_rule_with_audit_after_the_first_matching_rule_does_not_apply():
    bench = Bench(TTL, {"ttl": "10s", "audit": True})
    await bench.go(DONE, "expire")
    assert bench.acts == ["delete"]


async def test_ttl_of_the_object_itself_takes_precedence_over_an_audit():
    bench = Bench(TTL | {"audit": True})
    await bench.go(annotated(DONE, ttl="20s"), "expire")
    assert bench.acts == ["delete"]


async def test_object_is_kept_while_the_rule_that_archives_it_only_audits():
    bench = Bench(ARCHIVE | {"audit": True}, TTL)
    await bench.go(DONE, "expire")
    assert bench.acts == []
    assert bench.telemetry.verdicts()[-1] == ("would-delete", "audit-only")


async def test_audited_limit_is_reported_and_the_ttl_of_another_rule_still_deletes():
    bench = Bench(COUNT | {"audit": True}, {"ttl": "100s"})
    old, new = job(complete=ago(60)), job(name="new", uid="new", complete=ago(10))
    bench.cluster.put(new)
    await bench.go(old, "expire")
    assert bench.acts == []
    assert bench.telemetry.verdicts()[-1] == ("would-delete", "audit-only")

    bench.clock.advance(40)
    answer = await bench.fire(old, Purpose.EXPIRE)
    assert isinstance(answer, ObjectDeleted)
    assert (answer.reason, answer.ttl_from) == ("expired", "policy rule rule-1")


async def test_audited_limit_answers_with_the_timer_of_the_ttl():
    bench = Bench(COUNT | {"audit": True}, {"ttl": "100s"})
    bench.cluster.put(job(name="new", uid="new", complete=ago(10)))
    bench.cluster.put(DONE)
    answer = await bench.fire(DONE, Purpose.EXPIRE)
    assert isinstance(answer, TimersSet)
    assert [one.due_at for one in answer.timers] == [later(40)]


async def test_limit_without_audit_deletes_although_the_ttl_is_audited():
    bench = Bench(TTL | {"audit": True}, COUNT)
    bench.cluster.put(job(name="new", uid="new", complete=ago(10)))
    await bench.go(DONE, "expire")
    assert bench.acts == ["delete"]


async def test_audited_limit_without_a_ttl_keeps_the_object():
    bench = Bench(COUNT | {"audit": True})
    bench.cluster.put(job(name="new", uid="new", complete=ago(10)))
    await bench.go(DONE, "sweep")
    assert bench.acts == []
    assert ("would-delete", "audit-only") in bench.telemetry.verdicts()


# The policy file


@pytest.mark.parametrize("fields", [{"keepLast": 3}, {"minAge": "1h"}, {"ttl": "1h", "audit": "yes"}])
def test_policy_refuses_an_audit_that_would_report_nothing(fields):
    with pytest.raises(Exception, match="audit"):
        policy_of({"audit": True} | fields)
