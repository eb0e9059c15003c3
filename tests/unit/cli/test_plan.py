"""What `plan` decides about many objects at once, and how it compares two policies."""

import json
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from io import StringIO

import pytest
from rich.console import Console

from shared.cli.objects.preview import find_all
from shared.cli.planning.comparison import Comparison, Count, Term
from shared.cli.planning.comparison_output import (
    as_document,
    check_limit,
    describe_breaker,
    describe_budgets,
    find_unused,
    show,
)
from shared.cli.planning.plan_view import print_plan
from shared.core.decision.decide import Reason
from shared.core.kinds.rule import Catalogue
from shared.core.policy.policy import NO_POLICY, Policy
from shared.errors import ForbiddenError
from shared.evaluation.evaluator import Evaluator
from shared.ports import Snapshot
from tests.builders import JOB, POD, ago, ended, having, job, kind_rules, namespace, pod
from tests.fakes import FakeCluster
from tests.unit.evaluation.test_quotas import quota

pytestmark = pytest.mark.anyio

KINDS = Catalogue(tuple(kind_rules().values()))


def policy_of(*rules, **rest):
    named = [{"name": f"r{number}", "match": {"kinds": ["*"]}, **rule} for number, rule in enumerate(rules)]
    return Policy.model_validate({"rules": named, **rest})


def a_job(number, *, place="ci", **options):
    return job(name=f"job-{number}", uid=f"job-uid-{place}-{number}", namespace=place, **options)


def a_pod(number, owner=None, *, place="ci"):
    obj = having(
        pod(name=f"pod-{number}", containers=(ended(at=ago(60)),)), "metadata.uid", f"pod-uid-{place}-{number}"
    )
    obj = having(obj, "metadata.namespace", place)
    if owner is None:
        return obj
    shown = owner["metadata"]
    reference = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": shown["name"],
        "uid": shown["uid"],
        "controller": True,
    }
    return having(obj, "metadata.ownerReferences", [reference])


def cluster_of(*objects, page_size=500):
    cluster = FakeCluster(page_size=page_size)
    for one in objects:
        cluster.put(one)
    return cluster


async def look(cluster, *policies, place="", rules=(JOB, POD)):
    return await find_all(cluster, rules, policies=policies, kinds=KINDS, namespace=place)


async def compare(cluster, new, in_force=NO_POLICY):
    return Comparison((await look(cluster, in_force, new)).objects)


MARK = {"kustomize.toolkit.fluxcd.io/name": "apps"}
FLEET = [
    having(a_job(19, complete=ago(70)), "metadata.labels", MARK),
    *(a_job(n, complete=ago(100 * n + 1)) for n in range(8)),
    *(a_job(n, place="other", failed=ago(10 * n)) for n in range(8)),
    a_job(20),
    a_job(21, complete=ago(50), ttl=10),
    a_job(22, complete=ago(50), hold="why"),
    a_job(23, complete=ago(50), ttl="soon"),
    a_job(24, place="exempt", complete=ago(500)),
    a_job(25, place="slip", complete=ago(500)),
    a_job(26, active_deadline="1h"),
    a_job(27, place="other", active_deadline="9999d", on_deadline="delete"),
    a_job(28, place="exempt", active_deadline="1h"),
    a_job(29, active_deadline="soon"),
    a_pod(1, a_job(1)),
    a_pod(2, a_job(20)),
    a_pod(3),
    a_pod(4, a_job(99)),
    namespace("exempt", exempt="true"),
    namespace("slip", default_ttl="soon"),
    namespace("other", default_ttl="1h", max_ttl="30s"),
]
POLICIES = {
    "none": NO_POLICY,
    "keep": policy_of({"match": {"kinds": ["jobs"]}, "ttl": "0s", "keepLast": 3, "keepLastFailed": 2}),
    "guard": policy_of({"keepLast": 2}, {"ttl": "1m"}, {"match": {"kinds": ["jobs"]}, "minAge": "5m"}),
    "owned": policy_of({"ttl": "10s", "onOwned": "delete"}),
    "no answer": policy_of({"when": "object.spec.nothing == 1", "ttl": "1s"}),
    "count": policy_of({"match": {"kinds": ["jobs"]}, "maxCount": 4, "keepLastFailed": 2}, {"ttl": "30d"}),
    "quota": policy_of({"ttl": "30d", "whenQuotaAbove": "50%", "notBefore": "0s"}),
    "quotas": policy_of(
        {"match": {"kinds": ["*"], "labels": {"matchLabels": {"app": "x"}}}, "ttl": "30d", "whenQuotaAbove": "40%"},
        {"ttl": {"failed": "30d"}, "whenQuotaAbove": "45%", "notBefore": "0s", "when": "outcome == 'failed'"},
        {"ttl": "30d", "whenQuotaAbove": "60%", "notBefore": "0s"},
    ),
    "deadline": policy_of({"activeDeadline": "1h", "onOwned": "delete"}, {"ttl": "1s"}),
    "by namespace": policy_of({"match": {"kinds": ["*"], "namespaces": {"names": ["o*"]}}, "ttl": "1d"}),
}


