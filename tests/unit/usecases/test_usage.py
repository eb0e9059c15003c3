"""The ticks of `usage`: marks, announcements, and deletions that a second pass confirms."""

import asyncio
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, cast

import pytest

from shared.core.policy.limits import BreakerLimits, Limits, Rate
from shared.core.policy.policy import NO_POLICY
from shared.core.references.reference import Reference, ReferenceIndex, TargetKind, TargetNames
from shared.core.usage.mark import DELETED_AFTER, UNUSED_HASH, UNUSED_SINCE, USE_MANAGER, USED_AT, use_patch
from shared.core.usage.passes import Pass
from shared.core.values.objects import ANNOUNCED_LABEL, ObjectRef, format_instant
from shared.devserver.apiserver import WriteOptions
from shared.devserver.apiserver.resources import CONFIG_MAPS
from shared.devserver.apiserver.writes import merge_patch
from shared.errors import ConflictError, ForbiddenError, PermanentError, TryLaterError
from shared.evaluation.namespaces_and_owners import Namespaces
from shared.evaluation.usage_reader import HeldTargets, UsageFound, UsageReader
from shared.ports import ListableKinds, TargetPage
from shared.safeguards.safeguards import Safeguards
from shared.safeguards.shared_state import Runtime, SharedState
from shared.safeguards.state_schema import BrakeStop, with_stop
from shared.usecases.usage.handler import PATCH_REFUSALS_MAX, UsageHandler
from shared.usecases.usage.tick import Usage
from tests.builders import NOW, namespace
from tests.fakes import FakeClock, FakeCluster, FakePublisher, FakeState, FakeTelemetry
from tests.usage import (
    DAY,
    LONG_UNUSED,
    config_map,
    having_announcement,
    having_mark,
    refer,
    secret,
    unused_policy,
)

pytestmark = pytest.mark.anyio

HOUR = timedelta(hours=1)
PREFIX = "ttlafterfinished.dev/"


def at(seconds):
    return format_instant(NOW + timedelta(seconds=seconds))


@dataclass
class FakeReader:
    """Passes that a test plans, over the Secrets and ConfigMaps of a fake cluster."""

    cluster: FakeCluster
    clock: FakeClock
    references: list[Reference] = field(default_factory=list)
    later: list[Reference] = field(default_factory=list)
    problems: dict[str, str] = field(default_factory=dict)
    failure: Exception | None = None
    refused: dict[TargetKind, Exception] = field(default_factory=dict)
    looks: list[str] = field(default_factory=list)
    asked: list[list[str]] = field(default_factory=list)
    listed: list[TargetKind] = field(default_factory=list)
    is_first: bool = True
    failed_in: set[str] = field(default_factory=set)
    on_look: Any = None
    versions: int = 100

    async def hold_targets(self, *, namespace: str = "") -> HeldTargets:
        held = HeldTargets(ListableKinds((), self.clock.now()), namespace)
        await held.read(self)
        return held

    async def list_targets(self, kind: TargetKind, **asked: Any) -> TargetPage:
        if kind in self.refused:
            raise self.refused[kind]
        self.listed.append(kind)
        return await self.cluster.list_targets(kind, **asked)

    async def look(
        self, names: TargetNames, *, namespaces: Collection[str] = (), held: HeldTargets | None = None
    ) -> UsageFound:
        """Make the first pass of a tick, which `looks` has as an empty text, or one that confirms deletions."""
        if self.failure:
            raise self.failure
        self.asked.append(sorted(namespaces))
        self.names = names
        namespace, self.is_first = "" if self.is_first else ",".join(sorted(namespaces)), False
        self.looks.append(namespace)
        if self.on_look:
            await self.on_look(namespace)
        started = self.clock.now()
        self.clock.advance(1)
        self.versions += 1
        references = self.references + (self.later if namespace else [])
        versions = {"pods": str(self.versions)}
        of = Pass(started, self.clock.now(), versions, self.problems.get(namespace, ""))
        failed = {name: f"pods in namespace {name} cannot be listed" for name in self.failed_in}
        concerned = {name: replace(of, problem=failed.get(name, of.problem)) for name in namespaces}
        of = replace(of, problem=next(iter(failed.values()), of.problem))
        return UsageFound(of, ReferenceIndex(references), names, namespaces, concerned)

    async def targets(self, kind: TargetKind, *, namespace: str = "", held: HeldTargets | None = None) -> Any:
        page = await (held or self).list_targets(kind, namespace=namespace)
        yield page.targets


