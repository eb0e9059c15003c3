"""The functions under a policy: their timers, deletions and reports."""

from datetime import timedelta

import anyio
import pytest

from shared.core.kinds.rule import Catalogue
from shared.core.policy.policy import NO_POLICY
from shared.core.values.timing import jittered
from shared.evaluation.evaluator import Evaluator
from shared.evaluation.ranks import RANK_AGE_SECONDS_MAX
from shared.messages import Purpose, SweepStep, Timer, TimersSet
from shared.usecases.expire import DELETION
from shared.usecases.handler import Handler
from shared.usecases.sweeps.pages import FULL_READS_MAX
from shared.usecases.timers import schedule
from tests.builders import (
    BARE_TRAINJOB,
    JOB,
    NOW,
    POD,
    ago,
    annotated,
    created,
    ended,
    job,
    later,
    namespace,
    pod,
    trainjob,
)
from tests.fakes import FakeClock, FakeCluster, FakePublisher, FakeTelemetry
from tests.sweeps import sweep_with
from tests.unit.core.ttl.test_precedence import DONE, rules
from tests.unit.evaluation.test_evaluator import named
from tests.unit.evaluation.test_quotas import quota

pytestmark = pytest.mark.anyio

KINDS = Catalogue((JOB, POD, BARE_TRAINJOB))


class Bench:
    """The functions of one process over fakes."""

    def __init__(self, policy=NO_POLICY, kinds=KINDS):
        self.clock, self.telemetry, self.publisher = FakeClock(), FakeTelemetry(), FakePublisher()
        self.cluster = FakeCluster(self.clock)
        self.policy, self.kinds = policy, kinds
        self.evaluator = Evaluator(self.cluster, kinds, lambda: self.policy)

    def expiry(self, **options):
        return Handler(
            DELETION,
            self.cluster,
            self.kinds,
            self.evaluator,
            self.clock,
            self.telemetry,
            **{"dry_run": False} | options,
        )

    async def expire(self, obj, **options):
        stored = self.cluster.put(obj)
        ref = {name: stored["metadata"][name] for name in ("namespace", "name", "uid")}
        ref |= {"apiVersion": stored["apiVersion"], "kind": stored["kind"]}
        timer = Timer.model_validate({"ref": ref, "purpose": Purpose.EXPIRE, "dueAt": NOW})
        return await self.expiry(**options).handle(timer)

    async def sweep(self, **options):
        expiry = self.expiry(by="sweep", **options)
        await sweep_with(expiry, self.publisher, timedelta(minutes=10), concurrency=4).sweep(SweepStep())
        return {timer.ref.name: timer.due_at for one in self.published(TimersSet) for timer in one.timers}

    def published(self, kind):
        return [one for one in self.publisher.published if isinstance(one, kind)]

    async def schedule(self, obj, get_cached=lambda _: None):
        known = {"catalogue": self.kinds, "clock": self.clock, "telemetry": self.telemetry, "policy": self.policy}
        answer = await schedule(obj, get_cached=get_cached, **known)
        return answer.timers[0].due_at if answer else None


# schedule: it has no rights, so `expire` reads all further facts when the timer fires


@pytest.mark.parametrize(
    ("obj", "policy", "expected"),
    [
        (DONE, NO_POLICY, NOW),
        (job(), rules(ttl="0s"), None),
        (annotated(DONE, ttl="3m"), NO_POLICY, later(80)),
        (annotated(DONE, ttl="1s"), NO_POLICY, ago(99)),
        (annotated(DONE, ttl="1d"), NO_POLICY, NOW),
        (DONE, rules(ttl="3m"), later(80)),
        (DONE, rules(ttl="3m", keepLast=3), NOW),
        (DONE, rules(ttl="3m", maxCount=3), NOW),
        (DONE, rules(maxCount=3), NOW),
        (DONE, rules(ttl="3m", whenQuotaAbove="90%"), NOW),
        (DONE, rules(whenQuotaAbove="90%"), NOW),
        (annotated(DONE, ttl="never"), rules(maxCount=3), None),
        (annotated(DONE, hold="why"), rules(maxCount=3), None),
        (annotated(DONE, hold="why"), rules(ttl="0s"), None),
        (DONE, rules(ttl="never"), None),
        (DONE, rules(when="object.spec.nothing > 1", ttl="1s"), None),
    ],
)
async def test_schedule_without_the_namespace_sets_a_timer_if_the_object_may_expire(obj, policy, expected):
    assert await Bench(policy).schedule(obj) == expected