def uncounted(decision):
    """A decision about one object counts its group only if a rank may keep the object."""
    pressure = decision.facts.pressure and replace(decision.facts.pressure, older=None)
    return replace(decision, facts=replace(decision.facts, newer=None, pressure=pressure))


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("page_size", [500, 3])
async def test_plan_decides_as_the_evaluator_of_one_object_does(name, page_size):
    cluster = cluster_of(*FLEET, page_size=page_size)
    cluster.put(quota(hard=20, used=20))
    evaluator = Evaluator(cluster, KINDS, lambda: POLICIES[name])
    found = (await look(cluster, NO_POLICY, POLICIES[name])).objects
    assert len(found) == len(FLEET) - 3
    await evaluator.namespaces.prime()
    for one in found:
        snapshot = await cluster.get(one.rule, one.ref)
        decision = await evaluator.decide(Snapshot(snapshot.obj, one.now), one.rule)
        assert uncounted(one.decisions[1]) == uncounted(decision), one.ref
        counted = decision.facts.newer
        assert counted is None or one.decisions[1].facts.newer == counted, one.ref
        stop = await evaluator.evaluate_stop(Snapshot(snapshot.obj, one.now), one.rule)
        assert one.stops[1] == stop.decision, one.ref


async def test_test_policies_lead_to_every_kind_of_decision():
    fleet = [*FLEET, quota(hard=20, used=20)]
    found = [(await look(cluster_of(*fleet), policy)).objects for policy in POLICIES.values()]
    reasons = {one.decisions[0].reason for objects in found for one in objects}
    assert reasons >= {
        Reason.EXPIRED,
        Reason.NOT_DUE,
        Reason.KEPT_LAST,
        Reason.OVER_COUNT,
        Reason.OVER_QUOTA,
        Reason.OWNER_UNFINISHED,
        Reason.HELD,
        Reason.EXEMPT,
        Reason.INVALID_POLICY,
        Reason.INVALID_TTL,
        Reason.UNFINISHED,
        Reason.NO_TTL,
    }


async def test_plan_reads_every_object_once_and_only_unlisted_owners_again():
    cluster = cluster_of(*FLEET)
    await look(cluster, POLICIES["none"], POLICIES["keep"], policy_of({"ttl": "1m"}))
    assert cluster.counted() == {"list": 2, "get": 1}
    assert [call.what for call in cluster.calls if call.verb == "get"] == ["job-99"]
    assert Counter(call.verb for call in cluster.namespace_reads) == {"list-namespaces": 1}


async def test_plan_reads_the_quotas_of_a_namespace_once_if_a_rule_needs_them():
    cluster = cluster_of(*FLEET, quota(hard=20, used=20))
    cluster.fail("list", ForbiddenError("no quotas"), on="resourcequotas")
    preview = await look(cluster, POLICIES["quota"])
    places = {one.ref.namespace for one in preview.objects if one.rule.kind == "Job"}
    assert Counter(call.what for call in cluster.calls)["resourcequotas"] <= len(places) + 1
    problems = {one.decisions[0].facts.problem for one in preview.objects if one.decisions[0].reason is Reason.NOT_DUE}
    assert "no quotas" in problems


async def test_plan_shows_other_kinds_if_one_may_not_be_listed():
    cluster = cluster_of(*FLEET)
    cluster.fail("list", ForbiddenError("no"), on="pods")
    sight = await look(cluster, NO_POLICY)
    assert [rule.plural for rule, _ in sight.refused] == ["pods"]
    assert {one.ref.kind for one in sight.objects} == {"Job"}


async def test_plan_keeps_objects_of_an_unreadable_namespace_with_a_reason():
    cluster = cluster_of(a_job(1, complete=ago(100)))
    cluster.fail("get-namespace", ForbiddenError("no right"))
    (one,) = (await look(cluster, policy_of({"ttl": "1s"}), place="ci")).objects
    assert (one.decisions[0].reason, one.decisions[0].facts.problem) == (Reason.NAMESPACE_UNREAD, "no right")


