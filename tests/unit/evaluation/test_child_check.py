"""What the children of a due object wait for: each child is read, and its document is read back."""

import asyncio
from dataclasses import replace

import pytest

from shared.core.deadlines.decide_stop import Stop
from shared.core.decision.decide import Context, Expire, Ignore, Reason, Wait
from shared.core.kinds.rule import Catalogue
from shared.core.policy.policy import Policy
from shared.errors import ForbiddenError, PermanentError, TryLaterError
from shared.evaluation.child_check import CONTINUED_SECONDS
from shared.evaluation.evaluator import Evaluator
from shared.evaluation.owned_lists import ANSWER_SECONDS_MAX
from shared.messages import Purpose, TimersSet
from shared.ports import Snapshot
from shared.usecases.expire import DELETION
from shared.usecases.handler import Handler
from tests.archives import FakeArchive, FakeArchives, archiving
from tests.builders import (
    JOB,
    LONG_AGO,
    NOW,
    POD,
    ago,
    annotated,
    ended,
    having,
    job,
    later,
    namespace,
    pod,
    shipped_kinds,
)
from tests.fakes import FakeClock, FakeCluster, FakeTelemetry

pytestmark = pytest.mark.anyio

DUE = job(complete=ago(60), ttl=30)
OWNER = {"apiVersion": "batch/v1", "kind": "Job", "name": "build-42", "uid": DUE["metadata"]["uid"], "controller": True}

(REQUEST,) = shipped_kinds().of("certificates.k8s.io", "CertificateSigningRequest")
CLUSTER_SCOPED = {"apiVersion": REQUEST.api_version, "kind": REQUEST.kind, "metadata": {"name": "r", "uid": "uid-r"}}

OTHERS = {"match": {"kinds": ["pods"], "labels": {"matchLabels": {"team": "other"}}}}

EXECUTORS = {"kinds": ["pods"], "labels": {"matchLabels": {"role": "executor"}}}


def child(name="build-42-a", **metadata):
    """A finished Pod of the Job."""
    made = pod("Succeeded", containers=[ended(at=ago(60))])
    made["metadata"] |= {"name": name, "uid": f"uid-{name}", "ownerReferences": [OWNER], **metadata}
    return made


def running(name="build-42-a"):
    return having(child(name), "status", {"phase": "Running"})


def policy(**archive):
    return archiving(match={"kinds": ["pods"]}, archive={"to": "main", "grace": "1h"} | archive)


class Bench:
    def __init__(self):
        self.archive = FakeArchive()
        self.archives = FakeArchives({"main": self.archive})
        self.cluster = FakeCluster()
        self.cluster.put(namespace())
        self.policy = policy()
        self.evaluator = Evaluator(self.cluster, shipped_kinds(), lambda: self.policy, archives=self.archives)

    def put(self, *children, at=None):
        """Put children into the cluster, and into the archive if an instant is given."""
        for one in children:
            stored = self.cluster.put(one)
            if at is not None:
                self.archive.store(stored, POD, at=at)

    async def decide(self, obj=DUE, now=NOW):
        return await self.evaluator.decide(Snapshot(obj, now), JOB)


@pytest.fixture
def bench():
    return Bench()


async def kept(bench, obj=DUE):
    decision = await bench.decide(obj)
    return decision.reason, decision.facts.problem


async def test_child_that_is_not_stored_keeps_its_owner(bench):
    bench.put(child())

    reason, problem = await kept(bench)
    assert reason is Reason.CHILD_NOT_ARCHIVED
    assert problem == "child Pod build-42-a: archive main has not acknowledged this version of it"


async def test_owner_waits_for_the_grace_of_the_child_that_was_stored_last(bench):
    bench.put(child("a"), at=ago(3000))
    bench.put(child("b"), at=ago(600))

    decision = await bench.decide()
    assert isinstance(decision, Wait)
    assert decision.until == later(3000)
    assert decision.facts.moved_by == "the grace of the archive main for its child Pod b"
    assert isinstance(await bench.decide(now=later(3000)), Expire)


async def test_one_child_of_many_is_enough(bench):
    bench.put(*(child(f"{number}") for number in range(20)), at=LONG_AGO)
    bench.put(child("last"))

    assert (await kept(bench))[0] is Reason.CHILD_NOT_ARCHIVED