async def test_schedule_with_a_known_namespace_applies_its_max_ttl():
    bench = Bench()
    bench.cluster.put(namespace(max_ttl="1h"))
    await bench.evaluator.namespaces.get("ci")

    get_cached = bench.evaluator.namespaces.get_cached
    assert await bench.schedule(annotated(DONE, ttl="1d"), get_cached) == later(3_500)
    assert await bench.schedule(DONE, get_cached) is None


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"ttl": "1h", "keepLast": 3}, NOW),
        ({"ttl": "1h", "maxCount": 3}, NOW),
        ({"maxCount": 3}, NOW),
        ({"ttl": "1h", "whenQuotaAbove": "90%"}, NOW),
        ({"whenQuotaAbove": "90%"}, None),
        ({"ttl": "1s", "maxCount": 3}, ago(99)),
    ],
)
async def test_schedule_requests_the_rank_of_a_finished_object(settings, expected):
    bench = Bench(rules(**settings))
    await bench.evaluator.namespaces.get("ci")

    assert await bench.schedule(DONE, bench.evaluator.namespaces.get_cached) == expected


# expire


async def test_keep_last_deletes_older_objects_without_a_sweep():
    bench = Bench(rules(ttl="0s", keepLast=2))
    for number in range(3):
        bench.cluster.put(named(number, complete=ago(10 - number)))

    answer = await bench.expire(named(3, complete=ago(1)))

    assert {timer.ref.name: timer.due_at for timer in answer.timers} == {"job-001": ago(9), "job-000": ago(10)}
    for timer in answer.timers:
        await bench.expiry().handle(timer)
    assert bench.cluster.names == {"job-002", "job-003"}


@pytest.mark.parametrize("settings", [{}, {"ttl": "1d"}])
async def test_max_count_deletes_the_oldest_objects_without_a_sweep(settings):
    bench = Bench(rules(maxCount=2, **settings))
    for number in range(3):
        bench.cluster.put(named(number, complete=ago(10 - number)))

    answer = await bench.expire(named(3, complete=ago(1)))

    due = {timer.ref.name: timer.due_at for timer in answer.timers}
    assert due == {"job-000": ago(10), "job-001": ago(9)} | ({"job-003": later(86_399)} if settings else {})
    for timer in answer.timers:
        await bench.expiry().handle(timer)
    assert bench.cluster.names == {"job-002", "job-003"}
    assert {(one.reason, one.due_at, one.lateness_seconds) for one in bench.telemetry.deletions} == {
        ("over-count", ago(8), 8.0),  # the third object pushed the first beyond the limit
        ("over-count", ago(1), 1.0),
    }


async def test_quota_deletes_the_oldest_objects_without_a_sweep():
    bench = Bench(rules(ttl="1d", whenQuotaAbove="50%", notBefore="5s"))
    bench.cluster.put(quota(hard=6, used=4))
    for number in range(3):
        bench.cluster.put(named(number, complete=ago(10 - number)))

    answer = await bench.expire(named(3, complete=ago(1)))

    assert {timer.ref.name: timer.due_at for timer in answer.timers} == {"job-000": ago(5), "job-003": later(86_399)}
    for timer in answer.timers:
        await bench.expiry().handle(timer)
    assert bench.cluster.names == {"job-001", "job-002", "job-003", "objects"}
    assert [(one.reason, one.lateness_seconds) for one in bench.telemetry.deletions] == [("over-quota", 0.0)]


