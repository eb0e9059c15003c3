"""What `explain` and `plan` say if a fact or the policy is unknown: no decision that another user would not get."""

import pytest

from shared.cli.deleters.in_force import PolicyInForce
from shared.cli.explanation.explanation_text import as_text, is_unsure
from shared.cli.objects.object_report import ExplainContext
from shared.cli.objects.preview import ObjectPreview, describe_unread
from shared.cli.objects.related import Owner, find_related
from shared.core.deadlines.decide_stop import decide_stop
from shared.core.decision.decide import Context, Reason, decide
from shared.core.decision.namespaces import namespace_of, plain_namespace
from shared.core.kinds.rule import Catalogue
from shared.core.policy.policy import NO_POLICY, Policy
from shared.core.values.objects import get_controller, ref_of
from shared.evaluation.batch import BatchEvaluator
from shared.ports import Snapshot
from tests.builders import JOB, NOW, ago, job, kind_rule, namespace, owned_by

CI = plain_namespace("ci")
DONE = job(complete=ago(60), ttl_succeeded="1h")
PLAIN = job(complete=ago(60))
OWNED = owned_by(PLAIN, "JobSet")


def of_rule(**fields):
    return Policy.model_validate({"rules": [{"name": "ci", "match": {"kinds": ["jobs.batch"]}, **fields}]})


def as_namespace(**annotations):
    return namespace_of(namespace(**annotations))


def preview(obj, context, owner=None):
    decision, stop = decide(obj, JOB, NOW, context), decide_stop(obj, JOB, NOW, context)
    return ObjectPreview(
        ref_of(obj), decision, NOW, find_related(obj, JOB, decision.facts, owner=owner, namespace=CI), stop
    )


@pytest.mark.parametrize(
    ("obj", "context", "right"),
    [
        (DONE, Context(), "`get` on namespaces"),
        (job(), Context(), "`get` on namespaces"),
        (PLAIN, Context(of_rule(ttl="1s", keepLast=1), CI), "`list` on jobs.batch"),
        (PLAIN, Context(of_rule(ttl="7d", maxCount=1), CI), "`list` on jobs.batch"),
        (PLAIN, Context(of_rule(ttl="7d", whenQuotaAbove="90%"), CI), "`list` on resourcequotas and jobs.batch"),
        (OWNED, Context(of_rule(ttl="1s"), CI, owner_unfinished=None), "`get` on JobSet"),
    ],
)
def test_explain_names_the_right_that_a_missing_fact_needs(obj, context, right):
    ref = get_controller(obj)
    one = preview(obj, context, ref and Owner(ref, "could not be read"))
    assert [fact.right.startswith(right) for fact in one.unread] == [True]
    text = as_text(one, ExplainContext(PolicyInForce(context.policy, "policy.yaml")))
    lines = text.splitlines()
    assert f"unknown: {one.unread[0].what}" in lines[1]
    assert [line for line in lines if line.startswith("  do ")] == [
        f"  do        run as a user with {one.unread[0].right}"
    ]


@pytest.mark.parametrize(
    ("obj", "context", "owner"),
    [
        (DONE, Context(namespace=CI), None),
        (job(), Context(namespace=CI), None),
        (PLAIN, Context(of_rule(ttl="1s", keepLast=1), CI, newer=0), None),
        (PLAIN, Context(of_rule(ttl="1s", maxCount=1, whenQuotaAbove="90%"), CI), None),
        (OWNED, Context(of_rule(ttl="1s"), CI, owner_unfinished=True), "it runs"),
    ],
)
def test_nothing_is_missing_if_each_fact_was_read(obj, context, owner):
    ref = get_controller(obj)
    assert preview(obj, context, Owner(ref, owner) if ref and owner else None).unread == ()


@pytest.mark.anyio
@pytest.mark.parametrize(("unfinished", "is_unread"), [(None, True), (True, False), (False, False)])
async def test_plan_names_the_owner_that_could_not_be_read(unfinished, is_unread):
    async def find_unfinished(_owner):
        return unfinished

    batch = BatchEvaluator([of_rule(ttl="1s")], Catalogue((JOB, kind_rule("jobsets.jobset.x-k8s.io"))))
    await batch.add(Snapshot(owned_by(PLAIN, "JobSet", api_version="jobset.x-k8s.io/v1alpha2"), NOW), JOB, CI)
    (one,) = await batch.settle(find_unfinished)
    assert (one.decisions[-1].reason is Reason.OWNER_UNREAD) is is_unread
    assert [("`get` on JobSet of jobset.x-k8s.io" in text) for text in describe_unread([one])] == [True] * is_unread


@pytest.mark.parametrize(
    ("obj", "place", "reason", "is_kept"),
    [
        (job(), CI, Reason.UNFINISHED, False),
        (job(ttl_succeeded="never"), CI, Reason.UNFINISHED, False),
        (PLAIN, CI, Reason.NO_TTL, False),
        (PLAIN, as_namespace(default_ttl="never"), Reason.NEVER, False),
        (job(complete=ago(60), ttl_succeeded="never"), CI, Reason.NEVER, True),
        (job(complete=ago(60), ttl_succeeded="soon"), CI, Reason.INVALID_TTL, True),
        (job(hold="why"), CI, Reason.HELD, True),
        (job(), as_namespace(exempt="true"), Reason.EXEMPT, True),
    ],
)
def test_unknown_policy_leaves_each_decision_unsure_that_a_policy_may_change(obj, place, reason, is_kept):
    decision = decide(obj, JOB, NOW, Context(namespace=place))
    assert decision.reason is reason
    assert is_unsure(decision, PolicyInForce(NO_POLICY, is_known=False)) is not is_kept
    assert not is_unsure(decision, PolicyInForce(NO_POLICY))