class Bench:
    """A tick over fakes."""

    def __init__(self, *, dry_run=False, limits=None, interval=HOUR, **policy):
        self.clock, self.telemetry, self.publisher = FakeClock(), FakeTelemetry(), FakePublisher()
        self.cluster = FakeCluster(self.clock)
        self.cluster.put(namespace("ci", unused="true"))
        self.policy = unused_policy(**policy)
        self.state = FakeState()
        self.reader = FakeReader(self.cluster, self.clock)
        self.handler = UsageHandler(
            self.cluster,
            lambda: self.policy,
            Namespaces(self.cluster, self.telemetry),
            self.clock,
            self.telemetry,
            interval,
            dry_run=dry_run,
            safeguards=self._safeguards(limits or Limits(breaker=BreakerLimits(count=100, share=1.0, at_least=0))),
        )
        self.usage = Usage(self.handler, cast("UsageReader", self.reader), self.publisher, concurrency=4)

    def _safeguards(self, limits):
        runtime = Runtime(self.clock, lambda: self.clock.now().timestamp(), self.telemetry)

        async def write_event(reason, message, level):
            pass

        async def count(rule):
            return 1_000

        shared_state = SharedState(self.state, runtime, write_event=write_event, namespace="system")
        return Safeguards(lambda: limits, shared_state, runtime, count_objects=count, horizon=2 * HOUR)

    async def tick(self, after=timedelta(0)):
        self.clock.advance(after.total_seconds())
        self.reader.is_first = True
        await self.usage.tick()

    def put(self, *objects):
        for obj in objects:
            self.cluster.put(obj)

    def annotations(self, name="web-7f9c2"):
        """The annotations, without the record of use, which stays."""
        found = self.cluster._find(name)[1]["metadata"].get("annotations", {})
        return {key: value for key, value in found.items() if key != PREFIX + USED_AT}

    def marks(self, name="web-7f9c2"):
        """The annotations, without the hash of a mark."""
        annotations = dict(self.annotations(name))
        assert annotations.pop(PREFIX + UNUSED_HASH)
        return annotations

    def labels(self, name="web-7f9c2"):
        return self.cluster._find(name)[1]["metadata"].get("labels", {})

    @property
    def writes(self):
        return self.cluster.counted()["patch"]


@pytest.fixture
def bench():
    return Bench()


def announced(obj, **more):
    return having_announcement(obj, NOW - timedelta(seconds=600), **more)


def due(name="web-7f9c2", **metadata):
    """A ConfigMap that is due, and whose deletion is announced."""
    return announced(config_map(name, marked=LONG_UNUSED, uid=f"uid-{name}", **metadata))


# Marks


async def test_tick_marks_an_unused_object(bench):
    bench.put(config_map())
    await bench.tick()
    assert bench.marks() == {PREFIX + UNUSED_SINCE: at(1)}
    assert ("marked", "newly-unused") in bench.telemetry.verdicts()


async def test_tick_writes_nothing_for_a_rule_with_audit():
    bench = Bench(audit=True)
    bench.put(config_map(), due("old-7f9c2"))
    await bench.tick()
    await bench.tick(timedelta(days=2))
    assert set(bench.telemetry.verdicts()) == {("would-delete", "audit-only")}
    assert not bench.cluster.deleted
    assert bench.marks("old-7f9c2").keys() == {PREFIX + UNUSED_SINCE}  # the announcement is withdrawn