@pytest.mark.parametrize(
    ("ttl", "term"),
    [
        ("0s", Term.NOW),
        ("1m", Term.NOW),
        ("1h", Term.HOUR),
        ("61m", Term.HOUR),
        ("62m", Term.DAY),
        ("1d", Term.DAY),
        ("2d", Term.LATER),
        ("never", Term.KEPT),
    ],
)
async def test_object_is_counted_by_its_due_time(ttl, term):
    cluster = cluster_of(a_job(1, complete=ago(60)))
    comparison = await compare(cluster, policy_of({"ttl": ttl}))
    assert comparison.totals[term].new == 1
    assert comparison.totals[Term.KEPT].in_force == 1
    assert sum(count.new for count in comparison.totals.values()) == 1


async def test_comparison_counts_rules_kinds_and_namespaces_under_both_policies():
    cluster = cluster_of(
        *(a_job(n, complete=ago(60)) for n in range(3)), a_job(9, place="other", complete=ago(60), ttl=600), a_pod(1)
    )
    in_force = policy_of({"name": "old", "match": {"kinds": ["jobs"]}, "ttl": "1s"})
    new = policy_of({"name": "new", "match": {"kinds": ["pods"]}, "ttl": "1s"})
    comparison = await compare(cluster, new, in_force)
    assert {name: row[Term.NOW] for name, row in comparison.rules.items()} == {
        "policy rule new": Count(0, 1),
        "policy rule old": Count(3, 0),
        "spec.ttlSecondsAfterFinished": Count(0, 0),
        "": Count(0, 0),
    }
    assert comparison.rules["spec.ttlSecondsAfterFinished"][Term.HOUR] == Count(1, 1)
    assert comparison.rules[""][Term.KEPT] == Count(1, 3)
    assert {name: row[Term.NOW].more for name, row in comparison.kinds.items()} == {"pods": 1, "jobs.batch": -3}
    assert list(comparison.namespaces) == ["ci", "other"]
    assert {one.ref.name for one in comparison.changed} == {"job-0", "job-1", "job-2", "pod-1"}
    assert comparison.changed[0].ref.name == "pod-1"


async def test_same_decision_by_another_rule_is_no_change():
    cluster = cluster_of(a_job(1, complete=ago(60)), a_job(2, complete=ago(6000)))
    comparison = await compare(cluster, policy_of({"name": "b", "ttl": "1h"}), policy_of({"name": "a", "ttl": "1h"}))
    assert not comparison.changed
    assert set(comparison.rules) == {"policy rule a", "policy rule b"}


@pytest.mark.parametrize(
    ("breaker", "limit", "raised", "of"),
    [
        ({"share": "100%"}, None, False, 1_000),
        ({"count": 5}, None, False, 5),
        ({"count": 4}, None, True, 4),
        ({"count": 4}, 9, False, 9),
        ({"share": "100%"}, 4, True, 4),
        ({"share": "100%"}, 0, True, 0),
    ],
)
async def test_warning_is_raised_above_the_limit(breaker, limit, raised, of):
    cluster = cluster_of(*(a_job(n, complete=ago(60)) for n in range(5)))
    new = policy_of({"name": "all", "ttl": "1s"}, budget={"breaker": breaker})
    alarm = check_limit(await compare(cluster, new), new.limits, limit)
    assert (alarm.is_raised, alarm.limit, alarm.due_now, alarm.by) == (raised, of, 5, (("policy rule all", 5),))
    assert str(alarm).endswith(f"more than {of:,}: 5 by policy rule all")