@pytest.mark.parametrize(("settings", "expected"), [({"propagation": "Foreground"}, "Foreground"), ({}, "Background")])
async def test_rule_sets_the_propagation_of_the_delete(settings, expected):
    bench = Bench(rules(ttl="1s", **settings))

    await bench.expire(DONE)

    assert bench.cluster.propagations == [expected]


async def test_malformed_namespace_is_reported_on_the_namespace():
    bench = Bench()
    bench.cluster.put(namespace(default_ttl="soon"))

    assert await bench.expire(DONE) is None

    ((ref, reason, message),) = bench.telemetry.events
    assert (ref.kind, ref.name, reason) == ("Namespace", "ci", "InvalidPolicy")
    assert message.startswith("everything in it is kept: namespace ci: annotation ttlafterfinished.dev/default-ttl:")


async def test_rule_without_a_result_is_reported_on_the_object():
    bench = Bench(rules(when="object.spec.nothing > 1", ttl="1s"))

    assert await bench.expire(DONE) is None

    ((ref, reason, message),) = bench.telemetry.events
    assert (ref.kind, reason) == ("Job", "InvalidPolicy")
    assert message.startswith("kept: policy rule rule-0: when: ")


async def test_overridden_ttl_is_reported_on_the_object():
    bench = Bench()

    await bench.expire(annotated(job(complete=ago(10), ttl=60), ttl="1h"))

    assert [(ref.name, reason) for ref, reason, _ in bench.telemetry.events] == [("build-42", "OverriddenTtl")]


async def test_deleted_object_has_no_problem_report():
    bench = Bench()

    await bench.expire(annotated(job(complete=ago(100), ttl=10), ttl="60s"))

    assert bench.cluster.names == set()
    assert bench.telemetry.events == []


# sweep


async def test_sweep_finds_objects_with_a_ttl_from_the_policy():
    bench = Bench(rules(match={"kinds": ["trainjobs", "pods"]}, ttl="1s"))
    bench.cluster.put(trainjob(complete=ago(60)))
    bench.cluster.put(pod(containers=(ended(at=ago(60)),)))

    await bench.sweep()

    assert bench.cluster.names == set()


@pytest.mark.parametrize("count", [FULL_READS_MAX, FULL_READS_MAX + 1])
async def test_sweep_finds_objects_with_a_ttl_from_the_namespace(count):
    bench = Bench()
    bench.cluster.put(namespace("ml", default_ttl="1s"))
    for number in range(count):
        bench.cluster.put(trainjob(complete=ago(60), name=f"in-{number}", uid=f"in-{number}"))
        bench.cluster.put(trainjob(complete=ago(60), name=f"out-{number}", uid=f"out-{number}", namespace="ci"))

    await bench.sweep()

    assert bench.cluster.names == {f"out-{number}" for number in range(count)}


async def test_sweep_of_many_namespaces_lists_them_once():
    bench = Bench()
    for number in range(30):
        bench.cluster.put(named(number, complete=ago(60), ttl=1, namespace=f"ns-{number}"))

    await bench.sweep()

    assert bench.cluster.names == set()
    assert [call.verb for call in bench.cluster.namespace_reads] == ["list-namespaces"]


async def test_sweep_keeps_the_newest_objects_of_keep_last():
    bench = Bench(rules(ttl="0s", keepLast=2))
    for number in range(6):
        bench.cluster.put(named(number, complete=ago(60 - number)))

    await bench.sweep()

    assert bench.cluster.names == {"job-004", "job-005"}


async def test_sweep_deletes_what_is_beyond_max_count():
    bench = Bench(rules(match={"kinds": ["trainjobs"]}, maxCount=2))
    for number in range(6):
        bench.cluster.put(trainjob(complete=ago(60 - number), name=f"train-{number}", uid=f"train-{number}"))

    await bench.sweep()

    assert bench.cluster.names == {"train-4", "train-5"}