async def test_held_child_keeps_its_owner(bench):
    bench.put(annotated(child(), hold="evidence"), at=LONG_AGO)

    assert await kept(bench) == (Reason.CHILD_HELD, "child Pod build-42-a: it is held")


@pytest.mark.parametrize(
    ("children", "settings"),
    [
        pytest.param([], {}, id="no children"),
        pytest.param([child(deletionTimestamp="2026-03-14T15:00:00Z")], {}, id="it is being deleted anyway"),
        pytest.param([annotated(child(), archive="false")], {}, id="it is opted out"),
        pytest.param([annotated(running(), archive="false")], {}, id="it is opted out, and runs"),
        pytest.param([child()], OTHERS, id="no rule matches"),
        pytest.param([child()], {"match": {"kinds": ["taskruns"]}}, id="another kind"),
        pytest.param([child()], {"audit": True}, id="a rule that only reports"),
    ],
)
async def test_child_that_no_archive_waits_for_keeps_nothing(bench, children, settings):
    bench.policy = archiving(**({"match": {"kinds": ["pods"]}} | settings))
    bench.put(*children)

    assert isinstance(await bench.decide(), Expire)


@pytest.mark.parametrize(
    ("obj", "problem"),
    [
        pytest.param(running(), "it has not finished, and policy rule one has it archived when it finishes", id="runs"),
        pytest.param(having(child(), "status", "?"), "it has not finished", id="unknown shape"),
        pytest.param(annotated(child(), archive="elsewhere"), "annotation ttlafterfinished.dev/archive", id="invalid"),
    ],
)
async def test_child_whose_archiving_is_unknown_or_yet_to_come_keeps_its_owner(bench, obj, problem):
    bench.put(obj)

    reason, found = await kept(bench)
    assert reason is Reason.CHILD_NOT_ARCHIVED
    assert problem in found


class UnreadNamespaces:
    async def get(self, _name):
        return None


@pytest.mark.parametrize("obj", [child(), running()], ids=["finished", "runs"])
async def test_child_whose_namespace_is_unread_is_an_unread_child(bench, obj):
    bench.put(having(obj, "metadata.ownerReferences", [OWNER | {"uid": "uid-r"}]))
    check = replace(bench.evaluator.child_check, cluster=bench.cluster, namespaces=UnreadNamespaces())

    fact = await check.find(CLUSTER_SCOPED, REQUEST, Context(bench.policy))
    assert fact.reason is Reason.CHILDREN_UNREAD
    assert fact.problem == "child Pod build-42-a: its namespace was not read, and may have it archived"


@pytest.mark.parametrize("error", [TryLaterError("down"), ForbiddenError("no right"), PermanentError("no bucket")])
async def test_archive_that_fails_keeps_the_owner(bench, error):
    bench.put(child(), at=LONG_AGO)
    bench.archive.failures["read"] = error

    reason, problem = await kept(bench)
    assert reason is Reason.CHILDREN_UNREAD
    assert f"{error}" in problem


async def test_children_that_may_not_be_read_keep_the_owner(bench):
    bench.put(child(), at=LONG_AGO)
    bench.cluster.fail("list-metadata", ForbiddenError("pods is forbidden"))

    reason, problem = await kept(bench)
    assert reason is Reason.CHILDREN_UNREAD
    assert "expected the right to list pods" in problem


async def test_busy_api_server_is_asked_again_later(bench):
    bench.cluster.fail("list-metadata", TryLaterError("429"))

    with pytest.raises(TryLaterError):
        await bench.decide()


async def test_without_archives_no_child_is_read(bench):
    bench.policy = Policy.model_validate(
        {"rules": [{"name": "all", "match": {"kinds": ["jobs"]}, "ttl": "1s"}]}
    ).of_kinds(shipped_kinds())
    bench.put(annotated(child(), hold="why"))

    assert isinstance(await bench.decide(), Expire)
    assert "list-metadata" not in {call.verb for call in bench.cluster.calls}
    assert "_every" not in vars(bench.evaluator.child_check)  # nor is a list of kinds made


async def test_children_of_an_object_that_is_not_due_are_not_read(bench):
    bench.put(child())

    assert isinstance(await bench.decide(now=ago(40)), Wait)
    assert "list-metadata" not in {call.verb for call in bench.cluster.calls}


