"""The two evaluators: for any objects, owners, runtimes and policies, `plan` decides as the evaluator of one object."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shared.core.deadlines.decide_stop import StopDecision
from shared.core.decision.decide import Decision, Expire
from shared.core.decision.facts import Facts
from shared.core.decision.finish import finish_of
from shared.core.kinds.rule import Catalogue
from shared.core.policy.policy import NO_POLICY, Policy
from shared.core.policy.policy_rule import PolicyRule
from shared.core.values.objects import get_annotations, get_controller, get_text, ref_of
from shared.evaluation.batch import BatchEvaluator
from shared.evaluation.evaluator import Evaluator
from shared.ports import Snapshot
from tests.builders import (
    JOB,
    LONG_AGO,
    NOW,
    POD,
    TRAINJOB,
    ago,
    annotated,
    ended,
    having,
    job,
    namespace,
    not_none,
    pod,
    runtime,
    shipped_kinds,
    trainjob,
    without,
)
from tests.fakes import FakeCluster
from tests.properties.strategies import recent_instants
from tests.properties.test_policy import finished_jobs, policies

searching = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])

RULES = {rule.kind: rule for rule in (JOB, POD, TRAINJOB)}
KINDS = Catalogue((*RULES.values(), *shipped_kinds().of("apps", "ReplicaSet")))
LIMITS: dict[str, Any] = {
    "default_ttl": "1d",
    "max_ttl": "1w",
    "default_active_deadline": "2h",
    "max_active_deadline": "1d",
}
NAMESPACES = ("ci", "ci", "limited", "exempt")

pod_ends = st.integers(0, 10**6).map(lambda seconds: LONG_AGO + timedelta(seconds=seconds))
annotations = st.sampled_from([{}, {}, {}, {}, {"ttl": "1s"}, {"ttl": "never"}, {"owner": "ignore"}, {"hold": "why"}])
deadlines = st.sampled_from(
    [{}, {}, {"active-deadline": "1h"}, {"active-deadline": "9999d", "on-deadline": "delete"}, {"active-deadline": "0"}]
)


@st.composite
def fleets(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Jobs, and Pods that may have an owner: one of the Jobs, one that is gone, a ReplicaSet, or an unknown kind."""
    jobs = [
        _named(f"job-{number}", draw(st.sampled_from(NAMESPACES)), draw(finished_jobs | st.builds(job)))
        for number in range(draw(st.integers(1, 4)))
    ]
    gone = _named("gone", "ci", job())
    pods = []
    for number in range(draw(st.integers(1, 4))):
        owner = draw(st.none() | st.sampled_from([*jobs, gone, REPLICA_SET, OF_ANOTHER_GROUP]))
        place = draw(st.sampled_from(NAMESPACES)) if owner in (None, REPLICA_SET, OF_ANOTHER_GROUP) else _place(owner)
        phase = draw(st.sampled_from(["Succeeded", "Failed", "Failed", "Running"]))
        obj = _named(f"pod-{number}", place, pod(phase, containers=(ended(at=draw(pod_ends)),)))
        pods.append(_controlled(obj, owner) if owner else obj)
    fleet = draw(st.permutations([*jobs, *pods, *draw(st.lists(trainjobs(), max_size=4, unique_by=_name))]))
    return [annotated(obj, **draw(annotations), **draw(deadlines)) for obj in fleet]


REPLICA_SET, OF_ANOTHER_GROUP = (
    {"apiVersion": version, "kind": "ReplicaSet", "metadata": {"name": "web", "uid": version}}
    for version in ("apps/v1", "example.com/v1")
)

RUNTIMES = {"unset": None, "zero": 0, "hour": 3_600, "malformed": "soon"}
"""The runtimes by name, with the TTL that each sets for its TrainJobs; others do not exist."""


@st.composite
def trainjobs(draw: st.DrawFn) -> dict[str, Any]:
    """A TrainJob with a runtime, which may set a TTL, or not exist."""
    kind = draw(st.sampled_from(["ClusterTrainingRuntime", "TrainingRuntime", "Slurm"]))
    ref = {"name": draw(st.sampled_from([*RUNTIMES, "missing"])), "kind": kind}
    obj = trainjob(complete=draw(st.none() | pod_ends))
    obj = draw(st.sampled_from([obj, having(obj, "spec.ttlSecondsAfterFinished", 60)]))
    name = f"train-{draw(st.integers(1, 9))}"
    return _named(name, draw(st.sampled_from(NAMESPACES)), having(obj, "spec.runtimeRef", ref))


def _name(obj: dict[str, Any]) -> str:
    return get_text(obj, "metadata.name")