async def test_sweep_deletes_until_the_quota_is_not_above():
    bench = Bench(rules(ttl="1d", whenQuotaAbove="50%", notBefore="5s"))
    bench.cluster.put(quota(hard=8, used=6))
    for number in range(6):
        bench.cluster.put(named(number, complete=ago(60 - number)))

    for _ in range(2):
        await bench.sweep()

    assert bench.cluster.names == {"objects", *(f"job-00{number}" for number in range(2, 6))}


async def test_sweep_lists_metadata_only_if_no_policy_sets_a_ttl_for_the_kind():
    bench = Bench(rules(ttl="1s"))
    bench.cluster.put(pod(containers=(ended(at=ago(60)),)))

    await bench.sweep()

    assert [call.what for call in bench.cluster.calls if call.verb == "list-metadata"] == ["pods", "trainjobs"]


async def test_overdue_objects_are_spread_by_the_jitter_of_their_rule():
    bench = Bench(rules(ttl="1s", jitter="10m"))
    for number in range(100):
        bench.cluster.put(named(number, complete=ago(3_600)))

    timers = await bench.sweep()

    assert bench.cluster.deleted == []
    assert len(timers) == 100
    turns = sorted((at - NOW).total_seconds() for at in timers.values())
    assert turns[0] >= 0 and turns[-1] <= 600  # noqa: PT018
    assert all(at > turns[0] + 300 for at in turns[-20:])


async def test_keep_last_does_not_shorten_the_jitter_of_a_sweep():
    bench = Bench(rules(ttl="0s", keepLast=2, jitter="10m"))
    for number in range(6):
        bench.cluster.put(named(number, complete=ago(3_600 - number)))

    await bench.sweep()

    timers = [timer for one in bench.published(TimersSet) for timer in one.timers]
    assert sorted(timer.ref.name for timer in timers) == [f"job-00{number}" for number in range(4)]
    assert all(timer.due_at > NOW for timer in timers)


async def test_later_sweep_computes_the_same_instant():
    bench = Bench(rules(ttl="1s", jitter="10m"))
    bench.cluster.put(named(0, complete=ago(3_600)))
    first = await bench.sweep()
    bench.publisher.published.clear()
    bench.clock.advance((first["job-000"] - NOW).total_seconds() / 2)

    assert await bench.sweep() == first


async def test_object_is_deleted_at_its_jittered_instant():
    bench = Bench(rules(ttl="1s", jitter="10m"))

    await bench.expire(created(named(0, complete=ago(3_600)), ago(4_000)))

    assert bench.cluster.names == set()


async def test_object_that_is_just_due_is_not_spread():
    bench = Bench(rules(ttl="1s", jitter="10m"))
    bench.cluster.put(named(0, complete=ago(5)))

    await bench.sweep()

    assert bench.cluster.names == set()


@pytest.mark.parametrize("uid", ["", "a", "b", "\ud800", "0" * 100])
@pytest.mark.parametrize("seconds", [0.001, 1, 600, 86_400 * 400])
def test_jittered_instant_is_ahead_and_within_the_period(uid, seconds):
    over = timedelta(seconds=seconds)
    turn = jittered(uid, NOW, over)

    assert NOW < turn <= NOW + over
    assert jittered(uid, turn - (turn - NOW) / 2, over) == turn


async def test_slow_list_serves_all_callers_that_wait_for_it(monkeypatch):
    bench = Bench(rules(ttl="0s", keepLast=1))
    for n in range(20):
        bench.cluster.put(named(n, complete=ago(100 + n)))
    lists, list_page = [], bench.cluster.list_page

    async def slow(rule, **options):
        if options.get("namespace"):
            lists.append(rule.kind)
            await anyio.sleep(2 * RANK_AGE_SECONDS_MAX)
        return await list_page(rule, **options)

    monkeypatch.setattr(bench.cluster, "list_page", slow)
    await bench.sweep()

    assert bench.cluster.names == {"job-000"}
    assert len(lists) <= 12  # not one for each