async def test_document_is_read_back_before_each_deletion(bench):
    bench.put(child(), at=LONG_AGO)
    assert isinstance(await bench.decide(), Expire)

    bench.archive.documents.clear()
    assert (await kept(bench))[0] is Reason.CHILD_NOT_ARCHIVED


def answering_slowly(bench):
    async def answer(verb: str) -> None:
        await asyncio.sleep(4 if verb == "read" else 0)

    bench.archive.before = answer


def slow_lists(bench, *, seconds):
    """LISTs of owners take so long; returns their instants."""
    began, list_page = [], bench.cluster.list_page

    async def answer(*args, **options):
        began.append(asyncio.get_running_loop().time())
        await asyncio.sleep(seconds)
        return await list_page(*args, **options)

    bench.cluster.list_page = answer
    return began


async def test_attempt_that_is_too_short_for_all_children_is_continued_by_the_next(bench):
    bench.put(*(child(f"{number:02}") for number in range(24)), at=LONG_AGO)
    answering_slowly(bench)

    assert (await kept(bench))[1] == "its children could not all be checked within 6 s"
    assert isinstance(await bench.decide(), Expire)
    assert bench.archive.calls["read"] == 24 + 8  # those that were cut off are read again


async def test_attempts_that_read_nothing_back_leave_nothing_in_memory(bench):
    bench.put(child(), at=LONG_AGO)

    async def hang(_verb: str) -> None:
        await asyncio.sleep(60)

    bench.archive.before = hang
    assert isinstance((await bench.decide()), Ignore)
    assert not bench.evaluator.child_check._continued


async def test_document_is_read_back_again_after_15_minutes_however_often_attempts_are_cut_off(bench):
    bench.put(*(child(f"{number:02}") for number in range(40)), at=LONG_AGO)
    answering_slowly(bench)
    assert isinstance((await bench.decide()), Ignore)  # 16 are read back
    bench.archive.documents.pop(next(iter(bench.archive.documents)))
    await asyncio.sleep(CONTINUED_SECONDS - 60)
    assert isinstance((await bench.decide()), Ignore)  # 16 more
    await asyncio.sleep(120)

    assert (await kept(bench))[0] is Reason.CHILD_NOT_ARCHIVED
    assert (await kept(bench))[1] == "child Pod 00: archive main has not acknowledged this version of it"


async def test_what_an_attempt_has_read_back_counts_for_no_other_destination(bench):
    bench.put(*(child(f"{number:02}") for number in range(24)), at=LONG_AGO)
    answering_slowly(bench)
    await bench.decide()
    bench.policy = archiving(match={"kinds": ["pods"]}, archives={"main": {"url": "file:///another"}})
    bench.archive.documents.clear()

    assert (await kept(bench))[0] is Reason.CHILD_NOT_ARCHIVED


async def test_slow_namespace_gets_few_checks_at_once(bench):
    bench.put(*(child(f"{number:02}") for number in range(40)), at=LONG_AGO)
    answering_slowly(bench)
    await bench.decide()

    found = await asyncio.gather(*(bench.decide() for _ in range(5)))
    problems = [one.facts.problem for one in found]
    assert problems.count("children in namespace ci take long to check, and others are checked now") == 3
    assert {one.reason for one in found} == {Reason.CHILDREN_UNREAD}


async def test_any_object_waits_for_a_child_of_a_kind_that_a_rule_archives(bench):
    """Spark's driver owns its executors: no kind rule names Pods as children of Pods."""
    driver = bench.cluster.put(annotated(child("driver", ownerReferences=[]), ttl="1s"))
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "driver", "uid": driver["metadata"]["uid"]}
    bench.policy = archiving(match=EXECUTORS)
    bench.put(child("executor", ownerReferences=[owner], labels={"role": "executor"}))

    decision = await bench.evaluator.decide(Snapshot(driver, NOW), POD)
    assert (decision.reason, decision.facts.problem) == (
        Reason.CHILD_NOT_ARCHIVED,
        "child Pod executor: archive main has not acknowledged this version of it",
    )
    bench.put(child("executor", ownerReferences=[owner], labels={"role": "executor"}), at=LONG_AGO)
    assert isinstance(await bench.evaluator.decide(Snapshot(driver, NOW), POD), Expire)