async def test_tick_lists_secrets_and_config_maps_once_beside_its_passes(bench):
    bench.put(config_map())
    await bench.tick()
    assert Counter(bench.reader.listed) == {TargetKind.SECRET: 1, TargetKind.CONFIG_MAP: 1}


async def test_object_that_is_changed_during_the_first_pass_is_left_to_the_next_tick(bench):
    bench.put(config_map())

    async def write(_namespace):
        bench.cluster.write("web-7f9c2")

    bench.reader.on_look = write
    await bench.tick()
    assert ("kept", "try-later") in bench.telemetry.verdicts()
    assert not bench.annotations()


async def test_second_tick_writes_nothing_if_the_state_is_the_same(bench):
    bench.put(config_map())
    await bench.tick()
    await bench.tick(HOUR)
    assert bench.writes == 1


async def test_tick_removes_the_mark_and_the_announcement_of_a_used_object(bench):
    bench.put(due())
    bench.reader.references.append(refer())
    await bench.tick()
    assert bench.annotations() == {}
    assert bench.labels() == {}
    assert bench.cluster.deleted == []
    await bench.tick(HOUR)
    assert bench.writes == 1


async def test_tick_marks_a_changed_object_again_and_withdraws_its_announcement(bench):
    obj = due()
    obj["metadata"]["managedFields"][0]["time"] = at(-3600)
    bench.put(obj)
    await bench.tick()
    assert bench.marks() == {PREFIX + UNUSED_SINCE: at(1)}


async def test_object_that_is_newer_than_the_pass_is_not_marked(bench):
    bench.put(config_map(creationTimestamp=at(1)))
    await bench.tick()
    assert bench.writes == 0


async def test_tick_without_a_rule_makes_no_pass(bench):
    bench.policy = NO_POLICY
    bench.put(config_map())
    await bench.tick()
    assert bench.reader.looks == []


async def test_first_pass_is_about_the_namespaces_in_which_objects_may_be_deleted(bench):
    bench.put(config_map(), config_map("web", namespace="web"), config_map("db", namespace="db"))
    bench.cluster.put(namespace("db", unused="true"))
    await bench.tick()
    assert bench.reader.asked == [[]]  # a Pod of any namespace may mention them
    assert bench.reader.names.namespaces == {"ci", "db"}
    assert bench.annotations()
    assert bench.annotations("db")


async def test_tick_without_an_opted_in_namespace_makes_no_pass_and_removes_marks(bench):
    bench.cluster.put(namespace("ci"))
    bench.put(due())
    await bench.tick()
    assert bench.reader.asked == []
    assert bench.annotations() == {}
    assert bench.telemetry.passes == [""]


async def test_pass_is_about_all_namespaces_if_they_may_not_be_listed(bench, monkeypatch):
    async def refuse(_is_wanted):
        raise ForbiddenError("namespaces is forbidden")

    monkeypatch.setattr(bench.handler.namespaces, "find_names", refuse)
    bench.put(config_map())
    await bench.tick()
    assert bench.reader.asked == [[]]
    assert bench.annotations()


async def test_incomplete_pass_marks_and_deletes_nothing_and_is_reported(bench):
    bench.put(config_map(), due("other"))
    bench.reader.problems[""] = "widgets.example.com cannot be listed: 403"
    await bench.tick()
    assert bench.writes == 0
    assert bench.cluster.deleted == []
    assert bench.telemetry.passes == ["widgets.example.com cannot be listed: 403"]
    assert {reason for _, reason in bench.telemetry.verdicts()} == {"use-unknown"}


async def test_object_that_may_refer_to_everything_is_reported_and_nothing_is_written(bench):
    bench.put(config_map(), due("other"))
    bench.reader.references.append(replace(refer(name="*", problem="spec.x: expected a name"), namespace="*"))
    await bench.tick()
    assert bench.writes == 0
    assert bench.telemetry.passes == ["Pod ci/web: spec.x: expected a name"]
    assert {reason for _, reason in bench.telemetry.verdicts()} == {"use-unknown"}


