"""The two evaluators: for any objects, owners and policies, `plan` decides as the evaluator of one object does."""

import asyncio
from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shared.core.decide import Decision
from shared.core.kinds.catalogue import Catalogue
from shared.core.objects import get_text, ref_of
from shared.core.policy.policy import NO_POLICY, Policy
from shared.evaluation.batch import BatchEvaluator
from shared.evaluation.evaluator import Evaluator
from shared.ports import Snapshot
from tests.builders import JOB, POD, annotated, ended, having, job, namespace, pod
from tests.fakes import FakeCluster
from tests.properties.strategies import recent_instants
from tests.properties.test_policy import finished_jobs, policies, words

searching = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])

RULES = {rule.kind: rule for rule in (JOB, POD)}
KINDS = Catalogue(tuple(RULES.values()))
NAMESPACES = ("ci", "exempt", "limited")

annotations = st.fixed_dictionaries({}, optional={"hold": st.just("why"), "ttl": words, "owner": st.just("ignore")})


@st.composite
def fleets(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Jobs, and Pods of which some have an owner; that owner may be one of the Jobs, or absent."""
    objects = []
    for number in range(draw(st.integers(1, 6))):
        is_job = draw(st.booleans())
        obj = draw(finished_jobs | st.builds(job)) if is_job else _pod(draw)
        place = draw(st.sampled_from(NAMESPACES))
        identity = {"name": f"object-{number}", "namespace": place, "uid": f"uid-{number}"}
        obj = having(obj, "metadata", obj["metadata"] | identity)
        if not is_job and draw(st.booleans()):
            owner = draw(st.integers(0, 6))
            reference = {"apiVersion": "batch/v1", "kind": "Job", "name": f"object-{owner}", "uid": f"uid-{owner}"}
            obj = having(obj, "metadata.ownerReferences", [reference | {"controller": True}])
        objects.append(annotated(obj, **draw(annotations)))
    return objects


def _pod(draw: st.DrawFn) -> dict[str, Any]:
    return pod(containers=(ended(at=draw(recent_instants)),))


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


@searching
@given(fleet=fleets(), policy=policies, now=recent_instants)
def test_batch_evaluator_decides_as_the_evaluator_does(fleet, policy, now):
    for decision, alone in asyncio.run(decide_twice(fleet, policy, now)):
        assert uncounted(decision) == uncounted(alone)
        assert alone.facts.newer is None or decision.facts.newer == alone.facts.newer