async def test_kind_that_is_not_enabled_is_not_read_unless_the_kind_rule_names_it(bench):
    """This process has no right to list it, and nothing archives its objects."""
    bench.policy = archiving(match={"kinds": ["*"]})
    enabled = Catalogue((JOB, POD))
    evaluator = Evaluator(
        bench.cluster, shipped_kinds(), lambda: bench.policy, archives=bench.archives, enabled=enabled
    )
    due = bench.cluster.put(DUE)
    bench.archive.store(due, JOB, at=LONG_AGO)

    assert isinstance(await evaluator.decide(Snapshot(due, NOW), JOB), Expire)
    assert {call.what for call in bench.cluster.calls if call.verb == "list-metadata"} == {"jobs", "pods"}


async def test_list_that_takes_longer_than_an_attempt_answers_the_next_one(bench):
    bench.put(child(), at=LONG_AGO)
    lists = slow_lists(bench, seconds=20)

    for _ in range(3):
        assert (await kept(bench))[1] == "its children could not all be checked within 6 s"
    await asyncio.sleep(10)
    assert isinstance(await bench.decide(), Expire)
    assert len(lists) == 1
    assert (await kept(bench))[0] is Reason.CHILDREN_UNREAD  # an answer is used once
    await asyncio.sleep(ANSWER_SECONDS_MAX + 60)
    assert (await kept(bench))[0] is Reason.CHILDREN_UNREAD  # and not for ever
    assert len(lists) == 3


async def test_sweep_sets_a_timer_for_an_object_whose_children_it_could_not_check_in_time(bench):
    """The next sweep is too late for the answer of its LIST."""
    kinds = Catalogue((JOB,))
    expiry = Handler(DELETION, bench.cluster, kinds, bench.evaluator, FakeClock(), FakeTelemetry(), dry_run=False)
    slow_lists(bench, seconds=20)
    bench.put(child())

    answer = await expiry.handle_listed(JOB, Snapshot(DUE, NOW), missed_before=LONG_AGO)
    assert isinstance(answer, TimersSet)
    (timer,) = answer.timers
    assert (timer.purpose, timer.attempts > 5) == (Purpose.EXPIRE, True)  # with long pauses from the first one on
    await asyncio.sleep(60)
    assert (
        await expiry.handle_listed(JOB, Snapshot(DUE, NOW), missed_before=LONG_AGO) is None
    )  # it waits for the archive


async def test_that_timer_is_spread_as_the_deletion_would_be(bench):
    rules = [
        {"name": "pods", "match": {"kinds": ["pods"]}, "archive": {"to": "main", "grace": "1h"}},
        {"name": "jobs", "match": {"kinds": ["jobs"]}, "ttl": "1s", "jitter": "1h"},
    ]
    document = {"archives": {"main": {"url": "file:///archive"}}, "rules": rules}
    bench.policy = Policy.model_validate(document).of_kinds(shipped_kinds())
    expiry = Handler(
        DELETION, bench.cluster, Catalogue((JOB,)), bench.evaluator, FakeClock(), FakeTelemetry(), dry_run=False
    )
    overdue = Snapshot(job(complete=ago(600)), NOW)

    in_time = await expiry.handle_listed(JOB, overdue, missed_before=NOW)
    slow_lists(bench, seconds=20)
    late = await expiry.handle_listed(JOB, overdue, missed_before=NOW)

    assert isinstance(in_time, TimersSet)
    assert isinstance(late, TimersSet)
    assert late.timers[0].due_at == in_time.timers[0].due_at


async def test_list_of_before_an_object_was_written_does_not_answer(bench):
    """A Workflow that runs again has the same uid, and new Pods."""
    slow_lists(bench, seconds=20)
    assert isinstance(await bench.decide(), Ignore)
    bench.put(child())
    await asyncio.sleep(60)

    again = having(DUE, "metadata.resourceVersion", "2000")
    assert isinstance(await bench.decide(again), Ignore)
    await asyncio.sleep(60)
    assert "archive main has not acknowledged" in (await kept(bench, again))[1]


async def test_objects_that_have_to_wait_in_a_slow_namespace_share_its_next_list(bench):
    owners = [having(DUE, "metadata", DUE["metadata"] | {"name": f"b{one}", "uid": f"uid-{one}"}) for one in range(9)]
    lists = slow_lists(bench, seconds=20)
    await bench.decide()

    for one in owners:
        assert isinstance(await asyncio.wait_for(bench.decide(one), 7), Ignore)
    await asyncio.sleep(60)
    assert [type(await bench.decide(one)) for one in owners] == [Expire] * len(owners)
    assert len(lists) <= 4