async def test_object_that_may_refer_to_everything_in_its_namespace_is_reported(bench):
    bench.put(config_map(), due("other"))
    bench.reader.references.append(refer(name="*", problem="spec.x: expected a name"))
    await bench.tick()
    assert bench.writes == 0
    assert bench.telemetry.passes == [""]
    assert bench.telemetry.unknown_namespaces == [{"ci": "Pod ci/web: spec.x: expected a name"}]


async def test_template_of_another_namespace_removes_no_mark_and_deletes_nothing(bench):
    bench.put(due())
    tenant = replace(refer(name="web-*"), namespace="*", source=ObjectRef("v1", "ConfigMap", "tenant", "x", ""))
    bench.reader.references.append(tenant)
    await bench.tick()
    assert bench.writes == 0
    assert bench.cluster.deleted == []
    assert bench.annotations()


async def test_incomplete_pass_still_removes_the_mark_of_a_used_object(bench):
    bench.put(due())
    bench.reader.problems[""] = "widgets.example.com cannot be listed: 403"
    bench.reader.references.append(refer())
    await bench.tick()
    assert bench.annotations() == {}


async def test_api_server_that_is_away_is_reported_and_raised(bench):
    bench.reader.failure = TryLaterError("no answer")
    with pytest.raises(TryLaterError):
        await bench.tick()
    assert bench.telemetry.passes == ["no answer"]


async def test_kind_that_may_not_be_listed_is_passed_over(bench):
    bench.put(config_map())
    bench.reader.refused[TargetKind.SECRET] = ForbiddenError("no rights")
    await bench.tick()
    assert bench.annotations()
    assert bench.telemetry.problems[0][0] == "usage passed a kind over"


@pytest.mark.parametrize("error", [ConflictError("changed"), TryLaterError("busy"), PermanentError("refused")])
async def test_error_of_one_object_leaves_the_others(bench, error):
    bench.put(config_map("a", uid="a"), config_map("b", uid="b"))
    bench.cluster.fail("patch", error, on="a")
    await bench.tick()
    assert bench.annotations("b")
    assert not bench.annotations("a")


async def test_missing_right_to_patch_costs_one_patch_and_one_problem(bench):
    bench.put(*(config_map(f"one-{number}", uid=f"{number}") for number in range(30)))
    bench.put(config_map("web", namespace="web", uid="web"))
    bench.cluster.put(namespace("web", unused="true"))
    error = ForbiddenError('configmaps "one" is forbidden: User "u" cannot patch resource "configmaps"')
    for number in range(30):
        bench.cluster.fail("patch", error, on=f"one-{number}")
    await bench.tick()
    assert bench.cluster.counted()["patch"] == 2
    assert [name for name, _ in bench.telemetry.problems] == ["usage skipped the other objects of a namespace"]
    assert [one for one in bench.telemetry.verdicts() if one[0] == "failed"] == [("failed", "ForbiddenError")]
    assert bench.annotations("web")


async def test_webhook_that_refuses_some_objects_leaves_the_others(bench):
    bench.put(*(config_map(f"one-{number:02}", uid=f"{number}") for number in range(50)))
    for number in range(0, 50, 2):
        error = ForbiddenError("admission webhook denied the request")
        bench.cluster.fail("patch", error, on=f"one-{number:02}")
    await bench.tick()
    assert Counter(bench.telemetry.verdicts())["marked", "newly-unused"] == 25
    assert Counter(bench.telemetry.verdicts())["failed", "ForbiddenError"] == 25


async def test_webhook_that_refuses_all_objects_costs_a_limited_number_of_patches(bench):
    bench.put(*(config_map(f"one-{number:02}", uid=f"{number}") for number in range(50)))
    for number in range(50):
        bench.cluster.fail("patch", ForbiddenError("admission webhook denied the request"), on=f"one-{number:02}")
    await bench.tick()
    assert bench.cluster.counted()["patch"] == PATCH_REFUSALS_MAX