def _named(name: str, place: str, obj: dict[str, Any]) -> dict[str, Any]:
    return having(obj, "metadata", obj["metadata"] | {"name": name, "namespace": place, "uid": f"uid-{name}"})


def _place(obj: Any) -> str:
    return get_text(obj, "metadata.namespace")


def _controlled(obj: dict[str, Any], owner: dict[str, Any]) -> dict[str, Any]:
    identity = {"name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"], "controller": True}
    reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], **identity}
    return having(obj, "metadata.ownerReferences", [reference])


def cluster_of(fleet: list[dict[str, Any]]) -> FakeCluster:
    cluster = FakeCluster()
    places = namespace("exempt", exempt="true"), namespace("limited", **LIMITS)
    for one in (*fleet, *quotas_of(fleet), *places):
        cluster.put(one)
    for name, ttl in RUNTIMES.items():
        cluster.put(runtime(ttl, name=name))
        cluster.put(runtime(ttl, name=name, namespace="ci"))
    return cluster


def quotas_of(fleet: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A quota of each namespace that allows fewer Jobs and Pods than there are, or as many."""
    return [_quota(place, [one for one in fleet if one["metadata"]["namespace"] == place]) for place in set(NAMESPACES)]


def _quota(place: str, objects: list[dict[str, Any]]) -> dict[str, Any]:
    kinds = Counter("count/pods" if one["kind"] == "Pod" else "count/jobs.batch" for one in objects)
    hard = {name: str(max(count - (place == "ci"), 1)) for name, count in kinds.items()}
    status = {"hard": hard, "used": {name: str(count) for name, count in kinds.items()}}
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "objects", "namespace": place, "uid": f"quota-{place}"},
        "status": status,
    }


def uncounted(decision: Decision) -> Decision:
    """A decision about one object counts its group only if a rank may keep the object."""
    return replace(decision, facts=_uncounted(decision.facts))


def _uncounted(facts: Facts) -> Facts:
    pressure, otherwise = facts.pressure, facts.otherwise
    if pressure is not None:
        is_over = pressure.is_over(not_none(facts.quota_rule).when_quota_above or 0)
        pressure = replace(pressure, older=0 if is_over else None)
    return replace(facts, newer=None, pressure=pressure, otherwise=otherwise and _uncounted(otherwise))


Both = tuple[Decision, Decision]
BothStops = tuple[StopDecision, StopDecision]


async def decide_twice(fleet: list[dict[str, Any]], policy: Policy, now: Any) -> tuple[list[Both], list[BothStops]]:
    """Each decision of the batch evaluator, and of the evaluator: about the TTL, and about the deadline."""
    evaluator = Evaluator(cluster_of(fleet), KINDS, lambda: policy)
    await evaluator.namespaces.prime()
    batch = BatchEvaluator([NO_POLICY, policy], KINDS, evaluator.ttl_sources.get)
    snapshots = [(Snapshot(obj, now), RULES[ref_of(obj).kind]) for obj in fleet]
    for snapshot, rule in snapshots:
        name = get_text(snapshot.obj, "metadata.namespace")
        place = await evaluator.namespaces.get(name)
        await batch.add(snapshot, rule, place, quotas=await evaluator.quotas.of(name, rule))
    settled = await batch.settle(evaluator.owners.find_unfinished)
    alone = [await evaluator.decide(*one) for one in snapshots]
    stops = [(await evaluator.evaluate_stop(*one)).decision for one in snapshots]
    decided = zip((one.decisions[1] for one in settled), alone, strict=True)
    return list(decided), list(zip((one.stops[1] for one in settled), stops, strict=True))


LAST_RULES: Sequence[Sequence[dict[str, Any]]] = (
    [{"ttl": "1s", "keepLast": 2}],
    [{"maxCount": 1}],
    [{"maxCount": 1, "keepLast": 1, "ttl": "500w"}],
    [{"maxCount": 2, "countBy": {"label": "app"}, "onOwned": "delete"}],
    [{"ttl": "500w", "whenQuotaAbove": "50%", "notBefore": "0s"}],
    [{"ttl": "500w", "whenQuotaAbove": "90%", "notBefore": "1s", "keepLast": 1, "onOwned": "delete"}],
    [{"ttl": {"failed": "500w"}, "whenQuotaAbove": "50%", "maxCount": 2}],
    [{"maxCount": 1}, {"ttl": "500w", "whenQuotaAbove": "50%", "notBefore": "0s", "onOwned": "delete"}],
    [{"maxCount": 1, "onOwned": "delete"}, {"ttl": "500w", "whenQuotaAbove": "50%", "notBefore": "0s"}],
    [{"maxCount": 1}, {"ttl": "500w", "whenQuotaAbove": "50%", "notBefore": "0s", "onOwned": "delete", "audit": True}],
    [{"maxCount": 1, "audit": True}, {"ttl": "500w", "whenQuotaAbove": "50%", "notBefore": "0s"}],
    [{"match": {"kinds": ["*"], "age": "1h"}, "ttl": "never"}, {"maxCount": 1}, {"whenQuotaAbove": "50%"}],
    [{"match": {"kinds": ["*"], "age": "1h"}, "ttl": "never"}, {"maxCount": 2, "keepLast": 1}],
    [{"ttl": "500w", "maxCount": 1, "minAge": "9w"}, {"whenQuotaAbove": "50%", "notBefore": "0s", "onOwned": "delete"}],
)
"""A TTL or a limit for each object, so that its owner, its rank and the quotas matter."""


def with_last(policy: Policy, deadlines: Sequence[PolicyRule], last: Sequence[dict[str, Any]]) -> Policy:
    given = ({"name": f"last-{number}", "match": {"kinds": ["*"]}} | one for number, one in enumerate(last))
    return Policy(rules=(*policy.rules, *deadlines, *map(PolicyRule.model_validate, given)))


DEADLINE_RULES = (
    {"name": "ci-deadline", "match": {"kinds": ["jobs"], "namespaces": {"names": ["ci"]}}, "activeDeadline": "3h"},
    {"name": "deadline", "match": {"kinds": ["*"]}, "activeDeadline": "5h", "onOwned": "delete"},
)
deadline_rules = st.sampled_from([(), DEADLINE_RULES[:1], DEADLINE_RULES]).map(
    lambda rules: tuple(map(PolicyRule.model_validate, rules))
)

with_last_rule = st.builds(with_last, policies | st.just(NO_POLICY), deadline_rules, st.sampled_from(LAST_RULES))


@searching
@given(fleet=fleets(), policy=with_last_rule, now=recent_instants)
def test_batch_evaluator_decides_as_the_evaluator_does(fleet, policy, now):
    decisions, stops = asyncio.run(decide_twice(fleet, policy, now))
    for stop, stop_alone in stops:
        assert stop == stop_alone
    for decision, alone in decisions:
        assert uncounted(decision) == uncounted(alone)
        assert alone.facts.newer is None or decision.facts.newer == alone.facts.newer


def test_limit_of_a_rule_with_audit_keeps_no_object_from_a_quota():
    fleet = [_named(f"j{number}", "ci", job(complete=ago(1_000 - number))) for number in range(4)]
    rules = LAST_RULES[-4]
    assert [one.get("audit") for one in rules] == [True, None]
    decisions, _ = asyncio.run(decide_twice(fleet, with_last(NO_POLICY, (), rules), NOW))
    assert {str(alone.reason) for _, alone in decisions} == {"over-quota", "not-due"}
    assert [one.reason for one, _ in decisions] == [alone.reason for _, alone in decisions]


def _owner_of(obj: dict[str, Any]) -> str:
    return "".join(one["apiVersion"] for one in obj["metadata"].get("ownerReferences", ()))


def _disowned(obj: dict[str, Any]) -> dict[str, Any]:
    return without(obj, "metadata.ownerReferences") if _owner_of(obj) == "apps/v1" else obj


policies_without_owners = st.builds(with_last, st.just(NO_POLICY), st.just(()), st.sampled_from(LAST_RULES))


@searching
@given(fleet=fleets(), policy=policies_without_owners, now=recent_instants)
def test_finished_pod_of_a_replica_set_is_as_free_as_one_without_an_owner(fleet, policy, now):
    owned, _ = asyncio.run(decide_twice(fleet, policy, now))
    free, _ = asyncio.run(decide_twice([_disowned(obj) for obj in fleet], policy, now))

    assert [uncounted(alone) for _, alone in owned] == [uncounted(alone) for _, alone in free]


@searching
@given(fleet=fleets(), policy=with_last_rule, now=recent_instants)
def test_pod_of_an_unfinished_job_is_deleted_only_if_its_own_annotation_asks_for_that(fleet, policy, now):
    running = {ref_of(obj).uid for obj in fleet if obj["kind"] == "Job" and finish_of(obj, JOB).finished is not True}
    decisions, _ = asyncio.run(decide_twice(fleet, policy, now))

    for obj, both in zip(fleet, decisions, strict=True):
        owner = get_controller(obj)
        if owner is not None and owner.uid in running and get_annotations(obj).get("owner") != "ignore":
            assert not any(isinstance(one, Expire) for one in both if obj["kind"] == "Pod")