@pytest.mark.parametrize(
    ("budget", "shown"),
    [
        ({"perNamespace": {"perSecond": 0.5, "burst": 4}}, []),
        ({"breaker": {"count": 5}}, []),
        ({"breaker": {"count": 4}}, ["the policy's breaker would trip: 5 are due within 10m, and 4 are allowed"]),
        ({"breaker": {"count": 4, "window": "1s"}}, []),
        ({"breaker": {"share": "50%", "atLeast": 4}}, ["the policy's breaker would trip: 5 of 6 jobs.batch are due"]),
        ({"breaker": {"share": "50%"}}, []),
        ({"global": {"perSecond": 1, "burst": 2}}, ["the policy's budget: 1 a second after the first 2, so 4 take 2s"]),
        ({"global": {"perSecond": 1, "burst": 4}}, []),
        (
            {"perNamespace": {"perSecond": 0.5}},
            ["the policy's budget in namespace ci: 0.5 a second after the first 1, so 4 take 6s"],
        ),
    ],
)
async def test_effect_of_the_policys_own_limits_is_described(budget, shown):
    soon = a_job(9, complete=ago(0))  # in a minute
    cluster = cluster_of(*(a_job(n, complete=ago(61)) for n in range(4)), soon, a_job(10))
    new = policy_of({"ttl": "1m"}, budget=budget)
    comparison = await compare(cluster, new)
    found = [*describe_breaker(comparison, new.limits.breaker), *describe_budgets(comparison, new.limits)]
    assert [one[: len(start)] for one, start in zip(found, shown, strict=True)] == shown


async def test_comparison_as_json_is_complete():
    cluster = cluster_of(a_job(1, complete=ago(60)), a_job(2))
    new = policy_of({"name": "all", "ttl": "1h"})
    comparison = await compare(cluster, new)
    shown = as_document(comparison, {"policy": "a", "inForce": "b"}, check_limit(comparison, new.limits, None), ["c"])
    assert json.loads(json.dumps(shown)) == shown
    zero = {term: {"inForce": 0, "new": 0} for term in ("dueNow", "within1h", "from1hTo24h", "later", "kept")}
    both = {"within1h": {"inForce": 0, "new": 1}, "kept": {"inForce": 2, "new": 1}}
    none = dict.fromkeys(("seconds", "from", "stage", "startedAt", "waitsSince", "dueAt"))
    finished = {**none, "decision": "ignore", "reason": "finished"}
    assert shown == {
        "policy": "a",
        "inForce": "b",
        "objects": 2,
        "totals": {**zero, **both},
        "stops": {**zero, "kept": {"inForce": 2, "new": 2}},
        "rules": [
            {"rule": "policy rule all", **zero, "within1h": {"inForce": 0, "new": 1}},
            {"rule": None, **zero, "kept": {"inForce": 2, "new": 1}},
        ],
        "kinds": [{"kind": "jobs.batch", **zero, **both}],
        "namespaces": [{"namespace": "ci", **zero, **both}],
        "changes": [
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "namespace": "ci",
                "name": "job-1",
                "inForce": {
                    "decision": "ignore",
                    "reason": "no-ttl",
                    "ttlSeconds": None,
                    "ttlFrom": None,
                    "dueAt": None,
                    "deadline": finished,
                },
                "new": {
                    "decision": "wait",
                    "reason": "not-due",
                    "ttlSeconds": 3600,
                    "ttlFrom": "policy rule all",
                    "dueAt": shown["changes"][0]["new"]["dueAt"],
                    "deadline": finished,
                },
            }
        ],
        "unanswered": [],
        "recreated": {"inForce": 0, "new": 0},
        "limit": {"dueNow": 0, "stoppedNow": 0, "archivedFirst": 0, "limit": 1000, "isExceeded": False},
        "safeguards": ["c"],
        "deadlines": [],
        "archives": [],
    }


async def test_objects_that_a_controller_creates_again_are_counted_apart(capsys):
    applied = (having(a_job(n, complete=ago(60)), "metadata.labels", MARK) for n in (1, 2))
    cluster = cluster_of(*applied, a_job(3, complete=ago(60)))
    comparison = await compare(cluster, policy_of({"ttl": "1s"}))
    file = StringIO()
    show(Console(width=200, file=file), comparison, everything=False)

    assert (comparison.recreated, comparison.totals[Term.NOW]) == (Count(0, 2), Count(0, 1))
    assert "such as Argo CD or Flux creates them again: 2 (+2); a policy rule" in file.getvalue()
    print_plan((await look(cluster, policy_of({"ttl": "1s"}))).objects)
    assert "kept, by reason: 2 recreated\n" in capsys.readouterr().out


async def test_object_that_is_due_within_a_window_is_counted():
    cluster = cluster_of(a_job(1, complete=ago(0)), a_job(2))
    comparison = await compare(cluster, policy_of({"ttl": "1m"}))
    assert len(comparison.due_within(timedelta(minutes=1, seconds=1))) == 1
    assert not comparison.due_within(timedelta(seconds=58))
    assert len(comparison.due_within(timedelta.max)) == 1