async def test_second_tick_at_the_same_time_does_nothing(bench):
    looking, gate = asyncio.Event(), asyncio.Event()

    async def wait(_namespace):
        looking.set()
        await gate.wait()

    bench.reader.on_look = wait
    async with asyncio.TaskGroup() as group:
        group.create_task(bench.tick())
        await looking.wait()
        await bench.tick()
        gate.set()
    assert bench.reader.looks == [""]


# Announcements


async def test_deletion_is_announced_before_the_object_is_due(bench):
    bench.put(config_map(marked=NOW - timedelta(seconds=DAY - 1800)))
    await bench.tick()
    assert bench.annotations()[PREFIX + DELETED_AFTER] == at(1800)
    assert bench.labels() == {ANNOUNCED_LABEL: "true"}
    assert [(reason, "web-7f9c2" in message) for _, reason, message in bench.telemetry.events] == [("Unused", True)]


async def test_deletion_is_not_announced_long_before(bench):
    bench.put(config_map(marked=NOW - timedelta(hours=20)))
    await bench.tick()
    assert bench.writes == 0


async def test_object_that_is_due_without_an_announcement_is_announced_first(bench):
    bench.put(config_map(marked=LONG_UNUSED))
    await bench.tick()
    assert bench.cluster.deleted == []
    assert bench.annotations()[PREFIX + DELETED_AFTER] == at(301)
    await bench.tick(timedelta(minutes=4))
    assert bench.cluster.deleted == []
    await bench.tick(timedelta(minutes=2))
    assert len(bench.cluster.deleted) == 1
    assert bench.writes == 1


@pytest.mark.parametrize("by", ["kubectl-annotate", "ttl-after-finished"])
async def test_announcement_of_another_client_does_not_replace_the_notice(bench, by):
    bench.put(announced(config_map(marked=LONG_UNUSED), by=by))
    await bench.tick()
    assert bench.cluster.deleted == []
    assert bench.annotations()[PREFIX + DELETED_AFTER] == at(301)
    await bench.tick(timedelta(minutes=6))
    assert len(bench.cluster.deleted) == 1


async def test_notice_counts_from_the_write_of_the_announcement_and_not_from_its_value(bench):
    bench.put(announced(config_map(marked=LONG_UNUSED), written_at=NOW - timedelta(minutes=2)))
    await bench.tick()
    assert bench.cluster.deleted == []
    await bench.tick(timedelta(minutes=4))
    assert len(bench.cluster.deleted) == 1
    assert bench.writes == 0


async def test_mark_of_another_client_is_written_again_once(bench):
    bench.put(announced(having_mark(config_map(), LONG_UNUSED, by="kubectl-annotate", written_at=NOW)))
    await bench.tick()
    assert bench.marks() == {PREFIX + UNUSED_SINCE: at(1)}
    await bench.tick(HOUR)
    assert (bench.writes, bench.cluster.deleted) == (1, [])


async def test_object_whose_entry_has_a_forged_time_is_not_marked_again_at_each_tick(bench):
    obj = config_map()
    obj["metadata"]["managedFields"][0]["time"] = at(10 * DAY)
    bench.put(obj)
    for _ in range(4):
        await bench.tick(HOUR)
    assert bench.writes == 1


async def test_use_that_cannot_be_recorded_is_no_failure(bench):
    """The object is in use: nothing was to be deleted."""
    bench.put(config_map(used=None))
    bench.reader.references.append(refer())
    bench.cluster.fail("patch", PermanentError("annotations: too long"), on="web-7f9c2")
    await bench.tick()
    assert bench.telemetry.verdicts() == [("kept", "used")]
    assert not bench.telemetry.refusals


async def test_first_use_is_recorded_once_and_allows_the_deletion_later(bench):
    bench.put(config_map(used=None))
    for _ in range(2):
        await bench.tick(HOUR)
        assert bench.writes == 0
    bench.reader.references.append(refer())
    for _ in range(3):
        await bench.tick(HOUR)
        assert bench.writes == 1
    bench.reader.references.clear()
    for _ in range(30):
        await bench.tick(HOUR)
    assert [one["metadata"]["name"] for one in bench.cluster.deleted] == ["web-7f9c2"]