async def test_namespace_that_archives_all_has_all_enabled_kinds_looked_at(bench):
    bench.cluster.put(namespace(archive="main"))
    bench.policy = archiving(match={"kinds": ["taskruns"]})
    due = bench.cluster.put(DUE)
    bench.archive.store(due, JOB, at=LONG_AGO)
    bench.put(having(child(), "metadata.ownerReferences", [OWNER | {"uid": due["metadata"]["uid"]}]))

    assert "archive main has not acknowledged" in (await kept(bench, due))[1]


async def test_list_of_before_does_not_answer_for_an_owner_that_runs(bench):
    """It may create children without a new version."""
    late = annotated(job(start=ago(60)), **{"active-deadline": "30s", "on-deadline": "delete"})
    slow_lists(bench, seconds=8)
    assert isinstance((await bench.evaluator.evaluate_stop(Snapshot(late, NOW), JOB)).decision, Ignore)
    bench.put(running())
    await asyncio.sleep(60)

    assert isinstance((await bench.evaluator.evaluate_stop(Snapshot(late, NOW), JOB)).decision, Ignore)


async def test_answer_counts_from_the_beginning_of_its_list(bench):
    lists = slow_lists(bench, seconds=200)
    assert isinstance(await bench.decide(), Ignore)
    await asyncio.sleep(ANSWER_SECONDS_MAX - 3)  # after the 6 s of that attempt

    assert isinstance(await bench.decide(), Ignore)
    assert len(lists) == 2


async def test_outage_is_no_answer_for_the_next_attempt(bench):
    bench.cluster.fail("list-metadata", TryLaterError("503"))
    slow_lists(bench, seconds=20)
    assert isinstance(await bench.decide(), Ignore)
    await asyncio.sleep(60)

    assert (await kept(bench))[1] == "its children could not all be checked within 6 s"


async def test_answer_that_is_there_does_not_wait_for_other_checks(bench):
    """Although as many as may run in a slow namespace wait for their LIST."""
    slow_lists(bench, seconds=20)
    await bench.decide()
    await asyncio.sleep(20)
    others = [having(DUE, "metadata", DUE["metadata"] | {"name": f"b{one}", "uid": f"uid-{one}"}) for one in range(2)]
    waiting = [asyncio.ensure_future(bench.decide(one)) for one in others]
    await asyncio.sleep(1)

    assert isinstance(await bench.decide(), Expire)
    await asyncio.gather(*waiting)


async def test_namespaces_with_slow_lists_do_not_stop_another(bench):
    list_page = bench.cluster.list_page

    async def answer(rule, *, namespace="", continue_token="", **options):
        await asyncio.sleep(0.3 if namespace.startswith("slow") else 0.05)
        page = await list_page(rule, namespace=namespace, **options)
        number = int(continue_token or 0) + 1
        return replace(page, continue_token=str(number) if namespace.startswith("slow") and number < 200 else "")

    bench.cluster.list_page = answer

    def owner(namespace, name):
        return having(
            DUE, "metadata", DUE["metadata"] | {"name": name, "namespace": namespace, "uid": f"{namespace}-{name}"}
        )

    async def keep_trying(namespace):
        for number in range(60):
            await bench.decide(owner(namespace, f"b{number}"))

    trying = [asyncio.ensure_future(keep_trying(f"slow{number}")) for number in range(6)]
    for number in range(30):
        assert isinstance(await bench.decide(owner("quiet", f"b{number}")), Expire)
        await asyncio.sleep(5)
    await asyncio.gather(*trying)


async def test_list_for_a_running_owner_ends_with_its_attempt(bench):
    """No later attempt may use it, and it would keep the long LISTs of other namespaces waiting."""
    pages, list_page = [], bench.cluster.list_page

    async def answer(rule, *, namespace="", continue_token="", **options):
        pages.append(continue_token)
        await asyncio.sleep(1)
        return replace(await list_page(rule, namespace=namespace, **options), continue_token=str(len(pages)))

    bench.cluster.list_page = answer
    late = annotated(job(start=ago(60)), **{"active-deadline": "30s", "on-deadline": "delete"})
    assert isinstance((await bench.evaluator.evaluate_stop(Snapshot(late, NOW), JOB)).decision, Ignore)
    await asyncio.sleep(300)
    assert len(pages) < 10