async def test_rules_that_set_no_ttl_are_named():
    idle = {"match": {"kinds": ["*"], "namespaces": {"names": ["CI"]}}, "ttl": "1h"}
    policy = policy_of({"ttl": "1s"}, idle, {"keepLast": 1})

    comparison = await compare(cluster_of(a_job(1, complete=ago(60))), policy)

    assert list(find_unused(comparison, policy)) == ["policy rule r1"]


async def test_rule_whose_limit_deletes_its_objects_is_in_use():
    policy = policy_of({"ttl": "9d", "maxCount": 1})
    jobs = (a_job(number, complete=ago(60 + number)) for number in (1, 2))

    comparison = await compare(cluster_of(*jobs), policy)

    assert set(comparison.rules) >= {"policy rule r0", "maxCount of policy rule r0"}
    assert list(find_unused(comparison, policy)) == []


async def test_objects_without_a_result_of_a_condition_are_counted_by_rule():
    silent = {"name": "silent", "when": "object.spec.nothing == 1", "ttl": "1s"}
    comparison = await compare(cluster_of(*(a_job(n, complete=ago(60)) for n in range(3))), policy_of(silent))
    shown = as_document(comparison, {}, check_limit(comparison, NO_POLICY.limits, None), [])
    assert shown["unanswered"] == [{"rule": "policy rule silent", "inForce": 0, "new": 3}]
    file = StringIO()
    console = Console(width=200, file=file)
    show(console, comparison, everything=False)
    assert "policy rule silent has no TTL for 3 (+3) objects, which are kept" in file.getvalue()


async def test_table_fits_80_columns_with_a_time_left_of_four_units(capsys):
    objects = [a_job(1, place="kube-system", complete=ago(1), ttl=90 * 86_400)]
    sight = await find_all(cluster_of(*objects), (JOB,), policies=[NO_POLICY], kinds=KINDS, namespace="")

    print_plan(sight.objects)

    shown = capsys.readouterr().out
    assert "in 89d23h " in shown
    assert max(map(len, shown.splitlines())) <= 80


def a_running_job(number, after, **options):
    return a_job(number, active_deadline=after, **options)


async def test_plan_prints_a_second_table_only_if_objects_have_a_deadline(capsys):
    await_none = await look(cluster_of(a_job(1), a_job(2, complete=ago(60), ttl=30)), NO_POLICY)
    print_plan(await_none.objects)
    assert "STOP NOW" not in capsys.readouterr().out

    late, later, held = a_running_job(1, "1s"), a_running_job(2, "9999d"), a_running_job(3, "1s", hold="why")
    print_plan((await look(cluster_of(late, later, held, a_job(4)), NO_POLICY)).objects)

    shown = capsys.readouterr().out
    assert "0 due now, 0 due later, 4 kept, of 4 objects" in shown
    assert "1 stopped now, 1 stopped later, 1 not stopped, of 3 objects with a deadline" in shown
    assert max(map(len, shown.splitlines())) <= 80


async def test_comparison_counts_stops_and_lists_the_objects_that_change():
    cluster = cluster_of(a_job(1), a_job(2, active_deadline="9999d"), a_job(3, complete=ago(60)))
    comparison = await compare(cluster, policy_of({"name": "all", "activeDeadline": "1h"}))

    assert comparison.stops[Term.NOW] == Count(0, 1)
    assert comparison.stops[Term.LATER] == Count(1, 1)
    assert comparison.totals[Term.KEPT] == Count(3, 3)
    assert [one.ref.name for one in comparison.changed] == ["job-1"]
    assert [one.ref.name for one in comparison.due_within(timedelta())] == ["job-1"]
    file = StringIO()
    show(Console(width=200, file=file), comparison, everything=False)
    assert "stopped now, by policy rule all" in file.getvalue()
    assert "at their deadline: 1 (+1) stopped now, 0 within 1h, 0 in 1h to 24h, 1 later" in file.getvalue()


async def test_warning_counts_stops_with_deletions():
    cluster = cluster_of(a_job(1), a_job(2), a_job(3, complete=ago(60)))
    new = policy_of({"name": "all", "ttl": "1s", "activeDeadline": "1h"})
    warning = check_limit(await compare(cluster, new), new.limits, 2)

    assert (warning.due_now, warning.stopped_now, warning.is_raised) == (1, 2, True)
    assert str(warning).startswith("1 object would be deleted and 2 stopped at once, more than 2: ")
    assert not check_limit(await compare(cluster, new), new.limits, 3).is_raised