async def test_mark_is_written_again_if_a_client_only_removes_something(bench):
    metadata = {"name": "web-7f9c2", "labels": {"app": "web"}}
    removable = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": "1", "b": "2"}}
    bench.cluster.store.create(CONFIG_MAPS, "ci", removable, WriteOptions("kubectl"))
    used = merge_patch(use_patch(bench.cluster.clock.now(), is_marked=False))
    bench.cluster.store.patch(CONFIG_MAPS, "ci", "web-7f9c2", used, WriteOptions(USE_MANAGER))
    changes: list[Any] = [{"data": {"a": None}}, {"metadata": {"labels": {"app": None}}}]
    for number, change in enumerate(changes, start=1):
        await bench.tick(HOUR)
        assert bench.writes == number
        bench.cluster.store.patch(CONFIG_MAPS, "ci", "web-7f9c2", merge_patch(change), WriteOptions("kubectl"))
    await bench.tick(HOUR)
    assert bench.writes == 3


async def test_announcement_is_withdrawn_if_the_ttl_is_raised(bench):
    bench.put(due())
    bench.policy = unused_policy(unused={"ttl": "30d"})
    await bench.tick()
    assert bench.marks() == {PREFIX + UNUSED_SINCE: format_instant(LONG_UNUSED)}
    assert bench.labels() == {}


async def test_two_processes_with_other_intervals_announce_a_deletion_once(bench):
    often = replace(bench.usage, handler=replace(bench.handler, interval=timedelta(minutes=1)))
    bench.put(config_map(marked=NOW - timedelta(seconds=DAY - 1800)))

    for _ in range(20):
        await bench.tick(timedelta(minutes=1))
        bench.reader.is_first = True
        await often.tick()

    assert bench.writes == 1
    assert bench.annotations()[PREFIX + DELETED_AFTER] == at(1800)


async def test_announcement_by_an_earlier_policy_holds_if_the_ttl_is_shortened(bench):
    bench.put(having_announcement(config_map(marked=NOW - timedelta(hours=10)), NOW + timedelta(minutes=30)))
    bench.policy = unused_policy(unused={"ttl": "10h10m"})
    await bench.tick()
    assert bench.writes == 0
    await bench.tick(timedelta(minutes=20))
    assert bench.cluster.deleted == []
    await bench.tick(timedelta(minutes=20))
    assert len(bench.cluster.deleted) == 1


async def test_announcement_without_a_mark_is_withdrawn_if_the_object_is_kept(bench):
    bench.put(announced(config_map()))
    bench.reader.references.append(refer())
    await bench.tick()
    assert bench.annotations() == {}


# Deletions


async def test_due_object_is_deleted_after_a_second_pass_of_its_namespace(bench):
    bench.put(due())
    await bench.tick()
    assert bench.reader.looks == ["", "ci"]
    [deleted] = bench.telemetry.deletions
    assert (deleted.reason, deleted.ttl_from, deleted.ref.uid) == ("unused", "policy rule rotated", "uid-web-7f9c2")
    assert bench.publisher.published == [deleted]
    assert bench.telemetry.usage_ticks[0]["deleted"] == 1


async def test_secret_is_deleted_too(bench):
    bench.put(announced(secret("token", marked=LONG_UNUSED)))
    await bench.tick()
    assert [one["metadata"]["name"] for one in bench.cluster.deleted] == ["token"]


async def test_delete_carries_uid_and_version_of_the_decision(bench):
    bench.put(due())

    async def write(namespace):
        if namespace:
            bench.cluster.write("web-7f9c2")

    bench.reader.on_look = write
    await bench.tick()
    assert bench.cluster.deleted == []
    assert ("kept", "try-later") in bench.telemetry.verdicts()


async def test_reference_that_the_second_pass_finds_keeps_the_object_and_removes_its_mark(bench):
    bench.put(due())
    bench.reader.later.append(refer())
    await bench.tick()
    assert bench.cluster.deleted == []
    assert bench.annotations() == {}


