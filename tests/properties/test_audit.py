"""For any object and any instant, no decision acts by a policy rule with `audit: true`."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from shared.adapters.config.policy_file import parse_policy
from shared.core.archive.decide_archive import ToArchive, decide_archive
from shared.core.deadlines.decide_stop import Stop, decide_stop
from shared.core.decision.capacity import BEYOND_COUNT
from shared.core.decision.decide import Context, Expire, Reason, Wait, decide, find_fate
from shared.core.decision.namespaces import plain_namespace
from tests.builders import JOB, POD, TRAINJOB, shipped_kinds
from tests.properties.strategies import instants, objects

KINDS = ["jobs", "pods", "trainjobs"]
FIELDS = [{"ttl": "0s"}, {"ttl": "1h"}, {"maxCount": 1}, {"activeDeadline": "1s"}, {"archive": {"to": "main"}}]


def policy_of(*fields):
    rules = [{"name": f"r{n}", "match": {"kinds": KINDS}, "audit": True} | one for n, one in enumerate(fields)]
    archives = {"archives": {"main": {"url": "file:///archive"}}} if any("archive" in one for one in fields) else {}
    return parse_policy(json.dumps({**archives, "rules": rules}), shipped_kinds(), name="policy.yaml")


POLICIES = [policy_of(*fields) for fields in (FIELDS, FIELDS[::-1], FIELDS[1:3], FIELDS[:1], FIELDS[3:])]


@settings(max_examples=200, deadline=None)
@given(obj=objects, rule=st.sampled_from([JOB, POD, TRAINJOB]), now=instants, policy=st.sampled_from(POLICIES))
def test_no_decision_acts_by_a_rule_with_audit(obj, rule, now, policy):
    context = Context(policy, plain_namespace("ci"), counted=BEYOND_COUNT)
    for decision in (decide(obj, rule, now, context), decide_stop(obj, rule, now, context)):
        if isinstance(decision, Expire | Stop):
            source = decision.facts.ttl or decision.facts.active.deadline
            assert source is not None
            assert source.origin != "policy"
            assert not decision.facts.audited_by
        if isinstance(find_fate(decision), Wait):
            assert not decision.facts.audited_by or decision.facts.otherwise is not None
    assert not isinstance(decide_archive(obj, rule, now, context), ToArchive)


@settings(max_examples=100, deadline=None)
@given(obj=objects, rule=st.sampled_from([JOB, POD, TRAINJOB]), now=instants, policy=st.sampled_from(POLICIES))
def test_reported_object_is_due_by_the_named_rule(obj, rule, now, policy):
    decision = decide(obj, rule, now, Context(policy, plain_namespace("ci"), counted=BEYOND_COUNT))
    if decision.reason is Reason.AUDIT_ONLY:
        assert decision.facts.audited_by in {one.name for one in policy.rules}
        assert decision.facts.due_at is not None
        assert decision.facts.due_at <= now
