"""The two evaluators: for any objects, owners and policies, `plan` decides as the evaluator of one object does."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shared.core.decide import Decision
from shared.core.kinds.catalogue import Catalogue
from shared.core.objects import get_text, ref_of
from shared.core.policy.policy import NO_POLICY, Policy
from shared.core.policy.policy_rule import PolicyRule
from shared.evaluation.batch import BatchEvaluator
from shared.evaluation.evaluator import Evaluator
from shared.ports import Snapshot
from tests.builders import JOB, LONG_AGO, POD, annotated, ended, having, job, namespace, pod
from tests.fakes import FakeCluster
from tests.properties.strategies import recent_instants
from tests.properties.test_policy import finished_jobs, policies

searching = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])

RULES = {rule.kind: rule for rule in (JOB, POD)}
KINDS = Catalogue(tuple(RULES.values()))
NAMESPACES = ("ci", "ci", "limited", "exempt")

pod_ends = st.integers(0, 10**6).map(lambda seconds: LONG_AGO + timedelta(seconds=seconds))
annotations = st.sampled_from([{}, {}, {}, {}, {"ttl": "1s"}, {"ttl": "never"}, {"owner": "ignore"}, {"hold": "why"}])


@st.composite
def fleets(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Jobs, and Pods that each may have an owner: one of the Jobs, or one that is gone."""
    jobs = [
        _named(f"job-{number}", draw(st.sampled_from(NAMESPACES)), draw(finished_jobs | st.builds(job)))
        for number in range(draw(st.integers(1, 4)))
    ]
    gone = _named("gone", "ci", job())
    pods = []
    for number in range(draw(st.integers(1, 4))):
        owner = draw(st.none() | st.sampled_from([*jobs, gone]))
        place = owner["metadata"]["namespace"] if owner else draw(st.sampled_from(NAMESPACES))
        obj = _named(f"pod-{number}", place, pod(containers=(ended(at=draw(pod_ends)),)))
        pods.append(_controlled(obj, owner) if owner else obj)
    fleet = draw(st.permutations([*jobs, *pods]))
    return [annotated(obj, **draw(annotations)) for obj in fleet]


def _named(name: str, place: str, obj: dict[str, Any]) -> dict[str, Any]:
    return having(obj, "metadata", obj["metadata"] | {"name": name, "namespace": place, "uid": f"uid-{name}"})


def _controlled(obj: dict[str, Any], owner: dict[str, Any]) -> dict[str, Any]:
    name, uid = owner["metadata"]["name"], owner["metadata"]["uid"]
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid, "controller": True}
    return having(obj, "metadata.ownerReferences", [reference])


def cluster_of(fleet: list[dict[str, Any]]) -> FakeCluster:
    cluster = FakeCluster()
    for one in (*fleet, namespace("exempt", exempt="true"), namespace("limited", default_ttl="1d", max_ttl="1w")):
        cluster.put(one)
    return cluster


def uncounted(decision: Decision) -> Decision:
    """A decision about one object counts its group only if a rank may keep the object."""
    return replace(decision, facts=replace(decision.facts, newer=None))


async def decide_twice(fleet: list[dict[str, Any]], policy: Policy, now: Any) -> list[tuple[Decision, Decision]]:
    """Each decision of the batch evaluator, and of the evaluator."""
    evaluator = Evaluator(cluster_of(fleet), KINDS, lambda: policy)
    await evaluator.namespaces.prime()
    batch = BatchEvaluator([NO_POLICY, policy])
    snapshots = [(Snapshot(obj, now), RULES[ref_of(obj).kind]) for obj in fleet]
    for snapshot, rule in snapshots:
        place = await evaluator.namespaces.get(get_text(snapshot.obj, "metadata.namespace"))
        await batch.add(snapshot, rule, place)
    settled = await batch.settle(evaluator.owners.is_unfinished)
    alone = [await evaluator.decide(*one) for one in snapshots]
    return list(zip((one.decisions[1] for one in settled), alone, strict=True))


LAST_RULE = {"name": "last", "match": {"kinds": ["*"]}, "ttl": "1s", "keepLast": 2}
"""A TTL for each object, so that its owner and its rank matter."""

with_last_rule = policies.map(lambda policy: Policy(rules=(*policy.rules, PolicyRule.model_validate(LAST_RULE))))


@searching
@given(fleet=fleets(), policy=with_last_rule, now=recent_instants)
def test_batch_evaluator_decides_as_the_evaluator_does(fleet, policy, now):
    for decision, alone in asyncio.run(decide_twice(fleet, policy, now)):
        assert uncounted(decision) == uncounted(alone)
        assert alone.facts.newer is None or decision.facts.newer == alone.facts.newer