async def test_incomplete_second_pass_keeps_the_object(bench):
    bench.put(due())
    bench.reader.problems["ci"] = "pods cannot be listed: 500"
    await bench.tick()
    assert bench.cluster.deleted == []
    assert bench.telemetry.passes[-1] == "pods cannot be listed: 500"
    assert bench.annotations()[PREFIX + UNUSED_SINCE]


async def test_namespace_that_opts_out_during_the_second_pass_keeps_its_objects(bench):
    bench.put(due())

    async def opt_out(name):
        if name:
            bench.cluster.put(namespace("ci", unused="false"))
            bench.handler.namespaces._known.clear()

    bench.reader.on_look = opt_out
    await bench.tick()
    assert bench.cluster.deleted == []


async def test_policy_that_changes_during_the_second_pass_keeps_the_object(bench):
    bench.put(due())

    async def change(name):
        if name:
            bench.policy = NO_POLICY

    bench.reader.on_look = change
    await bench.tick()
    assert bench.cluster.deleted == []


async def test_held_object_loses_its_mark(bench):
    obj = due()
    obj["metadata"]["annotations"][PREFIX + "hold"] = "audit"
    bench.put(obj)
    await bench.tick()
    assert bench.annotations() == {PREFIX + "hold": "audit"}


async def test_audit_deletes_nothing_and_reports_what_would_be_deleted():
    bench = Bench(unused={"ttl": "1d", "audit": True})
    bench.put(config_map(marked=LONG_UNUSED))
    await bench.tick()
    assert bench.reader.looks == [""]
    assert bench.telemetry.verdicts() == [("would-delete", "audit-only")]
    assert bench.writes == 0


async def test_dry_run_writes_and_deletes_nothing():
    bench = Bench(dry_run=True)
    bench.put(config_map("new", uid="new"), config_map("due", uid="due", marked=LONG_UNUSED))
    await bench.tick()
    assert sorted(bench.telemetry.verdicts()) == [("kept", "newly-unused"), ("would-delete", "unused")]
    assert (bench.writes, bench.cluster.deleted, bench.telemetry.events) == (0, [], [])


async def test_stopped_deletions_keep_the_object(bench):
    bench.put(due())
    bench.state.data = dict(with_stop({}, BrakeStop(NOW, "me", "maintenance")))
    await bench.tick()
    assert bench.cluster.deleted == []
    assert bench.telemetry.verdicts()[-1] == ("kept", "stopped")


async def test_breaker_that_trips_keeps_the_rest():
    bench = Bench(limits=Limits(breaker=BreakerLimits(count=3, share=1.0, at_least=0)))
    bench.put(*(due(f"web-{number}") for number in range(6)))
    await bench.tick()
    assert len(bench.cluster.deleted) == 3
    assert Counter(bench.telemetry.verdicts())["kept", "breaker-open"] == 3


async def test_delete_that_the_guard_refuses_is_reported(bench):
    bench.put(due())
    bench.cluster.fail("delete", ForbiddenError("refused by the delete guard"))
    await bench.tick()
    assert bench.telemetry.verdicts()[-1] == ("failed", "ForbiddenError")
    assert [one.reason for one in bench.telemetry.refusals] == ["DeletionRefused"]
    assert bench.telemetry.events == []


async def test_object_that_is_gone_is_no_error(bench):
    bench.put(due())
    bench.cluster.before_delete = bench.cluster.remove
    await bench.tick()
    assert bench.telemetry.verdicts()[-1] == ("already-gone", "unused")


async def test_finding_of_an_older_pass_is_not_used_for_long(bench, monkeypatch):
    """A DELETE that would be sent too long after the second pass needs another one."""
    bench.put(due("a"), due("b"))
    monkeypatch.setattr("shared.usecases.usage.deletion.CONFIRMED_SECONDS_MAX", 0.05)
    slow = bench.cluster.delete

    async def delete(rule, obj, **options):
        await asyncio.sleep(0.1)
        return await slow(rule, obj, **options)

    monkeypatch.setattr(bench.cluster, "delete", delete)
    await bench.tick()
    assert bench.reader.looks == ["", "ci", "ci"]
    assert len(bench.cluster.deleted) == 2
    assert bench.telemetry.windows[0] >= 0.1


