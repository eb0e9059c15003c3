"""What `explain` and `plan` say about rules with `audit` and `warn`."""

import json
from typing import Any

import pytest

from shared.adapters.config.policy_file import parse_policy
from shared.cli.explanation.explanation_text import as_text
from shared.cli.objects.object_report import as_json
from shared.cli.objects.preview import ObjectPreview
from shared.cli.planning.comparison import Comparison, term_of
from shared.cli.planning.comparison_output import describe
from shared.cli.planning.plan_view import print_plan
from shared.core.deadlines.decide_stop import decide_stop
from shared.core.decision.capacity import Counted
from shared.core.decision.decide import Context, decide
from shared.core.decision.namespaces import plain_namespace
from shared.core.values.objects import ref_of
from shared.evaluation.batch import BatchResult
from tests.builders import JOB, NOW, ago, job, shipped_kinds

DONE = job(complete=ago(60))


def context_of(**fields: Any) -> Context:
    text = json.dumps({"rules": [{"name": "ci", "match": {"kinds": ["jobs"]}} | fields]})
    return Context(parse_policy(text, shipped_kinds(), name="policy.yaml"), plain_namespace("ci"))


def explained(**fields: Any) -> str:
    return as_text(ObjectPreview(ref_of(DONE), decide(DONE, JOB, NOW, context_of(**fields)), NOW))


def results_of(*rules: dict[str, Any]) -> BatchResult:
    contexts = [context_of(**rule) for rule in rules]
    decisions = [decide(DONE, JOB, NOW, one) for one in contexts]
    return BatchResult(ref_of(DONE), JOB, NOW, decisions, [decide_stop(DONE, JOB, NOW, one) for one in contexts])


def test_explain_says_that_a_due_object_is_only_reported():
    text = explained(ttl="30s", audit=True)
    assert "decision  kept (audit-only): it is due, and the policy rule that sets this has audit: true" in text
    assert "audit     policy rule ci has audit: true" in text


def test_explain_says_when_an_object_is_only_reported():
    assert "decision  only reported in 29m (not-due)" in explained(ttl="30m", audit=True)


def test_explain_says_when_the_warning_is_sent():
    assert "warn      object.warned is sent at " in explained(ttl="30m", warn="10m")
    assert "warn  " not in explained(ttl="30m")


def test_explain_says_when_the_warning_is_sent_if_an_audited_limit_only_reports_sooner():
    cap = {"name": "cap", "match": {"kinds": ["jobs"]}, "maxCount": 1, "audit": True}
    ci = {"name": "ci", "match": {"kinds": ["jobs"]}, "ttl": "30m", "warn": "10m"}
    policy = parse_policy(json.dumps({"rules": [cap, ci]}), shipped_kinds(), name="policy.yaml")
    context = Context(policy, plain_namespace("ci"), counted=Counted(1, 2, ago(10)))
    text = as_text(ObjectPreview(ref_of(DONE), decide(DONE, JOB, NOW, context), NOW))
    assert "(audit-only)" in text
    assert "warn      object.warned is sent at " in text


def test_json_says_whether_the_rule_audits():
    decision = decide(DONE, JOB, NOW, context_of(ttl="30m", audit=True))
    assert as_json(ref_of(DONE), decision, None)["audit"] is True


@pytest.mark.parametrize("ttl", ["30s", "30m"])
def test_plan_counts_what_is_only_reported_apart(capsys, ttl):
    print_plan([results_of({"ttl": ttl, "audit": True})])
    printed = capsys.readouterr().out
    assert "0 due now, 0 due later, 1 kept, of 1 objects" in printed
    assert "only reported, now or once they are due, by policy rules with audit: ci (1)" in printed


@pytest.mark.parametrize("ttl", ["30s", "30m"])
def test_comparison_shows_that_an_audit_keeps_the_object(ttl):
    one = results_of({"ttl": ttl}, {"ttl": ttl, "audit": True})
    assert Comparison([one]).changed == [one]
    assert term_of(one.decisions[1], NOW).name == "KEPT"
    assert describe(one.decisions[1], one.stops[1], NOW) == "kept (audit-only)"
