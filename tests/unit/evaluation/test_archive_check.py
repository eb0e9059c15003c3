"""The evaluator asks the archive for exactly the version that was read, and reads it back before a deletion."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from shared.core.archive.document import Document, Record
from shared.core.decision.decide import Expire, Ignore, Reason, Wait
from shared.core.kinds.rule import Catalogue
from shared.core.values.objects import format_instant
from shared.errors import ForbiddenError, PermanentError, TryLaterError
from shared.evaluation import archive_check
from shared.evaluation import evaluator as evaluator_module
from shared.evaluation.batch import BatchEvaluator
from shared.evaluation.evaluator import DECIDED_SECONDS, Evaluator
from shared.evaluation.namespaces_and_owners import Owners
from shared.ports import Snapshot, Stored
from tests.archives import FakeArchive, FakeArchives, archiving, copied_of
from tests.builders import JOB, LONG_AGO, NOW, ago, having, job, later, not_none
from tests.fakes import FakeCluster

pytestmark = pytest.mark.anyio

DUE = job(complete=ago(60), ttl=30)
CONTROLLER = {"apiVersion": "batch/v1", "kind": "Job", "name": "parent", "uid": "u-parent", "controller": True}
KINDS = Catalogue((JOB,))


class Bench:
    def __init__(self, policy=None):
        self.archive = FakeArchive()
        self.archives = FakeArchives({"main": self.archive}, clock=lambda: NOW)
        self.policy = policy or archiving()
        self.evaluator = self.new()

    def new(self):
        """An evaluator that remembers nothing."""
        return Evaluator(FakeCluster(), KINDS, lambda: self.policy, archives=self.archives)

    async def decide(self, obj=DUE, now=NOW):
        return await self.evaluator.decide(Snapshot(obj, now), JOB)


@pytest.fixture
def bench():
    return Bench()


async def test_object_that_is_not_stored_is_kept(bench):
    decision = await bench.decide()

    assert (decision.reason, decision.facts.problem) == (Reason.NOT_ARCHIVED, "")
    assert bench.archive.calls == {"find": 1}


async def test_object_that_is_stored_is_due_after_the_grace(bench):
    bench.archive.store(DUE, at=ago(10))

    assert isinstance(await bench.decide(), Wait)
    assert isinstance(await bench.decide(), Wait)
    assert bench.archive.calls == {"find": 1, "read": 1}  # it is remembered
    assert isinstance(await bench.decide(now=later(3600)), Expire)
    assert bench.archive.calls == {"find": 2, "read": 2}


async def test_later_of_the_two_instants_is_the_acknowledgement(bench):
    copied = copied_of(DUE)
    bench.archive.documents[copied.key.path] = (
        Document(Record(archived_at=ago(600), with_children=True), copied.text).to_bytes(),
        ago(3600),
    )

    decision = await bench.decide()
    assert isinstance(decision, Wait)
    assert decision.until == later(3000)


AHEAD = datetime(2099, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(("stored_at", "archived_at"), [(AHEAD, ago(60)), (ago(60), AHEAD), (AHEAD, AHEAD)])
@pytest.mark.parametrize("now", [NOW, AHEAD])
async def test_document_whose_time_is_far_ahead_keeps_the_object_and_names_both_clocks(
    bench, stored_at, archived_at, now
):
    """Without this the object is due in 2099, and nothing says so. By no clock is it deleted earlier."""
    stored = bench.archive.store(DUE, at=archived_at)
    bench.archive.documents[stored.key.path] = bench.archive.documents[stored.key.path][0], stored_at

    decision = await bench.decide(now=now)

    assert decision.reason is Reason.NOT_ARCHIVED
    assert decision.facts.problem.startswith(f"archive main: {stored.location}: ")
    assert "got 2099-01-01T00:00:00Z; correct the clock" in decision.facts.problem
    assert format_instant(NOW) in decision.facts.problem


async def test_clock_of_an_archive_that_is_minutes_ahead_counts(bench):
    bench.archive.store(DUE, at=later(240))

    decision = await bench.decide()
    assert isinstance(decision, Wait)
    assert decision.until == later(240 + 3600)


async def test_other_version_that_is_stored_does_not_count(bench):
    bench.archive.store(having(DUE, "metadata.resourceVersion", "1041"), at=LONG_AGO)

    assert (await bench.decide()).reason is Reason.NOT_ARCHIVED


async def test_same_version_with_other_content_does_not_count(bench):
    bench.archive.store(having(DUE, "spec.parallelism", 2), at=LONG_AGO)

    assert (await bench.decide()).reason is Reason.NOT_ARCHIVED


async def test_other_content_beside_the_stored_version_changes_nothing(bench):
    """A writer to the archive can store it. What counts is under the key that the object itself gives."""
    bench.archive.store(having(DUE, "spec.parallelism", 2), at=ago(10))
    bench.archive.store(DUE, at=LONG_AGO)

    decision = await bench.decide()

    assert isinstance(decision, Expire)
    assert not_none(decision.facts.archived).digest == copied_of(DUE).key.digest


@pytest.mark.parametrize(
    "damage",
    [lambda data: data[:-1], lambda data: data.replace(b"build-42", b"build-43"), lambda _: b"", lambda _: b"{}\n{}"],
)
async def test_damaged_document_keeps_the_object(bench, damage):
    stored = bench.archive.store(DUE, at=LONG_AGO)
    path = stored.key.path
    bench.archive.documents[path] = (damage(bench.archive.documents[path][0]), LONG_AGO)

    decision = await bench.decide()

    assert decision.reason is Reason.ARCHIVE_UNREAD
    assert decision.facts.problem.startswith("archive main: ")


async def test_document_that_is_removed_after_it_was_found_keeps_the_object(bench):
    bench.archive.store(DUE, at=ago(3500))
    assert isinstance(await bench.decide(), Wait)
    bench.archive.documents.clear()

    assert (await bench.decide(now=later(100))).reason is Reason.NOT_ARCHIVED


@pytest.mark.parametrize("verb", ["find", "read"])
@pytest.mark.parametrize("error", [TryLaterError("down"), ForbiddenError("no right"), PermanentError("no bucket")])
async def test_archive_that_fails_keeps_the_object_and_names_the_problem(bench, verb, error):
    bench.archive.store(DUE, at=LONG_AGO)
    bench.archive.failures[verb] = error

    decision = await bench.decide()

    assert (decision.reason, decision.facts.problem) == (Reason.ARCHIVE_UNREAD, f"archive main: {error}")


async def test_archive_that_hangs_keeps_the_object(bench, monkeypatch):
    monkeypatch.setattr(archive_check, "ARCHIVE_SECONDS_MAX", 0.01)

    async def hang(_):
        await asyncio.sleep(60)

    bench.archive.before = hang

    assert (await bench.decide()).facts.problem == "archive main: no answer within 0.01 s"


async def test_archive_that_is_away_is_not_asked_for_each_object(bench):
    bench.archive.failure = TryLaterError("down", outage="down")
    for number in range(50):
        assert (await bench.decide(job(complete=ago(60), ttl=30, uid=f"u-{number}"))).facts.problem

    assert bench.archive.calls["find"] == 1


async def test_unreadable_id_of_the_cluster_is_no_outage_of_the_archive(bench):
    bench.archives.cluster_failure = TryLaterError("the API server does not answer GET namespace kube-system")

    assert (await bench.decide()).facts.problem == "the API server does not answer GET namespace kube-system"

    bench.archives.cluster_failure = None
    assert (await bench.decide()).facts.problem == ""
    assert bench.archive.calls["find"] == 1


async def test_archive_that_cannot_be_opened_keeps_the_object(bench):
    bench.archives.failure = PermanentError("no credentials")

    assert (await bench.decide()).facts.problem == "archive main: no credentials"


async def test_process_without_archives_keeps_the_object():
    evaluator = Evaluator(FakeCluster(), KINDS, archiving)
    policy = archiving()
    evaluator.policy = lambda: policy
    decision = await evaluator.decide(Snapshot(DUE, NOW), JOB)

    assert decision.reason is Reason.ARCHIVE_UNREAD
    assert decision.facts.problem == "archive main: this process has no access to it"


async def test_policy_without_the_archive_of_its_rule_keeps_the_object():
    bench = Bench(archiving().model_copy(update={"archives": {"other": archiving().archives["main"]}}))

    assert (await bench.decide()).reason is Reason.ARCHIVE_UNREAD


async def test_object_with_a_number_that_json_cannot_express_is_kept(bench):
    decision = await bench.decide(having(DUE, "spec.share", float("nan")))

    assert decision.facts.problem.startswith("the object cannot be archived: ")


async def test_policy_that_changes_during_the_read_back_lets_nothing_be_deleted(bench):
    bench.archive.store(DUE, at=LONG_AGO)
    snapshot = Snapshot(DUE, NOW)
    evaluation = await bench.evaluator.evaluate(snapshot, JOB)
    assert bench.evaluator.is_still_due(evaluation, snapshot, JOB)

    bench.policy = archiving()

    assert not bench.evaluator.is_still_due(evaluation, snapshot, JOB)


async def test_owner_is_read_again_after_a_slow_read_back(monkeypatch):
    """Otherwise an owner that started again meanwhile would not keep the object."""
    bench, seconds, asked = Bench(archiving(ttl="30s")), [0.0], []
    owned = having(job(complete=ago(60)), "metadata.ownerReferences", [CONTROLLER])
    bench.archive.store(owned, at=LONG_AGO)

    async def read_owner(_, owner):
        asked.append(owner)
        return len(asked) > 1

    async def answer_slowly(name):
        seconds[0] += DECIDED_SECONDS + 1 if name == "read" else 0

    monkeypatch.setattr(Owners, "find_unfinished", read_owner)
    monkeypatch.setattr(evaluator_module, "loop_now", lambda: seconds[0])
    bench.archive.before = answer_slowly

    assert (await bench.decide(owned)).reason is Reason.OWNER_UNFINISHED
    assert len(asked) == 2


async def test_document_that_was_read_back_and_is_lost_later_keeps_the_object(bench):
    """What is remembered of an object that was due once, and is not due now, is no proof when it is due again."""
    bench.archive.store(DUE, at=ago(1800))
    bench.policy = archiving(archive={"to": "main", "grace": "10m"})
    assert isinstance(await bench.decide(), Expire)
    bench.policy = archiving(archive={"to": "main", "grace": "1h"})
    assert isinstance(await bench.decide(), Wait)
    bench.archive.documents.clear()

    assert (await bench.decide(now=later(1800))).reason is Reason.NOT_ARCHIVED


# What was stored with the object


@pytest.mark.parametrize(
    ("wanted", "record", "is_whole"),
    [
        ({"children": True, "logs": False}, {"with_children": True}, True),
        ({"children": True, "logs": False}, {"with_children": False}, False),
        ({"children": True, "logs": True}, {"with_children": True}, False),
        ({"children": True, "logs": True}, {"with_children": True, "with_logs": True}, True),
        ({"children": False, "logs": True}, {"with_children": True, "with_logs": False}, False),
        ({"children": False, "logs": False}, {"with_children": False}, True),
    ],
)
async def test_document_without_what_the_policy_wants_does_not_count(wanted, record, is_whole):
    bench = Bench(archiving(archive={"to": "main", **wanted}))
    bench.archive.store(DUE, at=LONG_AGO, **record)

    decision = await bench.decide()

    assert isinstance(decision, Expire) == is_whole
    assert is_whole or decision.reason is Reason.NOT_ARCHIVED


async def test_acknowledgement_of_another_destination_does_not_count(bench):
    bench.archive.store(DUE, at=ago(10))
    assert isinstance(await bench.decide(), Wait)
    bench.policy = archiving(archives={"main": {"url": "file:///elsewhere"}})
    bench.archive.documents.clear()

    assert (await bench.decide()).reason is Reason.NOT_ARCHIVED


class Confirming(FakeArchive):
    """A foreign archiver: it confirms, and shows no documents."""

    async def confirm(self, key) -> Stored | None:
        await self._call("confirm")
        return await self.find(key)

    async def read(self, key):
        raise PermanentError("not readable")


async def test_foreign_archiver_confirms_before_a_deletion(bench):
    foreign = bench.archives.by_name["main"] = Confirming()
    assert (await bench.decide()).reason is Reason.NOT_ARCHIVED

    foreign.store(DUE, at=NOW)

    assert isinstance(await bench.decide(), Wait)
    assert isinstance(await bench.decide(now=later(3600)), Expire)
    assert foreign.calls["confirm"] == 3


async def test_grace_of_a_foreign_archiver_counts_from_the_finish_at_the_earliest():
    """Its clock may be wrong."""
    bench = Bench(archiving(archive={"to": "main", "grace": "61s"}))
    bench.archives.by_name["main"] = foreign = Confirming()
    foreign.store(DUE, at=LONG_AGO)

    decision = await bench.decide()
    assert isinstance(decision, Wait)
    assert decision.until == later(1)
    decision = await bench.decide(now=later(1))
    assert isinstance(decision, Expire)
    assert decision.since == later(1)


async def test_foreign_archiver_whose_clock_is_far_ahead_keeps_the_object(bench):
    foreign = bench.archives.by_name["main"] = Confirming()
    foreign.store(DUE, at=AHEAD)

    decision = await bench.decide(now=AHEAD + timedelta(hours=2))

    assert decision.reason is Reason.NOT_ARCHIVED
    assert "got 2099-01-01T00:00:00Z; correct the clock" in decision.facts.problem


async def test_error_about_one_document_is_no_outage(bench):
    bench.archive.failure = TryLaterError("archive main: cannot read s3://bucket/secret-name: 500")
    for number in range(3):
        decision = await bench.decide(job(complete=ago(60), ttl=30, uid=f"u-{number}"))
        assert decision.facts.problem == "archive main: cannot read s3://bucket/secret-name: 500"

    assert bench.archive.calls["find"] == 3


async def test_outage_names_no_object(bench):
    bench.archive.failure = TryLaterError("cannot read s3://bucket/secret-name: full", outage="the store is full")
    await bench.decide()

    decision = await bench.decide(job(complete=ago(60), ttl=30, uid="u-2"))

    assert decision.facts.problem == "archive main: the store is full"


async def test_decision_about_archiving_knows_what_is_stored(bench):
    snapshot = Snapshot(job(complete=ago(60)), NOW)
    assert not isinstance((await bench.evaluator.evaluate_archive(snapshot, JOB)).decision, Ignore)

    bench.archive.store(snapshot.obj)

    assert (await bench.evaluator.evaluate_archive(snapshot, JOB)).decision.reason is Reason.ARCHIVED


class TestBatch:
    async def decide(self, find_archived, obj=DUE, policy=None):
        batch = BatchEvaluator([policy or archiving()], Catalogue((JOB,)), find_archived=find_archived)
        evaluator = Bench().evaluator
        await batch.add(Snapshot(obj, NOW), JOB, await evaluator.namespaces.get("ci"))

        async def is_unfinished(_):
            return False

        return (await batch.settle(is_unfinished))[0].decisions[0]

    async def test_without_access_it_says_so(self):
        decision = await self.decide(None)

        assert (decision.reason, decision.facts.problem) == (
            Reason.ARCHIVE_UNREAD,
            "the archive cannot be read from here",
        )

    async def test_with_access_it_decides_as_the_evaluator_does(self, bench):
        find = bench.evaluator.archive_check.find
        assert (await self.decide(find)).reason is Reason.NOT_ARCHIVED
        bench.archive.store(DUE, at=ago(600))

        decision = await self.decide(find)

        assert decision == Wait(NOW - timedelta(seconds=600) + timedelta(hours=1), Reason.NOT_DUE, decision.facts)

    async def test_limit_by_count_waits_for_the_archive(self, bench):
        policy, find = archiving(maxCount=1, archive={"to": "main"}), bench.evaluator.archive_check.find
        old, new = job(complete=ago(60), uid="a", name="a"), job(complete=ago(30), uid="b", name="b")
        bench.archive.store(old, at=ago(20))
        batch = BatchEvaluator([policy], Catalogue((JOB,)), find_archived=find)
        home = await bench.evaluator.namespaces.get("ci")
        for one in (old, new):
            await batch.add(Snapshot(one, NOW), JOB, home)

        async def is_unfinished(_):
            return False

        decisions = [one.decisions[0] for one in await batch.settle(is_unfinished)]

        assert [one.reason for one in decisions] == [Reason.OVER_COUNT, Reason.NO_TTL]