async def test_tick_continues_after_a_problem_of_the_broker(bench):
    bench.put(due())
    bench.publisher.failure = TryLaterError("no Broker")
    await bench.tick()
    assert bench.telemetry.problems[-1][0] == "could not publish a deletion"


async def test_budget_spreads_the_deletions_over_several_passes():
    limits = Limits(everywhere=Rate(per_second=20, burst=1), breaker=BreakerLimits(count=100, share=1.0, at_least=0))
    bench = Bench(limits=limits)
    bench.put(*(due(f"web-{number}") for number in range(4)))
    await bench.tick()
    assert len(bench.cluster.deleted) == 4
    assert len(bench.reader.looks) > 2


async def test_tick_whose_time_is_over_leaves_the_rest_to_the_next_tick(monkeypatch):
    monkeypatch.setattr("shared.usecases.usage.tick.TICK_SECONDS_MAX", 0.0)
    monkeypatch.setattr("shared.usecases.usage.tick.DELETION_SECONDS_MIN", 0.5)
    bench = Bench(limits=Limits(everywhere=Rate(per_second=1, burst=1)))
    bench.put(due("a"), due("b"))
    await bench.tick()
    assert len(bench.cluster.deleted) == 1
    assert bench.telemetry.verdicts()[-1] == ("kept", "left-to-tick")


def put_namespaces(bench, count):
    """Due objects in several namespaces, of which the last is due first."""
    for number in range(count):
        name, marked = f"web-{number:03}", LONG_UNUSED - timedelta(minutes=number)
        bench.cluster.put(namespace(name, unused="true"))
        bench.put(announced(config_map(name, marked=marked, uid=name, namespace=name)))


async def test_one_pass_confirms_the_objects_of_several_namespaces_the_oldest_first(bench):
    put_namespaces(bench, 25)
    await bench.tick()
    passes = [one.split(",") for one in bench.reader.looks[1:]]
    assert [len(one) for one in passes] == [10, 10, 5]
    assert passes[0] == [f"web-{number:03}" for number in range(15, 25)]
    assert len(bench.cluster.deleted) == 25


async def test_tick_whose_time_is_over_makes_no_other_pass(bench, monkeypatch):
    """What is left is deleted by the next tick."""
    monkeypatch.setattr("shared.usecases.usage.tick.TICK_SECONDS_MAX", 0.0)
    monkeypatch.setattr("shared.usecases.usage.tick.DELETION_SECONDS_MIN", 0.05)
    put_namespaces(bench, 25)

    async def wait(names):
        await asyncio.sleep(0.1 if names else 0)

    bench.reader.on_look = wait
    await bench.tick()
    assert len(bench.reader.looks) == 2
    assert len(bench.cluster.deleted) == 10
    assert Counter(bench.telemetry.verdicts())["kept", "left-to-tick"] == 15
    await bench.tick()
    assert len(bench.cluster.deleted) == 20


async def test_namespace_that_the_second_pass_cannot_list_leaves_the_others(bench):
    put_namespaces(bench, 2)

    async def fail(names):
        bench.reader.failed_in = {"web-000"} if names else set()

    bench.reader.on_look = fail
    await bench.tick()
    assert [one["metadata"]["name"] for one in bench.cluster.deleted] == ["web-001"]
    assert bench.telemetry.passes[-1] == "pods in namespace web-000 cannot be listed"
    assert ("kept", "use-unknown") in bench.telemetry.verdicts()


async def test_first_pass_of_one_namespace_lists_all_namespaces(bench):
    """A Pod of another namespace may mention an object in its arguments."""
    bench.usage = replace(bench.usage, namespace="ci")
    bench.put(due())
    await bench.tick()
    assert bench.reader.asked == [[], ["ci"]]