async def test_slow_archive_gets_few_checks_at_once_after_the_list_has_ended(bench):
    owners = [having(DUE, "metadata", DUE["metadata"] | {"name": f"b{one}", "uid": f"uid-{one}"}) for one in range(40)]
    for owner in owners:
        name = owner["metadata"]["name"]
        bench.put(child(name, ownerReferences=[OWNER | {"uid": owner["metadata"]["uid"]}]), at=LONG_AGO)
    slow_lists(bench, seconds=20)
    await asyncio.gather(*(bench.decide(one) for one in owners))
    await asyncio.sleep(60)
    reading = most = 0

    async def answer(verb: str) -> None:
        nonlocal reading, most
        reading += 1
        most = max(most, reading)
        try:
            await asyncio.sleep(8)
        finally:
            reading -= 1

    bench.archive.before = answer
    assert isinstance(await bench.decide(owners[0]), Ignore)
    assert {type(one) for one in await asyncio.gather(*(bench.decide(one) for one in owners[1:]))} == {Ignore}
    assert most <= 2


async def test_any_enabled_kind_may_be_a_child_of_a_cluster_scoped_object(bench):
    """Its children may be in a namespace whose annotation has them archived."""
    bench.cluster.put(namespace(archive="main"))
    bench.policy = archiving(match={"kinds": ["taskruns"]})
    bench.put(child("p", ownerReferences=[OWNER | {"uid": "uid-r"}]))

    fact = await bench.evaluator.child_check.find(CLUSTER_SCOPED, REQUEST, Context(bench.policy))
    assert fact.reason is Reason.CHILD_NOT_ARCHIVED


async def test_child_that_was_stored_with_its_owner_only_counts(bench):
    """Its document has no children: they are children of the owner, too, and are looked at themselves."""
    stored = bench.cluster.put(child())
    bench.archive.store(stored, POD, at=LONG_AGO, with_children=False)

    assert isinstance(await bench.decide(), Expire)


@pytest.mark.parametrize("status", ["?", {"phase": 7}])
async def test_held_child_of_an_unknown_shape_keeps_its_owner(bench, status):
    bench.policy = archiving(match={"kinds": ["taskruns"]})
    bench.put(annotated(having(child(), "status", status), hold="evidence"))

    assert (await kept(bench))[0] is Reason.CHILD_HELD


async def test_child_in_a_version_that_no_rule_knows_keeps_its_owner(bench):
    kinds = Catalogue((JOB, POD.model_copy(update={"api_versions": ("v2",)})))
    evaluator = Evaluator(bench.cluster, kinds, lambda: bench.policy, archives=bench.archives)
    bench.put(child())

    decision = await evaluator.decide(Snapshot(DUE, NOW), JOB)
    assert (decision.reason, "no kind rule knows its version v1" in decision.facts.problem) == (
        Reason.CHILDREN_UNREAD,
        True,
    )


async def test_object_is_not_deleted_at_its_deadline_before_its_children_are_archived(bench):
    late = annotated(job(start=ago(60)), **{"active-deadline": "30s", "on-deadline": "delete"})
    bench.put(running())
    found = (await bench.evaluator.evaluate_stop(Snapshot(late, NOW), JOB)).decision
    assert (found.reason, "it has not finished" in found.facts.problem) == (Reason.CHILD_NOT_ARCHIVED, True)

    bench.put(annotated(running(), archive="false"))
    assert isinstance((await bench.evaluator.evaluate_stop(Snapshot(late, NOW), JOB)).decision, Stop)


async def test_decision_after_slow_children_is_made_again_and_counts(bench):
    bench.put(child(), at=LONG_AGO)

    async def answer_slowly(verb: str) -> None:
        await asyncio.sleep(2)

    bench.archive.before = answer_slowly
    evaluation = await bench.evaluator.evaluate(Snapshot(DUE, NOW), JOB)

    assert isinstance(evaluation.decision, Expire)
    assert [call.verb for call in bench.cluster.calls].count("list-metadata") == 1  # the children are read once
    assert bench.evaluator.is_still_due(evaluation, Snapshot(DUE, NOW), JOB)
